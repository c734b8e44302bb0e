"""Exact but slow, fast but not exact: the error of every method's predictions over its time.

    python docs/gallery/exact_or_fast.py [--out FILE] [--quick]    # measure, save JSON and picture
    python docs/gallery/exact_or_fast.py --draw                    # the picture from the JSON

A regression network with 25 weights. The reference is a long run of NUTS; a method's error is the
distance of its predictive mean and epistemic deviation from the reference's, over a grid of inputs
inside and outside of the data, relative to the reference's deviation. Times are of a second call,
without compilation.
"""

import argparse
import json
import platform
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import posterax as px

GRID = np.linspace(-1.6, 1.6, 65)[:, None].astype("float32")
SEEDS = 2


class Contender(NamedTuple):
    """A method at budgets 0, 1, 2, …, each four times the one before."""

    exact: bool
    call: Callable[[int], tuple[Any, dict[str, Any]]]
    budgets: int = 4


def sampler(method: Any, warmup: int, steps: int, **options: Any) -> Callable[[int], Any]:
    return lambda b: (method(warmup * 4**b), {"steps": steps * 4**b, **options})


CONTENDERS = {
    "Metropolis": Contender(True, sampler(lambda w: px.Metropolis(4, w), 2000, 4000, thin=40)),
    "HMC": Contender(True, sampler(lambda w: px.HMC(4, w), 50, 50)),
    "NUTS": Contender(True, sampler(lambda w: px.NUTS(4, w), 50, 50)),
    "MCLMC, adjusted": Contender(True, sampler(lambda w: px.MCLMC(4, w, adjusted=True), 500, 50)),
    "MCLMC": Contender(False, sampler(lambda w: px.MCLMC(4, w), 500, 50)),
    "SMC": Contender(True, lambda b: (px.SMC(particles=64 * 4**b), {})),
    "importance sampling": Contender(
        True, lambda b: (px.ImportanceSampling(64), {"steps": 250 * 4**b}), 5
    ),
    "SGHMC": Contender(False, lambda b: (px.SGHMC(3e-3), {"steps": 2000 * 4**b, "batch_size": 20})),
    "SGLD": Contender(False, lambda b: (px.SGLD(3e-3), {"steps": 2000 * 4**b, "batch_size": 20})),
    "Bayes by Backprop": Contender(
        False,
        lambda b: (px.BayesByBackprop(learning_rate=1e-2), {"steps": 250 * 4**b, "batch_size": 60}),
    ),
    "deep ensemble": Contender(
        False, lambda b: (px.DeepEnsemble(10, learning_rate=1e-2), {"steps": 125 * 4**b})
    ),
    "maximum a posteriori": Contender(
        False, lambda b: (px.MaximumAPosteriori(1e-2), {"steps": 125 * 4**b})
    ),
}


def problem() -> tuple[px.Model, tuple[np.ndarray, np.ndarray]]:
    """A noisy curve with a hole in it, and a network of eight hidden units."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-1, -0.3, 30), rng.uniform(0.2, 1, 30)])[:, None]
    y = np.sin(3 * x[:, 0]) + 0.15 * rng.normal(size=60)
    network = px.networks.MLP(1, 1, (8,), activation="tanh", key=0)
    model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(noise=0.15))
    return model, (x.astype("float32"), y)


def predictions(posterior: px.Posterior) -> np.ndarray:
    """(2, grid): mean and epistemic deviation."""
    kept = hasattr(posterior, "draws")  # then all of them count
    predictive = posterior.predict(GRID, samples=None if kept else 2000)
    return np.stack([predictive.mean, np.sqrt(predictive.epistemic)])


def distance(found: np.ndarray, reference: np.ndarray) -> float:
    """Root mean square over mean, deviation and grid, in units of the reference's deviation."""
    return float(np.sqrt(np.mean(np.square((found - reference) / reference[1]))))


def measure(quick: bool) -> dict[str, Any]:
    """Times and errors of every method at every budget."""
    model, data = problem()
    long = px.NUTS(8, 200 if quick else 1000, target_acceptance=0.95)
    began = time.perf_counter()
    found = px.fit(model, data, long, steps=100 if quick else 2500, key=99)
    reference, seconds = predictions(found), time.perf_counter() - began
    halves = [
        np.stack([part.mean(0), part.std(0)])
        for part in np.array_split(found.predict(GRID).outputs()[..., 0].reshape(8, -1, 65), 2)
        for part in [part.reshape(-1, 65)]
    ]
    curves: dict[str, Any] = {}
    for name, contender in CONTENDERS.items():
        points = []
        for budget in range(1 if quick else contender.budgets):
            method, options = contender.call(budget)
            few = {"steps": 80} if "steps" in options else {}
            px.fit(model, data, method, key=1000, **options | few)  # compiles
            for seed in range(1 if quick else SEEDS):
                began = time.perf_counter()
                posterior = px.fit(model, data, method, key=seed, **options)
                spent = time.perf_counter() - began
                error = distance(predictions(posterior), reference)
                points.append({"budget": budget, "seconds": spent, "error": error})
            print(f"{name}, {spent:.2f} s: {error:.3f}", flush=True)
        curves[name] = {"exact": contender.exact, "points": points}
    return {
        "curves": curves,
        "reference": {
            "seconds": seconds,
            "own_error": distance(halves[0], halves[1]) / 2,
            "rhat": float(found.diagnose(GRID).predictions.rhat.max()),
        },
        "about": {
            "jax": jax.__version__, "python": platform.python_version(),
            "backend": jax.default_backend(), "seeds": SEEDS,
        },
    }  # fmt: skip


STYLE = {
    "Metropolis": ("#0072B2", "o"), "HMC": ("#0072B2", "s"), "NUTS": ("#0072B2", "^"),
    "MCLMC, adjusted": ("#0072B2", "D"), "SMC": ("#0072B2", "P"),
    "importance sampling": ("#0072B2", "X"), "MCLMC": ("#D55E00", "D"), "SGHMC": ("#D55E00", "v"),
    "SGLD": ("#D55E00", "<"), "Bayes by Backprop": ("#009E73", "o"),
    "deep ensemble": ("#009E73", "s"), "maximum a posteriori": ("#009E73", "^"),
}  # fmt: skip


def _at(points: list[dict[str, float]], budget: int, key: str) -> list[float]:
    return [point[key] for point in points if point["budget"] == budget]


def draw(result: dict[str, Any], path: Path) -> None:
    """Error over time, a line for each method, named at its end."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 5.6), layout="constrained")
    axes = figure.subplots()
    ends = []
    for name, curve in result["curves"].items():
        points = curve["points"]
        budgets = sorted({p["budget"] for p in points})
        seconds = [float(np.median(_at(points, b, "seconds"))) for b in budgets]
        error = [float(np.sqrt(np.mean(np.square(_at(points, b, "error"))))) for b in budgets]
        colour, marker = STYLE[name]
        dashes = "-" if curve["exact"] else (0, (4, 2))
        axes.plot(seconds, error, color=colour, marker=marker, linestyle=dashes, markersize=6)
        ends.append((error[-1], seconds[-1], name, colour))
    axes.set(xscale="log", yscale="log", xlabel="seconds, without compilation")
    axes.set_ylabel("error of the predictive mean and deviation,\nin posterior deviations")
    floor = result["reference"]["own_error"]
    axes.set_ylim(bottom=floor / 2)
    axes.axhspan(floor / 2, floor, color="#DDDDDD", zorder=0)
    left, right = axes.get_xlim()
    axes.annotate(
        "the reference's own error", (left * 0.75, floor), (6, -14), textcoords="offset points",
        fontsize="small", color="#444444",
    )  # fmt: skip
    for error, seconds, name, colour in ends:
        across, up = BESIDE.get(name, (9, 0))
        axes.annotate(
            name, (seconds, error), (across, up), textcoords="offset points", color=colour,
            fontsize="small", va="center", ha="left" if across > 0 else "right",
        )  # fmt: skip
    axes.set_xlim(left * 0.75, right * 2.2)  # room for the names
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


# where the name of a line would cover another: points from its end
BESIDE = {
    "MCLMC": (8, 6), "HMC": (-2, -10), "SMC": (8, 7), "SGLD": (9, 4),
    "maximum a posteriori": (-2, -12),
}  # fmt: skip


def main() -> None:
    """Measure or read, and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".png"))
    parser.add_argument("--quick", action="store_true", help="one tiny budget of each method")
    parser.add_argument("--draw", action="store_true", help="from the JSON beside the picture")
    options = parser.parse_args()
    file = options.out.with_suffix(".json")
    if options.draw:
        result = json.loads(file.read_text())
    else:
        with warnings.catch_warnings():  # small budgets are warned of, rightly
            warnings.simplefilter("ignore")
            result = measure(options.quick)
        file.write_text(json.dumps(result, indent=1) + "\n")
    draw(result, options.out)


if __name__ == "__main__":
    main()

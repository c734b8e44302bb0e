"""The evidence picks the degree and the width; the training error always falls.

    python docs/gallery/evidence.py [--out FILE] [--quick]    # measure, save JSON and picture
    python docs/gallery/evidence.py --draw                    # the picture from the JSON

Left, polynomials of degree 0 to 10 through 30 points of a cubic, with the exact evidence of
``px.Conjugate``. Right, networks with 1 to 6 hidden units through 60 points of networks with three,
drawn from the prior, with the evidence that ``px.SMC`` estimates, for eight data sets. Errors are
those of least squares.
"""

import argparse
import json
import platform
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy.optimize import least_squares

import posterax as px

DEGREES, DEGREE = range(11), 3
WIDTHS, WIDTH = range(1, 7), 3
NOISE = {"degree": 0.2, "width": 0.2}
PRIOR = {"degree": 1.0, "width": 2.0}
REPEATS = 50  # other cubics, to see how often the evidence is right
CURVES = 8  # data sets of the networks
STARTS = 20  # of least squares for each network


# -- polynomials


def features(x: np.ndarray, degree: int) -> np.ndarray:
    """Legendre polynomials from 1 to ``degree``; the network's bias is the one of degree 0."""
    if degree == 0:
        return np.zeros((len(x), 1), "float32")
    return np.polynomial.legendre.legvander(x, degree)[:, 1:].astype("float32")


def cubic(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """30 points of a random cubic for training, 1000 to see how well that went."""
    weights = rng.normal(size=DEGREE + 1)
    weights[DEGREE] = rng.choice([-1, 1]) * (0.5 + abs(weights[DEGREE]))  # a cubic in truth
    x = [rng.uniform(-1, 1, n) for n in (30, 1000)]
    y = [
        np.polynomial.legendre.legval(a, weights) + NOISE["degree"] * rng.normal(size=len(a))
        for a in x
    ]
    return x[0], y[0], x[1], y[1]


def polynomial(x: np.ndarray, y: np.ndarray, degree: int) -> px.Posterior:
    """The exact posterior of a polynomial's weights."""
    given = features(x, degree)
    model = px.Model(
        px.networks.MLP(given.shape[1], 1, (), key=0),
        px.priors.Gaussian(PRIOR["degree"]), px.likelihoods.Gaussian(NOISE["degree"]),
    )  # fmt: skip
    return px.fit(model, (given, y), px.Conjugate())


def degrees(quick: bool) -> dict[str, Any]:
    """Errors and evidences by degree, and how often the evidence is right."""
    x, y, x_new, y_new = cubic(np.random.default_rng(0))
    comparison = px.compare({d: polynomial(x, y, d) for d in DEGREES})
    table = comparison.to_pandas().loc[[str(d) for d in DEGREES]]
    train, new = [], []
    for degree in DEGREES:
        fitted = np.polynomial.legendre.legfit(x, y, degree)
        train.append(rmse(np.polynomial.legendre.legval(x, fitted), y))
        new.append(rmse(np.polynomial.legendre.legval(x_new, fitted), y_new))
    chosen = []
    for seed in range(2 if quick else REPEATS):
        other = cubic(np.random.default_rng(1000 + seed))[:2]
        chosen.append(int(px.compare({d: polynomial(*other, d) for d in DEGREES}).best))
    return {
        "sizes": list(DEGREES), "truth": DEGREE, "train": train, "new": new,
        "evidence": table["score"].tolist(), "error": table["se"].tolist(),
        "best": int(comparison.best), "chosen": chosen,
    }  # fmt: skip


# -- networks


def curve(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """A network with one input, a layer of tanh and one output."""
    slope, shift, out = w[:-1].reshape(3, -1)
    return np.tanh(np.multiply.outer(x, slope) + shift) @ out + w[-1]


def network_data(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """60 points of a network drawn from the prior for training, 1000 to see how well that went."""
    w = PRIOR["width"] * rng.normal(size=3 * WIDTH + 1)
    x = [rng.uniform(-5, 5, n) for n in (60, 1000)]
    y = [curve(w, a) + NOISE["width"] * rng.normal(size=len(a)) for a in x]
    return x[0], y[0], x[1], y[1]


def fit_network(x: np.ndarray, y: np.ndarray, width: int, seed: int) -> np.ndarray:
    """Weights by least squares from many starts, the best of them."""
    rng = np.random.default_rng([seed, width])
    fits = [
        least_squares(
            lambda w: curve(w, x) - y, PRIOR["width"] * rng.normal(size=3 * width + 1),
            max_nfev=200,
        )
        for _ in range(STARTS)
    ]  # fmt: skip
    return min(fits, key=lambda fit: fit.cost).x


def widths(quick: bool) -> dict[str, Any]:
    """Errors and evidences by the number of hidden units; means over the data sets."""
    sizes = list(WIDTHS[:2] if quick else WIDTHS)
    found: dict[str, list[Any]] = {"train": [], "new": [], "evidence": []}
    for seed in range(1 if quick else CURVES):
        x, y, x_new, y_new = network_data(np.random.default_rng(seed))
        posteriors = {}
        for width in sizes:
            model = px.Model(
                px.networks.MLP(1, 1, (width,), activation="tanh", key=0),
                px.priors.Gaussian(PRIOR["width"]), px.likelihoods.Gaussian(NOISE["width"]),
            )  # fmt: skip
            method = px.SMC(particles=64 if quick else 400)
            posteriors[width] = px.fit(model, (x[:, None].astype("float32"), y), method, key=seed)
            print(seed, width, posteriors[width].log_evidence, flush=True)
        table = px.compare(posteriors).to_pandas().loc[[str(w) for w in sizes]]
        fitted = [fit_network(x, y, width, seed) for width in sizes]
        found["train"].append([rmse(curve(w, x), y) for w in fitted])
        found["new"].append([rmse(curve(w, x_new), y_new) for w in fitted])
        found["evidence"].append(table["score"].tolist())
    return {"sizes": sizes, "truth": WIDTH, "each": found["evidence"], **summary(sizes, found)}


def summary(sizes: list[int], found: dict[str, list[Any]]) -> dict[str, Any]:
    """Over data sets: median errors, the mean evidence, and the error of its differences."""
    evidence = np.array(found["evidence"])
    mean = evidence.mean(0)
    best = int(np.argmax(mean))
    gaps = evidence - evidence[:, [best]]
    paired = gaps.std(0, ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else gaps[0] * 0
    return {
        "train": np.median(found["train"], axis=0).tolist(),
        "new": np.median(found["new"], axis=0).tolist(),
        "evidence": mean.tolist(), "error": paired.tolist(), "best": sizes[best],
        "chosen": [sizes[int(i)] for i in np.argmax(evidence, axis=1)],
    }  # fmt: skip


def rmse(found: np.ndarray, y: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(found - y))))


# -- picture


def draw(result: dict[str, Any], path: Path) -> None:
    """Errors above, evidence below, a column for each kind of model."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 6.0), layout="constrained")
    grid = figure.subplots(2, 2, sharex="col", gridspec_kw={"height_ratios": [1, 1]})
    columns = (("degree", "polynomials", "degree"), ("width", "networks", "hidden units"))
    for column, (key, title, label) in enumerate(columns):
        found, above, below = result[key], grid[0, column], grid[1, column]
        depth = DEPTH[key]
        sizes, truth = found["sizes"], found["truth"]
        for axes in (above, below):
            axes.axvspan(truth - 0.25, truth + 0.25, color="#E4E4E4", zorder=0, linewidth=0)
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_xticks(sizes)
        above.plot(sizes, found["new"], "o--", color=HELD_OUT, label="held-out data")
        above.plot(sizes, found["train"], "s-", color=TRAINING, label="training data")
        above.axhline(result["noise"][key], color="#777777", linewidth=0.9, linestyle=":")
        above.set(yscale="log", title=title)
        gap = np.array(found["evidence"]) - max(found["evidence"])
        below.errorbar(
            sizes, gap, yerr=2 * np.array(found["error"]), fmt="^-", color=EVIDENCE, capsize=3
        )
        below.plot(found["best"], 0, "^", color=EVIDENCE, markersize=13, zorder=3)
        below.set(ylim=(-depth, 1.2), xlabel=label)
        below.set_yticks(range(0, -depth, -5 if depth > 10 else -1))
        for size, value in zip(sizes, gap, strict=True):
            if value < -depth:  # below the picture
                below.annotate(
                    f"−{-value:.0f}", (size, -depth), (0, 4), textcoords="offset points",
                    ha="center", fontsize="small", color=EVIDENCE,
                )  # fmt: skip
    for axes in grid[0]:
        ticks = [t for t in (0.1, 0.15, 0.2, 0.3, 0.5, 1.0) if t > axes.get_ylim()[0]]
        ticks = [t for t in ticks if t < axes.get_ylim()[1]]
        axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
        axes.minorticks_off()
    grid[0, 0].set_ylabel("error of least squares\n(root mean square)")
    grid[1, 0].set_ylabel("log evidence,\nnats below the best")
    grid[0, 0].legend(frameon=False)
    top = grid[0, 0].get_ylim()[1]
    grid[0, 0].annotate(
        "the truth", (DEGREE, top), (14, -12), textcoords="offset points",
        fontsize="small", color="#555555",
    )  # fmt: skip
    grid[0, 1].annotate(
        "the noise", (WIDTHS[-1], result["noise"]["width"]), (6, 4), textcoords="offset points",
        fontsize="small", color="#555555", ha="right",
    )  # fmt: skip
    figure.savefig(path, dpi=120)


TRAINING, HELD_OUT, EVIDENCE = "#D55E00", "#111111", "#0072B2"
DEPTH = {"degree": 24, "width": 5}  # nats below the best that are shown


def main() -> None:
    """Measure or read, and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".png"))
    parser.add_argument("--quick", action="store_true", help="two widths, few particles")
    parser.add_argument("--draw", action="store_true", help="from the JSON beside the picture")
    options = parser.parse_args()
    file = options.out.with_suffix(".json")
    if options.draw:
        result = json.loads(file.read_text())
    else:
        result = {
            "degree": degrees(options.quick), "width": widths(options.quick), "noise": NOISE,
            "about": {
                "jax": jax.__version__, "python": platform.python_version(),
                "backend": jax.default_backend(), "prior": PRIOR, "starts": STARTS,
            },
        }  # fmt: skip
        file.write_text(json.dumps(result, indent=1) + "\n")
    draw(result, options.out)


if __name__ == "__main__":
    main()

"""How noisy are the gradients of variational inference, and what that costs.

    python docs/gallery/gradients.py [--out FILE] [--quick]

A linear model with four weights, whose best mean-field posterior is known exactly. The variance of
every estimator's gradient is measured at two places, for several numbers of samples; then each of
them is followed, and what the evidence lower bound still lacks is computed in closed form.
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import posterax as px
from posterax._util.special import inverse_softplus
from posterax.gradients import gradient_moments
from posterax.plot.style import CHAINS
from posterax.posteriors import MeanFieldGaussian

NOISE, ROWS, WEIGHTS = 0.5, 30, 4
FOLLOWED = 8  # samples a step in the second half

PURE = {"kl": "monte_carlo", "rao_blackwell": False, "baseline": None}
ESTIMATORS: dict[str, tuple[Any, dict[str, Any]]] = {
    "score function": (px.BlackBoxVI, PURE),
    "Rao–Blackwell": (px.BlackBoxVI, PURE | {"rao_blackwell": True}),
    "control variate": (px.BlackBoxVI, PURE | {"baseline": "control_variate"}),
    "leave-one-out": (px.BlackBoxVI, PURE | {"baseline": "leave_one_out"}),
    "leave-one-out and Rao–Blackwell: px.BlackBoxVI()": (px.BlackBoxVI, {}),
    "reparameterized: px.BayesByBackprop()": (px.BayesByBackprop, {}),
}
COLOURS = (*CHAINS[3:], *CHAINS[:3])  # black for what nothing has been done about
STYLE = dict(zip(ESTIMATORS, zip(COLOURS, "osD^vX", strict=True), strict=True))


def linear(params: Any, x: Any) -> Any:
    """y = x w."""
    return (x @ params["w"])[:, None]


class Problem(NamedTuple):
    """The model and its data, and the posterior N(mean, precision⁻¹)."""

    model: px.Model
    data: tuple[np.ndarray, np.ndarray]
    mean: np.ndarray
    precision: np.ndarray

    @property
    def deviation(self) -> np.ndarray:
        """σ of the best mean-field q: 1 / √Λᵢᵢ; its mean is the posterior's."""
        return 1 / np.sqrt(np.diag(self.precision))

    def lacks(self, posterior: px.Posterior) -> float:
        """How far the bound of q is below that of the best mean-field q, in nats."""
        mu, sigma = (np.asarray(m.network["w"], np.float64) for m in posterior.moments())
        away, ratio = mu - self.mean, sigma / self.deviation
        widths = 0.5 * (ratio**2 - 1) - np.log(ratio)
        return float(0.5 * away @ self.precision @ away + np.sum(widths))


def problem() -> Problem:
    """Correlated inputs: the best mean-field q is narrower than the posterior's margins."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(ROWS, WEIGHTS)) @ (np.eye(WEIGHTS) + 0.3 * rng.normal(size=(WEIGHTS,) * 2))
    y = x @ rng.normal(size=WEIGHTS) + NOISE * rng.normal(size=ROWS)
    precision = np.eye(WEIGHTS) + x.T @ x / NOISE**2
    mean = np.linalg.solve(precision, x.T @ y / NOISE**2)
    network = {"w": jnp.zeros(WEIGHTS)}, linear
    model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(NOISE))
    return Problem(model, (x.astype("float32"), y.astype("float32")), mean, precision)


def place(given: Problem, mu: np.ndarray, sigma: np.ndarray) -> MeanFieldGaussian:
    """q = N(μ, σ²) as a posterior."""
    start = px.fit(given.model, given.data, px.BayesByBackprop(), steps=1)
    mu, rho = (
        px.Parameters({"w": jnp.asarray(a, jnp.float32)}, {})
        for a in (mu, inverse_softplus(jnp.asarray(sigma)))
    )
    return MeanFieldGaussian(start.model, start.state, start.targets, mu=mu, rho=rho)


def variances(given: Problem, samples: list[int], repeats: int) -> dict[str, Any]:
    """For both places and every estimator, the variance of the gradient by number of samples."""
    places = {
        "at the start": place(given, np.zeros(WEIGHTS), np.full(WEIGHTS, 0.05)),
        "at the optimum": place(given, given.mean, given.deviation),
    }
    found: dict[str, Any] = {where: {} for where in places}
    for name, (method, how) in ESTIMATORS.items():
        for count in samples:
            for where, q in places.items():
                moments = gradient_moments(
                    given.model, given.data, method(samples=count, **how), q, repeats=repeats
                )
                found[where].setdefault(name, []).append(moments.average)
        at = samples.index(FOLLOWED)
        shown = ", ".join(f"{found[where][name][at]:.3g} {where}" for where in places)
        print(f"{name}: {shown} with {FOLLOWED} samples", flush=True)
    return found


def followed(given: Problem, budgets: list[int], seeds: int) -> dict[str, list[float]]:
    """For every estimator, what the bound lacks after fits of so many steps; the seeds' median."""
    found = {}
    for name, (method, how) in ESTIMATORS.items():
        run = method(samples=FOLLOWED, learning_rate=0.03, initial_rho=-3.0, **how)
        gaps = [
            [given.lacks(px.fit(given.model, given.data, run, steps=steps, key=key))
             for key in range(seeds)]
            for steps in budgets
        ]  # fmt: skip
        found[name] = [float(np.median(gap)) for gap in gaps]
        print(f"{name}: {found[name][-1]:.2g} nats after {budgets[-1]} steps", flush=True)
    return found


def draw(
    samples: list[int], found: dict[str, Any], budgets: list[int], gaps: dict[str, Any], path: Path
) -> None:
    """Three panels with one legend."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.4, 4.7), layout="constrained")
    panels = figure.subplots(1, 3)
    curves = [(samples, values) for values in found.values()] + [(budgets, gaps)]
    for axes, (along, values) in zip(panels, curves, strict=True):
        for name, line in values.items():
            colour, marker = STYLE[name]
            axes.plot(along, line, color=colour, marker=marker, markersize=5, lw=1.4, label=name)
        axes.set(xscale="log", yscale="log")
        axes.spines[["top", "right"]].set_visible(False)
    for axes, where in zip(panels, found, strict=False):
        axes.set_title(f"variance of the gradient, {where}", fontsize="medium")
        axes.set_xlabel("weight samples a step")
        axes.set_xticks(samples, list(map(str, samples)))
        axes.minorticks_off()
    panels[2].set_title("nats below the best mean-field bound", fontsize="medium")
    panels[2].set_xlabel(f"steps of the fit, {FOLLOWED} samples each")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Measure and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".png"))
    parser.add_argument("--quick", action="store_true", help="little of everything")
    options = parser.parse_args()
    samples = [FOLLOWED] if options.quick else [2, 4, 8, 16, 32, 64]
    budgets = [30] if options.quick else [30, 100, 300, 1000, 3000, 10_000]
    given = problem()
    found = variances(given, samples, 50 if options.quick else 2000)
    gaps = followed(given, budgets, 2 if options.quick else 11)
    draw(samples, found, budgets, gaps, options.out)


if __name__ == "__main__":
    main()

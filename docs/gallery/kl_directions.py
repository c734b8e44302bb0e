"""One bimodal target, and the Gaussians that are nearest to it in either direction of KL.

    python docs/gallery/kl_directions.py [--out FILE] [--quick]

KL(P ‖ Q) and KL(Q ‖ P) are minimised over the mean and width of Q, from several starts; every
divergence is an integral by ``px.information``. The last panel has, for every place of Q, the
least divergence that any width of it can reach.
"""

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import posterax as px
from posterax.plot.style import DASHES, DATA, EPISTEMIC, MEAN, TOTAL

WEIGHTS, MEANS, SCALES = np.array([0.6, 0.4]), np.array([-2.0, 2.0]), np.array([0.8, 0.5])
P = dist.MixtureSameFamily(
    dist.Categorical(probs=jnp.array(WEIGHTS)), dist.Normal(jnp.array(MEANS), jnp.array(SCALES))
)
DIVERGENCES: dict[str, Callable[[Any], Any]] = {
    "KL(P ‖ Q)": lambda q: px.information.kl_divergence(P, q),
    "KL(Q ‖ P)": lambda q: px.information.kl_divergence(q, P),
    "JS(P, Q)": lambda q: px.information.js_divergence(P, q),
}
LOOKS = {
    "KL(P ‖ Q)": {"color": TOTAL, "linestyle": DASHES[1]},
    "KL(Q ‖ P)": {"color": EPISTEMIC, "linestyle": DASHES[0]},
    "JS(P, Q)": {"color": MEAN, "linestyle": DASHES[3]},
}


class Fit(NamedTuple):
    """A Gaussian Q = N(mean, std²) where a divergence has a minimum, and its value in nats."""

    mean: float
    std: float
    divergence: float


def moments() -> tuple[float, float]:
    """Mean and standard deviation of P: the exact minimum of KL(P ‖ Q) over all Gaussians."""
    mean = WEIGHTS @ MEANS
    return float(mean), float(np.sqrt(WEIGHTS @ (SCALES**2 + (MEANS - mean) ** 2)))


def minima(divergence: Callable[[Any], Any], starts: list[float]) -> list[Fit]:
    """The different minima that are reached from Gaussians of width 1 at ``starts``, best first."""
    from scipy.optimize import minimize

    def value(at: np.ndarray) -> float:
        return float(divergence(dist.Normal(jnp.float32(at[0]), jnp.float32(math.exp(at[1])))))

    found: list[Fit] = []
    for start in starts:
        simplex = np.array([[start, 0.0], [start + 0.5, 0.0], [start, 0.5]])
        options = {"xatol": 1e-4, "fatol": 1e-8, "initial_simplex": simplex}
        end = minimize(value, simplex[0], method="Nelder-Mead", options=options)
        fit = Fit(float(end.x[0]), math.exp(end.x[1]), float(end.fun))
        if all(abs(fit.mean - other.mean) > 0.01 for other in found):
            found.append(fit)
    return sorted(found, key=lambda fit: fit.divergence)


def profile(divergence: Callable[[Any], Any], means: np.ndarray, stds: np.ndarray) -> np.ndarray:
    """The least divergence over ``stds`` for a Gaussian at each of ``means``."""
    widths = jnp.array(stds)
    return np.array([divergence(dist.Normal(jnp.full(len(stds), m), widths)).value.min()
                     for m in means])  # fmt: skip


def report(name: str, fits: list[Fit]) -> None:
    """What a fit says, and how much of P lies in the interval it is 95 % sure of."""
    from scipy.stats import norm

    for mean, std, value in fits:
        ends = np.array([mean - 1.96 * std, mean + 1.96 * std])
        inside = WEIGHTS @ np.diff(norm.cdf(ends[:, None], MEANS, SCALES), axis=0)[0]
        q = dist.Normal(mean, std)
        surprise = float(px.information.cross_entropy(P, q))
        print(
            f"{name}: N({mean:.3f}, {std:.3f}²), {value:.4f} nats; {inside:.1%} of P in its 95 %; "
            f"cross entropy H(P, Q) {surprise:.2f}, H(P) {float(px.information.entropy(P)):.2f}",
            flush=True,
        )


def draw(fits: dict[str, list[Fit]], means: np.ndarray, curves: dict[str, Any], path: Path) -> None:
    """Both directions beside each other, and the landscape they come from."""
    from matplotlib.figure import Figure
    from scipy.stats import norm

    figure = Figure(figsize=(11.4, 3.7), layout="constrained")
    panels = figure.subplots(1, 3, width_ratios=(1, 1, 1.1))
    x = np.linspace(-7, 7, 701)
    density = norm.pdf(x[:, None], MEANS, SCALES) @ WEIGHTS
    titles = ("ideal: KL(P ‖ Q), covers the mass", "alternative: KL(Q ‖ P), seeks a mode")
    for axes, name, title in zip(panels, DIVERGENCES, titles, strict=False):
        axes.fill_between(x, density, color="#DDDDDD", lw=0)
        axes.plot(x, density, color=DATA, lw=1)
        for k, (mean, std, value) in enumerate(fits[name]):
            look = {"color": LOOKS[name]["color"], "linestyle": DASHES[k]}
            curve = norm.pdf(x, mean, std)
            axes.plot(x, curve, lw=2, **look)
            words = f"Q: N({mean:.2f}, {std:.2f}²)\n{value:.2f} nats".replace("-", "−")
            above = max(curve.max(), density[np.abs(x - mean) < 2].max())  # clear of P
            axes.annotate(
                words, (mean, above), (0, 6), textcoords="offset points",
                ha="center", color=LOOKS[name]["color"], fontsize="small",
            )  # fmt: skip
        axes.text(-2, 0.04, "P", color=DATA, ha="center")
        axes.set(xlabel="w", ylim=(0, 0.93), yticks=[], xlim=(-7, 7))
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.set_title(title, fontsize="medium")
    axes = panels[2]
    for name, curve in curves.items():
        axes.plot(means, curve, lw=1.8, label=name, **LOOKS[name])
        for mean, _, value in fits[name]:
            axes.plot(mean, value, "o", ms=6, mec="white", color=LOOKS[name]["color"], zorder=5)
    axes.set(xlabel="mean of Q", ylabel="nats, at the best width", ylim=(0, 2.2))
    axes.set_title("how far Q is from P", fontsize="medium")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Fit and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".png"))
    parser.add_argument("--quick", action="store_true", help="few starts, coarse curves")
    options = parser.parse_args()
    starts = [-2.5, 2.5] if options.quick else [-4.0, -2.0, 0.0, 2.0, 4.0]
    print("P: mean {:.4f}, standard deviation {:.4f}".format(*moments()))
    fits = {name: minima(divergence, starts) for name, divergence in DIVERGENCES.items()}
    for name, found in fits.items():
        report(name, found)
    means = np.linspace(-5, 5, 11 if options.quick else 81)
    stds = np.geomspace(0.2, 8, 10 if options.quick else 48)
    curves = {name: profile(divergence, means, stds) for name, divergence in DIVERGENCES.items()}
    draw(fits, means, curves, options.out)


if __name__ == "__main__":
    main()

"""All methods on one curve: where there is no data, every posterior should know that it is so.

    python docs/gallery/methods.py [--out FILE] [--quick]

The curve of Blundell et al. (2015) with 100 points on [0, 0.5]; a network with one layer of 30
SiLU units, noise of 0.05. Methods for few weights (annealing, importance sampling with candidates
from the prior, enumeration over weights of four values) have three units, every tenth point and a
noise of 0.3. The closed form is that of the last layer alone, over 200 units whose own weights are
a draw from the prior. Saves the picture, and beside it a JSON with the epistemic deviation inside
and outside of the data.
"""

import argparse
import json
import platform
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import posterax as px
from posterax.demo import curve, curve_data

PLACES = np.linspace(-0.35, 1.0, 136).astype("float32")
INSIDE, OUTSIDE = (PLACES > 0.02) & (PLACES < 0.48), (PLACES < -0.2) | (PLACES > 0.75)
POINTS = ("maximum likelihood", "maximum a posteriori", "simulated annealing")


class Panel(NamedTuple):
    """A method, the length of its fit, and the network's kind."""

    method: Any
    options: dict[str, Any] = {}  # noqa: RUF012
    kind: str = "usual"


LONG = {"steps": 5000, "batch_size": 50}
PANELS = {
    "maximum likelihood": Panel(px.MaximumLikelihood(1e-2), LONG),
    "maximum a posteriori": Panel(px.MaximumAPosteriori(1e-2), LONG),
    "simulated annealing": Panel(px.SimulatedAnnealing(), {"steps": 20_000}, "small"),
    "deep ensemble": Panel(px.DeepEnsemble(10, learning_rate=1e-2), LONG),
    "ensemble, anchored": Panel(px.DeepEnsemble(10, anchored=True, learning_rate=1e-2), LONG),
    "ensemble, bootstrap": Panel(px.DeepEnsemble(10, bootstrap=True, learning_rate=1e-2), LONG),
    "MC dropout": Panel(px.MCDropout(0.1, learning_rate=1e-2), LONG),
    "Bayes by Backprop": Panel(px.BayesByBackprop(learning_rate=1e-2), LONG),
    "IVON": Panel(px.IVON(), LONG),
    "black-box VI": Panel(px.BlackBoxVI(samples=32, learning_rate=1e-2), LONG),
    "VI, low rank": Panel(px.BayesByBackprop(family="low_rank", learning_rate=1e-2), LONG),
    "VI, full covariance": Panel(px.BayesByBackprop(family="full", learning_rate=1e-2), LONG),
    "VI, radial": Panel(px.BayesByBackprop(family="radial", learning_rate=1e-2), LONG),
    "Laplace": Panel(px.Laplace(structure="full", learning_rate=1e-2), LONG),
    "SWAG": Panel(px.SWAG(), LONG),
    "SVGD": Panel(px.SVGD(particles=20, learning_rate=1e-2), LONG),
    "SGLD": Panel(px.SGLD(3e-4), {"steps": 20_000, "batch_size": 50}),
    "SGHMC": Panel(px.SGHMC(3e-4), {"steps": 20_000, "batch_size": 50}),
    "MCLMC": Panel(px.MCLMC(), {"steps": 1000}),
    "HMC": Panel(px.HMC(), {"steps": 300}),
    "NUTS": Panel(px.NUTS(), {"steps": 200}),
    "SMC": Panel(px.SMC(particles=512)),
    "Metropolis": Panel(px.Metropolis(warmup=5000), {"steps": 20_000, "thin": 20}),
    "importance sampling": Panel(px.ImportanceSampling(256), {"steps": 400}, "small"),
    "enumeration": Panel(px.Enumeration(), kind="discrete"),
    "conjugate": Panel(px.Conjugate(), kind="features"),
}


def inputs(x: Any) -> np.ndarray:
    """x as the network sees it."""
    return ((np.asarray(x, np.float32).reshape(-1, 1) - 0.25) / 0.15).astype("float32")


def model(kind: str) -> px.Model:
    """A network with SiLU units; few of them where a method needs few weights."""
    prior = px.priors.Gaussian(2.0, fan_in=True)
    if kind == "discrete":
        prior = px.priors.Grid([-1.0, -0.5, 0.5, 1.0])
    width = {"usual": 30, "features": 200}.get(kind, 3)
    likelihood = px.likelihoods.Gaussian(0.05 if width > 3 else 0.3)
    network = px.networks.MLP(1, 1, (width,), activation="silu", key=0)
    made = px.Model(network, prior, likelihood)
    if kind != "features":
        return made
    drawn = px.prior_posterior(made, inputs(PLACES)).network(key=0)
    return px.Model(drawn, prior, likelihood, where="layers.1.*", rest="frozen")


def data(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """The points that a panel sees."""
    x, y = curve_data(100, key=0)
    every = 1 if kind in ("usual", "features") else 10
    return x[::every], y[::every]


def fit(panel: Panel, quick: bool) -> px.Predictive:
    """The predictive of one method over all places."""
    x, y = data(panel.kind)
    options = dict(panel.options)
    if quick and "steps" in options:
        options["steps"] //= 20
    with warnings.catch_warnings():  # short chains and few candidates are warned of, rightly
        warnings.simplefilter("ignore")
        posterior = px.fit(model(panel.kind), (inputs(x), y), panel.method, key=0, **options)
    return posterior.predict(inputs(PLACES), samples=None if hasattr(posterior, "draws") else 400)


def draw(found: dict[str, px.Predictive], path: Path) -> None:
    """A panel for each method."""
    from matplotlib.figure import Figure

    from posterax.plot import regression_band

    columns = 5
    rows = -(-len(found) // columns)
    figure = Figure(figsize=(2.6 * columns, 2.15 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes, (name, predictive) in zip(panels, found.items(), strict=False):
        seen = data(PANELS[name].kind)
        regression_band(axes, PLACES, predictive, data=seen, truth=curve(PLACES))
        axes.set_title(name, fontsize=10)
        axes.set(xlim=(PLACES[0], PLACES[-1]), ylim=(-1.6, 2.3), xticks=(0, 0.5, 1))
        axes.label_outer()
    for place in range(len(found), len(panels)):
        panels[place].set_visible(False)
        panels[place - columns].tick_params(labelbottom=True)  # now the last of its column
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, markerscale=2
    )
    figure.savefig(path, dpi=110)


def main() -> None:
    """Fit all, draw, and save the deviations."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".png"))
    parser.add_argument("--quick", action="store_true", help="a twentieth of all steps")
    parser.add_argument("--only", nargs="*", help="some of the methods")
    options = parser.parse_args()
    found, deviations = {}, {}
    for name in options.only or PANELS:
        found[name] = fit(PANELS[name], options.quick)
        deviation = np.sqrt(found[name].epistemic)
        deviations[name] = {
            "inside": float(deviation[INSIDE].mean()),
            "outside": float(deviation[OUTSIDE].mean()),
        }
        print(f"{name}: {deviations[name]}", flush=True)
    about = {"jax": jax.__version__, "python": platform.python_version(), "seed": 0}
    result = {"deviations": deviations, "about": about}
    options.out.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    draw(found, options.out)


if __name__ == "__main__":
    main()

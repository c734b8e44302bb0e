"""What a posterior says about single weights: which of them, how each is distributed, its prior."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import posteriors as ps
from .._util.keys import as_key
from .._util.tree import named_leaves, plain
from ..model import Parameters
from ..networks.parts import Where
from ..posteriors.base import evaluate_each
from ..posteriors.laplace import priors_of
from ..posteriors.scaled import moments_of, named_moments
from ..priors import Flat, Grid, Prior, is_prior
from ..program.compiled import compiled
from .quantities import weight_entry
from .style import BLUE, DATA, EPISTEMIC, MEAN, TOTAL, Axes, annotate

GAUSSIAN = (ps.MeanFieldGaussian, ps.FullGaussian, ps.LowRankGaussian, ps.LaplaceGaussian)
STORED = (ps.Draws, ps.Enumerated, ps.Point)
DRAWN = 4000  # draws behind a density that has no formula
SHOWN = 5  # weights that are drawn where none are named
POINTS = 400  # of a curve


class Weight(NamedTuple):
    """One entry of an array of weights."""

    array: str
    entry: tuple[int, ...]

    @property
    def name(self) -> str:
        """In two short lines: names of large networks are long."""
        entry = ", ".join(map(str, self.entry))
        return self.array.removeprefix("network.") + (f"\n[{entry}]" if self.entry else "")


class Marginal(NamedTuple):
    """The distribution of one weight: a Gaussian (without values), or weighted draws."""

    mean: float
    std: float
    values: np.ndarray
    weights: np.ndarray

    def density(self, at: np.ndarray) -> np.ndarray:
        from scipy import stats

        if not len(self.values):
            return stats.norm(self.mean, self.std).pdf(at)
        return stats.gaussian_kde(self.values, weights=self.weights)(at)

    def reach(self) -> tuple[float, float]:
        """From where to where there is something to see."""
        if not len(self.values):
            return self.mean - 4 * self.std, self.mean + 4 * self.std
        return float(self.values.min()), float(self.values.max())


def weights(
    axes: Axes,
    posterior: ps.Posterior,
    of: Sequence[str] | None = None,
    *,
    where: Where | None = None,
    key: int = 0,
    title: str | None = None,
) -> Axes:
    """Draw the posterior densities of a few weights, a row each, over their priors.

    Every curve has its own height, or a narrow posterior would leave nothing of a wide prior to
    see. Gaussian posteriors are drawn by their formula and others by a kernel density of their
    draws; weights on a grid are stems, points a line.

    Args:
        axes: where to draw.
        posterior: of any method.
        of: the weights, from top to bottom, named as ``posterior.diagnose`` names them
            (``"network.layers.0.weight[3, 0]"``, or without ``network.``); by default five, from
            the largest to the smallest ratio of mean to deviation in equal steps of rank.
        where: arrays from which those five are taken, as in ``px.Model``: ``"layers.0.*"``.
        key: of the draws, where there is no formula.
        title: above the axes.

    Example:
        >>> from matplotlib.figure import Figure
        >>> import posterax as px
        >>> from posterax.demo import curve_data, curve_model
        >>> posterior = px.fit(curve_model(), curve_data(16), px.BayesByBackprop(), steps=5, key=0)
        >>> axes = px.plot.weights(Figure().subplots(), posterior, ["network.layers.1.bias[0]"])
        >>> [text.get_text() for text in axes.get_yticklabels()]
        ['layers.1.bias\\n[0]']
    """
    leaves = named_leaves(posterior.model.parameters)
    shapes = {name: np.shape(leaf) for name, leaf in leaves.items()}
    chosen = [Weight(*weight_entry(name, shapes)) for name in of or ()]
    if of is None:
        chosen = _default_weights(posterior, where)
    if not chosen:
        raise ValueError("of is empty: name at least one weight, or leave it out")
    each = _marginals(posterior, chosen, key)
    priors = named_leaves(priors_of(posterior), is_prior)
    ends = np.array([marginal.reach() for marginal in each])
    low, high = float(ends[:, 0].min()), float(ends[:, 1].max())
    pad = 0.12 * (high - low) or 0.5
    at = np.linspace(low - pad, high + pad, POINTS)
    bases = list(range(len(chosen)))[::-1]
    for base, weight, marginal in zip(bases, chosen, each, strict=True):
        labels = ("posterior", "prior") if base == bases[0] else (None, None)
        prior, shape = priors[weight.array], shapes[weight.array]
        _draw_posterior(axes, base, at, marginal, prior, labels[0])
        # the prior of an array of one: settings by entry are picked
        one = tuple(slice(i, i + 1) for i in weight.entry)
        prior = jax.tree.map(lambda a: a[one] if shape and np.shape(a) == shape else a, prior)  # noqa: B023
        _draw_prior(axes, base, at, prior, labels[1])
        axes.axhline(base, color=DATA, linewidth=0.6, zorder=1)
    axes.axvline(0, color=MEAN, linewidth=0.9, linestyle=":", zorder=1, label="zero")
    axes.set_yticks(bases, [weight.name for weight in chosen], fontsize="small", va="bottom")
    axes.tick_params(axis="y", length=0)
    return annotate(axes, title, xlabel="weight", xlim=at[[0, -1]], ylim=(-0.06, len(chosen)))


def _default_weights(posterior: ps.Posterior, where: Where | None) -> list[Weight]:
    """A few, from the largest to the smallest ratio of mean to deviation."""
    mean, std = named_moments(posterior, where)
    if not mean:
        raise ValueError(f"where={where!r} leaves no weight that has a prior")
    starts = np.cumsum([0, *(a.size for a in mean.values())])
    mu, sigma = (np.concatenate([np.ravel(a) for a in part.values()]) for part in (mean, std))
    order = np.argsort(-np.abs(mu) / np.maximum(sigma, 1e-300), kind="stable")
    few = np.unique(np.linspace(0, len(order) - 1, min(len(order), SHOWN)).round().astype(int))
    chosen = []
    for i in order[few]:
        array = int(np.searchsorted(starts, i, side="right")) - 1
        name = list(mean)[array]
        index = np.unravel_index(i - starts[array], mean[name].shape)
        chosen.append(Weight(name, tuple(map(int, index))))
    return chosen


def _marginals(posterior: ps.Posterior, chosen: list[Weight], key: int) -> list[Marginal]:
    """The distribution of each of these weights."""
    if isinstance(posterior, GAUSSIAN):
        mean, std = (jax.tree.map(plain, named_leaves(m)) for m in moments_of(posterior))
        none = np.zeros(0)
        pairs = [(mean[w.array][w.entry], std[w.array][w.entry]) for w in chosen]
        return [Marginal(float(m), float(s), none, none) for m, s in pairs]

    def pick(params: Parameters) -> jax.Array:
        leaves = named_leaves(params)
        return jnp.stack([leaves[w.array][w.entry] for w in chosen])

    particles = posterior.particles(as_key(key), None if isinstance(posterior, STORED) else DRAWN)
    values = plain(evaluate_each(pick, posterior.bare(), particles.ids)).astype(np.float64)
    share = np.asarray(particles.weights, np.float64)
    centre = share @ values
    spread = np.sqrt(share @ np.square(values - centre))
    columns = zip(centre, spread, values.T, strict=True)
    return [Marginal(float(m), float(s), column, share) for m, s, column in columns]


def _draw_posterior(
    axes: Axes, base: int, at: np.ndarray, marginal: Marginal, prior: Prior, label: str | None
) -> None:
    filled = BLUE | {"linewidth": 0.9, "label": label, "zorder": 2}
    if isinstance(prior, Grid):
        values = np.asarray(prior.values)
        nearest = np.abs(marginal.values[:, None] - values).argmin(1)
        heights = np.bincount(nearest, marginal.weights, len(values))
        width = 0.02 * (at[-1] - at[0])
        axes.bar(values, 0.85 * heights / heights.max(), width, bottom=base, **filled)
        return
    if marginal.std <= 1e-9 * max(1.0, abs(marginal.mean)):
        line: dict[str, Any] = {"color": EPISTEMIC, "linewidth": 2, "zorder": 2}
        axes.vlines(marginal.mean, base, base + 0.85, **line, label=label or "")
        return
    # points of its own too, or a narrow one would be drawn with corners
    at = np.union1d(at, np.linspace(*marginal.reach(), POINTS))
    density = marginal.density(at)
    axes.fill_between(at, base, base + 0.85 * density / density.max(), **filled)


def _draw_prior(axes: Axes, base: int, at: np.ndarray, prior: Prior, label: str | None) -> None:
    if isinstance(prior, Flat):
        return
    if isinstance(prior, Grid):
        heights = np.asarray(prior.probs)
        axes.plot(
            prior.values, base + 0.85 * heights / heights.max(), "_", color=TOTAL,
            markersize=11, markeredgewidth=1.8, label=label, zorder=3,
        )  # fmt: skip
        return
    log_density = np.asarray(_log_densities(prior, at), np.float64)
    heights = base + 0.85 * np.exp(log_density - log_density.max())
    axes.plot(at, heights, color=TOTAL, linestyle="--", linewidth=1.4, label=label, zorder=3)


@compiled
def _log_densities(prior: Prior, at: np.ndarray) -> jax.Array:
    """Of one weight with each of these values, also where a prior ties several to each other."""
    dims = max((np.ndim(leaf) for leaf in jax.tree.leaves(prior)), default=0) or 1
    return jax.vmap(lambda w: jnp.sum(prior.log_prob(jnp.full((1,) * dims, w))))(at)

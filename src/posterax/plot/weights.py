"""What a posterior says about single weights, and how many of them say anything."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.checks import whole_number
from .._util.tree import named_leaves
from ..networks.parts import Where
from ..posteriors import Posterior
from ..posteriors.laplace import priors_of
from ..posteriors.named_moments import named_moments
from ..priors import Flat, Grid, Prior, is_prior
from ..pruning.ranking import Ranking
from ..pruning.signal_to_noise import signal_to_noise as ratios
from .marginals import Marginal, default_weights, marginals, named_weight, prior_of_entry
from .style import BLUE, DATA, EPISTEMIC, MEAN, TOTAL, Axes, annotate

POINTS = 400  # of a curve
FLOOR = -100.0  # decibels: a mean below 1e-10 deviations is no mean but what an optimiser left


def weights(
    axes: Axes,
    posterior: Posterior,
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
    chosen = [named_weight(posterior, name) for name in of or ()]
    if of is None:
        chosen = default_weights(posterior, where)
    if not chosen:
        raise ValueError("of is empty: name at least one weight, or leave it out")
    each = marginals(posterior, chosen, key)
    priors = named_leaves(priors_of(posterior), is_prior)
    leaves = named_leaves(posterior.model.parameters)
    ends = np.array([marginal.reach() for marginal in each])
    low, high = float(ends[:, 0].min()), float(ends[:, 1].max())
    pad = 0.12 * (high - low) or 0.5
    at = np.linspace(low - pad, high + pad, POINTS)
    bases = list(range(len(chosen)))[::-1]
    for base, weight, marginal in zip(bases, chosen, each, strict=True):
        labels = ("posterior", "prior") if base == bases[0] else (None, None)
        prior = priors[weight.array]
        _draw_posterior(axes, base, at, marginal, prior, labels[0])
        prior = prior_of_entry(prior, np.shape(leaves[weight.array]), weight.entry)
        _draw_prior(axes, base, at, prior, labels[1])
        axes.axhline(base, color=DATA, linewidth=0.6, zorder=1)
    axes.axvline(0, color=MEAN, linewidth=0.9, linestyle=":", zorder=1, label="zero")
    axes.set_xlim(at[0], at[-1])
    axes.set_ylim(-0.06, len(chosen))
    axes.set_yticks(bases, [weight.name for weight in chosen], fontsize="small", va="bottom")
    axes.tick_params(axis="y", length=0)
    return annotate(axes, "weight", "", title)


def signal_to_noise(
    axes: Axes,
    posterior: Posterior,
    *,
    where: Where | None = None,
    bins: int | None = None,
    fractions: Sequence[float] = (),
    title: str | None = None,
) -> Axes:
    r"""Draw how the signal-to-noise ratio |μ| / σ is spread over all weights, in decibels.

    The bars are the density of 10 log₁₀(|μ| / σ), the line (scale at the right) the share of
    weights below. Weights at the left could be zero for all that the posterior knows, and are the
    ones to prune. Those below −100 dB, which have no mean but what an optimiser left of it, are
    counted in the legend; the line starts with their share.

    Args:
        axes: where to draw.
        posterior: of a method that gives weights a deviation.
        where: which arrays of weights, as in ``px.Model`` (default: all that have a prior).
        bins: bars (default: twice the third root of the number of weights, from 5 to 50).
        fractions: shares of the network's weights, such as (0.75, 0.95), whose ratios are marked:
            what ``px.prune`` with such a fraction removes lies at the left. As there, they count
            from the network before any pruning; a share that is gone already has no mark.
        title: above the axes.

    Reference:
        Blundell, Cornebise, Kavukcuoglu and Wierstra, *Weight uncertainty in neural networks*,
        ICML 2015, section 5.1.

    Example:
        >>> from matplotlib.figure import Figure
        >>> import posterax as px
        >>> from posterax.demo import curve_data, curve_model
        >>> posterior = px.fit(curve_model(), curve_data(16), px.BayesByBackprop(), steps=5, key=0)
        >>> px.plot.signal_to_noise(Figure().subplots(), posterior).get_xlabel()
        'signal-to-noise |μ| / σ (dB)'
    """
    mu, sigma = (
        np.concatenate([np.zeros(0), *(np.ravel(a) for a in part.values())])
        for part in named_moments(posterior, where)
    )
    if not np.all(sigma > 0) or not len(sigma):
        raise ValueError(
            f"signal_to_noise: this {type(posterior).__name__} has weights without a deviation; "
            "px.BayesByBackprop, px.IVON, px.Laplace and chains give every weight one"
        )
    with np.errstate(divide="ignore"):
        decibels = 10 * np.log10(np.abs(mu) / sigma)
    audible = np.sort(decibels[decibels >= FLOOR])
    silent = len(mu) - len(audible)
    if not len(audible):
        raise ValueError("signal_to_noise: all means are 0, and so are all ratios")
    default = int(np.clip(2 * np.cbrt(len(mu)), 5, 50))
    count = default if bins is None else whole_number("bins", bins)
    heights, edges = np.histogram(audible, count)
    density = heights / (len(mu) * np.diff(edges))
    top = 1.08 * density.max()
    axes.stairs(
        density, edges, fill=True, **BLUE, linewidth=0.8,
        label=f"density of {len(mu):,} weights", zorder=2,
    )  # fmt: skip
    some = np.unique(np.linspace(0, len(audible) - 1, 1000).round().astype(int))
    share = (silent + some + 1) / len(mu)
    note = f" ({silent:,} below −{-FLOOR:.0f} dB)" if silent else ""
    axes.plot(
        audible[some], top * share, color=MEAN, linestyle=(0, (5, 1.5)), linewidth=1.5,
        label=f"share below{note}", zorder=3,
    )  # fmt: skip
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, top)
    _mark(axes, posterior, where, fractions)
    right = axes.secondary_yaxis("right", functions=(lambda d: d / top, lambda s: s * top))
    right.set_ylabel("share below")
    return annotate(axes, "signal-to-noise |μ| / σ (dB)", "density (1 / dB)", title)


def _mark(
    axes: Axes, posterior: Posterior, where: Where | None, fractions: Sequence[float]
) -> None:
    """Lines below which these shares of the weights lie."""
    ranking = Ranking(posterior, ratios(posterior, where), "global") if fractions else None
    low, high = axes.get_xlim()
    last, height = -np.inf, 0.98
    for fraction in sorted(fractions):
        if not 0 < fraction < 1:
            raise ValueError(f"fractions must lie between 0 and 1, got {fraction!r}")
        assert ranking is not None
        at = ranking.cut(fraction)
        if at is None or at < low:
            continue
        # labels of neighbours one below the other
        height = height - 0.09 if at - last < 0.1 * (high - low) else 0.98
        axes.axvline(at, color=TOTAL, linewidth=1.3, zorder=4)
        axes.annotate(
            f"{100 * fraction:.4g} %", (at, height), xytext=(-4, 0), textcoords="offset points",
            xycoords=axes.get_xaxis_transform(), ha="right", va="top", fontsize="small",
            color=MEAN, zorder=5,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
        )  # fmt: skip
        last = at


# -- rows


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
        ends = (marginal.mean, base, base + 0.85)
        axes.vlines(*ends, color=EPISTEMIC, linewidth=2, zorder=2, label=label or "")
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
    heights = np.exp(log_density - log_density.max())
    heights = base + 0.85 * heights
    axes.plot(at, heights, color=TOTAL, linestyle="--", linewidth=1.4, label=label, zorder=3)


@eqx.filter_jit
def _log_densities(prior: Prior, at: np.ndarray) -> jax.Array:
    """Of one weight with each of these values, also where a prior ties several to each other."""
    dims = max((np.ndim(leaf) for leaf in jax.tree.leaves(prior)), default=0) or 1
    return jax.vmap(lambda w: jnp.sum(prior.log_prob(jnp.full((1,) * dims, w))))(at)

"""How many weights say anything: their ratios of mean to deviation."""

from collections.abc import Sequence

import numpy as np

from .._util.checks import whole_number
from ..networks.parts import Where
from ..posteriors import Posterior
from ..posteriors.scaled import named_moments
from ..pruning.ranking import Ranking
from ..pruning.ranking import signal_to_noise as ratios
from .style import BLUE, MEAN, TOTAL, Axes, annotate

FLOOR = -100.0  # decibels: a mean below 1e-10 deviations is no mean but what an optimiser left


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
        kind = type(posterior).__name__
        raise ValueError(f"signal_to_noise: this {kind} has weights without a deviation")
    with np.errstate(divide="ignore"):
        decibels = 10 * np.log10(np.abs(mu) / sigma)
    audible = np.sort(decibels[decibels >= FLOOR])
    silent = len(mu) - len(audible)
    if not len(audible):
        raise ValueError("signal_to_noise: all means are 0, and so are all ratios")
    bins = int(np.clip(2 * np.cbrt(len(mu)), 5, 50)) if bins is None else whole_number("bins", bins)
    heights, edges = np.histogram(audible, bins)
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
    axes.set(xlim=edges[[0, -1]], ylim=(0, top))
    if fractions:
        _mark(axes, Ranking(posterior, ratios(posterior, where), "global"), fractions)
    right = axes.secondary_yaxis("right", functions=(lambda d: d / top, lambda s: s * top))
    right.set_ylabel("share below")
    labels = {"xlabel": "signal-to-noise |μ| / σ (dB)", "ylabel": "density (1 / dB)"}
    return annotate(axes, title, **labels)


def _mark(axes: Axes, ranking: Ranking, fractions: Sequence[float]) -> None:
    """Lines below which these shares of the weights lie."""
    low, high = axes.get_xlim()
    last, height = -np.inf, 0.98
    for fraction in sorted(fractions):
        if not 0 < fraction < 1:
            raise ValueError(f"fractions must lie between 0 and 1, got {fraction!r}")
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

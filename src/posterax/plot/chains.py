"""Chains: what they did over time, whether they agree, how they explored the energy."""

import numpy as np
from jaxtyping import PyTree

from ..diagnostics.chain_statistics import energy_fractions
from ..posteriors import Posterior
from .quantities import chained, quantity
from .style import BLUE, DATA, EPISTEMIC, HATCHED, MEAN, ORANGE, Axes, annotate, chain_style, smooth


def trace(
    axes: Axes,
    posterior: Posterior,
    of: str | None = None,
    *,
    x: PyTree = None,
    title: str | None = None,
) -> Axes:
    """Draw one quantity over the draws of every chain: thin the draws, bold their moving average.

    Chains that agree overlap all the way; beside them are their histograms. Ticks below are
    divergent transitions. ``axes.legend()`` names the chains.

    Args:
        axes: where to draw; the histograms take the last fifth of its width.
        posterior: of a method with chains.
        of: a weight or prediction as ``posterior.diagnose`` names it
            (``"network.layers.0.weight[3, 0]"``, ``"f(x[5])"``) or a statistic of the sampler
            (``"lp"``, ``"energy"``); by default the one with the largest R-hat.
        x: inputs: draws a prediction at them instead of a weight.
        title: above the axes.

    Example:
        >>> from matplotlib.figure import Figure
        >>> import posterax as px
        >>> from posterax.demo import curve_data, curve_model
        >>> model, data = curve_model(hidden_sizes=()), curve_data(16)
        >>> posterior = px.fit(model, data, px.NUTS(warmup=50), steps=50, key=0)
        >>> px.plot.trace(Figure().subplots(), posterior, "f(x[0])", x=data[0]).get_ylabel()
        'f(x[0])'
    """
    from matplotlib.ticker import MaxNLocator

    posterior = chained(posterior, "trace")
    values, name = quantity(posterior, of, x)
    chains, draws = values.shape
    low, high = _limits(values)
    side = axes.inset_axes((0.83, 0.0, 0.17, 1.0), sharey=axes)
    bins = np.linspace(low, high, 33)
    for chain, row in enumerate(values):
        style = chain_style(chain)
        smooth(axes, row, max(1, draws // 20), style, label=f"chain {chain}")
        heights, _ = np.histogram(row, bins, density=True)
        side.stairs(heights, bins, orientation="horizontal", **style, linewidth=1.1)
    diverging = np.asarray((posterior.stats or {}).get("diverging", np.zeros((chains, draws))))
    if diverging.any():
        when = np.flatnonzero(diverging.any(0))
        axes.plot(
            when, np.full(len(when), 0.03), "|", transform=axes.get_xaxis_transform(),
            color=MEAN, markersize=8, markeredgewidth=1.0, label="divergence", zorder=4,
        )  # fmt: skip
    side.set_xlim(left=0)
    side.axis("off")
    pad = 0.04 * (high - low)
    # the histograms' part of the axes has no draws, and so no ticks
    ticks = np.array(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]).tick_values(0, draws))
    axes.set(xlim=(0, max(draws - 1, 1) / 0.82), ylim=(low - pad, high + pad))
    annotate(axes, title, xticks=ticks[(ticks >= 0) & (ticks <= draws)], xlabel="draw", ylabel=name)
    axes.xaxis.set_label_coords(0.41, -0.13)
    return axes


def ranks(
    axes: Axes,
    posterior: Posterior,
    of: str | None = None,
    *,
    x: PyTree = None,
    bins: int | None = None,
    title: str | None = None,
) -> Axes:
    """Draw, for every chain, the histogram of its draws' ranks among the draws of all chains.

    Chains that explore the same distribution have flat histograms. The band holds 19 of 20 bars
    of independent draws; bars outside are hatched, and many of them mean chains that disagree or
    move slowly. Vehtari et al. (Bayesian Analysis 2021) prefer this picture to a trace.

    Args:
        axes: where to draw.
        posterior: of a method with chains.
        of: which weight, prediction or statistic; see ``trace``.
        x: inputs: draws a prediction at them instead of a weight.
        bins: bars of each histogram (default: as many as 20, with 20 draws or more in each).
        title: above the axes.

    Example:
        >>> from matplotlib.figure import Figure
        >>> import posterax as px
        >>> from posterax.demo import curve_data, curve_model
        >>> model, data = curve_model(hidden_sizes=()), curve_data(16)
        >>> posterior = px.fit(model, data, px.NUTS(warmup=50), steps=50, key=0)
        >>> [t.get_text() for t in px.plot.ranks(Figure().subplots(), posterior).get_yticklabels()]
        ['chain 0', 'chain 1', 'chain 2', 'chain 3']
    """
    from scipy.stats import rankdata

    values, name = quantity(chained(posterior, "ranks"), of, x)
    chains, draws = values.shape
    bins = int(np.clip(draws // 20, 2, 20)) if bins is None else bins
    rank = rankdata(values.ravel()).reshape(values.shape)
    edges = np.linspace(0.5, values.size + 0.5, bins + 1)
    # bars of one chain share the ranks with the other chains: a hypergeometric count
    expected, share = draws / bins, 1 / bins
    spread = np.sqrt(draws * share * (1 - share) * (1 - 1 / chains))
    low, high = max(expected - 1.96 * spread, 0), expected + 1.96 * spread
    tallest = max(np.histogram(row, edges)[0].max() for row in rank)
    height = 0.85 / max(tallest, high)
    for chain, row in enumerate(rank):
        base = chains - 1 - chain
        counts, _ = np.histogram(row, edges)
        outside = (counts < low) | (counts > high)
        kinds = ((~outside, BLUE, "as expected"), (outside, HATCHED, "too many or too few"))
        for chosen, fill, label in kinds:
            axes.bar(
                edges[:-1][chosen], height * counts[chosen], np.diff(edges)[chosen], bottom=base,
                align="edge", **fill, linewidth=0.7, zorder=2,
                label=label if chain == 0 and chosen.any() else None,
            )  # fmt: skip
        axes.fill_between(
            edges[[0, -1]], base + height * low, base + height * high,
            facecolor=DATA, edgecolor="none", alpha=0.22, linewidth=0, zorder=3,
            label="95 % of bars of independent draws" if chain == 0 else None,
        )  # fmt: skip
        axes.hlines(base + height * expected, *edges[[0, -1]], color=MEAN, linewidth=0.8, zorder=4)
    middles = [chains - 1 - c + height * expected for c in range(chains)]
    axes.set_yticks(middles, [f"chain {c}" for c in range(chains)])
    axes.tick_params(axis="y", length=0)
    label = f"rank of {name} among all draws"
    return annotate(axes, title, xlabel=label, xlim=edges[[0, -1]], ylim=(-0.04, chains))


def energy(axes: Axes, posterior: Posterior, *, title: str | None = None) -> Axes:
    """Draw how the energy of a Hamiltonian sampler spreads, and how it changes between draws.

    Where the change (line) is much narrower than the energy itself (filled), chains walk slowly
    through the tails; E-BFMI in the legend puts it in a number, and below 0.3 it is a problem.

    Args:
        axes: where to draw.
        posterior: of ``px.HMC`` or ``px.NUTS``.
        title: above the axes.

    Example:
        >>> from matplotlib.figure import Figure
        >>> import posterax as px
        >>> from posterax.demo import curve_data, curve_model
        >>> model, data = curve_model(hidden_sizes=()), curve_data(16)
        >>> posterior = px.fit(model, data, px.NUTS(warmup=50), steps=50, key=0)
        >>> px.plot.energy(Figure().subplots(), posterior).get_xlabel()
        'energy, from its mean'
    """
    stats = chained(posterior, "energy").stats or {}
    if "energy" not in stats:
        raise ValueError("energy: this sampler reports none; px.HMC and px.NUTS do")
    values = np.asarray(stats["energy"], np.float64)
    around = values - values.mean(1, keepdims=True)
    change = np.diff(values, axis=1)
    bins = np.linspace(*_limits(np.concatenate([around.ravel(), change.ravel()])), 41)
    axes.stairs(
        np.histogram(around, bins, density=True)[0], bins, fill=True,
        **ORANGE, linestyle="--", linewidth=1.0, label="energy",
    )  # fmt: skip
    axes.stairs(
        np.histogram(change, bins, density=True)[0], bins, color=EPISTEMIC, linewidth=1.8,
        label=f"change between draws\n(E-BFMI {energy_fractions(values).min():.2f} or more)",
    )  # fmt: skip
    axes.set_ylim(bottom=0)
    return annotate(axes, title, xlabel="energy, from its mean", ylabel="density")


def _limits(values: np.ndarray) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)

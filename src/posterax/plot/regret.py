"""The course of bandits."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from .._util.checks import one_of
from .style import Axes, annotate, by_name, chain_style

if TYPE_CHECKING:
    from ..bandits import Played

    Runs: TypeAlias = Played | ArrayLike | tuple[ArrayLike, ArrayLike]

SHOWN = 400  # points of a line
APART = 0.055  # of the height, between two names beside the lines


def regret(
    axes: Axes,
    played: "Runs | Mapping[str, Runs]",
    *,
    band: str = "range",
    log: bool = True,
    names: bool = True,
    styles: Mapping[str, dict[str, Any]] | None = None,
    title: str | None = None,
) -> Axes:
    """Draw the cumulative regret of policies: the mean over their runs, and a band.

    Flat means that nothing is lost any more; on a linear scale a straight climb is a policy that
    does not learn.

    Args:
        axes: where to draw.
        played: ``{name: played}`` with what ``px.bandits.play`` returned; or ``played`` alone; or
            in its place the regret of every interaction, (runs, interactions); or a tuple
            (interactions, cumulative regret after them (runs, points)).
        band: ``"range"``, from the least to the largest run; ``"error"``, ± one standard error of
            the mean; or ``"none"``.
        log: logarithmic regret, as such curves are mostly drawn.
        names: write each name at the end of its line, right of the axes.
        styles: colour and dashes by name, such as ``px.plot.chain_style(0)``, where several
            pictures share them.
        title: above the axes.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> from matplotlib.figure import Figure
        >>> drawn = {"coin": np.full((3, 50), 0.5), "learns": np.eye(50)[:3]}
        >>> axes = px.plot.regret(Figure().subplots(), drawn)
        >>> axes.get_legend_handles_labels()[1]
        ['coin', 'learns']
    """
    one_of("band", band, ("range", "error", "none"))
    several: dict[str, Runs] = by_name("played", played)
    curves = {name: _curve(one, name) for name, one in several.items()}
    ends = {}
    for index, (name, (after, runs)) in enumerate(curves.items()):
        style = (styles or {}).get(name) or chain_style(index)
        mean = runs.mean(0)
        shown = np.where(mean > 0, mean, np.nan) if log else mean
        axes.plot(after, shown, **style, linewidth=1.7, label=name or "mean", zorder=3)
        ends[name] = (float(mean[-1]), style["color"])
        if len(runs) > 1 and band != "none":
            low, high = runs.min(0), runs.max(0)
            if band == "error":
                error = runs.std(0, ddof=1) / np.sqrt(len(runs))
                low, high = mean - error, mean + error
            low = np.maximum(low, np.nanmin(shown)) if log and np.any(mean > 0) else low
            axes.fill_between(
                after, low, high, color=style["color"], alpha=0.18, linewidth=0, zorder=2
            )
    last = max(int(after[-1]) for after, _ in curves.values())
    axes.set_xlim(0, last)
    if log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.grid(axis="y", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if names:
        _names(axes, {name: end for name, end in ends.items() if name}, last)
    words = {"range": "least to largest run", "error": "± one standard error", "none": ""}[band]
    note = f"\n(band: {words})" if any(len(runs) > 1 for _, runs in curves.values()) else ""
    return annotate(axes, "interactions", f"cumulative regret{note}", title)


def _curve(played: "Runs", name: str) -> tuple[np.ndarray, np.ndarray]:
    """Interactions (points,), and the cumulative regret after them (runs, points)."""
    if not hasattr(played, "regret") and isinstance(played, tuple) and len(played) == 2:
        after, runs = np.asarray(played[0], np.int64), np.atleast_2d(np.asarray(played[1], float))
    else:
        each = np.atleast_2d(np.asarray(getattr(played, "regret", played), np.float64))
        steps = each.shape[-1] if each.ndim == 2 else 0
        after = np.unique(np.linspace(1, max(steps, 1), min(SHOWN, max(steps, 1))).astype(int))
        runs = np.cumsum(each, -1)[:, after - 1] if steps else np.zeros((0, 0))
    if runs.ndim != 2 or runs.shape[1:] != after.shape or not runs.size:
        raise ValueError(
            f"played{f': {name}' * bool(name)} must be what px.bandits.play returned, the regret "
            "of each interaction (runs, interactions), or a tuple (interactions, cumulative regret)"
        )
    return after, runs


def _names(axes: Axes, ends: dict[str, tuple[float, str]], last: int) -> None:
    """Names at the right, at the heights of the lines' ends but never on one another."""
    floor = axes.get_ylim()[0]
    names = sorted(ends, key=lambda name: max(ends[name][0], floor))
    data = [(last, max(ends[name][0], floor)) for name in names]
    to_axes = axes.transData + axes.transAxes.inverted()
    heights = to_axes.transform(data)[:, 1] if names else np.zeros(0)
    for i in range(len(heights)):  # upwards from the lowest
        heights[i] = max(heights[i], heights[i - 1] + APART if i else 0)
    if len(heights) and heights[-1] > 1:  # too many at the top: downwards again
        heights = np.minimum(heights, 1 - APART * np.arange(len(heights))[::-1])
    for name, height in zip(names, heights.tolist(), strict=True):
        axes.annotate(
            name, (1.01, height), xycoords="axes fraction", color=ends[name][1], va="center",
            fontsize="small", annotation_clip=False,
        )  # fmt: skip

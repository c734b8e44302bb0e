"""Colours, dashes and lines that all pictures share."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

if TYPE_CHECKING:
    import matplotlib.axes

    Axes: TypeAlias = matplotlib.axes.Axes
else:
    Axes = Any  # matplotlib is imported only when something is drawn

T = TypeVar("T")

# Edges in Okabe and Ito's blue and orange, which colour-blind eyes tell apart; fills are the same
# hues, opaque and far apart in lightness, and one edge is dashed, so that grey prints stay clear.
MEAN, DATA = "#111111", "#555555"
EPISTEMIC, EPISTEMIC_FILL = "#0072B2", "#7FB9DA"
TOTAL, TOTAL_FILL = "#C98B00", "#FCE7BE"
STRIP_FILL = "#E4E4E4"  # of what stands in the background

# Filled areas: the usual blue, the orange around it, and what a reader is warned of.
BLUE: dict[str, Any] = {"facecolor": EPISTEMIC_FILL, "edgecolor": EPISTEMIC}
ORANGE: dict[str, Any] = {"facecolor": TOTAL_FILL, "edgecolor": TOTAL}
HATCHED = ORANGE | {"hatch": "////"}
GREY: dict[str, Any] = {"facecolor": STRIP_FILL, "edgecolor": DATA, "linewidth": 0.6}

# One for each chain, from the same palette: colour and dashes both tell them apart.
CHAINS = ("#0072B2", "#D55E00", "#009E73", "#111111", "#CC79A7", "#E69F00")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (5, 1.2, 1, 1.2)), (0, (1.2, 1)))
MARKERS = ("o", "s", "D", "^", "v", "X")

MOST_POINTS = 2000  # of a line: more only blacken the picture


def chain_style(chain: int) -> dict[str, Any]:
    """The colour and dashes of a chain.

    Example:
        >>> from posterax.plot.style import chain_style
        >>> chain_style(0)
        {'color': '#0072B2', 'linestyle': '-'}
    """
    return {"color": CHAINS[chain % len(CHAINS)], "linestyle": DASHES[chain % len(DASHES)]}


def method_style(index: int) -> dict[str, Any]:
    """The colour, dashes and marker of a method among several.

    Example:
        >>> from posterax.plot.style import method_style
        >>> method_style(1)["marker"]
        's'
    """
    return {**chain_style(index), "marker": MARKERS[index % len(MARKERS)], "markersize": 4.5}


def annotate(axes: Axes, title: str | None, **properties: Any) -> Axes:
    """The axes with these properties (names, limits), and a title where one is given."""
    axes.set(**properties)
    if title is not None:
        axes.set_title(title)
    return axes


def by_name(argument: str, given: T | Mapping[str, T], name: str = "") -> dict[str, T]:
    """What is to be drawn, by name; one alone has this name."""
    several = given if isinstance(given, Mapping) else {name: given}
    if not several:
        raise ValueError(f"{argument} is empty: give at least one")
    return {str(name): one for name, one in several.items()}


def many_axes(axes: Any) -> bool:
    """Whether these are axes in a list or an array, and not one."""
    return isinstance(axes, (Sequence, np.ndarray))


def smooth(
    axes: Axes, values: np.ndarray, window: int, style: dict[str, Any], start: int = 0, **more: Any
) -> np.ndarray:
    """Draw a moving average over so many values, and these thin behind it; return it."""
    every = max(1, len(values) // MOST_POINTS)
    thin = {"color": style["color"], "linewidth": 0.5, "alpha": 0.3, "zorder": 1}
    axes.plot(start + np.arange(0, len(values), every), values[::every], **thin)
    average = np.convolve(values, np.ones(window) / window, "valid")
    middle = start + np.arange(len(average)) + (window - 1) / 2
    axes.plot(middle[::every], average[::every], **style, linewidth=1.6, zorder=3, **more)
    return average

"""Colours and dashes that all pictures share."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Edges in Okabe and Ito's blue and orange, which colour-blind eyes tell apart; fills are the same
# hues, opaque and far apart in lightness, and one edge is dashed, so that grey prints stay clear.
MEAN, DATA = "#111111", "#555555"
EPISTEMIC, EPISTEMIC_FILL = "#0072B2", "#7FB9DA"
TOTAL, TOTAL_FILL = "#C98B00", "#FCE7BE"
STRIP_FILL = "#E4E4E4"  # of what stands in the background

# One for each chain, from the same palette: colour and dashes both tell them apart.
CHAINS = ("#0072B2", "#D55E00", "#009E73", "#111111", "#CC79A7", "#E69F00")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (5, 1.2, 1, 1.2)), (0, (1.2, 1)))
MARKERS = ("o", "s", "D", "^", "v", "X")


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


def annotate(axes: "Axes", x: str, y: str, title: str | None) -> None:
    """Name both axes, and put a title where one is given."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if title is not None:
        axes.set_title(title)


def many_axes(axes: Any) -> bool:
    """Whether these are axes in a list or an array, and not one."""
    return isinstance(axes, (Sequence, np.ndarray))

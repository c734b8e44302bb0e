"""Colours and dashes that all pictures share."""

from typing import Any

# Edges in Okabe and Ito's blue and orange, which colour-blind eyes tell apart; fills are the same
# hues, opaque and far apart in lightness, and one edge is dashed, so that grey prints stay clear.
MEAN, DATA = "#111111", "#555555"
EPISTEMIC, EPISTEMIC_FILL = "#0072B2", "#7FB9DA"
TOTAL, TOTAL_FILL = "#C98B00", "#FCE7BE"

# One for each chain, from the same palette: colour and dashes both tell them apart.
CHAINS = ("#0072B2", "#D55E00", "#009E73", "#111111", "#CC79A7", "#E69F00")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (5, 1.2, 1, 1.2)), (0, (1.2, 1)))


def chain_style(chain: int) -> dict[str, Any]:
    """The colour and dashes of a chain.

    Example:
        >>> from posterax.plot.style import chain_style
        >>> chain_style(0)
        {'color': '#0072B2', 'linestyle': '-'}
    """
    return {"color": CHAINS[chain % len(CHAINS)], "linestyle": DASHES[chain % len(DASHES)]}

"""Pictures: axes in, axes out. matplotlib is imported only when something is drawn."""

from .bands import regression_band
from .chains import energy, ranks, trace
from .style import (
    CHAINS,
    DATA,
    EPISTEMIC,
    EPISTEMIC_FILL,
    MEAN,
    TOTAL,
    TOTAL_FILL,
    chain_style,
)

__all__ = [
    "CHAINS",
    "DATA",
    "EPISTEMIC",
    "EPISTEMIC_FILL",
    "MEAN",
    "TOTAL",
    "TOTAL_FILL",
    "chain_style",
    "energy",
    "ranks",
    "regression_band",
    "trace",
]

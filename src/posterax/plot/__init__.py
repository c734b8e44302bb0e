"""Pictures: each draws on the axes it is given, and returns them.

matplotlib is imported only when something is drawn.
"""

from .bands import regression_band
from .chains import energy, ranks, trace
from .comparison import comparison
from .curves import learning_curve, regret
from .images import images
from .reliability import predictive_check, quantile_calibration, reliability
from .signal_to_noise import signal_to_noise
from .style import (
    CHAINS,
    DATA,
    EPISTEMIC,
    EPISTEMIC_FILL,
    MEAN,
    TOTAL,
    TOTAL_FILL,
    chain_style,
    method_style,
)
from .training import training
from .uncertainty import accuracy_rejection, entropy_histogram
from .weights import weights

__all__ = [
    "CHAINS",
    "DATA",
    "EPISTEMIC",
    "EPISTEMIC_FILL",
    "MEAN",
    "TOTAL",
    "TOTAL_FILL",
    "accuracy_rejection",
    "chain_style",
    "comparison",
    "energy",
    "entropy_histogram",
    "images",
    "learning_curve",
    "method_style",
    "predictive_check",
    "quantile_calibration",
    "ranks",
    "regression_band",
    "regret",
    "reliability",
    "signal_to_noise",
    "trace",
    "training",
    "weights",
]

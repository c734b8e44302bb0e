"""How good predictions are."""

from typing import Any

import numpy as np


def expected_calibration_error(probabilities: Any, y: Any, *, bins: int = 15) -> float:
    r"""Σ_b n_b/n · |accuracy_b − confidence_b| over bins of the top probability (Guo et al. 2017).

    Args:
        probabilities: class probabilities, (N, K).
        y: labels 0 … K−1.
        bins: bins of equal width on [0, 1].

    Example:
        >>> import numpy as np
        >>> from posterax.metrics import expected_calibration_error
        >>> p = np.array([[0.75, 0.25]] * 4)
        >>> expected_calibration_error(p, [0, 0, 0, 1])
        0.0
    """
    p, y = np.asarray(probabilities, np.float64), np.asarray(y)
    confidence, right = p.max(-1), p.argmax(-1) == y
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    gap = np.bincount(place, weights=right - confidence, minlength=bins)
    return float(np.abs(gap).sum() / len(y))


def negative_log_likelihood(predictive: Any, y: Any) -> float:
    """Mean −log p(y | x, D) under a predictive."""
    return -float(np.mean(predictive.log_prob(y)))


def coverage(predictive: Any, y: Any, level: float = 0.9) -> float:
    """The share of targets inside the central interval of this mass; should be ``level``."""
    low, high = predictive.interval(level)
    y = np.asarray(y)
    return float(np.mean((low <= y) & (y <= high)))

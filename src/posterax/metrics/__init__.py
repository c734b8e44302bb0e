"""How good predictions are: scores, calibration, intervals, rejection, detection.

Every function takes a ``Predictive`` (of any method), and plain class probabilities (N, K) where
these say all that it needs.
"""

from collections.abc import Callable

from numpy.typing import ArrayLike

from .crps import crps, crps_each
from .detection import Detection, detection, detection_by_score, uncertainty_score
from .evaluate import Evaluation, Score, evaluate
from .inputs import Forecast, Weight, predicts_values
from .intervals import (
    QuantileCalibration,
    coverage,
    interval_score,
    mean_width,
    quantile_calibration,
    quantile_calibration_error,
    sharpness,
)
from .ranking import Threshold, auc, average_precision, best_threshold, confusion
from .rejection import (
    ErrorRejection,
    Rejection,
    RejectionArea,
    accuracy_rejection,
    rejection_area,
    rmse_rejection,
)
from .scores import (
    Reliability,
    accuracy,
    adaptive_calibration_error,
    brier_score,
    expected_calibration_error,
    maximum_calibration_error,
    mean_absolute_error,
    negative_log_likelihood,
    reliability,
    root_mean_squared_error,
)

__all__ = [
    "Detection", "ErrorRejection", "Evaluation", "QuantileCalibration", "Rejection",
    "RejectionArea", "Reliability", "Score", "Threshold", "accuracy", "accuracy_rejection",
    "adaptive_calibration_error", "auc", "average_precision", "best_threshold", "brier_score",
    "confusion", "coverage", "crps", "crps_each", "detection", "detection_by_score", "evaluate",
    "expected_calibration_error", "interval_score", "maximum_calibration_error",
    "mean_absolute_error", "mean_width", "negative_log_likelihood", "quantile_calibration",
    "quantile_calibration_error", "rejection_area", "reliability", "rmse_rejection",
    "root_mean_squared_error", "sharpness", "summary", "uncertainty_score",
]  # fmt: skip


def summary(
    predictive: Forecast, y: ArrayLike, *, level: float = 0.9, bins: int = 15, weight: Weight = None
) -> dict[str, float]:
    """All metrics that fit the kind of the predictive, by name, as plain numbers.

    ``evaluate`` gives the usual ones with intervals and a baseline.

    Args:
        predictive: a ``Predictive``, or class probabilities (N, K).
        y: targets, or labels 0 … K−1.
        level: of the intervals.
        bins: of the calibration errors of classes.
        weight: of each example.

    Example:
        >>> import posterax as px
        >>> scores = px.metrics.summary([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7]], [0, 1, 0])
        >>> {name: round(value, 3) for name, value in scores.items()}
        {'accuracy': 0.667, 'negative_log_likelihood': 0.607, 'brier_score': 0.44,
         'expected_calibration_error': 0.4, 'maximum_calibration_error': 0.7,
         'adaptive_calibration_error': 0.4, 'sharpness': 0.536, 'rejection_area': 0.722}
    """
    each: tuple[Callable[..., float], ...] = (accuracy, negative_log_likelihood, brier_score)
    if predicts_values(predictive):
        each = (negative_log_likelihood, root_mean_squared_error, mean_absolute_error, crps)
        each = (*each, quantile_calibration_error)
    scores = {score.__name__: score(predictive, y, weight=weight) for score in each}
    if predicts_values(predictive):
        ends = predictive.interval(level)
        scores["coverage"] = coverage(ends, y, level, weight=weight)
        scores["mean_width"] = mean_width(ends, level, weight=weight)
        scores["interval_score"] = interval_score(ends, y, level, weight=weight)
    else:
        for error in (
            expected_calibration_error, maximum_calibration_error, adaptive_calibration_error
        ):  # fmt: skip
            scores[error.__name__] = error(predictive, y, bins=bins, weight=weight)
    scores["sharpness"] = sharpness(predictive, weight=weight)
    scores["rejection_area"] = rejection_area(predictive, y, weight=weight).area
    return scores

"""Scores of single predictions, averaged, and whether their probabilities mean what they say.

Those of probabilities are proper: no other forecast than what one believes does better on average
(Gneiting & Raftery, Strictly Proper Scoring Rules, Prediction, and Estimation, JASA 2007).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._util.checks import whole_number
from .inputs import (
    Forecast,
    Weight,
    aligned,
    class_labels,
    class_probabilities,
    example_weights,
    is_predictive,
    values,
    weighted_mean,
)


def negative_log_likelihood(predictive: Forecast, y: ArrayLike, *, weight: Weight = None) -> float:
    """Mean −log p(y | x, D), in nats an example; several targets of one example count jointly.

    Args:
        predictive: a ``Predictive``, or class probabilities (N, K). A probability of 0 that came
            true gives infinity (scikit-learn's ``log_loss`` clips it).
        y: targets, or labels 0 … K−1.
        weight: of each example.

    Example:
        >>> from posterax.metrics import negative_log_likelihood
        >>> round(negative_log_likelihood([[0.5, 0.5], [0.25, 0.75]], [0, 1]), 4)
        0.4904
    """
    return -weighted_mean(log_likelihoods(predictive, y), weight)


def log_likelihoods(predictive: Forecast, y: ArrayLike) -> np.ndarray:
    """log p(y | x, D) of each example, (N,)."""
    if is_predictive(predictive):
        return np.asarray(predictive.log_prob(y), np.float64)
    p = class_probabilities(predictive)
    with np.errstate(divide="ignore"):
        each = np.log(np.take_along_axis(p, class_labels(y, p)[..., None], -1))
    return each.reshape(len(p), -1).sum(-1)


def accuracy(probabilities: Forecast, y: ArrayLike, *, weight: Weight = None) -> float:
    """The share of examples whose most probable class is the right one.

    Example:
        >>> from posterax.metrics import accuracy
        >>> accuracy([[0.9, 0.1], [0.4, 0.6]], [0, 0])
        0.5
    """
    p = class_probabilities(probabilities)
    return weighted_mean(p.argmax(-1) == class_labels(y, p), weight)


def brier_score(probabilities: Forecast, y: ArrayLike, *, weight: Weight = None) -> float:
    """Mean Σ_k (p_k − 1[y = k])², from 0 to 2 (Brier 1950).

    For two classes it is twice scikit-learn's ``brier_score_loss`` as that is by default, which
    takes the positive class alone; for more it is that with ``scale_by_half=False``.

    Args:
        probabilities: a ``Predictive`` of classes, or class probabilities (N, K).
        y: labels 0 … K−1.
        weight: of each example.

    Example:
        >>> from posterax.metrics import brier_score
        >>> brier_score([[0.5, 0.5], [0.0, 1.0]], [0, 1])
        0.25

    References:
        Brier, Verification of Forecasts Expressed in Terms of Probability, Monthly Weather Review
        1950.
    """
    p = class_probabilities(probabilities)
    return weighted_mean(squared_distances(p, class_labels(y, p)), weight)


def squared_distances(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Σ_k (p_k − 1[y = k])² of each label."""
    return np.square(p - (np.arange(p.shape[-1]) == y[..., None])).sum(-1)


def root_mean_squared_error(predictive: Forecast, y: ArrayLike, *, weight: Weight = None) -> float:
    """√ mean (y − E[y])² over examples and targets, in the units of y.

    Args:
        predictive: of regression or counts, or plain predictions in the shape of y.
        y: targets.
        weight: of each example.

    Example:
        >>> from posterax.metrics import root_mean_squared_error
        >>> root_mean_squared_error([1.0, 2.0], [1.0, 4.0])
        1.41421...
    """
    mean = values(predictive, "mean")
    return weighted_mean(np.square(mean - aligned(y, mean.shape)), weight) ** 0.5


def mean_absolute_error(predictive: Forecast, y: ArrayLike, *, weight: Weight = None) -> float:
    """Mean of the distance of y from the predictive median, which makes it least.

    Takes what ``root_mean_squared_error`` takes.

    Example:
        >>> from posterax.metrics import mean_absolute_error
        >>> mean_absolute_error([1.0, 2.0], [1.0, 4.0])
        1.0
    """
    median = values(predictive, "median")
    return weighted_mean(np.abs(median - aligned(y, median.shape)), weight)


# -- calibration: of the predictions given 0.8, four of five should come true


class Reliability(NamedTuple):
    """One number for each bin of the top probability; NaN in the first two where it is empty."""

    confidence: np.ndarray  # mean top probability
    accuracy: np.ndarray  # share of right predictions
    # a field of this name hides tuple.count, which nobody needs of arrays
    count: np.ndarray  # type: ignore[assignment]  # examples, or the sum of their weights

    @property
    def gap(self) -> np.ndarray:
        """accuracy − confidence, below 0 where the predictions are over-confident."""
        return self.accuracy - self.confidence

    @property
    def mean_gap(self) -> float:
        """Its size, averaged over the examples."""
        return float(np.nansum(np.abs(self.gap) * self.count) / self.count.sum())


def reliability(
    probabilities: Forecast,
    y: ArrayLike,
    *,
    bins: int = 15,
    adaptive: bool = False,
    weight: Weight = None,
) -> Reliability:
    """Confidence and accuracy of the most probable class by bins of its probability.

    Bins are closed on the right as in Guo et al. (2017).

    Args:
        probabilities: a ``Predictive`` of classes, or class probabilities (N, K).
        y: labels 0 … K−1.
        bins: how many.
        adaptive: bins between quantiles of the confidence, so that they hold equally many examples
            (equal confidences stay in one bin), instead of bins of equal width on [0, 1].
        weight: of each example.

    Example:
        >>> import numpy as np
        >>> from posterax.metrics import reliability
        >>> p = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]])
        >>> bins = reliability(p, [0, 1, 1], bins=2, adaptive=True)
        >>> bins.confidence, bins.accuracy, bins.count
        (array([0.8, nan]), array([0.66666667,  nan]), array([3., 0.]))

    References:
        Guo et al., On Calibration of Modern Neural Networks, ICML 2017.
        Nixon et al., Measuring Calibration in Deep Learning, CVPR workshops 2019 (adaptive bins).
    """
    bins = whole_number("bins", bins)
    p = class_probabilities(probabilities)
    right = (p.argmax(-1) == class_labels(y, p)).ravel()
    w = example_weights(weight, p.shape[:-1]).ravel()
    confidence = p.max(-1).ravel()
    edges = np.linspace(0, 1, bins + 1)
    if adaptive:  # confidences that occur, so that weights count like repeated examples
        shares = np.arange(bins + 1) / bins  # rounded as k/n are, which linspace's are not
        edges = np.quantile(confidence, shares, weights=w, method="inverted_cdf")
    place = np.searchsorted(edges[1:-1], confidence)

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(place, weights=values, minlength=bins)

    count = total(w)
    each = np.where(count > 0, count, np.nan)
    return Reliability(total(w * confidence) / each, total(w * right) / each, count)


def expected_calibration_error(
    probabilities: Forecast, y: ArrayLike, *, bins: int = 15, weight: Weight = None
) -> float:
    r"""Σ_b n_b/n · |accuracy_b − confidence_b| over bins of the top probability (Guo et al. 2017).

    It depends on ``bins`` and is above 0 for a perfectly calibrated model too, by the chance in n
    examples: compare models on the same ones.

    Args:
        probabilities: a ``Predictive`` of classes, or class probabilities (N, K).
        y: labels 0 … K−1.
        bins: bins of equal width on [0, 1].
        weight: of each example.

    Example:
        >>> import numpy as np
        >>> from posterax.metrics import expected_calibration_error
        >>> p = np.array([[0.75, 0.25]] * 4)
        >>> expected_calibration_error(p, [0, 0, 0, 1])
        0.0
    """
    return reliability(probabilities, y, bins=bins, weight=weight).mean_gap


def adaptive_calibration_error(
    probabilities: Forecast, y: ArrayLike, *, bins: int = 15, weight: Weight = None
) -> float:
    """The expected calibration error with bins that hold equally many examples.

    Confident networks leave most bins of equal width nearly empty; these they cannot (Nixon et
    al. 2019, who also average over classes; here it is the most probable class, as above).

    Example:
        >>> import numpy as np
        >>> from posterax.metrics import adaptive_calibration_error
        >>> p = np.array([[0.5, 0.5], [0.75, 0.25], [1.0, 0.0], [1.0, 0.0]])
        >>> adaptive_calibration_error(p, [0, 1, 0, 0], bins=2)
        0.0625
    """
    return reliability(probabilities, y, bins=bins, adaptive=True, weight=weight).mean_gap


def maximum_calibration_error(
    probabilities: Forecast, y: ArrayLike, *, bins: int = 15, weight: Weight = None
) -> float:
    """max_b |accuracy_b − confidence_b| over bins that are not empty (Guo et al. 2017).

    A bin with a single example counts like any other: for few examples it is mostly chance.

    Example:
        >>> import numpy as np
        >>> from posterax.metrics import maximum_calibration_error
        >>> maximum_calibration_error(np.array([[0.75, 0.25], [0.0, 1.0]]), [1, 1])
        0.75
    """
    return float(np.nanmax(np.abs(reliability(probabilities, y, bins=bins, weight=weight).gap)))

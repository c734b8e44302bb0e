r"""Whether probabilities mean what they say: of those given 0.8, four of five should come true."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._util.checks import whole_number
from .inputs import Forecast, Weight, class_labels, class_probabilities, example_weights


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
    return _mean_gap(reliability(probabilities, y, bins=bins, weight=weight))


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
    return _mean_gap(reliability(probabilities, y, bins=bins, adaptive=True, weight=weight))


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


def _mean_gap(bins: Reliability) -> float:
    return float(np.nansum(np.abs(bins.gap) * bins.count) / bins.count.sum())

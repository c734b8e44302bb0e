r"""What is gained where the least certain predictions are left to somebody else.

Examples are rejected in the order of an uncertainty score, the most uncertain first. Equal scores
are rejected in random order, and the curves hold the expectation over it (with weights, in the
order of these), that of errors the root of the expected mean square.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .detection import uncertainty_score
from .inputs import (
    Forecast,
    Weight,
    aligned,
    class_labels,
    class_probabilities,
    example_weights,
    predicts_values,
    values,
)

ORDERS = (8, 1000)  # random ones to average over, the fewer the more examples there are
EXAMPLES = 200_000  # in all of them together


class Rejection(NamedTuple):
    """Accuracy of what is kept, by the share that is rejected (0, 1/N, … 1 − 1/N)."""

    rejected: np.ndarray
    accuracy: np.ndarray

    @property
    def area(self) -> float:
        """The mean accuracy over all shares of rejection: the area under the curve."""
        return _area(*self)


class ErrorRejection(NamedTuple):
    """Root mean squared error of what is kept, by the share that is rejected."""

    rejected: np.ndarray
    rmse: np.ndarray

    @property
    def area(self) -> float:
        """The mean error over all shares of rejection: the area under the curve."""
        return _area(*self)


class RejectionArea(NamedTuple):
    """The area under a rejection curve, and those of a random order and of an oracle's."""

    area: float
    random: float
    oracle: float

    @property
    def gained(self) -> float:
        """(area − random) / (oracle − random): 0 at random, 1 for an oracle (Malinin et al. 2020).

        NaN where there is nothing to gain, all being right or all wrong.
        """
        room = self.oracle - self.random
        return (self.area - self.random) / room if room else float("nan")


def accuracy_rejection(
    probabilities: Forecast,
    y: ArrayLike,
    score: str | ArrayLike = "total",
    *,
    weight: Weight = None,
) -> Rejection:
    """Accuracy of the kept predictions as more and more uncertain ones are rejected.

    Args:
        probabilities: a ``Predictive`` of classes, or class probabilities (N, K).
        y: labels 0 … K−1.
        score: a name for ``uncertainty_score``, or an uncertainty of your own for each example.
        weight: of each example; the shares are shares of weight then.

    Example:
        >>> from posterax.metrics import accuracy_rejection
        >>> curve = accuracy_rejection([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]], [0, 0, 1])
        >>> curve.rejected, curve.accuracy
        (array([0. , 0.33333333, 0.66666667]), array([0.66666667, 1. , 1. ]))
        >>> round(curve.area, 3)
        0.889

    References:
        Nadeem, Zucker & Hanczar, Accuracy-Rejection Curves (ARCs) for Comparing Classification
        Methods with a Reject Option, MLSB 2010.
    """
    wrong, scores, w = _read(probabilities, y, score, weight, classes=True)
    return Rejection(*_curve(1 - wrong, scores, w))


def rmse_rejection(
    predictive: Forecast, y: ArrayLike, score: str | ArrayLike = "total", *, weight: Weight = None
) -> ErrorRejection:
    """Root mean squared error of the kept predictions as more uncertain ones are rejected.

    Args:
        predictive: of regression or counts; or plain predictions in the shape of y with an array
            ``score``.
        y: targets. Several of one example are averaged, and their uncertainties are summed.
        score: a name for ``uncertainty_score``, or an uncertainty of your own for each example.
        weight: of each example.

    Where equal scores leave the order open, the curve is the root of the expected mean square,
    which lies a little above the expected root that ``rejection_area`` has.

    Example:
        >>> import numpy as np
        >>> from posterax.metrics import rmse_rejection
        >>> curve = rmse_rejection(np.array([1.0, 2.0]), [1.0, 5.0], score=np.array([0.1, 0.9]))
        >>> curve.rejected, curve.rmse
        (array([0. , 0.5]), array([2.12132034, 0. ]))
    """
    rejected, square = _curve(*_read(predictive, y, score, weight, classes=False))
    return ErrorRejection(rejected, np.sqrt(square))


def rejection_area(
    predictive: Forecast, y: ArrayLike, score: str | ArrayLike = "total", *, weight: Weight = None
) -> RejectionArea:
    """The area under the rejection curve, to be read between a random order's and an oracle's.

    Of accuracy for classes (larger is better), of the root mean squared error for regression
    (smaller is better). The oracle rejects the largest error first. Expectations over random orders
    are exact for accuracy; the root of a mean has none in closed form, and its mean is over 8 to
    1000 orders (1000 up to 200 examples), the same at every call.

    Example:
        >>> from posterax.metrics import rejection_area
        >>> areas = rejection_area([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]], [0, 1, 0])
        >>> [round(v, 3) for v in (*areas, areas.gained)]
        [0.722, 0.667, 0.889, 0.25]

    References:
        Malinin, Mlodozeniec & Gales, Ensemble Distribution Distillation, ICLR 2020 (the ratio).
    """
    classes = not predicts_values(predictive)
    loss, scores, w = _read(predictive, y, score, weight, classes=classes)

    def area(scores: np.ndarray) -> float:
        if not classes:
            return _mean_area(loss, scores, w)
        rejected, wrong = _curve(loss, scores, w)
        return _area(rejected, 1 - wrong)

    return RejectionArea(area(scores), area(np.zeros_like(scores)), area(loss))


def _read(
    given: Forecast, y: ArrayLike, score: str | ArrayLike, weight: Weight, *, classes: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The loss of each prediction (1 for a wrong class, or a squared error), score and weight."""
    if classes:
        p = class_probabilities(given)
        loss = (p.argmax(-1) != class_labels(y, p)).astype(float)
    else:
        mean = values(given)
        square = np.square(mean - aligned(y, mean.shape))
        loss = square.reshape(len(square), -1).mean(-1)
    if isinstance(score, str):
        scores = uncertainty_score(given, score).astype(np.float64)
    else:
        scores = aligned(score, loss.shape, "score").astype(np.float64)
    return loss.ravel(), scores.ravel(), example_weights(weight, loss.shape).ravel()


def _curve(
    values: np.ndarray, scores: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The weighted mean of ``values`` over what is kept, from all to the most certain one."""
    used = weight > 0
    values, scores, weight = values[used], scores[used], weight[used]
    group = np.unique(scores, return_inverse=True)[1]
    # of equal scores any may be first: each stands for the mean of its group
    mean = np.bincount(group, weight * values) / np.bincount(group, weight)
    order = np.lexsort((weight, group))
    weight = weight[order]
    mass = np.cumsum(weight)
    kept = np.cumsum(weight * mean[group[order]]) / mass
    return 1 - mass[::-1] / mass[-1], kept[::-1]


def _mean_area(square: np.ndarray, scores: np.ndarray, weight: np.ndarray) -> float:
    """The area under the curve of root mean squares, averaged over orders of equal scores."""
    first = np.lexsort((weight, square, scores))  # whatever the order of the examples
    first = first[weight[first] > 0]
    square, scores, weight = square[first], scores[first], weight[first]
    group = np.cumsum(np.diff(scores, prepend=scores[0]) > 0)
    count = int(np.clip(EXAMPLES // len(group), *ORDERS)) if group[-1] + 1 < len(group) else 1
    rng = np.random.default_rng(0)
    areas = []
    for _ in range(count):
        order = np.lexsort((rng.random(len(group)), group))
        w = weight[order]
        kept = np.cumsum(w * square[order]) / np.cumsum(w)
        areas.append(np.average(np.sqrt(kept), weights=w))
    return float(np.mean(areas))


def _area(rejected: np.ndarray, kept: np.ndarray) -> float:
    # each value holds until the next example goes; a trapezium has no value where all are rejected
    return float(np.sum(kept * np.diff(rejected, append=1.0)))

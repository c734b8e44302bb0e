"""Whether y falls where the predictive said it would, and how much room that took."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr

from .._util.admit import admit_float64
from .._util.checks import fraction
from .inputs import (
    Forecast,
    Weight,
    aligned,
    class_probabilities,
    example_weights,
    only_values,
    predicts_values,
    weighted_mean,
)


def coverage(
    predictive: Forecast, y: ArrayLike, level: float = 0.9, *, weight: Weight = None
) -> float:
    """The share of targets inside the central interval of this mass; should be ``level``.

    Of N independent targets the share has a standard deviation of √(level (1 − level) / N) by
    chance alone.

    Args:
        predictive: of regression or counts; or a pair of arrays, the lower and the upper ends
            (``level`` is of no matter then).
        y: targets.
        level: the mass of the interval.
        weight: of each example.

    Example:
        >>> from posterax.metrics import coverage
        >>> coverage(([0.0, 0.0], [1.0, 1.0]), [0.5, 2.0])
        0.5
    """
    low, high = _ends(predictive, level)
    y = aligned(y, low.shape)
    return weighted_mean((low <= y) & (y <= high), weight)


def mean_width(predictive: Forecast, level: float = 0.9, *, weight: Weight = None) -> float:
    """The mean width of the central interval of this mass, in the units of y.

    Of predictives that cover y as often as they say, the one with the least width is the best.

    Example:
        >>> from posterax.metrics import mean_width
        >>> mean_width(([0.0, 0.0], [1.0, 2.0]))
        1.5
    """
    low, high = _ends(predictive, level)
    return weighted_mean(high - low, weight)


def interval_score(
    predictive: Forecast, y: ArrayLike, level: float = 0.9, *, weight: Weight = None
) -> float:
    r"""Width plus a penalty for what falls outside, in the units of y; smaller is better.

        (u − l) + 2/α · max(l − y, 0) + 2/α · max(y − u, 0),  α = 1 − level

    The true central interval makes it least on average, so it weighs coverage against width.

    Args:
        predictive: of regression or counts; or a pair of arrays, the lower and the upper ends of
            intervals that were made for this ``level``.
        y: targets.
        level: the mass of the interval.
        weight: of each example.

    Example:
        >>> from posterax.metrics import interval_score
        >>> interval_score(([0.0, 0.0], [1.0, 1.0]), [0.5, 2.0], level=0.5)
        3.0

    References:
        Winkler, A Decision-Theoretic Approach to Interval Estimation, JASA 1972.
        Gneiting & Raftery, Strictly Proper Scoring Rules, Prediction, and Estimation, JASA 2007.
    """
    low, high = _ends(predictive, level)
    y = aligned(y, low.shape)
    outside = np.maximum(low - y, 0) + np.maximum(y - high, 0)
    return weighted_mean(high - low + 2 / (1 - level) * outside, weight)


def sharpness(predictive: Forecast, *, weight: Weight = None) -> float:
    """How narrow predictions are, whatever came true: their mean deviation, or mean entropy.

    Regression and counts: the mean of the predictive standard deviation, in the units of y.
    Classes: the mean entropy of the probabilities, in nats. Smaller is sharper, which is better
    among calibrated predictions only (Gneiting, Balabdaoui & Raftery, Probabilistic Forecasts,
    Calibration and Sharpness, JRSS B 2007).

    Args:
        predictive: a ``Predictive``, or class probabilities (N, K).
        weight: of each example.

    Example:
        >>> from posterax.metrics import sharpness
        >>> round(sharpness([[0.5, 0.5], [1.0, 0.0]]), 4)
        0.3466
    """
    if predicts_values(predictive):
        return weighted_mean(np.asarray(predictive.std, np.float64), weight)
    return weighted_mean(entr(class_probabilities(predictive)).sum(-1), weight)


class QuantileCalibration(NamedTuple):
    """Levels, and the share of targets that fell below the predictive quantiles of these levels."""

    expected: np.ndarray
    observed: np.ndarray


def quantile_calibration(
    predictive: Forecast, y: ArrayLike, levels: ArrayLike = 99, *, weight: Weight = None
) -> QuantileCalibration:
    r"""The share of targets with P(Y ≤ y | x, D) ≤ q for each level q; should be q.

    A count has probability itself, so that a whole step of P(Y ≤ y) is its own; it counts for
    every level by the part of the step that lies below (Czado, Gneiting & Held 2009).

    Args:
        predictive: of regression or counts; anything with ``cdf(y)``.
        y: targets; several of one example are pooled.
        levels: how many, evenly spaced inside (0, 1), or an array of them.
        weight: of each example.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.zeros((3, 1), "float32")
        >>> model = px.Model(px.networks.MLP(1, 1, (4,), key=0), None, px.likelihoods.Gaussian(0.1))
        >>> predictive = px.prior_posterior(model, x).predict(x, key=0)
        >>> px.metrics.quantile_calibration(predictive, [-9.0, 0.0, 9.0], [0.01, 0.99]).observed
        array([0.33333333, 0.66666667])

    References:
        Kuleshov, Fenner & Ermon, Accurate Uncertainties for Deep Learning Using Calibrated
        Regression, ICML 2018.
        Czado, Gneiting & Held, Predictive Model Assessment for Count Data, Biometrics 2009.
    """
    predictive = only_values(predictive)
    q = np.atleast_1d(np.asarray(levels, np.float64))
    if np.ndim(levels) == 0:
        count = int(q[0])
        q = np.arange(1, count + 1) / (count + 1)
    if not (q.ndim == 1 and q.size and np.all((q > 0) & (q < 1))):
        raise ValueError(f"levels must lie strictly between 0 and 1, got {levels!r}")
    y = aligned(y, predictive.mean.shape)
    w = example_weights(weight, y.shape).ravel()
    top = np.asarray(predictive.cdf(y), np.float64).ravel()
    bottom = top
    if predictive.kind == "counts":
        before = np.asarray(predictive.cdf(np.maximum(y - 1, 0)), np.float64)
        bottom = np.where(y > 0, before, 0).ravel()
    step = np.where(top > bottom, top - bottom, 1)
    below = [np.where(top <= p, 1, np.clip((p - bottom) / step, 0, top > bottom)) for p in q]
    return QuantileCalibration(q, np.array([np.average(b, weights=w) for b in below]))


def quantile_calibration_error(
    predictive: Forecast, y: ArrayLike, levels: ArrayLike = 99, *, weight: Weight = None
) -> float:
    r"""Mean (q − share of targets below the quantile q)² over levels q (Kuleshov et al. 2018).

    Theirs is a weighted sum over levels; here all weigh 1/levels. Its root is in units of
    probability. By the chance in N independent targets it is about 1/(6N) for a perfect predictive.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.zeros((3, 1), "float32")
        >>> model = px.Model(px.networks.MLP(1, 1, (4,), key=0), None, px.likelihoods.Gaussian(0.1))
        >>> predictive = px.prior_posterior(model, x).predict(x, key=0)
        >>> px.metrics.quantile_calibration_error(predictive, [9.0, 9.0, 9.0], [0.5])
        0.25
    """
    expected, observed = quantile_calibration(predictive, y, levels, weight=weight)
    return float(np.mean(np.square(expected - observed)))


def _ends(predictive: Forecast, level: float) -> tuple[np.ndarray, np.ndarray]:
    level = fraction("level", level)
    given = isinstance(predictive, tuple | list) and len(predictive) == 2
    ends: Any = predictive if given else only_values(predictive).interval(level)
    low, high = (admit_float64(end, "interval") for end in ends)
    if low.shape != high.shape or np.any(low > high):
        raise ValueError("the lower and the upper ends must have one shape, and be in order")
    return low, high

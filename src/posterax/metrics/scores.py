"""Scores of single predictions, averaged: likelihood, squared errors of values and probabilities.

Those of probabilities are proper: no other forecast than what one believes does better on average
(Gneiting & Raftery, Strictly Proper Scoring Rules, Prediction, and Estimation, JASA 2007).
"""

import numpy as np
from numpy.typing import ArrayLike

from .inputs import (
    Forecast,
    Weight,
    aligned,
    class_labels,
    class_probabilities,
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
    if is_predictive(predictive):
        each = np.asarray(predictive.log_prob(y), np.float64)
    else:
        p = class_probabilities(predictive)
        picked = np.take_along_axis(p, class_labels(y, p)[..., None], -1)
        with np.errstate(divide="ignore"):
            each = np.log(picked).reshape(len(p), -1).sum(-1)
    return -weighted_mean(each, weight)


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
    hit = np.arange(p.shape[-1]) == class_labels(y, p)[..., None]
    return weighted_mean(np.square(p - hit).sum(-1), weight)


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

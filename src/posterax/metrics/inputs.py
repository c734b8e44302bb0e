"""What a metric is given: predictives or plain arrays, brought to shapes that cannot broadcast."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from .._util.admit import admit, admit_float64, check_finite
from ..predictive import Predictive

if TYPE_CHECKING:
    from typing import TypeGuard

    from typing_extensions import TypeIs

SUM_TOLERANCE = 1e-3  # probabilities in half precision sum to one within this


# a Predictive or what behaves like one; class probabilities; plain predictions
Forecast = Predictive | ArrayLike
Weight = ArrayLike | None  # of each example


def is_predictive(given: Forecast) -> "TypeIs[Predictive]":
    """Whether it is a ``Predictive`` or behaves like one, as recalibrated ones do; not an array.

    Example:
        >>> from posterax.metrics.inputs import is_predictive
        >>> is_predictive([[0.5, 0.5]])
        False
    """
    # a distribution of numpyro, a posterior too, has a log_prob but is of no kind
    return hasattr(type(given), "log_prob") and hasattr(given, "kind")


def predicts_values(given: Forecast) -> "TypeGuard[Predictive]":
    """Whether it is a predictive of values of y: of regression or counts."""
    return is_predictive(given) and given.kind != "classification"


def plain_array(given: Forecast, name: str) -> np.ndarray:
    """What is no predictive as a float64 array."""
    if hasattr(type(given), "log_prob"):
        raise TypeError(
            f"{name} must be a Predictive (posterior.predict makes one) or an array, "
            f"got {type(given).__name__}"
        )
    return admit_float64(given, name)


def only_values(predictive: Forecast) -> Predictive:
    """A predictive of values of y; anything else is refused."""
    if not is_predictive(predictive):
        raise TypeError(
            "this needs a predictive (posterior.predict makes one), "
            f"got {type(predictive).__name__}"
        )
    if predictive.kind == "classification":
        raise ValueError("this is for regression and counts; the predictive is of classification")
    return predictive


def values(given: Forecast, which: str = "mean") -> np.ndarray:
    """The mean or the median of a predictive of y in float64, or plain predictions as they are."""
    if not is_predictive(given):
        array = plain_array(given, "predictive")
        check_finite("predictive", array)
        return array
    only_values(given)
    return np.asarray(given.mean if which == "mean" else given.quantile(0.5), np.float64)


def class_probabilities(given: Forecast, name: str = "probabilities") -> np.ndarray:
    """Class probabilities with the classes last, in float64, from a predictive or an array.

    Example:
        >>> from posterax.metrics.inputs import class_probabilities
        >>> class_probabilities([[0.25, 0.75]])
        array([[0.25, 0.75]])
    """
    if is_predictive(given):
        if given.kind != "classification":
            raise ValueError(f"this is for classification; the predictive is of {given.kind}")
        given = given.mean
    p = plain_array(given, name)
    if p.ndim < 2 or 0 in p.shape:
        raise ValueError(
            f"{name} must be a Predictive or probabilities (N, K), classes last, got {p.shape}"
        )
    check_finite(name, p)
    sums = p.sum(-1, keepdims=True)
    if np.any(p < 0) or np.any(np.abs(sums - 1) > SUM_TOLERANCE):
        worst = sums.flat[np.argmax(np.abs(sums - 1))]
        raise ValueError(
            f"{name} must be 0 or more and sum to 1 over the last axis; the least is {p.min():g}, "
            f"the sum furthest from 1 is {worst:g}. Take the softmax of logits first"
        )
    return p / sums


def class_labels(y: ArrayLike, p: np.ndarray) -> np.ndarray:
    """Labels 0 … K−1 in the shape of ``p`` without its last axis; (N, 1) is taken as (N,)."""
    return labels(y, p.shape[:-1], p.shape[-1])


def labels(y: ArrayLike, shape: tuple[int, ...], classes: int) -> np.ndarray:
    """Labels 0 … K−1 in this shape."""
    y = aligned(y, shape)
    fits = (y >= 0) & (y < classes) & (y == np.floor(y))
    if not np.all(fits):
        raise ValueError(f"y must hold labels 0 to {classes - 1}, got {y[~fits][0]}")
    return y.astype(int)


def aligned(y: ArrayLike, shape: tuple[int, ...], name: str = "y") -> np.ndarray:
    """``y`` in this shape: the same, or the same but for an axis of one at the end.

    Example:
        >>> from posterax.metrics.inputs import aligned
        >>> aligned([[1.0], [2.0]], (2,))
        array([1., 2.])
    """
    y = np.asarray(admit(y, name))
    y = y.astype(np.int64) if y.dtype.kind in "ub" else y  # 0 − 1 of uint8 would be 255
    if not {y.shape, (*y.shape, 1)} & {shape, (*shape, 1)}:
        raise ValueError(f"{name} must have shape {shape} as the predictions have, got {y.shape}")
    check_finite(name, y)
    return y.reshape(shape)


def of_examples(given: ArrayLike, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Numbers in the shape of the targets; one for each example counts for all of its targets."""
    each = admit_float64(given, name)
    if shape and each.shape == shape[:1]:
        each = np.broadcast_to(each.reshape(-1, *[1] * (len(shape) - 1)), shape)
    return aligned(each, shape, name)


def example_weights(weight: Weight, shape: tuple[int, ...]) -> np.ndarray:
    """Weights of examples in the shape of the targets: all 1 where none are given.

    One weight for each example counts for all of its targets.
    """
    if weight is None:
        return np.ones(shape)
    each = of_examples(weight, shape, "weight")
    if np.any(each < 0) or not each.sum() > 0:
        raise ValueError("weight must be 0 or more, and not 0 everywhere")
    return each


def weighted_mean(values: np.ndarray, weight: Weight) -> float:
    """The mean over examples and targets."""
    return float(np.average(values, weights=example_weights(weight, values.shape)))

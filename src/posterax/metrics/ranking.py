"""How well probabilities put classes in order, and where to draw the line between two."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .inputs import Forecast, Weight, class_labels, class_probabilities, example_weights


class Ranked(NamedTuple):
    """Areas under the curves of one class against the others, for each set of weights."""

    auc: np.ndarray
    precision: np.ndarray


class Threshold(NamedTuple):
    """From which probability on to call an example positive."""

    value: float
    f1: float  # 2 · precision · recall / (precision + recall)
    precision: float
    recall: float


def ranked(score: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> Ranked:
    """AUC and average precision of a score, over many weightings of the same rows at once.

    Equal scores count half in the AUC and enter the precision together, as scikit-learn has it.

    Args:
        score: (N,), larger for the positive class.
        positive: (N,), whether it is one.
        weights: (R, N), one weighting in each row.
    """
    score = np.round(score, 12)  # equal ones may differ by the rounding of their sum
    order = np.argsort(-score, kind="stable")
    ends = np.flatnonzero(np.diff(score[order], append=-np.inf))  # the last of equal scores
    w = weights[:, order]
    hit = np.cumsum(w * positive[order], axis=1)[:, ends]
    false = np.cumsum(w * ~positive[order], axis=1)[:, ends]
    new_hit, new_false = (np.diff(each, axis=1, prepend=0) for each in (hit, false))
    with np.errstate(divide="ignore", invalid="ignore"):
        pairs = (new_false * (hit - new_hit / 2)).sum(1)
        auc = pairs / (hit[:, -1] * false[:, -1])
        share = np.where(hit + false > 0, hit / (hit + false), 0)
        precision = (new_hit * share).sum(1) / hit[:, -1]
    return Ranked(auc, precision)


def ranked_classes(p: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Ranked:
    """Of two classes the second against the first; of more, means over classes that occur."""
    classes = [1] if p.shape[1] == 2 else [k for k in range(p.shape[1]) if np.sum(y == k) > 0]
    each = [ranked(p[:, k], y == k, weights) for k in classes]
    return Ranked(*(np.mean(values, axis=0) for values in zip(*each, strict=True)))


def auc(probabilities: Forecast, y: ArrayLike, *, weight: Weight = None) -> float:
    """The chance that an example of a class has a larger probability of it than one of another.

    The area under the ROC curve: of two classes for the second, of more the mean over the classes
    that occur, each against all others. 0.5 is chance; NaN where only one class occurs.

    Args:
        probabilities: a ``Predictive`` of classes, or class probabilities (N, K).
        y: labels 0 … K−1.
        weight: of each example.

    Example:
        >>> from posterax.metrics import auc
        >>> auc([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3], [0.2, 0.8]], [0, 0, 1, 1])
        0.75

    References:
        Hanley & McNeil, The Meaning and Use of the Area under a ROC Curve, Radiology 1982.
    """
    return float(_ranked(probabilities, y, weight).auc[0])


def average_precision(probabilities: Forecast, y: ArrayLike, *, weight: Weight = None) -> float:
    """The precision among the most probable examples of a class, averaged over its recall.

    Of two classes for the second, of more the mean over the classes that occur. By chance it is
    the share of the class, so that it tells more than the AUC where a class is rare.

    Args:
        probabilities: a ``Predictive`` of classes, or class probabilities (N, K).
        y: labels 0 … K−1.
        weight: of each example.

    Example:
        >>> from posterax.metrics import average_precision
        >>> average_precision([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3], [0.2, 0.8]], [0, 0, 1, 1])
        0.833...
    """
    return float(_ranked(probabilities, y, weight).precision[0])


def _ranked(probabilities: Forecast, y: ArrayLike, weight: Weight) -> Ranked:
    p = class_probabilities(probabilities)
    labels = class_labels(y, p).ravel()
    w = example_weights(weight, p.shape[:-1]).ravel()
    return ranked_classes(p.reshape(-1, p.shape[-1]), labels, w[None])


def best_threshold(
    probabilities: Forecast, y: ArrayLike, *, weight: Weight = None
) -> Threshold | None:
    """The probability of the second of two classes from which on to name it, by the largest F1.

    F1 = 2 · precision · recall / (precision + recall). The rows that chose the threshold flatter
    it: judge it by others. ``None`` without an example of the second class.

    Args:
        probabilities: a ``Predictive`` of two classes, or class probabilities (N, 2).
        y: labels 0 and 1.
        weight: of each example.

    Example:
        >>> from posterax.metrics import best_threshold
        >>> best_threshold([[0.9, 0.1], [0.7, 0.3], [0.6, 0.4], [0.2, 0.8]], [0, 1, 1, 1])
        Threshold(value=0.3, f1=1.0, precision=1.0, recall=1.0)
    """
    p = class_probabilities(probabilities)
    if p.shape[-1] != 2:
        raise ValueError(f"best_threshold is for two classes, got {p.shape[-1]}")
    positive, score = class_labels(y, p).ravel() == 1, p[..., 1].ravel()
    w = example_weights(weight, p.shape[:-1]).ravel()
    if not np.any(w[positive]):
        return None
    order = np.argsort(-score, kind="stable")
    ends = np.flatnonzero(np.diff(score[order], append=-np.inf))
    hit = np.cumsum((w * positive)[order])[ends]
    named = np.cumsum(w[order])[ends]
    f1 = 2 * hit / (named + hit[-1])
    best = int(np.argmax(f1))
    value, precision = score[order][ends[best]], hit[best] / max(named[best], 1e-300)
    return Threshold(float(value), float(f1[best]), float(precision), float(hit[best] / hit[-1]))


def confusion(probabilities: Forecast, y: ArrayLike, *, weight: Weight = None) -> np.ndarray:
    """How many examples of each class (rows) are taken for each (columns).

    Args:
        probabilities: a ``Predictive`` of classes, or class probabilities (N, K).
        y: labels 0 … K−1.
        weight: of each example.

    Example:
        >>> from posterax.metrics import confusion
        >>> confusion([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]], [0, 1, 1]).tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    p = class_probabilities(probabilities)
    k, labels = p.shape[-1], class_labels(y, p).ravel()
    w = example_weights(weight, p.shape[:-1]).ravel()
    places = labels * k + p.reshape(-1, k).argmax(-1)
    return np.bincount(places, w, minlength=k * k).reshape(k, k)

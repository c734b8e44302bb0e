"""How well an estimator does on rows it has not seen, with intervals."""

from typing import Any

import numpy as np

from .. import metrics
from ..diagnostics import chance as _chance
from . import Refused

__all__ = ["LEVEL", "Scores", "baseline", "by_chance", "labels", "score"]

Scores = dict[str, tuple[float, float, float]]  # value, and the ends of its 95 % interval, or NaN
LEVEL = 0.9  # of the interval whose coverage is counted
RESAMPLES = 500
SHARES = ("coverage", "error")


def score(estimator: Any, X: Any, y: Any, weight: Any = None, *, seed: int = 0) -> Scores:
    """Scores by name, each with a 95 % interval.

    Of shares that is Wilson's, of other means the percentiles of resampled rows. The calibration
    error has none, since it is larger in every resample: ``by_chance`` has what to compare it with.

    Regression: ``nll``, ``rmse``, ``mae``, ``coverage`` of the 90 % interval and its mean
    ``width``, ``calibration_error``, the root of ``px.metrics.quantile_calibration_error``, so that
    it is in units of probability. Classes: ``nll``, ``error``, ``brier``,
    ``calibration_error`` (expected calibration error).
    """
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, np.float64)
    each = (
        _classes(estimator, X, y) if hasattr(estimator, "classes_") else _numbers(estimator, X, y)
    )
    n = len(y)
    value = each(np.arange(n), weight)
    random = np.random.default_rng(seed)
    rounds = int(np.clip(2_000_000 / n, 50, RESAMPLES))
    drawn: dict[str, list[float]] = {name: [] for name in value}
    for _ in range(rounds):
        rows = random.integers(n, size=n)
        if not np.any(weight[rows]):
            continue
        for name, found in each(rows, weight[rows]).items():
            drawn[name].append(found)
    scores: Scores = {}
    for name, v in value.items():
        low, high = np.quantile(drawn[name], [0.025, 0.975])
        if name in SHARES:
            low, high = _chance.wilson(v, _chance.effective(weight))
        elif name == "calibration_error":
            low = high = np.nan
        scores[name] = float(v), float(low), float(high)
    return scores


def by_chance(estimator: Any, X: Any, weight: Any = None) -> dict[str, float]:
    """The calibration error that a calibrated model stays below in 95 % of cases."""
    weight = np.ones(len(X)) if weight is None else np.asarray(weight, np.float64)
    if hasattr(estimator, "classes_"):
        return {"calibration_error": _chance.of_classes(estimator.predict_proba(X), weight)}
    return {"calibration_error": _chance.of_quantiles(_chance.effective(weight))}


def baseline(y: Any, y_new: Any, weight: Any = None, weight_new: Any = None) -> dict[str, float]:
    """What is reached without looking at the inputs: by mean and deviation, or frequencies."""
    y, y_new = np.asarray(y), np.asarray(y_new)
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, np.float64)

    def average(values: Any) -> float:
        return float(np.average(values, weights=weight_new))

    if y.dtype.kind == "f":
        mean = np.average(y, weights=weight)
        std = np.sqrt(np.average((y - mean) ** 2, weights=weight))
        error = y_new - mean
        nll = average(0.5 * (error / std) ** 2) + np.log(std * np.sqrt(2 * np.pi))
        return {"nll": float(nll), "rmse": average(error**2) ** 0.5}
    names, place = np.unique(y.astype(str), return_inverse=True)
    counts = np.bincount(place, weight)
    known = dict(zip(names.tolist(), _chance.shares(counts).tolist(), strict=True))
    likely = [known[str(label)] for label in y_new.astype(str)]  # ``score`` refuses other labels
    common = names[np.argmax(counts)]
    return {"nll": -average(np.log(likely)), "error": average(y_new.astype(str) != common)}


def labels(classes: np.ndarray, y: Any) -> np.ndarray:
    """Labels as 0 … K−1; one the estimator has not seen is refused."""
    known = {label: i for i, label in enumerate(classes.tolist())}
    unseen = [label for label in np.asarray(y).tolist() if label not in known]
    if unseen:
        raise Refused(f"the class {unseen[0]!r} is not among those fitted: {classes.tolist()[:20]}")
    return np.array([known[label] for label in np.asarray(y).tolist()], dtype=np.int64)


def _numbers(estimator: Any, X: Any, y: Any) -> Any:
    y = np.asarray(y, np.float64)
    predictive = estimator.predictive(X)
    surprise, below = -np.asarray(predictive.log_prob(y), np.float64), np.asarray(predictive.cdf(y))
    error = np.asarray(predictive.mean, np.float64) - y
    low, high = predictive.interval(LEVEL)
    inside = (low <= y) & (y <= high)
    edges = np.linspace(0, 1, 101)

    def each(rows: np.ndarray, weight: np.ndarray) -> dict[str, float]:
        mean = lambda values: float(np.average(values[rows], weights=weight))  # noqa: E731
        share = np.histogram(below[rows], edges, weights=weight)[0].cumsum()[:-1] / weight.sum()
        return {
            "nll": mean(surprise),
            "rmse": mean(error**2) ** 0.5,
            "mae": mean(np.abs(error)),
            "coverage": mean(inside),
            "width": mean(high - low),
            "calibration_error": float(np.sqrt(np.mean((share - edges[1:-1]) ** 2))),
        }

    return each


def _classes(estimator: Any, X: Any, y: Any) -> Any:
    truth = labels(estimator.classes_, y)
    probabilities = estimator.predict_proba(X)
    right = probabilities.argmax(axis=1) == truth
    surprise = -np.log(np.maximum(probabilities[np.arange(len(truth)), truth], 1e-300))

    def each(rows: np.ndarray, weight: np.ndarray) -> dict[str, float]:
        given = probabilities[rows], truth[rows]
        return {
            "nll": float(np.average(surprise[rows], weights=weight)),
            "error": float(np.average(~right[rows], weights=weight)),
            "brier": metrics.brier_score(*given, weight=weight),
            "calibration_error": metrics.expected_calibration_error(*given, weight=weight),
        }

    return each

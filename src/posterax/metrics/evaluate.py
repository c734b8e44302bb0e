"""Every score of some predictions, with its interval and its baseline: the one way to score."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._util.text import in_columns
from ..diagnostics import chance
from .baseline import baseline
from .crps import crps_each
from .inputs import (
    Forecast,
    Weight,
    aligned,
    class_labels,
    class_probabilities,
    example_weights,
    is_predictive,
    only_values,
    predicts_values,
    values,
)
from .intervals import quantile_calibration_error
from .resampling import (
    NO_INTERVAL,
    ORDERED,
    RESAMPLES,
    Columns,
    intervals,
    of_order,
    scores_of,
)
from .scores import expected_calibration_error, log_likelihoods, squared_distances

LEVEL = 0.9  # of the interval whose coverage and width are measured
TITLES = {
    "nll": "NLL", "rmse": "RMSE", "mae": "mean absolute error", "r2": "R²", "crps": "CRPS",
    "coverage": "inside the 90 % interval", "width": "width of that interval",
    "interval_score": "interval score", "error": "error", "brier": "Brier score",
    "auc": "AUC", "average_precision": "average precision",
    "calibration_error": "calibration error",
}  # fmt: skip
CLASSES = ("nll", "error", "brier", "auc", "average_precision", "calibration_error")
NUMBERS = tuple(name for name in TITLES if name == "calibration_error" or name not in CLASSES[1:])
# without the CRPS, which is a sum over all pairs of posterior samples
QUICK = tuple(name for name in TITLES if name not in ("crps", "interval_score"))
SHARES = ("coverage", "error")


class Score(NamedTuple):
    """A score, its 95 % interval (NaN where it has none) and the baseline's score.

    ``chance`` stands in place of an interval: a calibrated model stays below it in 95 % of cases.
    """

    value: float
    low: float
    high: float
    baseline: float
    chance: float | None = None


class Evaluation(dict[str, Score]):
    """Scores by name; ``print`` it for a table.

    ``rows`` were scored. ``beats_baseline`` is the share of resamples in which the NLL is lower
    than the baseline's: NaN without resamples, or where a likelihood is not finite.
    """

    def __init__(self, scores: dict[str, Score], rows: int, beats_baseline: float = float("nan")):
        super().__init__(scores)
        self.rows, self.beats_baseline = rows, beats_baseline

    def intervals(self) -> dict[str, tuple[float, float, float]]:
        """(value, low, high) of each, as files and JSON have them."""
        return {name: score[:3] for name, score in self.items()}

    def baselines(self) -> dict[str, float]:
        """The baseline's scores."""
        return {name: score.baseline for name, score in self.items()}

    def chances(self) -> dict[str, float]:
        """What is due to chance, of scores without an interval."""
        return {name: score.chance for name, score in self.items() if score.chance is not None}

    def __repr__(self) -> str:
        return "\n".join(
            in_columns([("score", "value", "95 % interval", "baseline"), *table(self)])
        )


def table(scores: dict[str, Score]) -> list[tuple[str, str, str, str]]:
    """Scores as text: title, value, interval or what is due to chance, baseline."""
    return [
        (TITLES.get(name, name.replace("_", " ")), number(name, score.value), interval(name, score),
         number(name, score.baseline))
        for name, score in scores.items()
    ]  # fmt: skip


def number(name: str, value: float | None) -> str:
    """A score as text; "–" where there is none."""
    if value is None or np.isnan(value):
        return "–"
    return f"{value:.1%}" if name in SHARES else f"{value:.4g}"


def interval(name: str, score: Score) -> str:
    """The interval as text, or what is due to chance in its place."""
    if score.chance is not None:
        return f"by chance ≤ {number(name, score.chance)}"
    if np.isnan(score.low) or np.isnan(score.high):
        return "–"
    return f"{number(name, score.low)} … {number(name, score.high)}"


def evaluate(
    predictive: Forecast,
    y: ArrayLike,
    weight: Weight = None,
    *,
    train_y: ArrayLike | None = None,
    train_weight: Weight = None,
    only: Sequence[str] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Evaluation:
    """Every score of these predictions with its 95 % interval, beside that of a baseline.

    | regression and counts | |
    | --- | --- |
    | ``nll`` | ``negative_log_likelihood`` |
    | ``rmse`` | ``root_mean_squared_error``, of the mean |
    | ``mae`` | ``mean_absolute_error``, of the median, which makes it least |
    | ``r2`` | 1 − mean squared error / variance of y; the mean over several targets |
    | ``crps`` | ``crps`` |
    | ``coverage``, ``width``, ``interval_score`` | of the central 90 % interval |
    | ``calibration_error`` | √ ``quantile_calibration_error``, in units of probability |

    | classes | |
    | --- | --- |
    | ``nll`` | ``negative_log_likelihood`` |
    | ``error`` | 1 − ``accuracy`` |
    | ``brier`` | ``brier_score`` |
    | ``auc`` | ``auc``, for one label an example |
    | ``average_precision`` | ``average_precision``, for one label an example |
    | ``calibration_error`` | ``expected_calibration_error``, 15 bins |

    The interval of a share (``coverage``, ``error``) is Wilson's, which is right for 0 and 1 too,
    for as many rows as the weights are worth. Other intervals hold 95 % of 1000 resamples of the
    rows (``scipy.stats.bootstrap``, percentiles; fewer resamples of more than 20,000 rows, none of
    fewer than 5; 200 of ``auc`` and ``average_precision``). Of the calibration error they would
    lie above it: ``chance`` is what a calibrated model stays below in 95 % of cases.

    The baseline predicts one distribution whatever the inputs are: a Gaussian with the mean and
    deviation of the training targets, for counts a Poisson distribution with their mean, for
    classes their shares with one added to each count.

    Args:
        predictive: a ``Predictive``, or class probabilities (N, K).
        y: targets, or labels 0 … K−1.
        weight: of each example.
        train_y: targets that the baseline knows (default: ``y``, which makes it harder to beat).
        train_weight: of each of them.
        only: names of the scores wanted (default: all).
        resamples: 0 for no intervals, which is quicker.
        seed: of the resamples.

    Example:
        >>> import posterax as px
        >>> p, y = [[0.9, 0.1], [0.4, 0.6], [0.3, 0.7], [0.8, 0.2], [0.6, 0.4]], [0, 1, 0, 0, 0]
        >>> scores = px.metrics.evaluate(p, y)
        >>> scores["nll"].value < scores["nll"].baseline
        True
        >>> scores
        score               value     95 % interval  baseline
        NLL                0.5108     0.21 … 0.8456    0.5197
        error               20.0%      3.6% … 62.4%     20.0%
        Brier score         0.344     0.092 … 0.656    0.3347
        AUC                  0.75          0.25 … 1       0.5
        average precision     0.5        0.2979 … 1       0.2
        calibration error    0.36  by chance ≤ 0.48   0.08571

    References:
        Efron & Tibshirani, An Introduction to the Bootstrap, 1993 (percentiles, ch. 13).
        Wilson, Probable Inference, the Law of Succession, and Statistical Inference, JASA 1927.
    """
    numbers = predicts_values(predictive)
    kind = predictive.kind if is_predictive(predictive) else "classification"
    wanted = [n for n in (NUMBERS if numbers else CLASSES) if only is None or n in only]
    given = values(predictive) if numbers else class_probabilities(predictive)
    y = aligned(y, given.shape).astype(np.float64) if numbers else class_labels(y, given)
    if train_y is None:
        train_y, train_weight = y, weight
    alone = baseline(kind, train_y, given.shape, weight=train_weight)
    w = example_weights(weight, y.shape[:1])
    measure = _of_numbers if numbers else _of_classes
    own, other = (measure(each, y, wanted) for each in (predictive, alone))
    value, base = (
        scores_of({name: np.average(column, weights=w) for name, column in columns.items()})
        for columns in (own, other)
    )
    ends, better = intervals(value, own, other["nll"] - own["nll"], w, resamples, seed)
    scores: dict[str, Score] = {}
    if not numbers and y.ndim == 1 and (ordered := [name for name in ORDERED if name in wanted]):
        both = given, class_probabilities(alone)
        found = of_order(ordered, both, y, w, resamples, seed)
        scores |= {name: Score(at, *apart, base) for name, (at, apart, base) in found.items()}
    for name in (name for name in wanted if name not in ORDERED):
        if name == "calibration_error":
            error, base_error = (_calibration_error(p, y, weight) for p in (predictive, alone))
            limit = _by_chance(None if numbers else given, weight, y.shape)
            scores[name] = Score(error, *NO_INTERVAL, base_error, limit)
        else:
            share = float(value[name]), chance.effective(w)
            low, high = chance.wilson(*share) if name in SHARES else ends[name]
            scores[name] = Score(float(value[name]), low, high, float(base[name]))
    return Evaluation({name: scores[name] for name in wanted if name in scores}, len(y), better)


def _of_numbers(given: Forecast, y: np.ndarray, wanted: Sequence[str]) -> Columns:
    """What scores of values are means of: a number for each row."""
    predictive = only_values(given)

    def per_row(each: np.ndarray) -> np.ndarray:
        return np.asarray(each, np.float64).reshape(len(y), -1).mean(-1)

    square = np.square(values(predictive) - y)
    columns = {"nll": -log_likelihoods(predictive, y), "rmse": per_row(square)}
    if "mae" in wanted:
        columns["mae"] = per_row(np.abs(values(predictive, "median") - y))
    if "r2" in wanted:
        apart, squares = (v.reshape(len(y), -1).T for v in (y - y.mean(0), square))
        for t in range(len(apart)):
            columns |= {f"r2/{t}": squares[t], f"y/{t}": apart[t], f"y2/{t}": np.square(apart[t])}
    if "crps" in wanted:
        columns["crps"] = per_row(crps_each(predictive, y))
    if {"coverage", "width", "interval_score"} & set(wanted):
        low, high = (np.asarray(end, np.float64) for end in predictive.interval(LEVEL))
        outside = np.maximum(low - y, 0) + np.maximum(y - high, 0)
        columns["coverage"] = per_row((low <= y) & (y <= high))
        columns["width"] = per_row(high - low)
        columns["interval_score"] = per_row(high - low + 2 / (1 - LEVEL) * outside)
    return columns


def _of_classes(given: Forecast, y: np.ndarray, wanted: Sequence[str]) -> Columns:
    """The same of classes."""
    p = class_probabilities(given)
    each = {"error": p.argmax(-1) != y, "brier": squared_distances(p, y)}
    columns = {name: column.reshape(len(y), -1).mean(-1) for name, column in each.items()}
    return {"nll": -log_likelihoods(given, y)} | columns


def _calibration_error(predictive: Forecast, y: np.ndarray, weight: Weight) -> float:
    if predicts_values(predictive):
        return quantile_calibration_error(predictive, y, weight=weight) ** 0.5
    return expected_calibration_error(class_probabilities(predictive), y, weight=weight)


def _by_chance(p: np.ndarray | None, weight: Weight, shape: tuple[int, ...]) -> float:
    """The calibration error that a calibrated model stays below in 95 % of cases."""
    if p is None:
        return chance.of_quantiles(chance.effective(example_weights(weight, shape[:1])))
    return chance.of_classes(p.reshape(-1, p.shape[-1]), example_weights(weight, shape).ravel())

"""Every score of some predictions, with its interval and its baseline: the one way to score."""

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from ..diagnostics import chance
from .baseline import baseline
from .calibration import expected_calibration_error
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
    values,
)
from .intervals import quantile_calibration_error

LEVEL = 0.9  # of the interval whose coverage and width are measured
CONFIDENCE = 0.95  # of the intervals of scores
RESAMPLES = 1000
FEW_ROWS = 5  # resamples of fewer rows are all alike
DRAWN = 20_000_000  # rows in all resamples together; more than 20,000 rows get fewer resamples
NUMBERS = (
    *("nll", "rmse", "mae", "r2", "crps", "coverage", "width", "interval_score"),
    "calibration_error",
)
CLASSES = ("nll", "error", "brier", "calibration_error")
# without the CRPS, which is a sum over all pairs of posterior samples
QUICK = ("nll", "rmse", "mae", "r2", "coverage", "width", "error", "brier", "calibration_error")
SHARES = ("coverage", "error")
TITLES = {
    "nll": "NLL", "rmse": "RMSE", "mae": "mean absolute error", "r2": "R²", "crps": "CRPS",
    "coverage": "inside the 90 % interval", "width": "width of that interval",
    "interval_score": "interval score", "error": "error", "brier": "Brier score",
    "calibration_error": "calibration error",
}  # fmt: skip

Columns = dict[str, np.ndarray]  # one number a row, of which scores take the weighted mean
Measure = Callable[[Forecast, np.ndarray, Weight, Sequence[str]], tuple[Columns, float]]


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
        lines = [("score", "value", "95 % interval", "baseline"), *table(self)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join([
                line[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
            ])
            for line in lines
        )  # fmt: skip


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
    | ``calibration_error`` | ``expected_calibration_error``, 15 bins |

    The interval of a share (``coverage``, ``error``) is Wilson's, which is right for 0 and 1 too,
    for as many rows as the weights are worth. Other intervals hold 95 % of 1000 resamples of the
    rows (``scipy.stats.bootstrap``, percentiles; fewer resamples of more than 20,000 rows, none of
    fewer than 5). Of the calibration error they would lie above it: ``chance`` is what a calibrated
    model stays below in 95 % of cases.

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
        calibration error    0.36  by chance ≤ 0.48   0.08571

    References:
        Efron & Tibshirani, An Introduction to the Bootstrap, 1993 (percentiles, ch. 13).
        Wilson, Probable Inference, the Law of Succession, and Statistical Inference, JASA 1927.
    """
    kind = predictive.kind if is_predictive(predictive) else "classification"
    numbers = kind != "classification"
    known = NUMBERS if numbers else CLASSES
    wanted = [name for name in known if only is None or name in only]
    given = values(predictive) if numbers else class_probabilities(predictive)
    y = aligned(y, given.shape).astype(np.float64) if numbers else class_labels(y, given)
    if train_y is None:
        train_y, train_weight = y, weight
    alone = baseline(kind, train_y, given.shape, weight=train_weight)
    measure: Measure = _of_numbers if numbers else _of_classes
    columns, error = measure(predictive, y, weight, wanted)
    base_columns, base_error = measure(alone, y, weight, wanted)
    w = example_weights(weight, y.shape[:1])
    value = {name: float(mean) for name, mean in _scores(_means(columns, w)).items()}
    low, high, better = _intervals(value, columns, base_columns, w, resamples, seed)
    base = {name: float(mean) for name, mean in _scores(_means(base_columns, w)).items()}
    scores = {}
    for name in wanted:
        if name == "calibration_error":
            limit = _by_chance(None if numbers else given, weight, y.shape)
            scores[name] = Score(error, np.nan, np.nan, base_error, limit)
        elif name in SHARES:
            ends = chance.wilson(value[name], chance.effective(w))
            scores[name] = Score(value[name], *ends, base[name])
        else:
            scores[name] = Score(value[name], low[name], high[name], base[name])
    return Evaluation(scores, len(y), better)


def _of_numbers(
    given: Forecast, y: np.ndarray, weight: Weight, wanted: Sequence[str]
) -> tuple[Columns, float]:
    """What scores are means of, a number for each row; and the calibration error."""
    predictive = only_values(given)

    def per_row(each: np.ndarray) -> np.ndarray:
        return np.asarray(each, np.float64).reshape(len(y), -1).mean(-1)

    surprise = -np.asarray(predictive.log_prob(y), np.float64).reshape(len(y), -1).sum(-1)
    square = np.square(values(predictive) - y)
    columns = {"nll": surprise, "rmse": per_row(square)}
    if "mae" in wanted:
        columns["mae"] = per_row(np.abs(values(predictive, "median") - y))
    if "r2" in wanted:
        apart, squares = ((v.reshape(len(y), -1).T) for v in (y - y.mean(0), square))
        for t in range(len(apart)):
            columns |= {f"r2/{t}": squares[t], f"y/{t}": apart[t], f"y2/{t}": np.square(apart[t])}
    if "crps" in wanted:
        columns["crps"] = per_row(crps_each(predictive, y))
    if {"coverage", "width", "interval_score"} & set(wanted):
        low, high = (np.asarray(end, np.float64) for end in predictive.interval(LEVEL))
        columns["coverage"] = per_row((low <= y) & (y <= high))
        columns["width"] = per_row(high - low)
        outside = np.maximum(low - y, 0) + np.maximum(y - high, 0)
        columns["interval_score"] = per_row(high - low + 2 / (1 - LEVEL) * outside)
    error = float("nan")
    if "calibration_error" in wanted:
        error = quantile_calibration_error(predictive, y, weight=weight) ** 0.5
    return columns, error


def _of_classes(
    predictive: Forecast, y: np.ndarray, weight: Weight, wanted: Sequence[str]
) -> tuple[Columns, float]:
    """The same of classes."""
    p = class_probabilities(predictive)
    hit = np.arange(p.shape[-1]) == y[..., None]
    if is_predictive(predictive):
        likelihood = np.asarray(predictive.log_prob(y), np.float64)
    else:
        with np.errstate(divide="ignore"):
            likelihood = np.log(p[hit])
    columns = {
        "nll": -likelihood.reshape(len(y), -1).sum(-1),
        "error": (p.argmax(-1) != y).reshape(len(y), -1).mean(-1),
        "brier": np.square(p - hit).sum(-1).reshape(len(y), -1).mean(-1),
    }
    error = float("nan")
    if "calibration_error" in wanted:
        error = expected_calibration_error(p, y, weight=weight)
    return columns, error


def _by_chance(p: np.ndarray | None, weight: Weight, shape: tuple[int, ...]) -> float:
    """The calibration error that a calibrated model stays below in 95 % of cases."""
    if p is None:
        return chance.of_quantiles(chance.effective(example_weights(weight, shape[:1])))
    return chance.of_classes(p.reshape(-1, p.shape[-1]), example_weights(weight, shape).ravel())


def _means(columns: Columns, weight: np.ndarray) -> Columns:
    return {name: np.average(column, weights=weight) for name, column in columns.items()}


def _scores(means: Columns) -> Columns:
    """Scores from the means of columns, of one sample or of many."""
    scores = {name: mean for name, mean in means.items() if "/" not in name}
    if "rmse" in means:
        scores["rmse"] = np.sqrt(means["rmse"])
    targets = [name.partition("/")[2] for name in means if name.startswith("r2/")]
    if targets:
        with np.errstate(divide="ignore", invalid="ignore"):
            each = [
                1 - means[f"r2/{t}"] / (means[f"y2/{t}"] - np.square(means[f"y/{t}"]))
                for t in targets
            ]
        scores["r2"] = np.mean(each, axis=0)
    return scores


def _intervals(
    value: dict[str, float],
    columns: Columns,
    base: Columns,
    weight: np.ndarray,
    resamples: int,
    seed: int,
) -> tuple[dict[str, float], dict[str, float], float]:
    """The ends of each score's interval, and the share of resamples that beat the baseline."""
    n = len(weight)
    matrix = np.stack([*columns.values(), base["nll"] - columns["nll"]], axis=-1)
    if n < FEW_ROWS or not resamples:
        drawn = np.full((matrix.shape[1], 1), np.nan)
    else:
        resamples = int(np.clip(DRAWN // n, resamples // 10, resamples))
        drawn = _resampled(matrix, weight, resamples, seed)
    low, high = {}, {}
    for name, each in _scores(dict(zip(columns, drawn, strict=False))).items():
        each = each[np.isfinite(each)]
        enough = len(each) > drawn.shape[1] / 2 and np.isfinite(value[name])
        ends = np.quantile(each, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]) if enough else None
        low[name], high[name] = (np.nan, np.nan) if ends is None else map(float, ends)
    gain = drawn[-1]
    finite = np.isfinite(matrix[:, -1]).all() and not np.isnan(gain).all()
    return low, high, float(np.mean(gain > 0)) if finite else float("nan")


def _resampled(matrix: np.ndarray, weight: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Weighted means of columns (rows, k) over resamples of the rows: (k, resamples)."""
    n = len(weight)

    def means(rows: np.ndarray, axis: int = -1) -> np.ndarray:
        counts = weight * np.stack([np.bincount(each, minlength=n) for each in rows])
        with np.errstate(invalid="ignore"):  # a resample may have no weight
            return (counts @ matrix / counts.sum(-1, keepdims=True)).T

    with warnings.catch_warnings():  # the percentiles are taken of the means that are defined
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        result = stats.bootstrap(
        (np.arange(n),), means, n_resamples=resamples, batch=max(1, 1_000_000 // n),
        vectorized=True, method="percentile", random_state=seed,
    )  # fmt: skip
    return result.bootstrap_distribution

"""What other rows would have given: scores over resamples of the rows."""

import warnings
from collections.abc import Sequence

import numpy as np
from scipy import stats

from .ranking import ranked_classes

CONFIDENCE = 0.95  # of the intervals of scores
RESAMPLES = 1000
NO_INTERVAL = (np.nan, np.nan)
FEW_ROWS = 5  # resamples of fewer rows are all alike
DRAWN = 20_000_000  # rows in all resamples together; more than 20,000 rows get fewer resamples
ORDER_RESAMPLES = 200  # of scores that take all rows in order, which is slower
ORDERED = ("auc", "average_precision")  # these

Columns = dict[str, np.ndarray]  # one number a row, of which scores take the weighted mean
Ends = tuple[float, float]


def scores_of(means: Columns) -> Columns:
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


def intervals(
    value: Columns, columns: Columns, gain: np.ndarray, w: np.ndarray, resamples: int, seed: int
) -> tuple[dict[str, Ends], float]:
    """The ends of each score's interval, and the share of resamples that beat the baseline."""
    n = len(w)
    ends = dict.fromkeys(value, NO_INTERVAL)
    if n < FEW_ROWS or not resamples:
        return ends, np.nan
    resamples = int(np.clip(DRAWN // n, resamples // 10, resamples))
    drawn = _resampled(np.stack([*columns.values(), gain], axis=-1), w, resamples, seed)
    for name, each in scores_of(dict(zip(columns, drawn, strict=False))).items():
        each = each[np.isfinite(each)]
        if len(each) > resamples / 2 and np.isfinite(value[name]):
            low, high = np.quantile(each, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
            ends[name] = float(low), float(high)
    finite = np.isfinite(gain).all() and not np.isnan(drawn[-1]).all()
    return ends, float(np.mean(drawn[-1] > 0)) if finite else np.nan


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


def of_order(
    wanted: Sequence[str], given: tuple[np.ndarray, np.ndarray], y: np.ndarray, w: np.ndarray,
    resamples: int, seed: int,
) -> dict[str, tuple[float, Ends, float]]:  # fmt: skip
    """AUC and average precision with their ends and the baseline's, by name."""
    n, rng = len(y), np.random.default_rng(seed)
    drawn = int(np.clip(DRAWN // n, 20, ORDER_RESAMPLES)) if resamples and n >= FEW_ROWS else 0
    each = []
    for weights in (w[None], *(w * rng.multinomial(n, np.full(n, 1 / n)) for _ in range(drawn))):
        each.append(np.ravel(ranked_classes(given[0], y, np.atleast_2d(weights))))
    first, *others = each
    alone = np.ravel(ranked_classes(given[1], y, w[None]))
    scores = {}
    for name in wanted:
        i = ORDERED.index(name)
        values = np.array([other[i] for other in others])
        values, ends = values[np.isfinite(values)], NO_INTERVAL
        if len(values) > drawn / 2 and np.isfinite(first[i]):
            low, high = np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
            ends = float(low), float(high)
        scores[name] = float(first[i]), ends, float(alone[i])
    return scores

r"""How wide the intervals have to be: measured on rows that the fit has not seen.

For each held-out row and level the *reach* is (y − mean) / (edge − mean), with the edge of the
central interval on y's side: 1 on the edge, below 1 inside. Intervals widened by the reach's
quantile at their own level hold that share of the rows (as in split conformal prediction, Lei et
al. 2018). The factor is the geometric mean over four levels, drawn towards 1 where rows are few.
"""

from typing import Any

import numpy as np

from ..predictive import Predictive
from .standardise import Rows

SHARE, MOST_ROWS = 0.2, 2000  # held out
LEAST_ROWS = 100  # of a table; fewer leave too few to measure with
LEVELS = np.array([0.5, 0.8, 0.9, 0.95])
PRIOR_ROWS = 30  # a factor of 1 counts as much as so many rows
LIMITS = (1 / 3, 3)


def held_out(rows: Rows, seed: int) -> np.ndarray:
    """Row numbers to hold out; a row that comes again is held out with its copies."""
    n = len(rows.x)
    random = np.random.default_rng(seed)
    table = np.column_stack([rows.x, rows.y.reshape(n, -1)]) + 0.0  # no −0, which is 0
    # equal rows have equal hashes; should two others share one, nothing is lost
    odd = random.integers(2**63, size=table.shape[1], dtype=np.uint64) | np.uint64(1)
    bits = table.view(np.uint64)
    group = np.unique(np.sum((bits ^ bits >> np.uint64(29)) * odd, axis=1), return_inverse=True)[1]
    place = random.permutation(group.max() + 1)[group]
    wanted = min(round(SHARE * n), MOST_ROWS)
    return np.flatnonzero(place <= np.sort(place)[wanted - 1])


def measure(predictive: Predictive, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The factor by which deviations from the mean should be wider, shaped like one target.

    Args:
        predictive: of the held-out rows, before any widening.
        y: their targets.
        weight: how often each counts.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(-1, 1, 200)[:, None]
        >>> regressor = px.BayesianRegressor(steps=300, random_state=0).fit(x, x[:, 0])
        >>> 1 / 3 <= float(regressor.spread_) <= 3
        True
    """
    mean = predictive.mean
    edges = predictive.quantile(np.concatenate([(1 - LEVELS) / 2, (1 + LEVELS) / 2]))
    low, high = edges[: len(LEVELS)], edges[len(LEVELS) :]
    edge = np.where(y > mean, high, low)
    with np.errstate(invalid="ignore", divide="ignore"):
        reach = (y - mean) / (edge - mean)
    # a mean outside its own interval: beyond any edge; no width and no error: as it should be
    reach = np.where(np.isnan(reach), 1.0, np.where(reach < 0, LIMITS[1], reach))
    wanted = np.stack([_quantile(r, level, weight) for r, level in zip(reach, LEVELS, strict=True)])
    rows = weight.sum() ** 2 / np.square(weight).sum()  # that count alike would tell as much
    factor = np.exp(np.mean(np.log(np.clip(wanted, *LIMITS)), axis=0))
    return np.asarray(factor ** (rows / (rows + PRIOR_ROWS)))


def _quantile(values: np.ndarray, level: float, weight: np.ndarray) -> Any:
    return np.quantile(values, level, axis=0, weights=weight, method="inverted_cdf")

"""What can be predicted without inputs: one distribution for every row, by the targets alone."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from .._util.admit import admit
from ..diagnostics.chance import shares
from ..predictive import Predictive
from .inputs import Forecast, Weight, example_weights

LEAST_DEVIATION, LEAST_RATE = 1e-12, 1e-9  # of targets that are all alike, or all 0


class Constant:
    """The same distribution of SciPy's for every row, with what the metrics ask of a predictive.

    Example:
        >>> from scipy import stats
        >>> from posterax.metrics.baseline import Constant
        >>> Constant(stats.norm(2.0, 1.0), (3,)).mean
        array([2., 2., 2.])
    """

    def __init__(self, law: Any, shape: tuple[int, ...], kind: str = "regression"):
        self.law, self.shape, self.kind = law, shape, kind
        self.mean, self.std = (np.broadcast_to(m, shape) for m in (law.mean(), law.std()))
        self.cdf = law.cdf

    def log_prob(self, y: ArrayLike) -> np.ndarray:
        density = self.law.logpmf if self.kind == "counts" else self.law.logpdf
        return density(y).reshape(self.shape[0], -1).sum(-1)

    def quantile(self, q: ArrayLike) -> np.ndarray:
        level = np.asarray(q)
        ends = self.law.ppf(level.reshape(*level.shape, *[1] * len(self.shape)))
        return np.broadcast_to(ends, level.shape + self.shape)

    def interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        low, high = self.quantile([(1 - level) / 2, (1 + level) / 2])
        return low, high


def baseline(
    kind: str, train_y: ArrayLike, shape: Sequence[int], *, weight: Weight = None
) -> Forecast:
    """What somebody would predict who knows the training targets and no inputs.

    Regression: a Gaussian with their mean and deviation; counts: a Poisson distribution with
    their mean; classes: their shares, each count plus one (Laplace's rule), so that no class has
    probability 0.

    Args:
        kind: ``"regression"``, ``"counts"`` or ``"classification"``.
        train_y: the training targets, or labels 0 … K−1 (others are passed over).
        shape: of the targets to predict; of class probabilities (N, K).
        weight: of each training row.

    Example:
        >>> from posterax.metrics.baseline import baseline
        >>> baseline("classification", [0, 0, 1], (1, 2))
        array([[0.6, 0.4]])
    """
    train_y, shape = np.asarray(admit(train_y, "train_y")), tuple(shape)
    if kind == "classification":
        weight = example_weights(weight, train_y.shape)
        known = (train_y >= 0) & (train_y < shape[-1])
        counts = np.bincount(train_y[known].astype(int), weight[known], shape[-1])
        return np.broadcast_to(shares(counts), shape)
    train_y = train_y.astype(np.float64).reshape(len(train_y), *shape[1:])
    weight = example_weights(weight, train_y.shape[:1])
    mean = np.average(train_y, axis=0, weights=weight)
    if kind == "counts":
        return cast(Predictive, Constant(stats.poisson(np.maximum(mean, LEAST_RATE)), shape, kind))
    spread = np.sqrt(np.average(np.square(train_y - mean), axis=0, weights=weight))
    return cast(Predictive, Constant(stats.norm(mean, np.maximum(spread, LEAST_DEVIATION)), shape))

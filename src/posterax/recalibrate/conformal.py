r"""Split-conformal prediction intervals: coverage for finitely many rows, whatever the model.

A score s(x, y) says how badly y fits the predictive at x. With the scores of n held-out rows,

    { y : s(x, y) ≤ s₍ₖ₎ },   k = ⌈(n + 1) · level⌉

holds a new y with a probability of at least ``level``, and at most level + 1/(n + 1) where scores
have no ties: the new row's score is as likely to have any rank as any other.
"""

import dataclasses
import math
import warnings
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from .._util.admit import admit_float64
from .._util.checks import fraction, one_of
from ..metrics.inputs import Forecast
from .base import Recalibration, check_shape, shown, targets

Score = Literal["residual", "scaled", "quantile"]
Band = Forecast | tuple[ArrayLike, ArrayLike]


def order_statistic(scores: np.ndarray, level: float) -> np.ndarray:
    """The ⌈(n + 1) · level⌉-th smallest score of each column; infinity where there are too few.

    Example:
        >>> import numpy as np
        >>> from posterax.recalibrate.conformal import order_statistic
        >>> print(order_statistic(np.arange(1.0, 100.0), 0.9))  # of 99 scores the 90th
        90.0
        >>> print(order_statistic(np.arange(8.0), 0.9))
        inf
    """
    n = len(scores)
    rank = max(1, math.ceil((n + 1) * level - 1e-9))  # 0.7 · 10 is a little more than 7
    if rank > n:
        return np.full(scores.shape[1:], np.inf)
    return np.partition(scores, rank - 1, axis=0)[rank - 1]


def rows_needed(level: float) -> int:
    """The fewest held-out rows with a finite order statistic: level / (1 − level), rounded up.

    Example:
        >>> from posterax.recalibrate.conformal import rows_needed
        >>> rows_needed(0.9), rows_needed(0.95)
        (9, 19)
    """
    return math.ceil(level / (1 - level) - 1e-9)


class Conformal(Recalibration):
    """What conformal recalibrations share: the largest score that is covered, and its level."""

    scores: ClassVar[tuple[str, ...]]
    label: ClassVar[str]  # what the largest score is called

    score: str
    level: float

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("score", self.score, self.scores)
        fraction("level", self.level)
        if not np.all(self.limit > -np.inf):
            raise ValueError(f"{self.arrays[0]} must be a number, got {self.limit}")

    @property
    def limit(self) -> np.ndarray:
        """The largest score that is covered."""
        return np.asarray(getattr(self, self.arrays[0]))

    def limit_for(self, shape: tuple[int, ...]) -> np.ndarray:
        """The same, for targets of this shape."""
        check_shape(self.arrays[0], self.limit.shape, shape if self.limit.shape else ())
        return self.limit

    def __repr__(self) -> str:
        what = f"{type(self).__name__}({self.score!r}, level={self.level:g}: {self.label}"
        return f"{what} {shown(self.limit)} from {self.n} rows)"


@dataclasses.dataclass(frozen=True, repr=False)
class ConformalInterval(Conformal):
    r"""Split-conformal intervals for regression and counts.

    | score | s(x, y) | interval |
    | --- | --- | --- |
    | ``"residual"`` | \|y − mean\| | mean ± margin: the same width everywhere |
    | ``"scaled"`` | \|y − mean\| / std | mean ± margin · std: wide where the posterior is unsure |
    | ``"quantile"`` | max(low − y, y − high) | the predictive's own, each end moved by margin |

    The coverage is that of a random row; among rows of one kind it may be less. Of several outputs
    each is covered alone, unless ``joint``.

    Args:
        score: how badly a target fits its prediction.
        level: the coverage.
        margin: the held-out scores' order statistic; one for each output where there are several.
        n: held-out rows that it was fitted on.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> rng = np.random.default_rng(0)
        >>> y = rng.normal(size=2000)
        >>> conformal = px.recalibrate.ConformalInterval.fit(np.zeros(1000), y[:1000], level=0.9)
        >>> bool(1.5 < conformal.margin < 1.8)  # 90 % of a standard Gaussian are within 1.64
        True
        >>> low, high = conformal.interval(np.zeros(1000))
        >>> bool(0.87 < np.mean((low <= y[1000:]) & (y[1000:] <= high)) < 0.93)
        True

    Reference:
        Lei, G'Sell, Rinaldo, Tibshirani and Wasserman, *Distribution-free predictive inference
        for regression*, JASA 113, 2018 (residuals, plain and scaled); Romano, Patterson and
        Candès, *Conformalized quantile regression*, NeurIPS 2019.
    """

    kinds, instead = ("regression", "counts"), "px.recalibrate.ConformalSet"
    scores = get_args(Score)
    arrays, label = ("margin",), "margin"

    score: Score
    level: float
    margin: Any
    n: int

    @classmethod
    def fit(
        cls,
        predictive: Band,
        y: ArrayLike,
        *,
        level: float = 0.9,
        score: Score | None = None,
        joint: bool = False,
    ) -> "ConformalInterval":
        """The margin that covers held-out targets.

        Args:
            predictive: of held-out inputs; or arrays, ``mean`` for residuals, ``(mean, std)`` for
                scaled ones and ``(low, high)`` for quantiles.
            y: their targets.
            level: the coverage; it needs at least level / (1 − level) rows.
            score: ``"residual"``, ``"scaled"`` or ``"quantile"`` (default: scaled for a
                predictive, residual for an array).
            joint: cover all outputs of a row at once, by the largest of their scores.
        """
        level = fraction("level", level)
        if score is None:
            score = "scaled" if hasattr(predictive, "interval") else "residual"
        one_of("score", score, cls.scores)
        cls.check_kind(predictive)
        centre, width = _band(predictive, score, level)
        y = targets(y, centre.shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            scores = np.abs(y - centre) / width if score == "scaled" else np.abs(y - centre) - width
        scores = np.where(np.isnan(scores), 0.0, scores)  # neither width nor error
        if joint and scores.ndim > 1:
            scores = scores.reshape(len(y), -1).max(axis=1)
        if len(y) < rows_needed(level):
            warnings.warn(
                f"{len(y)} held-out rows are too few for level={level:g}, which needs "
                f"{rows_needed(level)}: the intervals are infinite", stacklevel=2,
            )  # fmt: skip
        return cls(score, level, order_statistic(scores, level), len(y))

    def interval(self, predictive: Band) -> tuple[np.ndarray, np.ndarray]:
        """(low, high) for each input, ends included; integers for counts.

        Args:
            predictive: of new inputs, or arrays as ``fit`` took them.
        """
        self.check_kind(predictive)
        centre, width = _band(predictive, self.score, self.level)
        margin = self.limit_for(centre.shape[1:])
        with np.errstate(invalid="ignore"):
            reach = margin * width if self.score == "scaled" else width + margin
            reach = np.where(np.isinf(margin), np.inf, np.maximum(reach, 0))
            # a target with the margin's own score lies on the end: rounding must not put it outside
            reach = reach + 4 * np.finfo(np.float64).eps * (np.abs(centre) + reach)
        low, high = centre - reach, centre + reach
        return _integers(low, high) if getattr(predictive, "kind", "") == "counts" else (low, high)


def _band(predictive: Any, score: Score, level: float) -> tuple[np.ndarray, np.ndarray]:
    """The middle and half-width of what the score starts from.

    max(low − y, y − high) is |y − middle| − half-width, so all scores are of one form.
    """
    if not hasattr(predictive, "interval"):
        pair = (predictive, 0.0) if score == "residual" else predictive
        if not (isinstance(pair, tuple) and len(pair) == 2):
            names = "(mean, std)" if score == "scaled" else "(low, high)"
            given = type(predictive).__name__
            raise TypeError(f"score={score!r} needs a predictive or the pair {names}, got {given}")
    elif score == "quantile":
        pair = predictive.interval(level)
    else:
        pair = predictive.mean, predictive.std if score == "scaled" else 0.0
    first, second = np.broadcast_arrays(*(admit_float64(part, "predictive") for part in pair))
    return ((first + second) / 2, (second - first) / 2) if score == "quantile" else (first, second)


def _integers(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The counts inside: no end but a count is of use, and one count is always named."""
    first, last = np.maximum(np.ceil(low), 0), np.floor(high)
    nearest = np.maximum(np.round((low + high) / 2), 0)
    return np.where(first > last, nearest, first), np.where(first > last, nearest, last)

r"""Split-conformal sets of classes that hold the label with a given probability.

The score s(x, k) of a class says how badly it fits; the set of a new input holds all classes whose
score is at most that of the ⌈(n + 1) · level⌉-th smallest among n held-out rows' own labels.
"""

import dataclasses
import warnings
from typing import Any, Literal, get_args

import jax
import numpy as np
from numpy.typing import ArrayLike

from .._util.checks import fraction, one_of, whole_number
from .._util.keys import KeyLike, as_key
from ..metrics.inputs import Forecast, class_labels
from .base import probabilities
from .conformal import Conformal, order_statistic, rows_needed

Score = Literal["probability", "adaptive", "regularised"]


@dataclasses.dataclass(frozen=True, repr=False)
class ConformalSet(Conformal):
    r"""Split-conformal sets for classification.

    With the classes of a row in order of their probabilities, p₍₁₎ ≥ p₍₂₎ ≥ …, and class k at place
    r among them:

    | score | s(x, k) | sets |
    | --- | --- | --- |
    | ``"probability"`` | 1 − pₖ | the smallest on average; hard inputs may get too few |
    | ``"adaptive"`` | p₍₁₎ + … + p₍ᵣ₎ | larger for hard inputs, smaller for easy ones |
    | ``"regularised"`` | the same + penalty · max(0, r − free) | without long tails |

    With a ``key`` the last term p₍ᵣ₎ of an adaptive score counts by a random share, which makes the
    coverage exact; without it sets are larger than they need to be.

    Args:
        score: how badly a class fits.
        level: the coverage.
        threshold: the largest score in the set; with ``by_class`` one for each class.
        n: held-out rows that it was fitted on.
        randomised: whether a key was given.
        penalty: of a regularised score, for each place beyond ``free``.
        free: places without penalty.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> rng = np.random.default_rng(0)
        >>> logits = 2 * rng.normal(size=(2000, 4))
        >>> y = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
        >>> p = np.exp(3 * logits) / np.exp(3 * logits).sum(1, keepdims=True)  # far too sure
        >>> conformal = px.recalibrate.ConformalSet.fit(p[:1000], y[:1000], level=0.9)
        >>> sets = conformal.sets(p[1000:])
        >>> sets.shape
        (1000, 4)
        >>> bool(0.87 < sets[np.arange(1000), y[1000:]].mean() < 0.93)
        True

    Reference:
        Sadinle, Lei and Wasserman, *Least ambiguous set-valued classifiers with bounded error
        levels*, JASA 114, 2019; Romano, Sesia and Candès, *Classification with valid and adaptive
        coverage*, NeurIPS 2020; Angelopoulos, Bates, Jordan and Malik, *Uncertainty sets for image
        classifiers using conformal prediction*, ICLR 2021. By class: Vovk, Gammerman and Shafer,
        *Algorithmic learning in a random world*, 2005.
    """

    kinds, instead = ("classification",), "px.recalibrate.ConformalInterval"
    scores = get_args(Score)
    arrays, label = ("threshold",), "scores up to"

    score: Score
    level: float
    threshold: Any
    n: int
    randomised: bool = False
    penalty: float = 0.0
    free: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("free", self.free, least=0)
        if not self.penalty >= 0:
            raise ValueError(f"penalty must be 0 or more, got {self.penalty!r}")

    @classmethod
    def fit(
        cls,
        predictive: Forecast,
        y: ArrayLike,
        *,
        level: float = 0.9,
        score: Score = "probability",
        by_class: bool = False,
        key: KeyLike | None = None,
        penalty: float = 0.1,
        free: int = 1,
    ) -> "ConformalSet":
        """The threshold with which held-out labels are in their sets.

        Args:
            predictive: of held-out inputs, or class probabilities (N, K).
            y: their labels 0 … K−1.
            level: the coverage; it needs at least level / (1 − level) rows.
            score: ``"probability"``, ``"adaptive"`` or ``"regularised"``.
            by_class: a threshold for each class, so that each is covered at this level; every
                class needs that many rows then, and without them is in every set.
            key: for adaptive and regularised scores: count the last class by a random share.
            penalty: of regularised scores.
            free: places without penalty.
        """
        level = fraction("level", level)
        one_of("score", score, cls.scores)
        cls.check_kind(predictive)
        p = probabilities(predictive)
        y = class_labels(y, p)
        if key is not None and score == "probability":
            raise ValueError("key is for score='adaptive' and 'regularised': leave it out")
        if score != "regularised":
            penalty, free = 0.0, 0
        share = None if key is None else _shares(key, 0, len(y))
        own = _scores(p, score, share, penalty, free)[np.arange(len(y)), y]
        groups = [own[y == k] for k in range(p.shape[1])] if by_class else [own]
        thresholds = np.array([order_statistic(group, level) for group in groups])
        need = rows_needed(level)
        few = [k for k, group in enumerate(groups) if len(group) < need]
        if few:
            which = f"of the classes {few} " if by_class else ""
            effect = "these classes are in every set" if by_class else "every set holds all classes"
            warnings.warn(
                f"the held-out rows {which}are too few for level={level:g}, which needs {need}: "
                f"{effect}", stacklevel=2,
            )  # fmt: skip
        threshold = thresholds if by_class else thresholds[0]
        return cls(score, level, threshold, len(y), key is not None, float(penalty), free)

    def sets(
        self, predictive: Forecast, *, key: KeyLike | None = None, nonempty: bool = False
    ) -> np.ndarray:
        """Which classes are in the set of each input: booleans (N, K); ``.sum(1)`` is their size.

        Args:
            predictive: of new inputs, or class probabilities (N, K).
            key: for what was fitted with one.
            nonempty: put the most probable class into sets that would be empty. An empty set says
                that no class fits; filling it can only raise the coverage.
        """
        self.check_kind(predictive)
        p = probabilities(predictive)
        threshold = self.limit_for(p.shape[1:])
        if (key is not None) != self.randomised:
            words = ("needed", "with") if self.randomised else ("not needed", "without")
            raise ValueError("key is {}: the scores were fitted {} a random share".format(*words))
        share = None if key is None else _shares(key, 1, len(p))
        inside = _scores(p, self.score, share, self.penalty, self.free) <= threshold
        if nonempty:
            empty = ~inside.any(axis=1)
            inside[empty, p[empty].argmax(axis=1)] = True
        return inside


def _shares(key: KeyLike, use: int, n: int) -> np.ndarray:
    """Uniform numbers; held-out and new rows never share theirs, even with one key."""
    return np.asarray(jax.random.uniform(jax.random.fold_in(as_key(key), use), (n, 1)), np.float64)


def _scores(
    p: np.ndarray, score: Score, share: np.ndarray | None, penalty: float, free: int
) -> np.ndarray:
    """s(x, k) for every class, (N, K)."""
    if score == "probability":
        return 1 - p
    order = np.argsort(-p, axis=1, kind="stable")
    ranked = np.take_along_axis(p, order, axis=1)
    summed = np.cumsum(ranked, axis=1) - (0 if share is None else share * ranked)
    summed = summed + penalty * np.maximum(np.arange(1, p.shape[1] + 1) - free, 0)
    return np.take_along_axis(summed, np.argsort(order, axis=1), axis=1)

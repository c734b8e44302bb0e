"""What a report is about: a fitted model, the rows it learned from, and those it is judged by."""

import copy
import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import PyTree
from numpy.typing import ArrayLike

from .._util.admit import admit_float64
from ..metrics.inputs import class_probabilities
from ..posteriors import Posterior
from ..predictive import Predictive
from ..recalibrate.base import probability_below
from ..tables.base import BayesianEstimator
from .words import LEVEL, cut, percent

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 2000  # to judge by, and for pictures: more change nothing that can be seen
SEED = 0  # random seed of a report
SAMPLES = 100  # draws of a plain posterior; an estimator has its own number


@dataclasses.dataclass(frozen=True)
class Subject:
    """A fitted model with its rows; everything computed from them is computed once.

    ``x`` and ``y`` are the rows to judge by (a sample of them where there are many), ``y`` as
    numbers or as labels 0 … K−1; ``train_x`` and ``train_y`` those it learned from.
    """

    fitted: BayesianEstimator | Posterior
    posterior: Posterior
    train_x: "pd.DataFrame | None"
    train_y: np.ndarray
    x: "pd.DataFrame | None"
    y: np.ndarray
    predictive: Predictive
    held_out: bool
    tested: int  # rows there are to judge by, of which ``y`` may be a sample
    unknown: int  # of them left out, with a label that the training lacked
    classes: list[str]
    target: str
    numbers: list[str]  # of the rows: the data frame's own index, or their places from 0
    inputs: PyTree  # as ``predictive`` took them, for a second look
    counted: str = "Row"  # what these numbers are: the name of the index, where it has one

    @property
    def kind(self) -> str:
        return self.predictive.kind

    @property
    def classifies(self) -> bool:
        return self.kind == "classification"

    @property
    def settings(self) -> dict[str, Any]:
        """How it was fitted, as far as the posterior knows."""
        return {} if self.posterior.record is None else self.posterior.record.settings

    @property
    def where(self) -> str:
        """Which rows these numbers are of."""
        return "held-out rows" if self.held_out else "training rows"

    def again(self, posterior: Posterior, rows: np.ndarray) -> Predictive:
        """What another posterior of the same model says about some of the rows."""
        return _predict(self.fitted, posterior, _take(self.inputs, rows))

    # -- regression and counts, of the first target where there are several

    def _first(self, values: ArrayLike) -> np.ndarray:
        values = np.asarray(values, np.float64)
        return values.reshape(len(values), -1)[:, 0]

    def _quantile(self, level: float) -> np.ndarray:
        return self._first(self.predictive.quantile(np.array([level]))[0])

    true = cached_property(lambda self: self._first(self.y))
    mean = cached_property(lambda self: self._first(self.predictive.mean))
    std = cached_property(lambda self: self._first(self.predictive.std))
    low = cached_property(lambda self: self._quantile((1 - LEVEL) / 2))
    high = cached_property(lambda self: self._quantile((1 + LEVEL) / 2))

    # deviations, of numbers; nats, of classes
    epistemic = cached_property(lambda self: self._part(self.predictive.epistemic))
    aleatoric = cached_property(lambda self: self._part(self.predictive.aleatoric))

    def _part(self, values: np.ndarray) -> np.ndarray:
        part = self._first(values)
        return part if self.classifies else np.sqrt(part)

    @cached_property
    def inside(self) -> np.ndarray:
        """Whether the interval holds the truth."""
        return (self.low <= self.true) & (self.true <= self.high)

    @cached_property
    def promised(self) -> float:
        """The mass of the intervals: the level, or of counts what lies on their whole numbers."""
        if self.kind != "counts":
            return LEVEL
        low, high = self.predictive.quantile(np.array([(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
        mass = np.asarray(self.predictive.cdf(high), np.float64)
        return float(np.mean(self._first(mass - probability_below(self.predictive, low))))

    @property
    def promise(self) -> str:
        """``promised`` in words."""
        return percent(self.promised, 0 if self.promised == LEVEL else 1)

    @cached_property
    def transform(self) -> np.ndarray:
        """P(Y ≤ y), uniform if calibrated; of counts a random place on the step."""
        u = self._first(self.predictive.cdf(self.y))
        if self.kind == "counts":
            below = self._first(probability_below(self.predictive, self.y))
            # a stream of its own: data drawn by the same seed would be correlated with it
            place = np.random.default_rng([SEED, 1]).random(len(u))
            u = below + place * (u - below)
        return u

    @cached_property
    def nll(self) -> np.ndarray:
        """−log p(y | x, D) of each row."""
        each = np.asarray(self.predictive.log_prob(self.y), np.float64)
        return -each.reshape(len(self.y), -1).sum(-1)

    # -- classes

    p = cached_property(lambda self: class_probabilities(self.predictive))
    right = cached_property(lambda self: self.p.argmax(-1) == self.y)
    entropy = cached_property(lambda self: np.asarray(self.predictive.total, np.float64))


def make_subject(
    fitted: BayesianEstimator | Posterior,
    X: PyTree,
    y: ArrayLike,
    held_out: tuple[PyTree, ArrayLike] | None,
    target: str | None,
) -> Subject:
    """Check what was given, take a sample of the rows, and predict them."""
    estimator = isinstance(fitted, BayesianEstimator)
    posterior = getattr(fitted, "posterior_", None) if estimator else fitted
    if not isinstance(posterior, Posterior):
        hint = "call fit first" if estimator else "give what fit returned"
        raise TypeError(
            "estimator must be a fitted BayesianRegressor or BayesianClassifier, or a posterior, "
            f"got {type(fitted).__name__}: {hint}"
        )
    if held_out is not None and not (isinstance(held_out, tuple | list) and len(held_out) == 2):
        raise ValueError("held_out must be a pair (X, y) of rows that were not trained on")
    judged_x, judged_y = (X, y) if held_out is None else held_out
    pairs = {"X and y": (X, y), "held_out[0] and held_out[1]": (judged_x, judged_y)}
    for both, pair in pairs.items():
        rows = [_rows(values) for values in pair]
        if rows[0] != rows[1] or not rows[0]:
            raise ValueError(
                f"{both} must have the same number of rows, 1 or more, got {rows[0]} and {rows[1]}"
            )
    # labels in the order of the probabilities; a posterior's are 0 … K−1, once it has predicted
    classes: list[Any] | None = None
    if posterior.model.likelihood.kind == "classification":
        classes = np.asarray(getattr(fitted, "classes_", ())).tolist()
    labels = _numbers(judged_y) if classes is None else _labels(judged_y, classes)
    known = np.arange(len(labels)) if classes is None else np.flatnonzero(labels >= 0)
    if not len(known):
        raise ValueError("held_out: none of its labels was among those of the training")
    tested, unknown = len(known), len(labels) - len(known)
    known = known[sample_rows(tested, MOST_ROWS)]
    inputs = _take(judged_x, known)
    predictive = _predict(fitted, posterior, inputs)
    if classes is not None:
        _, *others, count = predictive.mean.shape
        if others:
            raise ValueError(
                "a report is for one label a row; this posterior predicts "
                f"{np.prod(others)} labels for each"
            )
        if labels[known].max() >= count:
            raise ValueError(f"y must hold labels 0 to {count - 1}, got {labels[known].max()}")
        classes = classes or list(range(count))
    names = getattr(fitted, "feature_names_in_", None)
    index = getattr(getattr(inputs, "index", None), "name", None)
    return Subject(
        fitted=fitted, posterior=posterior, train_x=as_frame(X, names),
        train_y=_numbers(y) if classes is None else _labels(y, classes),
        x=as_frame(inputs, names), y=labels[known], predictive=predictive,
        held_out=held_out is not None, tested=tested, unknown=unknown,
        classes=[cut(c, 40) for c in classes or ()],
        target=cut(target or _name_of(y) or "y", 60),
        numbers=[cut(i, 24) for i in getattr(inputs, "index", known)], inputs=inputs,
        counted="Row" if index is None else cut(str(index)[:1].upper() + str(index)[1:], 24),
    )  # fmt: skip


def sample_rows(n: int, most: int) -> np.ndarray:
    """Row numbers in order: all of them, or as many as asked for, drawn by the report's seed."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(SEED).choice(n, most, replace=False))


def _predict(
    fitted: BayesianEstimator | Posterior, posterior: Posterior, inputs: PyTree
) -> Predictive:
    if isinstance(fitted, BayesianEstimator):
        other = copy.copy(fitted)
        other.posterior_ = posterior
        return other.predictive(inputs)
    # a chain may have thousands of draws: a hundred are enough for a page
    return posterior.predict(inputs, samples=SAMPLES, key=SEED)


def as_frame(X: PyTree, names: Sequence[str] | None = None) -> "pd.DataFrame | None":
    """A table as it was given, or an array as one; ``None`` for inputs that are no table."""
    import pandas as pd

    if isinstance(X, pd.DataFrame):
        return X.reset_index(drop=True)
    if isinstance(X, dict | tuple) or np.ndim(X) not in (1, 2):
        return None
    array = np.asarray(X)
    array = array[:, None] if array.ndim == 1 else array
    if names is None or len(names) != array.shape[1]:
        names = [f"column {i}" for i in range(array.shape[1])]
    return pd.DataFrame(array, columns=names)


def _labels(y: ArrayLike, classes: list[Any]) -> np.ndarray:
    """Places among the classes, −1 for a label that is not there."""
    values = np.asarray(y).reshape(-1)
    if not classes:  # a posterior's labels are 0 … K−1 already
        return values.astype(int)
    place = {label: i for i, label in enumerate(classes)}
    return np.array([place.get(v, -1) for v in values.tolist()], int)


def _numbers(y: ArrayLike) -> np.ndarray:
    values = admit_float64(y, "y")
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _name_of(y: PyTree) -> str | None:
    name = getattr(y, "name", None)
    if name is None and getattr(y, "ndim", 1) == 2 and hasattr(y, "columns"):
        name = ", ".join(map(str, y.columns))
    return None if name is None else str(name)


def _rows(values: PyTree) -> int:
    return len(jax.tree.leaves(values)[0] if isinstance(values, dict | tuple) else values)


def _take(values: PyTree, rows: np.ndarray) -> PyTree:
    if isinstance(values, dict | tuple):
        return jax.tree.map(lambda a: np.asarray(a)[rows], values)
    return values.iloc[rows] if hasattr(values, "iloc") else np.asarray(values)[rows]

"""What a report is about: a fitted model, the rows it learned from, and those it is judged by."""

import copy
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import PyTree
from numpy.typing import ArrayLike

from .._util.admit import admit_float64
from ..posteriors import Posterior
from ..predictive import Predictive
from ..tables.base import BayesianEstimator
from .outcome import SEED, Outcome
from .words import cut

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 2000  # of pictures: more change nothing that can be seen
SAMPLES = 100  # draws of a plain posterior; an estimator has its own number


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject(Outcome):
    """A fitted model with its rows; everything computed from them is computed once.

    ``x``, ``y`` and ``predictive`` are of the rows in pictures, a sample where there are many, and
    ``outcome`` is of all rows to judge by; ``train_x`` and ``train_y`` are those it learned from.
    """

    fitted: BayesianEstimator | Posterior
    posterior: Posterior
    train_x: "pd.DataFrame | None"
    train_y: np.ndarray
    x: "pd.DataFrame | None"
    held_out: bool
    tested: int  # rows there are to judge by, of which ``y`` may be a sample
    unknown: int  # of them left out, with a label that the training lacked
    classes: list[str]
    target: str
    numbers: list[str]  # of the rows: the data frame's own index, or their places from 0
    inputs: PyTree  # as ``predictive`` took them, for a second look
    counted: str = "Row"  # what these numbers are: the name of the index, where it has one
    every: Outcome | None = None  # all rows, where those in pictures are a sample
    train_weight: np.ndarray | None = None

    @property
    def outcome(self) -> Outcome:
        """All rows to judge by."""
        return self if self.every is None else self.every

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


def make_subject(
    fitted: BayesianEstimator | Posterior,
    X: PyTree,
    y: ArrayLike,
    held_out: Sequence[PyTree] | None,
    target: str | None,
    sample_weight: ArrayLike | None = None,
) -> Subject:
    """Check what was given, predict all rows to judge by, and take a sample for pictures."""
    posterior = _posterior(fitted)
    judged_x, judged_y, weight = _judged(X, y, sample_weight, held_out)
    # labels in the order of the probabilities; a posterior's are 0 … K−1, once it has predicted
    classes: list[Any] | None = None
    if posterior.model.likelihood.kind == "classification":
        classes = np.asarray(getattr(fitted, "classes_", ())).tolist()
    labels = _numbers(judged_y) if classes is None else _labels(judged_y, classes)
    known = np.arange(len(labels)) if classes is None else np.flatnonzero(labels >= 0)
    if not len(known):
        raise ValueError("held_out: none of its labels was among those of the training")
    tested, unknown = len(known), len(labels) - len(known)
    predictive = _predict(fitted, posterior, _take(judged_x, known))
    if classes is not None:
        classes = _checked(classes, predictive.mean.shape, labels[known])
    weight = None if weight is None else weight[known]
    every = Outcome(predictive=predictive, y=labels[known], weight=weight)
    some = sample_rows(tested, MOST_ROWS)
    known = known[some]
    if len(known) < tested:
        predictive = predictive.at(some)
    inputs = _take(judged_x, known)
    names = getattr(fitted, "feature_names_in_", None)
    index = getattr(getattr(inputs, "index", None), "name", None)
    return Subject(
        fitted=fitted, posterior=posterior, train_x=as_frame(X, names),
        train_y=_numbers(y) if classes is None else _labels(y, classes),
        train_weight=None if sample_weight is None else admit_float64(sample_weight, "weight"),
        x=as_frame(inputs, names), y=labels[known], predictive=predictive, every=every,
        held_out=held_out is not None, tested=tested, unknown=unknown,
        classes=[cut(c, 40) for c in classes or ()],
        target=cut(target or _name_of(y) or "y", 60),
        numbers=[cut(i, 24) for i in getattr(inputs, "index", known)], inputs=inputs,
        counted="Row" if index is None else cut(str(index)[:1].upper() + str(index)[1:], 24),
    )  # fmt: skip


def _posterior(fitted: BayesianEstimator | Posterior) -> Posterior:
    estimator = isinstance(fitted, BayesianEstimator)
    posterior = getattr(fitted, "posterior_", None) if estimator else fitted
    if not isinstance(posterior, Posterior):
        hint = "call fit first" if estimator else "give what fit returned"
        raise TypeError(
            "estimator must be a fitted BayesianRegressor or BayesianClassifier, or a posterior, "
            f"got {type(fitted).__name__}: {hint}"
        )
    return posterior


def _judged(
    X: PyTree, y: ArrayLike, weight: ArrayLike | None, held_out: Sequence[PyTree] | None
) -> tuple[PyTree, ArrayLike, np.ndarray | None]:
    """Rows to judge by, their targets, and how often each counts."""
    judged = (X, y, weight)
    if held_out is not None:
        if not (isinstance(held_out, tuple | list) and len(held_out) in (2, 3)):
            raise ValueError(
                "held_out must be a pair (X, y) of rows that were not trained on, or (X, y, weight)"
            )
        judged = (held_out[0], held_out[1], held_out[2] if len(held_out) == 3 else None)
    pairs = {"X and y": (X, y), "held_out[0] and held_out[1]": judged[:2]}
    for both, pair in pairs.items():
        rows = [_rows(values) for values in pair]
        if rows[0] != rows[1] or not rows[0]:
            raise ValueError(
                f"{both} must have the same number of rows, 1 or more, got {rows[0]} and {rows[1]}"
            )
    given, of = judged[2], "sample_weight" if held_out is None else "held_out[2]"
    if given is None:
        return judged[0], judged[1], None
    counted = admit_float64(given, of)
    if counted.shape != (_rows(judged[1]),) or np.any(counted < 0) or not np.any(counted > 0):
        raise ValueError(f"{of} must be a number of 0 or more for each row, and not 0 everywhere")
    return judged[0], judged[1], counted


def _checked(classes: list[Any], shape: tuple[int, ...], labels: np.ndarray) -> list[Any]:
    """The classes of predictions of this shape, which labels do not exceed."""
    _, *others, count = shape
    if others:
        raise ValueError(
            "a report is for one label a row; this posterior predicts "
            f"{np.prod(others)} labels for each"
        )
    if labels.max() >= count:
        raise ValueError(f"y must hold labels 0 to {count - 1}, got {labels.max()}")
    return classes or list(range(count))


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

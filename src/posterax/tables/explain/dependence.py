"""How the mean prediction changes with one column."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..._util.checks import fraction, whole_number
from ..._util.text import in_columns
from .table import Change, Table, as_table, cell_text, sample_rows, weighted_quantiles


@dataclass(frozen=True, eq=False, repr=False)
class Dependence:
    """The mean prediction over a column's range, with the posterior's uncertainty of it.

    ``mean``, ``low`` and ``high`` have a row for each value; of several targets, and of classes, a
    column for each.
    """

    column: str
    kind: str  # number, whole number, date, time, boolean, ordinal, text
    values: list[Any]  # cells, as they stand in the table
    positions: np.ndarray  # where they lie on an axis; texts are counted
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    level: float
    rows: int
    classes: list[Any] | None = None

    def to_pandas(self) -> pd.DataFrame:
        """A row for each value."""
        parts = {"mean": self.mean, "low": self.low, "high": self.high}
        if self.mean.ndim == 1:
            return pd.DataFrame({self.column: self.values} | parts)
        names = self.classes or list(range(self.mean.shape[1]))
        each = {f"{p}_{name}": a[:, k] for k, name in enumerate(names) for p, a in parts.items()}
        return pd.DataFrame({self.column: self.values} | each)

    def __repr__(self) -> str:
        frame = self.to_pandas()
        rows = [list(map(str, frame.columns))]
        rows += [[cell_text(v) for v in row] for row in frame.itertuples(index=False, name=None)]
        head = (
            f"mean prediction of {self.rows} rows by {self.column!r}, with {100 * self.level:g} % "
            "intervals of the posterior"
        )
        return "\n".join([head, *in_columns(rows)])


class Curves(NamedTuple):
    """Partial dependence of every posterior sample: (samples, values, outputs)."""

    each: np.ndarray
    weights: np.ndarray
    levels: np.ndarray  # rows whose cells the values are
    place: np.ndarray | None
    kind: str


def partial_dependence(
    estimator: Any,
    X: Any,
    column: Any,
    *,
    grid: int = 20,
    level: float = 0.9,
    rows: int | None = 200,
    key: int = 0,
) -> Dependence:
    r"""The mean prediction over rows as one column varies, all others as they are.

        f(v) = 1/n Σᵢ E[y | x = (v, xᵢ without the column), D]

    The band is the posterior's uncertainty of this mean: quantiles of f(v) over posterior samples.
    It is no interval of y, which has the noise and the other columns in it. Values are ones that
    occur: evenly spaced quantiles of numbers and dates, the most frequent texts. Where columns go
    together, some of the rows asked about do not exist.

    Args:
        estimator: a fitted ``BayesianRegressor`` or ``BayesianClassifier``.
        X: rows, such as those of the training.
        column: its name or number.
        grid: how many values at most.
        level: mass of the band.
        rows: average over so many rows, drawn by ``key``; ``None`` for all of them.
        key: an int.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> from posterax.tables import explain
        >>> X = np.random.default_rng(0).uniform(-1, 1, (120, 2))
        >>> model = px.BayesianRegressor(steps=300, members=1, random_state=0).fit(X, 3 * X[:, 0])
        >>> curve = explain.partial_dependence(model, X, "x0", grid=5)
        >>> curve.mean.shape, bool((curve.low <= curve.high).all())
        ((5,), True)

    References:
        Friedman, Greedy Function Approximation: A Gradient Boosting Machine, Annals of Statistics
        2001.
    """
    level, grid = fraction("level", level), whole_number("grid", grid, least=2)
    rows = rows if rows is None else whole_number("rows", rows)
    table = as_table(estimator, X)
    j = table.number_of(column)
    if not table.used(j):
        raise ValueError(
            f"column {table.names[j]!r} was left out when the model was fitted: predictions do not "
            "depend on it"
        )
    (found,) = dependences(table, [j], grid, level, rows, key)
    if not found.values:
        raise ValueError(f"column {table.names[j]!r} has no values in X: it is empty there")
    return found


def dependences(
    table: Table, columns: list[int], grid: int, level: float, rows: int | None, key: int
) -> list[Dependence]:
    """The partial dependence on several columns, by their numbers."""
    classes = getattr(table.estimator, "classes_", None)
    made = []
    for j, found in zip(columns, curves(table, columns, grid, rows, key), strict=True):
        ends = [(1 - level) / 2, (1 + level) / 2]
        low, high = weighted_quantiles(found.each, found.weights, ends)
        mean = np.tensordot(found.weights, found.each, axes=1)
        if mean.shape[1] == 1:
            mean, low, high = mean[:, 0], low[:, 0], high[:, 0]
        place = found.place
        made.append(
            Dependence(
                table.names[j],
                found.kind,
                table.frame.iloc[found.levels, j].tolist(),
                np.arange(len(found.levels)) if place is None else place[found.levels],
                mean,
                low,
                high,
                level,
                len(sample_rows(len(table), rows, key)),
                None if classes is None else classes.tolist(),
            )
        )
    return made


def curves(
    table: Table, columns: list[int], grid: int, rows: int | None, key: int, progress: Any = None
) -> list[Curves]:
    """The partial dependence of several columns, with all their values in equal blocks."""
    some = table.take(sample_rows(len(table), rows, key))
    n, found, changes = len(some), [], []
    for j in columns:
        levels = table.levels(j, grid)
        found.append((levels, table.positions(j), table.kind(j)))
        cells = table.frame.iloc[:, j]
        changes += [Change(j, cells, np.full(n, row)) for row in levels]
    weights = np.ones(1)

    def answer(X: Any, copies: int) -> np.ndarray:
        nonlocal weights
        predictive = table.estimator.predictive(X)
        means = np.asarray(predictive.conditional_means(), np.float64)
        weights = np.asarray(predictive.weights, np.float64)
        # (samples, copies, rows, outputs), averaged over rows
        means = means[:, : copies * n].reshape(len(means), copies, n, -1)
        return np.moveaxis(means.mean(2), 1, 0)

    parts = [one for block in some.each(changes, answer, progress) for one in block]
    made, start = [], 0
    for levels, place, kind in found:
        stop = start + len(levels)
        each = np.stack(parts[start:stop], 1) if stop > start else np.zeros((len(weights), 0, 1))
        made.append(Curves(each, weights / weights.sum(), levels, place, kind))
        start = stop
    return made

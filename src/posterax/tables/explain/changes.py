"""What would change the prediction of one row: other values of one column at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..._util.checks import fraction, whole_number
from ..._util.text import in_columns
from ..cells import texts
from .table import Change, Table, as_table, cell_text


class Outcome(NamedTuple):
    """The prediction with another cell in one column.

    ``mean``, ``low`` and ``high`` are of y, or of the probability of the class that is predicted
    for the row as it is; ``label`` is the class predicted now, ``None`` in regression. ``moved`` is
    how far the cell is from the row's own, in deviations of the column; 1 for another text.
    """

    column: str
    value: Any
    mean: float
    low: float
    high: float
    label: Any = None
    moved: float = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class Changes:
    """What becomes of a row's prediction when one column changes.

    ``now`` is the row as it is, ``row`` its cells by column; ``outcomes`` everything that was
    tried.
    """

    now: Outcome
    row: dict[str, Any]
    outcomes: list[Outcome]
    level: float

    @property
    def rise(self) -> Outcome | None:
        """The change with the highest mean, if any is higher than now."""
        return self._best(self.outcomes, 1)

    @property
    def fall(self) -> Outcome | None:
        """The change with the lowest mean, if any is lower than now."""
        return self._best(self.outcomes, -1)

    @property
    def flips(self) -> list[Outcome]:
        """For classes: of each column the smallest change to another class, the smallest first."""
        there: dict[str, Outcome] = {}
        for one in sorted(self.outcomes, key=lambda one: (one.moved, one.mean)):
            if one.label != self.now.label:
                there.setdefault(one.column, one)
        return list(there.values())

    def by_column(self, direction: int) -> list[Outcome]:
        """Of each column the largest rise (1) or fall (−1), the largest first."""
        best = []
        for name in self.row:
            one = self._best([o for o in self.outcomes if o.column == name], direction)
            best += [] if one is None else [one]
        return sorted(best, key=lambda one: -direction * one.mean)

    def _best(self, outcomes: list[Outcome], direction: int) -> Outcome | None:
        best = max(outcomes, key=lambda one: direction * one.mean, default=None)
        if best is None or direction * (best.mean - self.now.mean) <= 0:
            return None
        return best

    def to_pandas(self) -> pd.DataFrame:
        """A row for everything that was tried, the row as it is first (column "")."""
        frame = pd.DataFrame([self.now, *self.outcomes], columns=list(Outcome._fields))
        return frame if self.now.label is not None else frame.drop(columns="label")

    def __repr__(self) -> str:
        now, label = self.now, "" if self.now.label is None else f" of {self.now.label!r}"
        head = (
            f"prediction{label}: {now.mean:.4g} ({100 * self.level:g} %: {now.low:.4g} to "
            f"{now.high:.4g}); with one column changed:"
        )
        rows = [["column", "now", "largest rise", "largest fall"]]
        ends = [{o.column: o for o in self.by_column(sign)} for sign in (1, -1)]
        if self.now.label is not None:
            rows[0].append("smallest change of class")
            ends.append({o.column: o for o in self.flips})
        for name, cell in self.row.items():
            shown = [_shown(by.get(name), now) for by in ends]
            if any(shown):
                rows.append([name, cell_text(cell), *shown])
        return "\n".join([head, *in_columns(rows)])


def what_if(
    estimator: Any,
    x: Any,
    X: Any,
    *,
    columns: Sequence[Any] | None = None,
    grid: int = 20,
    level: float = 0.9,
) -> Changes:
    r"""How the prediction of one row changes as one column at a time varies over its range.

        E[y | x with xⱼ = v, D] for each column j and values v that occur in X

    Whole numbers stay whole, texts and dates are ones that occur, and a gap is never tried. The
    other columns stay as they are, so the changed row may be one that does not exist; and the
    model knows what goes together, not what causes what.

    Args:
        estimator: a fitted ``BayesianRegressor`` or ``BayesianClassifier``, with one target.
        x: one row: a list, a dictionary, a ``Series`` or a table of one row.
        X: rows, such as those of the training, for the values to try.
        columns: names or numbers of those to change (default: all).
        grid: how many values of each at most.
        level: mass of the intervals, of y or of the probability.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> from posterax.tables import explain
        >>> X = np.random.default_rng(0).uniform(-1, 1, (120, 2))
        >>> model = px.BayesianRegressor(steps=300, members=1, random_state=0).fit(X, 3 * X[:, 0])
        >>> changes = explain.what_if(model, [0.0, 0.0], X, grid=5)
        >>> changes.rise.column, changes.fall.value < 0
        ('x0', True)

    References:
        Goldstein, Kapelner, Bleich & Pitkin, Peeking Inside the Black Box: Visualizing Statistical
        Learning With Plots of Individual Conditional Expectation, JCGS 2015.
        Wachter, Mittelstadt & Russell, Counterfactual Explanations without Opening the Black Box,
        Harvard Journal of Law & Technology 2018.
    """
    grid, level = whole_number("grid", grid, least=2), fraction("level", level)
    table = as_table(estimator, X)
    chosen = range(len(table.names)) if columns is None else map(table.number_of, columns)
    row = table.row(x)
    one = table.take(np.zeros(1, int))
    one.frame = row
    changes: list[Change | None] = [None]
    moved = []
    for j in (j for j in chosen if table.used(j)):
        levels = table.levels(j, grid)
        changes += [Change(j, table.frame.iloc[:, j], levels[[i]]) for i in range(len(levels))]
        moved += _moved(table, j, levels, row)
    first: list[int] = []  # the class predicted for the row as it is

    def answer(X: Any, copies: int) -> list[tuple[float, float, float, Any]]:
        predictive = estimator.predictive(X)
        mean = np.asarray(predictive.mean, np.float64)
        low, high = (np.asarray(end, np.float64) for end in predictive.interval(level))
        if not hasattr(estimator, "classes_"):
            if mean.size != copies:
                raise ValueError(
                    f"what_if is for one target, and the model has {mean.size // copies}: fit one "
                    "model to each"
                )
            ends = (a.reshape(-1).tolist() for a in (mean, low, high))
            return list(zip(*ends, [None] * copies, strict=True))
        best = mean.argmax(-1)
        if not first:
            first.append(int(best[0]))
        ends = (a[:, first[0]].tolist() for a in (mean, low, high))
        return list(zip(*ends, estimator.classes_[best].tolist(), strict=True))

    found: list[Any] = [answered for block in one.each(changes, answer) for answered in block]
    outcomes = [
        Outcome(table.names[c.column], c.cells.iloc[c.numbers].tolist()[0], *answered)._replace(
            moved=by
        )
        for c, answered, by in zip(changes[1:], found[1:], moved, strict=True)
        if c is not None
    ]
    cells = dict(zip(table.names, row.iloc[0].tolist(), strict=True))
    return Changes(Outcome("", None, *found[0]), cells, outcomes, level)


def _moved(table: Table, j: int, levels: np.ndarray, row: pd.DataFrame) -> list[float]:
    """How far each of these cells is from the row's own."""
    place = table.positions(j)
    if place is None:
        cells = texts(table.frame.iloc[levels, j])
        return [float(cell != texts(row.iloc[:, j]).iloc[0]) for cell in cells]
    own, spread = table.positions(j, row), np.nanstd(place)
    assert own is not None
    apart = np.abs(place[levels] - own[0]) / (spread if spread > 0 else 1.0)
    return np.nan_to_num(apart, nan=1.0).tolist()  # from a gap all are as far


def _shown(outcome: Outcome | None, now: Outcome) -> str:
    if outcome is None:
        return ""
    flip = "" if outcome.label == now.label else f", {outcome.label!r}"
    by = f"{outcome.mean - now.mean:+.3g}"
    return f"{cell_text(outcome.value)} → {outcome.mean:.4g} ({by}{flip})"

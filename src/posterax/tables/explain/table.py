"""A table as its columns are asked about: kinds, values to try, and blocks of changed rows."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from ..cells import CLOCKS, dates, numbers, texts
from ..choices import truths

# rows predicted at once, a power of two where they are few: all calls share a few programs
LEAST, BLOCK = 512, 4096
T = TypeVar("T")
Progress = Callable[[int, int], None]  # told how many blocks are done, and of how many


class Change(NamedTuple):
    """Other cells for a column: for each row one of these, by its number."""

    column: int
    cells: pd.Series
    numbers: np.ndarray


class Table:
    """The rows that an estimator is asked about.

    Args:
        estimator: a fitted ``BayesianRegressor`` or ``BayesianClassifier``.
        X: an array or a data frame, as its ``fit`` takes them.
        block: how many rows to predict at once, where programs for so many are there already.
    """

    def __init__(self, estimator: Any, X: Any, block: int | None = None):
        check_is_fitted(estimator)
        self.block = block
        self.estimator = estimator
        self.encoder = getattr(estimator, "columns_", None)
        known = getattr(estimator, "feature_names_in_", None)
        if isinstance(X, pd.DataFrame):
            frame = X.reset_index(drop=True)
        else:
            array = np.asarray(X, dtype=None if hasattr(X, "dtype") else object)
            if array.ndim != 2:
                raise ValueError(f"X must be a table of rows and columns, got shape {array.shape}")
            count = estimator.n_features_in_
            if array.shape[1] != count:
                raise ValueError(f"X has {array.shape[1]} columns, the model was fitted to {count}")
            names = [f"x{i}" for i in range(count)] if known is None else known
            frame = pd.DataFrame(array, columns=list(names)).infer_objects()
        if not len(frame):
            raise ValueError("X has no rows")
        if self.encoder is not None:  # extra columns are of no matter to the model
            there = [str(name) in self.encoder.names for name in frame.columns]
            frame = frame.loc[:, there]
        self.named = known is not None
        self.frame: pd.DataFrame = frame

    @property
    def names(self) -> list[str]:
        return [str(name) for name in self.frame.columns]

    def __len__(self) -> int:
        return len(self.frame)

    def given(self, frame: pd.DataFrame) -> Any:
        """Rows in the form that the estimator was fitted to."""
        if self.named:
            return frame
        array = frame.to_numpy()
        return array if array.dtype != bool else array.astype(np.float64)

    def take(self, rows: np.ndarray) -> "Table":
        """Some of the rows."""
        other = object.__new__(Table)
        vars(other).update(vars(self), frame=self.frame.iloc[rows].reset_index(drop=True))
        return other

    def number_of(self, column: Any) -> int:
        """A column's place, by its name or its number."""
        names = self.names
        if isinstance(column, int | np.integer) and not isinstance(column, bool):
            if -len(names) <= column < len(names):
                return int(column) % len(names)
        elif str(column) in names:
            return names.index(str(column))
        shown = ", ".join(map(repr, names[:8])) + (", …" if len(names) > 8 else "")
        raise ValueError(f"column must be one of {shown} or a number below {len(names)}, got "
                         f"{column!r}")  # fmt: skip

    def row(self, x: Any) -> pd.DataFrame:
        """One row, given as a list, a dictionary, a pandas ``Series`` or a table of one row."""
        if isinstance(x, pd.DataFrame):
            frame = x
        elif isinstance(x, pd.Series | dict):
            frame = pd.DataFrame([dict(x)])
        else:
            array = np.asarray(x, dtype=None if hasattr(x, "dtype") else object)
            array = np.atleast_2d(array)
            if array.ndim != 2 or array.shape[1] != self.frame.shape[1]:
                raise ValueError(
                    f"x must be one row of {self.frame.shape[1]} columns, got shape {array.shape}"
                )
            frame = pd.DataFrame(array, columns=self.frame.columns)
        if len(frame) != 1:
            raise ValueError(f"x must be one row, got {len(frame)}: give one of them")
        frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
        missing = [name for name in self.names if name not in frame.columns]
        if missing:
            raise ValueError(f"x lacks the column {missing[0]!r}, with which the model was fitted")
        frame = frame[self.names].set_axis(self.frame.columns, axis=1)
        return frame.reset_index(drop=True).infer_objects()

    # -- columns

    def _column(self, j: int) -> Any:
        """What the encoding knows of a column; ``None`` for a table of numbers."""
        if self.encoder is None:
            return None
        return next(column for column in self.encoder.columns if column.name == self.names[j])

    def used(self, j: int) -> bool:
        """Whether the model sees this column."""
        column = self._column(j)
        return column is None or column.kind != "left out"

    def encoded(self, frame: pd.DataFrame | None = None) -> np.ndarray:
        """The matrix that the model's scaling sees."""
        frame = self.frame if frame is None else frame
        if self.encoder is not None:
            return np.asarray(self.encoder.transform(frame), np.float64)
        return frame.to_numpy(np.float64)

    def positions(self, j: int, frame: pd.DataFrame | None = None) -> np.ndarray | None:
        """Where each cell lies on an axis, NaN for gaps; ``None`` for texts without an order.

        Dates are days since 1970, times of the day hours.
        """
        values = (self.frame if frame is None else frame).iloc[:, j].reset_index(drop=True)
        column = self._column(j)
        if column is None:
            return values.to_numpy(np.float64)
        if column.kind in ("category", "left out"):
            return None
        if column.kind == "boolean":
            return truths(values).to_numpy(np.float64)
        if column.kind == "number":
            return numbers(values, column.form).to_numpy(np.float64)
        if column.kind == "date":
            times = dates(values, column.format).to_numpy("datetime64[us]")
            days = (times - np.datetime64(0, "us")) / np.timedelta64(1, "D")
            return 24 * (days % 1) if column.format in CLOCKS else days
        rank = {str(level): float(i) for i, level in enumerate(column.kept)}
        return texts(values).map(rank).to_numpy(np.float64)

    def kind(self, j: int) -> str:
        """number, whole number, date, time, boolean, ordinal, text, or left out."""
        column = self._column(j)
        if column is not None and column.kind != "number":
            if column.kind == "date" and column.format in CLOCKS:
                return "time"
            return "text" if column.kind == "category" else str(column.kind)
        place = self.positions(j)
        assert place is not None
        known = place[np.isfinite(place)]
        return "whole number" if len(known) and np.all(known == np.round(known)) else "number"

    def levels(self, j: int, grid: int) -> np.ndarray:
        """Rows whose cells stand for a column's range, in order.

        All cells are ones that occur, so whole numbers stay whole and a date stays a date: of
        numbers those at evenly spaced quantiles, of texts the most frequent ones.
        """
        place = self.positions(j)
        if place is None:
            cells = texts(self.frame.iloc[:, j])
            counts = cells.value_counts()
            often = sorted(counts.index, key=lambda text: (-counts[text], text))[:grid]
            return np.array([int(np.flatnonzero(cells == text)[0]) for text in often], int)
        values, first = np.unique(place, return_index=True)
        values, first = values[np.isfinite(values)], first[np.isfinite(values)]
        if len(values) <= grid:
            return first
        known = np.sort(place[np.isfinite(place)])
        marks = known[np.round(np.linspace(0, len(known) - 1, grid)).astype(int)]
        return first[np.unique(np.searchsorted(values, marks))]

    # -- blocks

    def each(
        self,
        changes: Sequence[Change | None],
        answer: Callable[[Any, int], T],
        progress: Progress | None = None,
    ) -> Iterator[list[T]]:
        """What is said of all rows under each change, several changes at once.

        ``answer(X, copies)`` gets the rows ``copies`` times, each with one of the changes, and
        some more to fill the block; it returns a sequence with an entry for each copy.
        """
        n = len(self)
        size = min(BLOCK, max(LEAST, 1 << (n * len(changes) - 1).bit_length()))
        size = max(n, self.block or size)
        copies = size // n
        blocks = range(0, len(changes), copies)
        for number, start in enumerate(blocks):
            part = list(changes[start : start + copies])
            full = part + [None] * (copies - len(part))
            answers: Any = answer(self.given(self._stacked(full, size)), copies)
            if progress is not None:
                progress(number + 1, len(blocks))
            yield list(answers)[: len(part)]

    def _stacked(self, changes: Sequence[Change | None], size: int) -> pd.DataFrame:
        n, frame = len(self), self.frame
        tiled = np.arange(size) % n
        stacked = frame.iloc[tiled].reset_index(drop=True)
        known = [(place, change) for place, change in enumerate(changes) if change is not None]
        for j, cells in {change.column: change.cells for _, change in known}.items():
            index = tiled.copy()
            for place, change in known:
                if change.column == j:
                    index[place * n : (place + 1) * n] = n + change.numbers
            both = pd.concat([frame.iloc[:, j], cells], ignore_index=True)
            stacked.isetitem(j, both.iloc[index].reset_index(drop=True))
        return stacked


def as_table(estimator: Any, X: Any) -> Table:
    """The table of an estimator and its rows, or the one that is given."""
    return X if isinstance(X, Table) else Table(estimator, X)


def sample_rows(n: int, most: int | None, key: int) -> np.ndarray:
    """Row numbers in order: all of them, or as many as asked for, drawn at random."""
    if most is None or n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(key).choice(n, most, replace=False))


def weighted_quantiles(values: np.ndarray, weights: np.ndarray, levels: Any) -> np.ndarray:
    """Quantiles over the first axis, each value in the middle of its own weight.

    Example:
        >>> import numpy as np
        >>> from posterax.tables.explain.table import weighted_quantiles
        >>> weighted_quantiles(np.array([3.0, 1.0, 2.0]), np.ones(3) / 3, [0.5]).tolist()
        [2.0]
    """
    flat = values.reshape(len(values), -1)
    order = np.argsort(flat, axis=0)
    found = np.empty((len(levels), flat.shape[1]))
    for i in range(flat.shape[1]):
        mass = weights[order[:, i]]
        found[:, i] = np.interp(levels, np.cumsum(mass) - mass / 2, flat[order[:, i], i])
    return found.reshape(len(levels), *values.shape[1:])


def cell_text(value: Any) -> str:
    """A cell as a line of text shows it.

    Example:
        >>> from posterax.tables.explain.table import cell_text
        >>> cell_text(0.123456), cell_text(3.0), cell_text("a"), cell_text(None)
        ('0.1235', '3', 'a', '–')
    """
    if isinstance(value, float | np.floating):
        return f"{value:.4g}" if np.isfinite(value) else "–"
    if value is None or value is pd.NaT or value is pd.NA:
        return "–"
    if isinstance(value, pd.Timestamp):
        return f"{value:%Y-%m-%d}" if value == value.normalize() else f"{value:%Y-%m-%d %H:%M}"
    return " ".join(str(value).split())[:40]

"""What happens to a table before the network sees it."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ..data import pad_rows

MERGED_ROWS = 1024  # up to so many rows, equal ones become one row with their weights added
LEAST_ROWS = 64  # smaller tables are padded to this many, so that they share one compilation
HELD_OUT, MOST_HELD_OUT = 0.2, 2000  # rows of a table, to measure the width of intervals with
MEASURABLE_ROWS = 100  # of a table; fewer leave too few to measure with


class Standardiser(NamedTuple):
    """x ↦ (x − shift) / scale, column by column, in float64."""

    shift: np.ndarray
    scale: np.ndarray

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return (values - self.shift) / self.scale


def standardiser(values: np.ndarray, weight: np.ndarray) -> Standardiser:
    """Weighted means and deviations; a constant column is only moved to zero.

    Constant is what differs by rounding alone. A constant keeps its size as the unit, so that an
    answer in that unit is precise.

    Example:
        >>> import numpy as np
        >>> from posterax.tables.standardise import standardiser
        >>> standardiser(np.array([[1.0, 5.0], [3.0, 5.0]]), np.ones(2))
        Standardiser(shift=array([2., 5.]), scale=array([1., 5.]))
    """
    share = weight / weight.sum()
    largest = np.max(np.abs(values), axis=0, initial=0)
    constant = np.ptp(values, axis=0) <= 10 * np.finfo(np.float64).eps * largest
    shift = np.where(constant, values[0], share @ values)
    # the largest deviation is taken out first: squares of large numbers would overflow
    most = np.max(np.abs(values - shift), axis=0, initial=0)
    most = np.where(constant | (most == 0), 1, most)
    deviation = most * np.sqrt(share @ np.square((values - shift) / most))
    unit = np.where(shift == 0, 1, np.abs(shift))
    return Standardiser(shift, np.where(constant | (deviation == 0), unit, deviation))


class Given(NamedTuple):
    """What a user gives to learn from."""

    X: ArrayLike
    y: ArrayLike | None
    weight: ArrayLike | None = None
    classes: ArrayLike | None = None  # all labels there will be


class Rows(NamedTuple):
    """A table ready to be learned from."""

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    times: np.ndarray | None = None  # how often each came, where its class has a weight, too

    def at(self, index: np.ndarray) -> "Rows":
        """Some of the rows."""
        return Rows(*(None if part is None else part[index] for part in self))  # type: ignore


def distinct(rows: Rows) -> Rows:
    """Rows of weight 0 go; in a small table equal rows become one, in a fixed order.

    A weight of 2 and a row given twice are the same data, and so give the same bits.
    """
    rows = rows.at(rows.weight > 0)
    n = len(rows.x)
    if n > MERGED_ROWS:
        return rows
    table = np.column_stack([rows.x, rows.y.reshape(n, -1)])
    _, first, group = np.unique(table, axis=0, return_index=True, return_inverse=True)
    added = lambda part: np.bincount(group.reshape(-1), part, len(first))  # noqa: E731
    merged = rows.at(first)._replace(weight=added(rows.weight))
    return merged if rows.times is None else merged._replace(times=added(rows.times))


def padded(rows: Rows) -> Rows:
    """A table with rows of weight 0 added, up to a power of two that it shares with others."""
    n = len(rows.x)
    size = max(LEAST_ROWS, 1 << (n - 1).bit_length())
    weight = np.concatenate([rows.weight, np.zeros(size - n)])
    return Rows(pad_rows(rows.x, size), pad_rows(rows.y, size), weight)


def held_out(rows: Rows, seed: int) -> np.ndarray:
    """Row numbers to hold out; a row that comes again is held out with its copies."""
    n = len(rows.x)
    random = np.random.default_rng(seed)
    group = equal_rows(np.column_stack([rows.x, rows.y.reshape(n, -1)]), random)
    rank = random.permutation(group.max() + 1)[group]
    wanted = min(round(HELD_OUT * n), MOST_HELD_OUT)
    return np.flatnonzero(rank <= np.sort(rank)[wanted - 1])


def equal_rows(table: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """For each row the number of its group, from 0; equal rows are one."""
    # equal rows have equal hashes; should two others share one, nothing is lost
    odd = random.integers(2**63, size=table.shape[1], dtype=np.uint64) | np.uint64(1)
    bits = np.ascontiguousarray(table + 0.0).view(np.uint64)  # no −0, which is 0
    hashed = np.sum((bits ^ bits >> np.uint64(29)) * odd, axis=1)
    return np.asarray(np.unique(hashed, return_inverse=True)[1])


def text_column(x: Any) -> str | None:
    """The first column that holds text, described, or ``None``."""
    for name, column in pd.DataFrame(x).items():
        for value in (cell for cell in column if isinstance(cell, str)):
            try:
                float(value)
            except ValueError:
                return f"column {name!r} holds {value!r}"
    return None

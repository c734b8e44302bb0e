r"""Cross-fitting: rows in folds, and what a model says of the rows that it did not see.

Row i of an arranged table belongs to fold i mod K, and member m of an ensemble with ``folds=K``
leaves out fold m mod K. So one fit gives an honest prediction of every row, and no rows are lost
to validation.
"""

from typing import NamedTuple

import numpy as np

from .standardise import LEAST_ROWS, MERGED_ROWS, Rows


class Arranged(NamedTuple):
    """Rows in the order of their folds; some have weight 0 and fill a fold up."""

    rows: Rows
    folds: int

    @property
    def fold(self) -> np.ndarray:
        """The number of each row's fold."""
        return np.arange(len(self.rows.x)) % self.folds


def arrange(rows: Rows, folds: int, seed: int, *, classes: bool = False) -> Arranged:
    """Rows dealt out to folds at random, classes in proportion.

    Copies of a row are dealt out one by one: new rows will be copies as often as these are.

    Example:
        >>> import numpy as np
        >>> from posterax.tables.folds import arrange
        >>> from posterax.tables.standardise import Rows
        >>> x = np.arange(10.0)[:, None]
        >>> arranged = arrange(Rows(x, x[:, 0], np.ones(10)), 4, seed=0)
        >>> len(arranged.rows.x) % 4, int(arranged.rows.weight.sum())
        (0, 10)
    """
    rows = _copies(rows, folds)
    n = len(rows.x)
    order = np.random.default_rng(seed).permutation(n)
    if classes:
        order = order[np.argsort(rows.y[order], kind="stable")]
    slots = -(-n // folds)
    if n <= MERGED_ROWS:  # small tables share compiled programs
        slots = max(slots, -(-LEAST_ROWS // folds), -(-(1 << (n - 1).bit_length()) // folds))
    index = np.zeros(slots * folds, np.int64)
    weight = np.zeros(slots * folds)
    index[:n], weight[:n] = order, rows.weight[order]
    return Arranged(Rows(rows.x[index], rows.y[index], weight), folds)


def arranged_by(rows: Rows, fold: np.ndarray, folds: int) -> Arranged:
    """Rows in the order of the folds that they are given.

    Example:
        >>> import numpy as np
        >>> from posterax.tables.folds import arranged_by
        >>> from posterax.tables.standardise import Rows
        >>> x = np.arange(3.0)[:, None]
        >>> own = arranged_by(Rows(x, x[:, 0], np.ones(3)), np.array([1, 0, 1]), 2).rows
        >>> own.y.tolist(), own.weight.tolist()
        ([1.0, 0.0, 0.0, 2.0], [1.0, 1.0, 0.0, 1.0])
    """
    slots = int(np.bincount(fold, minlength=folds).max())
    index, weight = np.zeros(slots * folds, np.int64), np.zeros(slots * folds)
    for k in range(folds):
        own = np.flatnonzero(fold == k)
        place = np.arange(len(own)) * folds + k
        index[place], weight[place] = own, rows.weight[own]
    return Arranged(Rows(rows.x[index], rows.y[index], weight), folds)


def fold_of(number: np.ndarray, folds: int) -> np.ndarray:
    """The fold of a row by its number in a table, with no regard to what is periodic there.

    Example:
        >>> import numpy as np
        >>> from posterax.tables.folds import fold_of
        >>> np.bincount(fold_of(np.arange(1000), 5)).tolist()
        [197, 199, 205, 196, 203]
    """
    mixed = np.asarray(number).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return ((mixed >> np.uint64(33)) % np.uint64(folds)).astype(np.int64)


def _copies(rows: Rows, folds: int) -> Rows:
    """Rows that came several times, as copies.

    Only where whole numbers say how often, and most are 1 or all are few, as after merging equal
    rows. Others may say how much a row matters.
    """
    times = rows.weight if rows.times is None else rows.times
    if not np.all(times == np.round(times)):
        return rows
    times = times // max(int(np.gcd.reduce(times.astype(np.int64))), 1)
    if not (np.median(times) == 1 or times.sum() <= MERGED_ROWS):
        return rows
    count = np.minimum(times, folds).astype(np.int64)
    index = np.repeat(np.arange(len(count)), count)
    return rows.at(index)._replace(weight=(rows.weight / np.maximum(count, 1))[index])


def together(parts: list[np.ndarray]) -> np.ndarray:
    """What each fold's rows got, in the order of the table."""
    folds = len(parts)
    whole = np.empty((sum(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype)
    for k, part in enumerate(parts):
        whole[k::folds] = part
    return whole

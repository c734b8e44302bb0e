"""A table larger than memory: a random sample of its rows, and all of them in chunks.

What is to be known of a table before a network can learn from it, its columns, scalings and the
kind of its target, is learned from the sample. Rows that say most about the target are always in
it: the least, the largest, one with a fraction, and one of each label.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .._util.progress import rows_through
from . import files
from .standardise import Given

SAMPLE_ROWS = 200_000
SAMPLE_CELLS = 20_000_000  # fewer rows, where there are many columns
MOST_LABELS = 250  # different targets of which one row each is kept

Frames = Callable[[Collection[str]], Iterable[pd.DataFrame]]


class Chunk(NamedTuple):
    """Some rows, and their numbers in the table."""

    given: Given
    numbers: np.ndarray


class LargeTable(NamedTuple):
    """Rows to learn from.

    ``chunks`` gives all of them, as often as it is called, in the same order; its argument are
    names of columns that are read as text, whatever they look like.
    """

    sample: Chunk
    rows: int
    chunks: Callable[[Collection[str]], Iterator[Chunk]]


class Sample(NamedTuple):
    """Some rows of a table; the index of the frame are their numbers."""

    frame: pd.DataFrame
    rows: int  # of the table


def open_table(
    path: str | Path, target: Any, weight: Any = None, *, verbose: bool | None = None
) -> Given | LargeTable:
    """A small table as pandas reads it, a large one in chunks.

    Args:
        path: a file, or a folder of files.
        target: the column to predict, or several.
        weight: the column that says how often a row counts.
        verbose: show how many rows are read (default: where someone is watching).
    """
    if target is None:
        raise ValueError("y: name the column to predict, as in fit('table.csv', 'price')")
    parts = files.files_of(path)

    def chunk(frame: pd.DataFrame) -> Chunk:
        names = [*target] if isinstance(target, list) else [target]
        for argument, name in [("y", n) for n in names] + [("sample_weight", weight)]:
            if name is not None and name not in frame.columns:
                some = ", ".join(map(repr, [*frame.columns][:8]))
                raise ValueError(
                    f"{argument}: {path} has no column {name!r}; name one of its columns: {some}"
                )
        taken = [*names, *([] if weight is None else [weight])]
        counts = None if weight is None else frame[weight].to_numpy()
        given = Given(frame.drop(columns=taken), frame[target].to_numpy(), counts)
        return Chunk(given, frame.index.to_numpy())

    if files.bytes_of(parts) <= files.LARGE:
        return chunk(files.whole(parts)).given

    def frames(text: Collection[str]) -> Iterator[pd.DataFrame]:
        yield from numbered(rows_through(files.chunks(parts, text), "rows read", verbose))

    first = next(iter(files.chunks(parts)))
    chunk(first.head(1))  # which refuses columns that are not there, before all is read
    sample = take_sample(frames, target if isinstance(target, str) else None)
    return LargeTable(chunk(sample.frame), sample.rows, lambda text: map(chunk, frames(text)))


def numbered(frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """The frames with the numbers of their rows in the table as the index."""
    begin = 0
    for frame in frames:
        yield frame.set_axis(pd.RangeIndex(begin, begin + len(frame)), axis=0)
        begin += len(frame)


def take_sample(frames: Frames, target: str | None, seed: int = 0) -> Sample:
    """Rows drawn without replacement, in the order of the table.

    A column that is text in one chunk and numbers in another is read again, as text in all.

    Args:
        frames: gives the table in chunks, ``numbered``; its argument are columns to read as text.
        target: the column of which the extremes and the labels are to be there.
        seed: of the sample.

    Example:
        >>> import pandas as pd
        >>> from posterax.tables.large import numbered, take_sample
        >>> table = [pd.DataFrame({"y": [1, 2]}), pd.DataFrame({"y": [3]})]
        >>> take_sample(lambda text: numbered(table), "y").frame["y"].tolist()
        [1, 2, 3]
    """
    text: set[str] = set()
    while True:
        drawn, told, kinds = None, _Telling(target), dict[str, set[bool]]()
        rows = 0
        for frame in frames(text):
            drawn = drawn or _Drawn(frame.shape[1], seed)
            drawn.add(frame)
            told.add(frame)
            rows += len(frame)
            for name, dtype in frame.dtypes.items():
                number = pd.api.types.is_numeric_dtype(dtype)  # yes and no are, too
                kinds.setdefault(str(name), set()).add(bool(number))
        if drawn is None or not rows:
            raise ValueError("X: the table has no rows")
        mixed = {name for name, kind in kinds.items() if len(kind) > 1}
        if mixed <= text:
            break
        text |= mixed
    frame = pd.concat([drawn.frame(), *told.rows()])
    return Sample(frame[~frame.index.duplicated()].sort_index(), rows)


class _Drawn:
    """Rows with the smallest of random numbers."""

    def __init__(self, columns: int, seed: int):
        self.most = min(SAMPLE_ROWS, max(1000, SAMPLE_CELLS // columns))
        self.random, self.limit = np.random.default_rng(seed), 1.0
        self.frames: list[pd.DataFrame] = []
        self.keys: list[np.ndarray] = []

    def add(self, frame: pd.DataFrame) -> None:
        key = self.random.random(len(frame))
        below = key < self.limit
        self.frames.append(frame[below])
        self.keys.append(key[below])
        if sum(map(len, self.keys)) > 1.5 * self.most:
            self._cut()

    def _cut(self) -> None:
        key, frame = np.concatenate(self.keys), pd.concat(self.frames)
        if len(key) > self.most:
            self.limit = np.partition(key, self.most)[self.most]
        self.frames, self.keys = [frame[key < self.limit]], [key[key < self.limit]]

    def frame(self) -> pd.DataFrame:
        self._cut()
        return self.frames[0]


class _Telling:
    """Rows that tell what kind of target it is."""

    def __init__(self, target: str | None):
        self.target = target
        self.labels: dict[Any, pd.DataFrame] = {}
        self.ends: dict[str, pd.DataFrame] = {}  # by what is said of their target

    def add(self, frame: pd.DataFrame) -> None:
        if self.target is None or not len(frame):
            return
        y = frame[self.target]
        if len(self.labels) < MOST_LABELS:
            new = y.dropna().drop_duplicates()
            for row, label in new[~new.isin([*self.labels])].head(MOST_LABELS).items():
                self.labels[label] = frame.loc[[row]]
        if not pd.api.types.is_numeric_dtype(y.dtype) or not y.notna().any():
            return
        numbers = pd.Series(y.to_numpy(np.float64, na_value=np.nan), y.index)
        for name, row in (("low", numbers.idxmin()), ("high", numbers.idxmax())):
            sign = 1 if name == "low" else -1
            held = self.ends.get(name)
            if held is None or sign * numbers[row] < sign * float(held[self.target].iloc[0]):
                self.ends[name] = frame.loc[[row]]
        odd = numbers.index[(numbers != np.round(numbers)) & numbers.notna()]
        if "fraction" not in self.ends and len(odd):
            self.ends["fraction"] = frame.loc[odd[:1]]

    def rows(self) -> list[pd.DataFrame]:
        return [*self.labels.values(), *self.ends.values()]

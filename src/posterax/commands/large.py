"""A table that is too large to be read at once, for ``posterax fit``: a sample, and the rest.

The command does with the sample what it does with a small table: it recognises the task, holds
rows out and scores them. Only the estimator reads all the rows.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from .._util.progress import rows_through
from ..tables import files
from ..tables.large import Chunk, LargeTable, Sample, numbered, take_sample
from ..tables.standardise import Given
from .reading import read_blocks, read_parts, read_table
from .splitting import MOST_HELD
from .targets import Parts, Task, column_name, counted, recognise_task, rows_to_score, split_target


def is_large(path: str | Path) -> bool:
    """Whether a table is not to be read at once; what is piped is."""
    return Path(path).exists() and files.bytes_of(files.files_of(path)) > files.LARGE


def read_any(
    path: str | Path, target: str, task: str | None, ignore: str | list[str] | None,
    weight: str | None, seed: int, verbose: bool | None,
) -> tuple[Parts, Task, str]:  # fmt: skip
    """Like ``read_parts``; of a large table a sample, whose ``source`` has all of it."""
    if not is_large(path):
        return read_parts(path, target, task, ignore, weight)
    notes: list[str] = []
    source, sample = Source.of(path, target, notes, seed, verbose)
    parts = split_target(sample.frame, source.target, ignore, weight)
    if source.missing:
        no = f"no {source.target!r} and"
        missing = counted(source.missing, f"row has {no} is", f"rows have {no} are")
        notes.append(f"{missing} left out")
    parts.X.index = pd.Index(sample.frame.index + 1, name="row of the table")
    kind, why = recognise_task(parts.y, task, parts.X.index)
    notes.append(
        f"columns, scaling and trees are learned from {len(parts.y):,} random rows of "
        f"{source.rows:,}, networks from all"
    )
    source = replace(source, numbers=sample.frame.index.to_numpy(), weight=parts.names["weight"])
    notes = [f"{kind}: {why}", *notes, *parts.notes]
    return replace(parts, notes=notes, left_out=source.missing, source=source), kind, why


@dataclass(frozen=True)
class Source:
    """All rows of a large table."""

    path: str | Path
    target: str
    rows: int  # with a target
    missing: int  # without
    verbose: bool | None
    numbers: np.ndarray | None = None  # of the rows in the sample
    weight: str | None = None

    @classmethod
    def of(
        cls, path: str | Path, target: str, notes: list[str], seed: int, verbose: bool | None
    ) -> "tuple[Source, Sample]":
        """Read it once; notes on how it is written are added."""
        first, _ = next(read_blocks(path, rows=1))
        target = column_name([str(name) for name in first.columns], target, "--target")
        missing = 0

        def frames(text: Collection[str]) -> Iterator[pd.DataFrame]:
            nonlocal missing
            missing, own = 0, list[str]()
            for block in _all(path, own, text or None, None, verbose):
                there = block[block[target].notna()]
                missing += len(block) - len(there)
                yield there
            notes[:] = own

        sample = take_sample(frames, target, seed)
        return cls(path, target, sample.rows, missing, verbose), sample

    def table(self, train: Parts, task: Task) -> LargeTable:
        """What an estimator learns from: all rows but those of the sample that are held out."""
        numbers = train.X.index.to_numpy() - 1
        assert self.numbers is not None
        held = np.setdiff1d(self.numbers, numbers)
        y = train.targets(task)
        classes = sorted(set(y.tolist())) if task == "classification" else None
        decimal = train.X.attrs.get("decimal")

        def chunks(text: Collection[str]) -> Iterator[Chunk]:
            for block in _all(self.path, [], text, decimal, self.verbose):
                rows = block[block[self.target].notna() & ~block.index.isin(held)]
                if len(rows):
                    part = rows_to_score(rows, self.path, self.target, self.weight, classes)
                    given = Given(part.X, part.targets(task), part.weight)
                    yield Chunk(given, rows.index.to_numpy())

        sample = Chunk(Given(train.X, y, train.weight), numbers)
        return LargeTable(sample, self.rows - len(held), chunks)


def read_some(
    path: str | Path, notes: list[str], *, text: Collection[str], decimal: str | None, seed: int
) -> pd.DataFrame:
    """A table to score on, or as many random rows of a large one as are scored."""
    if not is_large(path):
        return read_table(path, notes, text=text, decimal=decimal)
    sample = take_sample(lambda _: _all(path, [], text, decimal, None), None, seed)
    few = sample.frame.sample(min(MOST_HELD, len(sample.frame)), random_state=seed).sort_index()
    notes.append(f"{path}: scored on {len(few):,} random rows of {sample.rows:,}")
    return few


def _all(
    path: str | Path, notes: list[str], text: Collection[str] | None, decimal: str | None,
    verbose: bool | None,
) -> Iterator[pd.DataFrame]:  # fmt: skip
    """The blocks of a table, with the numbers of their rows."""
    blocks = read_blocks(path, notes, text=text, decimal=decimal)
    shown = partial(rows_through, what="rows read", wanted=verbose)
    yield from numbered(shown(block for block, _ in blocks))

"""A table in files, one or a folder of them, read in chunks: Parquet and CSV."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

LARGE = 100_000_000  # bytes of a table in memory beyond which it is not read at once
CELLS = 2_000_000  # of a chunk
PACKED = 4  # times as large as its file, that a packed CSV is
ENDINGS = {
    "Parquet": (".parquet",),
    "CSV": (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz"),
}
INSTALL = "Parquet files need pyarrow: pip install 'posterax[parquet]'"


def files_of(path: str | Path) -> list[Path]:
    """The file there, or those of a folder in the order of their names, all of one kind.

    Names that begin with a dot or an underscore are no part of the table.

    Example:
        >>> from posterax.tables.files import files_of
        >>> files_of("nowhere")
        Traceback (most recent call last):
        ...
        FileNotFoundError: nowhere: no such file or folder
    """
    place = Path(path)
    if not place.is_dir():
        if not place.exists():
            raise FileNotFoundError(f"{path}: no such file or folder")
        if not place.is_file():
            raise ValueError(f"{path}: neither a file nor a folder")
        return [place]
    there = sorted(p for p in place.iterdir() if p.is_file() and p.name[0] not in "._")
    found = {
        kind: [p for p in there if p.name.lower().endswith(ends)] for kind, ends in ENDINGS.items()
    }
    kinds = [kind for kind, files in found.items() if files]
    if not kinds:
        ends = ", ".join(end for ends in ENDINGS.values() for end in ends[:2])
        raise FileNotFoundError(f"{path}: the folder holds no table ({ends}); name another one")
    if len(kinds) > 1:
        raise ValueError(f"{path}: holds Parquet and CSV files: name a folder of one kind")
    return found[kinds[0]]


def is_parquet(file: Path) -> bool:
    """By its first bytes."""
    with file.open("rb") as start:
        return start.read(4) == b"PAR1"


def bytes_of(files: Sequence[Path]) -> int:
    """About as many bytes as the table takes in memory, told without reading it."""
    total = 0
    for file in files:
        if is_parquet(file):
            with _parquet(file) as table:
                total += 8 * table.metadata.num_rows * table.metadata.num_columns
        else:
            total += file.stat().st_size * (PACKED if file.suffix == ".gz" else 1)
    return total


def whole(files: Sequence[Path]) -> pd.DataFrame:
    """All of them as pandas reads them, one below another."""
    same = SameColumns()
    each = [
        same(
            file, pd.read_parquet(file) if is_parquet(file) else pd.read_csv(file, sep=_mark(file))
        )
        for file in files
    ]
    return each[0] if len(each) == 1 else pd.concat(each, ignore_index=True)


def chunks(files: Sequence[Path], text: Collection[str] = ()) -> Iterator[pd.DataFrame]:
    """The table in chunks of rows, with the columns of ``text`` as they stand in a CSV file."""
    same = SameColumns()
    for file in files:
        for frame in _chunks_of(file, text):
            yield same(file, frame)


class SameColumns:
    """Puts the columns of one file after another in the order of the first; refuses others.

    Example:
        >>> import pandas as pd
        >>> from posterax.tables.files import SameColumns
        >>> same = SameColumns()
        >>> first = same("1.csv", pd.DataFrame({"a": [1], "b": [2]}))
        >>> [*same("2.csv", pd.DataFrame({"b": [1], "a": [2]})).columns]
        ['a', 'b']
        >>> same("3.csv", pd.DataFrame({"a": [1]}))
        Traceback (most recent call last):
        ...
        ValueError: 3.csv: has no column 'b', which 1.csv has: ...
    """

    def __init__(self) -> None:
        self.first, self.names = "", list[object]()

    def __call__(self, file: str | Path, frame: pd.DataFrame) -> pd.DataFrame:
        names = [*frame.columns]
        if not self.names:
            self.first, self.names = Path(file).name, names
        if names == self.names:
            return frame
        lacking = [name for name in self.names if name not in names]
        more = [name for name in names if name not in self.names]
        if lacking or more:
            said = f"no column {lacking[0]!r}" if lacking else f"a column {more[0]!r}"
            raise ValueError(
                f"{file}: has {said}, which {self.first} has{'' if lacking else ' not'}: the files "
                "of a table must have the same columns"
            )
        return frame[self.names]


def _chunks_of(file: Path, text: Collection[str]) -> Iterator[pd.DataFrame]:
    if is_parquet(file):
        with _parquet(file) as table:
            rows = _rows(table.metadata.num_columns)
            for batch in table.iter_batches(rows):
                yield batch.to_pandas()
        return
    names = [*pd.read_csv(file, sep=_mark(file), nrows=0).columns]
    types = {name: "str" for name in names if name in text}
    with pd.read_csv(file, sep=_mark(file), chunksize=_rows(len(names)), dtype=types) as parts:
        yield from parts


def _rows(columns: int) -> int:
    """Of a chunk."""
    return max(1000, CELLS // max(columns, 1))


def _mark(file: Path) -> str:
    return "\t" if ".tsv" in file.suffixes else ","


def _parquet(file: Path) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ImportError(f"{file}: {INSTALL}") from None
    try:
        return pq.ParquetFile(file)
    except pa.ArrowException as error:
        raise ValueError(f"{file}: not a complete Parquet file ({error})") from None

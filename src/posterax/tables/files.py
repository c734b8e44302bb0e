"""A table in files, one or a folder of them, read in chunks: Parquet and CSV."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

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
    frames = alike(
        (file, pd.read_parquet(file) if is_parquet(file) else pd.read_csv(file, sep=_mark(file)))
        for file in files
    )
    each = [frame for _, frame in frames]
    return each[0] if len(each) == 1 else pd.concat(each, ignore_index=True)


def chunks(files: Sequence[Path], text: Collection[str] = ()) -> Iterator[pd.DataFrame]:
    """The table in chunks of rows, with the columns of ``text`` as they stand in a CSV file."""
    for _, frame in alike((file, part) for file in files for part in _chunks_of(file, text)):
        yield frame


def alike(
    frames: Iterable[tuple[str | Path, pd.DataFrame]],
) -> Iterator[tuple[str | Path, pd.DataFrame]]:
    """Frames of files with the columns in the order of the first; other columns are refused."""
    first: tuple[str | Path, list[object]] | None = None
    for file, frame in frames:
        names = [*frame.columns]
        first = first or (file, names)
        if names != first[1]:
            _refuse_others(file, names, *first)
            frame = frame[first[1]]
        yield file, frame


def _refuse_others(
    file: str | Path, names: list[object], first: str | Path, known: list[object]
) -> None:
    if lacking := [name for name in known if name not in names]:
        said = f"has no column {lacking[0]!r}, which {Path(first).name} has"
    elif more := [name for name in names if name not in known]:
        said = f"has a column {more[0]!r}, which {Path(first).name} has not"
    else:
        return
    raise ValueError(f"{file}: {said}: the files of a table must have the same columns")


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


def _parquet(file: Path):  # type: ignore[no-untyped-def]
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise ImportError(f"{file}: {INSTALL}") from None
    return pq.ParquetFile(file)

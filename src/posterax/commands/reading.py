"""Tables from files: what can be read is read and said, what cannot is refused in a line.

A CSV file is looked at before pandas parses it: its bytes for the encoding, its rows for their
number of cells, since pandas fills short rows and makes an index of long ones, silently.
"""

import gzip
import zlib
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from . import Refused
from .lines import Form, Source, as_text, checked_names, looked_at, short
from .targets import Parts, Task, recognise_task, split_target

__all__ = ["Parts", "Task", "read_blocks", "read_table", "recognise_task", "split_target"]

# cells that hold nothing
MISSING = ["", "?", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "null", "NULL", "None"]
LARGEST = 1e100  # of a number: squares of larger ones overflow
BLOCK = 20_000  # rows at a time
_MAGIC = {
    b"PK\x03\x04": "an Excel or zip file: save the table as CSV",
    b"%PDF": "a PDF file: save the table as CSV",
    b"\xd0\xcf\x11\xe0": "an old Excel file: save the table as CSV",
}


def read_table(
    path: str | Path, notes: list[str] | None = None, *, text: Collection[str] = ()
) -> pd.DataFrame:
    """A data frame of a .csv, .csv.gz, .tsv or .parquet file, or of CSV on standard input (-).

    Args:
        path: the file.
        notes: what was guessed (encoding, delimiter, decimal mark) is added here, a line each.
        text: names of columns that are read as text, whatever they look like.

    Raises:
        Refused: in one line, for what is no table.
    """
    blocks = list(read_blocks(path, notes, text=text, rows=None))
    return blocks[0]


def read_blocks(
    path: str | Path,
    notes: list[str] | None = None,
    *,
    text: Collection[str] = (),
    rows: int | None = BLOCK,
) -> Iterator[pd.DataFrame]:
    """A table in blocks of rows, so that a long one passes in bounded memory."""
    notes = [] if notes is None else notes
    with closing(Source(path)) as source:
        with source.open() as file:
            start = _first_bytes(path, file)
        if start.startswith(b"PAR1"):
            yield from _parquet_blocks(path, rows)
            return
        for magic, what in _MAGIC.items():
            if start.startswith(magic):
                raise Refused(f"{path}: {what}")
        form = looked_at(path, source.open, notes)
        first = 0
        for block in _parsed(path, form, text, rows):
            _check_numbers(path, block, first)
            first += len(block)
            yield block


def _first_bytes(path: str | Path, file: IO[bytes]) -> bytes:
    try:
        return file.read(8)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Refused(f"{path}: a damaged gzip file ({error})") from None


def _parsed(
    path: str | Path, form: Form, text: Collection[str], rows: int | None
) -> Iterator[pd.DataFrame]:
    options: dict[str, Any] = {
        "sep": form.delimiter,
        "header": 0,
        "names": form.names,
        "index_col": False,
        "decimal": form.decimal,
        "dtype": {name: "str" for name in text if name in form.names},
        "na_values": MISSING,
        "keep_default_na": False,
        "skipinitialspace": True,
        "low_memory": False,
    }
    try:
        with as_text(form.open, form.encoding) as file:
            if rows is None:
                yield _emptied(pd.read_csv(file, **options))
                return
            with pd.read_csv(file, chunksize=rows, **options) as blocks:
                yield from map(_emptied, blocks)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, OverflowError) as error:
        raise Refused(f"{path}: {error}") from None


def _emptied(frame: pd.DataFrame) -> pd.DataFrame:
    """Missing values as such in text too: pandas keeps NA beside an integer of 20 digits."""
    for name, column in frame.items():
        if not (pd.api.types.is_numeric_dtype(column.dtype) or column.dtype == bool):
            frame[name] = column.where(~column.isin(MISSING))
    return frame


def _parquet_blocks(path: str | Path, rows: int | None) -> Iterator[pd.DataFrame]:
    if str(path) == "-":
        raise Refused("-: Parquet cannot be read from standard input; name the file")
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise Refused(
            f"{path}: Parquet files need pyarrow: install posterax with its extra, "
            "posterax[parquet]"
        ) from None
    try:
        with pq.ParquetFile(path) as file:
            if file.metadata.num_rows == 0:
                raise Refused(f"{path}: has columns but no rows")
            if file.metadata.num_columns < 2:
                raise Refused(f"{path}: has one column; a table needs a target and more")
            blocks = file.iter_batches(rows or max(1, file.metadata.num_rows))
            for batch in blocks:
                block = batch.to_pandas()
                if block.index.name is not None:
                    block = block.reset_index()
                block.columns = checked_names(path, [str(name) for name in block.columns])
                _check_cells(path, block)
                _check_numbers(path, block, 0)
                yield block
    except (pa.ArrowException, OSError) as error:
        raise Refused(f"{path}: not a whole Parquet file ({error})") from None


def _check_cells(path: str | Path, frame: pd.DataFrame) -> None:
    for name, column in frame.items():
        if (
            column.dtype == object
            and column.map(lambda v: isinstance(v, list | dict | np.ndarray)).any()
        ):
            raise Refused(f"{path}: column {short(name)} holds lists or records, not single values")


def _check_numbers(path: str | Path, frame: pd.DataFrame, first: int) -> None:
    """Numbers must be finite, and small enough to compute with."""
    for name, column in frame.items():
        if not pd.api.types.is_float_dtype(column.dtype):
            continue
        bad = np.abs(column.to_numpy(dtype=np.float64, na_value=np.nan)) > LARGEST
        if bad.any():
            row = int(np.argmax(bad))
            raise Refused(
                f"{path}: column {short(name)} holds {column.iloc[row]} in row {first + row + 1}: "
                "numbers must be finite and of ordinary size; leave the cell empty if it is unknown"
            )

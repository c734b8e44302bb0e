"""Tables from files: what can be read is read and said, what cannot is refused in a line.

A CSV file is looked at before pandas parses it: its bytes for the encoding, its rows for their
number of cells, since pandas fills short rows and makes an index of long ones, silently.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..tables.cells import ADDRESS, AGREE
from ..tables.files import INSTALL, SameColumns, files_of
from . import Refused
from .lines import Form, as_text, checked_names, looked_at, opener, short
from .targets import Parts, Task, recognise_task, split_target

# cells that hold nothing
MISSING = ["", "?", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "null", "NULL", "None"]
LARGEST = 1e100  # of a number: squares of larger ones overflow
BLOCK = 20_000  # rows at a time
# with decimal commas: a number, and one with marks of thousands
_NUMBER = re.compile(r"[+-]?(\d+|[1-9]\d{0,2}(\.\d{3})+)(,\d+)?([eE][+-]?\d+)?")
_MARKED = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?")
_MAGIC = {
    b"PK\x03\x04": "an Excel or zip file: save the table as CSV",
    b"%PDF": "a PDF file: save the table as CSV",
    b"\xd0\xcf\x11\xe0": "an old Excel file: save the table as CSV",
}


def read_table(
    path: str | Path,
    notes: list[str] | None = None,
    *,
    text: Collection[str] | None = None,
    decimal: str | None = None,
    least: int = 2,
) -> pd.DataFrame:
    """A data frame of a .csv, .csv.gz, .tsv or .parquet file, or of CSV on standard input (-).

    Args:
        path: the file, or a folder of files with the same columns.
        notes: what was guessed (encoding, delimiter, decimal mark) is added here, a line each.
        text: where the columns are known: names of those that are read as text, whatever they look
            like.
        decimal: the decimal mark where the file's numbers do not tell.
        least: columns that it must have.

    Returns:
        The table; its ``attrs["decimal"]`` is the mark that was found.

    Raises:
        Refused: in one line, for what is no table.
    """
    blocks = read_blocks(path, notes, text=text, rows=None, decimal=decimal, least=least)
    frames = [frame for frame, _ in blocks]
    return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)


def read_parts(
    path: str | Path,
    target: str,
    task: str | None = None,
    ignore: str | list[str] | None = None,
    weight: str | None = None,
) -> tuple[Parts, Task, str]:
    """A table to learn from, its task, and why it is that; all that was done is in its notes."""
    notes: list[str] = []
    parts = split_target(read_table(path, notes), target, ignore, weight)
    kind, why = recognise_task(parts.y, task, parts.X.index)
    return replace(parts, notes=[f"{kind}: {why}", *notes, *parts.notes]), kind, why


def as_fitted(estimator: Any) -> dict[str, Any]:
    """How a model's own table was read, as options of ``read_table``."""
    columns = getattr(estimator, "columns_", None)
    data = getattr(estimator, "card_", {}).get("data")
    decimal = data.get("decimal") if isinstance(data, dict) else None
    return {"text": columns.text if columns else [], "decimal": "," if decimal == "," else None}


def read_blocks(
    path: str | Path,
    notes: list[str] | None = None,
    *,
    text: Collection[str] | None = None,
    rows: int | None = BLOCK,
    decimal: str | None = None,
    least: int = 2,
    keep: Callable[[list[str]], Sequence[str]] | None = None,
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame | None]]:
    """A table in blocks of rows, so that a long one passes in bounded memory.

    Beside each block are the columns that ``keep`` chooses from the names, as the file has them.
    """
    notes = [] if notes is None else notes
    files = files_of(path) if Path(path).is_dir() else [path]
    options: dict[str, Any] = {"text": text, "rows": rows, "decimal": decimal, "least": least}
    same = SameColumns()
    for file in files:
        for block, kept in _blocks(file, notes, keep=keep, **options):
            yield same(file, block), kept


def _blocks(
    path: str | Path, notes: list[str], *, text: Collection[str] | None, rows: int | None,
    decimal: str | None, least: int, keep: Callable[[list[str]], Sequence[str]] | None,
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame | None]]:  # fmt: skip
    """The blocks of one file."""
    with opener(path) as opened:
        with opened() as file:
            start = file.read(8)
        if start.startswith(b"PAR1"):
            for block in _parquet_blocks(path, rows, least):
                yield block, None if keep is None else block[[*keep([*block.columns])]].copy()
            return
        for magic, what in _MAGIC.items():
            if start.startswith(magic):
                raise Refused(f"{path}: {what}")
        form = looked_at(path, opened, notes, least=least, decimal=decimal)
        first, kept = 0, None
        if keep is not None:  # cells as the file has them: 00045 is no 45
            as_they_are = {"usecols": [*keep(form.names)], "dtype": "str", "na_filter": False}
            kept = _parsed(path, form, rows, as_they_are)
        types = {"dtype": {name: "str" for name in text or () if name in form.names}}
        for block in _parsed(path, form, rows, types | {"na_values": MISSING}):
            for name in _texts(block):  # pandas keeps NA beside an integer of 20 digits
                block[name] = block[name].where(~block[name].isin(MISSING))
            if form.decimal == ",":
                _without_thousands(path, block, text, notes)
            _check_numbers(path, block, first)
            first += len(block)
            block.attrs |= {"decimal": form.decimal, "head": 1}
            yield block, None if kept is None else next(kept)


def _parsed(
    path: str | Path, form: Form, rows: int | None, more: dict[str, Any]
) -> Iterator[pd.DataFrame]:
    try:
        with (
            as_text(form.open, form.encoding) as file,
            pd.read_csv(
                file, chunksize=rows or 1 << 40, sep=form.delimiter, decimal=form.decimal, header=0,
                names=form.names, index_col=False, keep_default_na=False, skipinitialspace=True,
                low_memory=False, **more,
            ) as blocks,
        ):  # fmt: skip
            yield from blocks
    except (pd.errors.ParserError, pd.errors.EmptyDataError, OverflowError) as error:
        raise Refused(f"{path}: {error}") from None


def _texts(frame: pd.DataFrame) -> list[str]:
    """Names of the columns that are neither numbers nor yes and no."""
    return [*frame.select_dtypes(exclude=["number", "bool"]).columns]


def _without_thousands(
    path: str | Path, frame: pd.DataFrame, text: Collection[str] | None, notes: list[str]
) -> None:
    """Numbers with decimal commas that pandas left as text, since they have points between.

    Before a fit only where a column agrees, and after it in all that are no text to the model.
    """
    for name in _texts(frame):
        if text is not None and name in text:
            continue
        cells = frame[name].dropna().astype(str).str.strip()
        numbers = cells[cells.map(_NUMBER.fullmatch).notna()]
        marked = any(map(_MARKED.fullmatch, numbers))
        alike = len(numbers) >= AGREE * len(cells) and not all(map(ADDRESS.fullmatch, cells))
        if not len(numbers) or (text is None and not (marked and alike)):
            continue
        plain = numbers.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
        column = frame[name].astype(object)
        column[numbers.index] = plain.astype(float) if len(numbers) == len(cells) else plain
        frame[name] = column.infer_objects()
        note = f"{path}: column {short(name)} has points as marks of thousands"
        if marked and note not in notes:
            notes.append(note)


def _parquet_blocks(path: str | Path, rows: int | None, least: int) -> Iterator[pd.DataFrame]:
    if str(path) == "-":
        raise Refused("-: Parquet cannot be read from standard input; name the file")
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise Refused(f"{path}: {INSTALL}") from None
    try:
        with pq.ParquetFile(path) as file:
            if file.metadata.num_rows == 0:
                raise Refused(f"{path}: has columns but no rows")
            if file.metadata.num_columns < least:
                raise Refused(f"{path}: has one column; a table needs a target and more")
            for batch in file.iter_batches(rows or file.metadata.num_rows):
                block = batch.to_pandas()
                if block.index.name is not None:
                    block = block.reset_index()
                block.columns = checked_names(path, [str(name) for name in block.columns], least)
                for name in _texts(block):
                    if block[name].map(lambda v: isinstance(v, list | dict | np.ndarray)).any():
                        holds = "lists or records, not single values"
                        raise Refused(f"{path}: column {short(name)} holds {holds}")
                _check_numbers(path, block, 0)
                yield block
    except (pa.ArrowException, OSError) as error:
        raise Refused(f"{path}: not a complete Parquet file ({error})") from None


def _check_numbers(path: str | Path, frame: pd.DataFrame, first: int) -> None:
    """Numbers must be finite, and small enough to compute with."""
    for name, column in frame.select_dtypes(np.floating).items():
        bad = np.abs(column.to_numpy(dtype=np.float64, na_value=np.nan)) > LARGEST
        if bad.any():
            row = int(np.argmax(bad))
            raise Refused(
                f"{path}: column {short(name)} holds {column.iloc[row]} in row {first + row + 1}: "
                "numbers must be finite and of ordinary size; leave an unknown one empty"
            )

"""A CSV file before it is parsed: its encoding, its delimiter, and whether its rows are whole."""

import codecs
import csv
import gzip
import io
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

from . import Refused

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "|"}
LONGEST = 100_000  # characters of a cell
LOOK = 1 << 18  # bytes from which delimiter and decimal mark are told
_COMMA = re.compile(r"[+-]?[\d.]*\d,\d+([eE][+-]?\d+)?")
_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
_EITHER = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}")  # a decimal, or thousands
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3}){2}")  # of four parts are addresses, too


class Form(NamedTuple):
    """How a CSV file is written."""

    open: Callable[[], IO[bytes]]
    encoding: str
    delimiter: str
    names: list[str]
    decimal: str


class Source:
    """A file that can be read several times from its first byte, unpacked; also what is piped."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if str(path) == "-":
            stream = getattr(sys.stdin, "buffer", None)
            if stream is None or sys.stdin.isatty():
                raise Refused("-: standard input is a terminal; pipe a CSV file into the command")
            self._folder = tempfile.TemporaryDirectory()
            self.path = Path(self._folder.name) / "piped"
            with self.path.open("wb") as file:
                shutil.copyfileobj(stream, file)
        elif self.path.is_dir():
            raise Refused(f"{path}: is a directory, not a table")
        elif not self.path.exists():
            raise Refused(f"{path}: no such file")
        with self.path.open("rb") as file:
            self._packed = file.read(2) == b"\x1f\x8b"

    def open(self) -> Any:
        """A stream of bytes."""
        return gzip.open(self.path, "rb") if self._packed else self.path.open("rb")

    def close(self) -> None:
        """Drop what was piped."""
        if self._folder is not None:
            self._folder.cleanup()


def looked_at(
    path: str | Path,
    opened: Callable[[], IO[bytes]],
    notes: list[str],
    *,
    least: int = 2,
    decimal: str | None = None,
) -> Form:
    """How the file is written, from one pass over its bytes and one over its rows.

    Args:
        path: as errors name it.
        opened: gives its bytes.
        notes: what was guessed is added here.
        least: columns that it must have.
        decimal: the mark to take where its numbers do not tell, that of the model's own table.
    """
    try:
        encoding = _encoding(path, opened, notes)
        with as_text(opened, encoding) as file:
            sample = file.read(LOOK)
        if not sample.strip():
            raise Refused(f"{path}: is empty")
        delimiter = _delimiter(sample, ";" if decimal == "," else ",")
        with as_text(opened, encoding) as file:
            names = _check_rows(path, file, delimiter, least)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Refused(f"{path}: a damaged gzip file ({error})") from None
    if delimiter != "," and len(names) > 1:
        notes.append(f"{path}: columns are separated by {DELIMITERS[delimiter]}")
    decimal = _decimal(path, sample, delimiter, notes, decimal)
    if decimal == ",":
        notes.append(f"{path}: numbers have a decimal comma")
    return Form(opened, encoding, delimiter, names, decimal)


def as_text(opened: Callable[[], IO[bytes]], encoding: str) -> io.TextIOWrapper:
    # a cell may hold a line's end: the csv module is to see it as it is
    return io.TextIOWrapper(opened(), encoding=encoding, newline="")


def _encoding(path: str | Path, opened: Callable[[], IO[bytes]], notes: list[str]) -> str:
    with opened() as file:
        start = file.read(2)
    wide = start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    if _decodes(path, opened, "utf-16" if wide else "utf-8-sig", nul=not wide):
        return "utf-16" if wide else "utf-8-sig"
    if wide:
        raise Refused(f"{path}: begins as UTF-16 text but is damaged")
    other = "cp1252" if _decodes(path, opened, "cp1252") else "latin-1"
    notes.append(f"{path}: is not UTF-8, read as {other}; accents may be wrong")
    return other


def _decodes(
    path: str | Path, opened: Callable[[], IO[bytes]], encoding: str, nul: bool = False
) -> bool:
    """Whether all of the file is text in this encoding; NUL means that it is no text at all."""
    decoder, fits = codecs.getincrementaldecoder(encoding)(), True
    with opened() as file:
        while chunk := file.read(1 << 20):
            if nul and b"\0" in chunk:
                raise Refused(f"{path}: holds NUL bytes, so it is binary and not a CSV file")
            try:
                if fits and "\0" in decoder.decode(chunk):
                    raise Refused(f"{path}: holds NUL characters, so it is not a CSV file")
            except UnicodeDecodeError:
                fits = False
    try:
        decoder.decode(b"", final=fits)
    except UnicodeDecodeError:
        return False
    return fits


# -- rows


def _lines(sample: str) -> list[str]:
    lines = sample.splitlines(keepends=True)
    return lines[:-1] if len(lines) > 2 and len(sample) >= LOOK else lines  # the last is cut


def _delimiter(sample: str, default: str) -> str:
    """The mark that splits the first rows into the same number of cells, of two or more."""
    lines = _lines(sample)
    best, choice = (0.0, 0), default
    for delimiter in DELIMITERS:
        try:
            rows = [r for r in csv.reader(lines[:200], delimiter=delimiter) if r]
        except csv.Error:
            continue
        if rows and len(rows[0]) > 1:
            alike = sum(len(row) == len(rows[0]) for row in rows) / len(rows)
            best, choice = max((best, choice), ((alike, len(rows[0])), delimiter))
    return choice


def _decimal(
    path: str | Path, sample: str, delimiter: str, notes: list[str], default: str | None
) -> str:
    """The decimal mark; a comma only where it does not split cells.

    "1.234" may be either and tells nothing; "1.234.567" has marks of thousands.
    """
    if delimiter == ",":
        return "."
    try:
        rows = list(csv.reader(_lines(sample)[1:], delimiter=delimiter))
    except csv.Error:
        return "."
    cells = [cell.strip() for row in rows[:2000] for cell in row]
    either = [cell for cell in cells if _EITHER.fullmatch(cell)]
    commas = sum(bool(_COMMA.fullmatch(cell) or _THOUSANDS.fullmatch(cell)) for cell in cells)
    points = sum(bool(_POINT.fullmatch(cell)) for cell in cells) - len(either)
    if commas == points == 0:
        if either and default != ",":
            notes.append(f"{path}: {either[0]} is read as a decimal; it may be thousands")
        return default or "."
    return "," if commas > points else "."


def _check_rows(path: str | Path, file: IO[str], delimiter: str, least: int) -> list[str]:
    """The column names; every row must have a cell for each of them."""
    names: list[str] = []
    rows, before = 0, csv.field_size_limit(LONGEST)
    try:
        last = _Last(file)
        reader = csv.reader(last, delimiter=delimiter, skipinitialspace=True, strict=True)
        for row in reader:
            # pandas passes over a blank line, but "" is a cell to it
            if not row or (len(row) == 1 and not row[0].strip() and '"' not in last.line):
                continue
            if not names:
                names = checked_names(path, row, least)
                continue
            rows += 1
            if len(row) != len(names):
                raise Refused(
                    f"{path}: line {reader.line_num} has {_cells(len(row))} where the header has "
                    f"{len(names)}"
                )
    except csv.Error as error:
        raise Refused(f"{path}: line {reader.line_num}: {_meaning(str(error))}") from None
    finally:
        csv.field_size_limit(before)
    if not rows:
        raise Refused(f"{path}: has a header but no rows")
    return names


class _Last:
    """Lines, of which the last is remembered."""

    def __init__(self, file: IO[str]):
        self._file, self.line = file, ""

    def __iter__(self) -> "_Last":
        return self

    def __next__(self) -> str:
        self.line = next(self._file)
        return self.line


def checked_names(path: str | Path, row: list[str], least: int = 2) -> list[str]:
    names = [cell.strip() or f"column {i}" for i, cell in enumerate(row, start=1)]
    if len(names) < least:
        marks = ", ".join(DELIMITERS.values())
        raise Refused(
            f"{path}: has one column, {short(names[0])}; a table needs a target and something to "
            f"tell it from, separated by {marks}"
        )
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise Refused(f"{path}: has several columns named {short(double[0])}: rename them")
    return names


def _meaning(error: str) -> str:
    if "field limit" in error:
        return f"a cell of more than {LONGEST:,} characters; does a quote never close?"
    if "unexpected end of data" in error:
        return 'a quote (") is opened and never closed'
    if "expected after" in error:
        return 'text follows a closing quote (") inside a cell'
    return error


def _cells(count: int) -> str:
    return f"{count} cell" + "s" * (count != 1)


def short(name: Any) -> str:
    name = str(name)
    return repr(name if len(name) <= 60 else name[:57] + "…")

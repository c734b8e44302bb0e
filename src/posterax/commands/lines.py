"""A CSV file before it is parsed: its encoding, its delimiter, and whether its rows are whole."""

import codecs
import csv
import gzip
import io
import re
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
        self.path, self._packed = Path(path), False
        self._kept: IO[bytes] | None = None
        if str(path) == "-":
            self._kept = _spooled()
        elif self.path.is_dir():
            raise Refused(f"{path}: is a directory, not a table")
        elif not self.path.exists():
            raise Refused(f"{path}: no such file")
        else:
            with self.path.open("rb") as file:
                self._packed = file.read(2) == b"\x1f\x8b"

    def open(self) -> Any:
        """A stream of bytes."""
        if self._kept is not None:
            self._kept.seek(0)
            return io.BufferedReader(_Kept(self._kept))
        return gzip.open(self.path, "rb") if self._packed else self.path.open("rb")

    def close(self) -> None:
        """Drop what was piped."""
        if self._kept is not None:
            self._kept.close()


def _spooled() -> IO[bytes]:
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None or sys.stdin.isatty():
        raise Refused("-: standard input is a terminal; pipe a CSV file into the command")
    kept: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=1 << 24)  # noqa: SIM115
    while chunk := stream.read(1 << 20):
        kept.write(chunk)
    return kept


class _Kept(io.RawIOBase):
    """What came on standard input, to be closed by whoever reads it, and read again."""

    def __init__(self, file: IO[bytes]):
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._file.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)


def looked_at(path: str | Path, opened: Callable[[], IO[bytes]], notes: list[str]) -> Form:
    """How the file is written, from one pass over its bytes and one over its rows."""
    try:
        encoding = _encoding(path, opened, notes)
        with as_text(opened, encoding) as file:
            sample = file.read(LOOK)
        if not sample.strip():
            raise Refused(f"{path}: is empty")
        delimiter = _delimiter(sample)
        with as_text(opened, encoding) as file:
            names = _check_rows(path, file, delimiter)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Refused(f"{path}: a damaged gzip file ({error})") from None
    if delimiter != ",":
        notes.append(f"{path}: columns are separated by {DELIMITERS[delimiter]}")
    decimal = _decimal(sample, delimiter)
    if decimal == ",":
        notes.append(f"{path}: numbers have a decimal comma")
    return Form(opened, encoding, delimiter, names, decimal)


def as_text(opened: Callable[[], IO[bytes]], encoding: str) -> io.TextIOWrapper:
    # a cell may hold a line's end: the csv module is to see it as it is
    return io.TextIOWrapper(opened(), encoding=encoding, newline="")


def _encoding(path: str | Path, opened: Callable[[], IO[bytes]], notes: list[str]) -> str:
    with opened() as file:
        chunk = file.read(1 << 20) or b""
        wide = chunk.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        encoding = "utf-16" if wide else "utf-8-sig"
        decoder = codecs.getincrementaldecoder(encoding)()
        known = True
        while chunk:
            if not wide and b"\0" in chunk:
                raise Refused(f"{path}: holds NUL bytes, so it is binary and no CSV file")
            if known:
                try:
                    if "\0" in decoder.decode(chunk):
                        raise Refused(f"{path}: holds NUL characters, so it is no CSV file")
                except UnicodeDecodeError:
                    known = False
            chunk = file.read(1 << 20) or b""
        try:
            decoder.decode(b"", final=known)
        except UnicodeDecodeError:
            known = False
    if known:
        return encoding
    if wide:
        raise Refused(f"{path}: begins as UTF-16 text but is damaged")
    with opened() as file:
        try:
            decoder = codecs.getincrementaldecoder("cp1252")()
            while chunk := file.read(1 << 20):
                decoder.decode(chunk)
            other = "cp1252"
        except UnicodeDecodeError:
            other = "latin-1"
    notes.append(f"{path}: is not UTF-8, read as {other}; accents may be wrong")
    return other


# -- rows


def _delimiter(sample: str) -> str:
    """The mark that splits the first rows into the same number of cells, of two or more."""
    lines = sample.splitlines(keepends=True)
    if len(lines) > 2 and len(sample) >= LOOK:
        lines = lines[:-1]  # the last is cut
    best, choice = (0.0, 0), ","
    for delimiter in DELIMITERS:
        try:
            rows = [r for r in csv.reader(lines[:200], delimiter=delimiter) if r]
        except csv.Error:
            continue
        if rows and len(rows[0]) > 1:
            alike = sum(len(row) == len(rows[0]) for row in rows) / len(rows)
            best, choice = max((best, choice), ((alike, len(rows[0])), delimiter))
    return choice


def _decimal(sample: str, delimiter: str) -> str:
    """The decimal mark; a comma only where it does not split cells.

    Marks of thousands are left to whoever sees a whole column: "1.234" alone may be either.
    """
    if delimiter == ",":
        return "."
    try:
        rows = list(csv.reader(sample.splitlines(keepends=True)[1:-1] or [], delimiter=delimiter))
    except csv.Error:
        return "."
    cells = [cell.strip() for row in rows[:2000] for cell in row]
    commas = sum(bool(_COMMA.fullmatch(cell)) for cell in cells)
    points = sum(bool(_POINT.fullmatch(cell)) for cell in cells)
    return "," if commas > points else "."


def _check_rows(path: str | Path, file: IO[str], delimiter: str) -> list[str]:
    """The column names; every row must have a cell for each of them."""
    names: list[str] = []
    rows, before = 0, csv.field_size_limit(LONGEST)
    try:
        reader = csv.reader(file, delimiter=delimiter, skipinitialspace=True, strict=True)
        for row in reader:
            if not row or (len(row) == 1 and not row[0].strip()):
                continue
            if not names:
                names = checked_names(path, row)
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


def checked_names(path: str | Path, row: list[str]) -> list[str]:
    names = [cell.strip() or f"column {i}" for i, cell in enumerate(row, start=1)]
    if len(names) == 1:
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

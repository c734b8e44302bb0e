"""A CSV file before it is parsed: its encoding, its delimiter, and whether its rows are full."""

import codecs
import csv
import gzip
import io
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

from .._util.writing import written
from . import Refused
from .targets import counted

Opener = Callable[[], Any]  # gives a file's bytes, from the first
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "|"}
LONGEST = 100_000  # characters of a cell
LOOK = 1 << 18  # bytes from which delimiter and decimal mark are told
_COMMA = re.compile(r"[+-]?[\d.]*\d,\d+([eE][+-]?\d+)?")
_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
_EITHER = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}")  # a decimal, or thousands
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3}){2}")  # of four parts are addresses, too
_MEANING = {  # what the csv module means
    "field limit": f"a cell of more than {LONGEST:,} characters; does a quote never close?",
    "unexpected end of data": 'a quote (") is opened and never closed',
    "expected after": 'text follows a closing quote (") inside a cell',
}


class Form(NamedTuple):
    """How a CSV file is written."""

    open: Opener
    encoding: str
    delimiter: str
    names: list[str]
    decimal: str


@contextmanager
def opener(path: str | Path) -> Iterator[Opener]:
    """What opens a file as often as needed, unpacked; also what is piped, which is copied first."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(path)
        if str(path) == "-":
            stream = getattr(sys.stdin, "buffer", None)
            if stream is None or sys.stdin.isatty():
                raise Refused("-: standard input is a terminal; pipe a CSV file into the command")
            file = Path(folder) / "piped"
            with written(file, binary=True) as copy:
                shutil.copyfileobj(stream, copy)
        elif not file.exists():
            raise Refused(f"{path}: no such file")
        with file.open("rb") as start:
            packed = start.read(2) == b"\x1f\x8b"
        try:
            yield partial(gzip.open if packed else open, file, "rb")
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise Refused(f"{path}: a damaged gzip file ({error})") from None


def looked_at(
    path: str | Path,
    opened: Opener,
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
    encoding = _encoding(path, opened, notes)
    with as_text(opened, encoding) as file:
        sample = file.read(LOOK)
    if not sample.strip():
        raise Refused(f"{path}: is empty")
    lines = sample.splitlines(keepends=True)
    if len(lines) > 2 and len(sample) >= LOOK:
        del lines[-1]  # which is cut
    delimiter = _delimiter(lines, ";" if decimal == "," else ",")
    with as_text(opened, encoding) as file:
        names = _check_rows(path, file, delimiter, least)
    if delimiter != "," and len(names) > 1:
        notes.append(f"{path}: columns are separated by {DELIMITERS[delimiter]}")
    decimal = _decimal(path, lines, delimiter, notes, decimal)
    if decimal == ",":
        notes.append(f"{path}: numbers have a decimal comma")
    return Form(opened, encoding, delimiter, names, decimal)


def as_text(opened: Opener, encoding: str) -> io.TextIOWrapper:
    # a cell may hold a line's end: the csv module is to see it as it is
    return io.TextIOWrapper(opened(), encoding=encoding, newline="")


def _encoding(path: str | Path, opened: Opener, notes: list[str]) -> str:
    """The first encoding in which all of the file is text."""
    with opened() as file:
        wide = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    for encoding in ("utf-16",) if wide else ("utf-8-sig", "cp1252", "latin-1"):
        try:
            with as_text(opened, encoding) as text:
                while chunk := text.read(1 << 20):
                    if "\0" in chunk:
                        raise Refused(f"{path}: holds NUL bytes: binary, not a CSV file")
        except UnicodeDecodeError:
            continue
        if encoding in ("cp1252", "latin-1"):
            notes.append(f"{path}: is not UTF-8, read as {encoding}; accents may be wrong")
        return encoding
    raise Refused(f"{path}: begins as UTF-16 text but is damaged")


# -- rows


def _delimiter(lines: list[str], default: str) -> str:
    """The mark that splits the first rows into the same number of cells, of two or more."""
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
    path: str | Path, lines: list[str], delimiter: str, notes: list[str], default: str | None
) -> str:
    """The decimal mark; a comma only where it does not split cells.

    "1.234" may be either and tells nothing; "1.234.567" has marks of thousands.
    """
    if delimiter == ",":
        return "."
    try:
        rows = list(csv.reader(lines[1:], delimiter=delimiter))
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
    line, rows, before = "", 0, csv.field_size_limit(LONGEST)

    def lines() -> Iterator[str]:
        nonlocal line
        for line in file:  # noqa: UP028  # the last one is remembered
            yield line

    reader = csv.reader(lines(), delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        for row in reader:
            # pandas passes over a blank line, but "" is a cell to it
            if not row or (len(row) == 1 and not row[0].strip() and '"' not in line):
                continue
            if not names:
                names = checked_names(path, row, least)
                continue
            rows += 1
            if len(row) != len(names):
                has = counted(len(row), "cell", "cells")
                where = f"{path}: line {reader.line_num}"
                raise Refused(f"{where} has {has} where the header has {len(names)}")
    except csv.Error as error:
        meant = [text for words, text in _MEANING.items() if words in str(error)] or [str(error)]
        raise Refused(f"{path}: line {reader.line_num}: {meant[0]}") from None
    finally:
        csv.field_size_limit(before)
    if not rows:
        raise Refused(f"{path}: has a header but no rows")
    return names


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


def short(name: Any) -> str:
    name = str(name)
    return repr(name if len(name) <= 60 else name[:57] + "…")

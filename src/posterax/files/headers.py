"""JSON that a file gives: read in bounded memory, and refused where it would be read in two ways.

All that the package believes of a file's JSON comes through ``parse``. Messages say what is wrong;
whoever opened the file says which it was.
"""

import json
import math
from pathlib import Path
from typing import Any, NoReturn

from ..errors import CheckpointError

# bounds of the text, so that reading it takes little memory whatever it says
CHARACTERS, NODES, DEPTH, DIGITS = 2**24, 10**6, 100, 32


def parse(text: str, *, finite: bool = False) -> Any:
    """The JSON of a text, unless it is more than a file may have.

    Args:
        text: what the file has.
        finite: refuse NaN and infinities, which JSON does not have and Python writes.

    Example:
        >>> from posterax.files.headers import parse
        >>> parse('{"format": 1}')
        {'format': 1}
        >>> parse('{"format": 1, "format": 2}')
        Traceback (most recent call last):
        ValueError: 'format' is there twice
    """
    nodes = sum(map(text.count, ",[{"))
    if len(text) > CHARACTERS or nodes > NODES:
        raise ValueError(
            f"a header of {len(text):,} characters and {nodes:,} entries, more than "
            f"{CHARACTERS:,} and {NODES:,}"
        )
    try:
        found = json.loads(
            text,
            object_pairs_hook=_once,
            parse_int=_whole,
            parse_float=_real,
            parse_constant=_not_finite if finite else None,
        )
    except RecursionError:
        raise ValueError(f"a header nested deeper than {DEPTH} levels") from None
    _check_depth(found)
    if "\\u" in text:  # half a character, which nothing can print
        json.dumps(found, ensure_ascii=False).encode()
    return found


def read_text(path: Path) -> str:
    """The text of a file that ``parse`` could take.

    Example:
        >>> import pathlib, tempfile
        >>> from posterax.files.headers import read_text
        >>> read_text(pathlib.Path(tempfile.mkdtemp()))
        Traceback (most recent call last):
        posterax.errors.CheckpointError: ...: is a directory; give the file that save wrote
    """
    check_file(path)
    with path.open("rb") as file:
        content = file.read(4 * CHARACTERS + 1)
    if len(content) > 4 * CHARACTERS:
        raise CheckpointError(f"{path}: more than {4 * CHARACTERS:,} bytes, too long for JSON here")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: is no JSON file ({error})") from None


def check_file(path: Path) -> None:
    """Refuse what is not there, and what is no plain file: a pipe could be waited for for ever."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    if not path.is_file():
        kind = "a directory" if path.is_dir() else "no file"
        raise CheckpointError(f"{path}: is {kind}; give the file that save wrote")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A dictionary: of two entries of one name, different programs read different ones."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice[:40]!r} is there twice")
    return found


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        raise ValueError(f"a number of {len(digits):,} digits")
    return int(digits)


def _real(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:40]} is no number that can be held")
    return value


def _not_finite(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _check_depth(found: Any) -> None:
    level, depth = [found], 0
    while level:
        inside = [list(v.values()) if isinstance(v, dict) else v for v in level]
        level = [v for values in inside if isinstance(values, list) for v in values]
        depth += 1
        if depth > DEPTH:
            raise ValueError(f"a header nested deeper than {DEPTH} levels")

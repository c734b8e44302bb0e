"""What commands write: whole files or none, and cells that a spreadsheet does not run."""

import math
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from .._util.writing import check_writable
from . import Refused

_HARMLESS = re.compile(r"[+-]\d[\d., ]*")  # no formula: -1,5 and +41 31
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a cell begins that a spreadsheet would run


def check_out(
    path: str | Path,
    what: Literal["model", "report", "predictions", "table"],
    *,
    option: str = "--out",
    inputs: Sequence[str | Path | None] = (),
    force: bool = False,
) -> Path:
    """Refuse, before anything is computed, what could not or should not be written.

    A file of the same kind is written over; another one only with ``force``, and an input never.
    """
    path = Path(path)
    if path.is_dir():
        raise Refused(f"{option}: {path} is a directory; name a file in it")
    if not path.parent.is_dir():
        raise Refused(f"{option}: there is no directory {path.parent}")
    for given in inputs:
        if given is not None and path.exists() and Path(given).exists() and path.samefile(given):
            raise Refused(f"{option}: {path} is the command's own input; choose another name")
    if path.exists() and not path.is_file() and what == "model":
        raise Refused(f"{option}: {path} is not a regular file")
    try:
        check_writable(path)
    except OSError as error:
        raise Refused(f"{option}: {path} cannot be written ({error.strerror})") from None
    if path.is_file() and path.stat().st_size and not force and not _is_our(path, what):
        raise Refused(f"{option}: {path} exists and is not {_NAMES[what]}; --force writes over it")
    return path


_NAMES = {
    "model": "a posterax model",
    "report": "a report",
    "predictions": "a table of predictions",
    "table": "a table of this command",
}


_PREDICTED = (  # columns of predictions, in their order
    b"mean,std,epistemic_std,aleatoric_std,low,high",
    b"predicted,probability,epistemic,aleatoric",
)


def _is_our(path: Path, what: str) -> bool:
    with path.open("rb") as file:
        start = file.read(1 << 16)
    if what == "model":
        size = struct.unpack("<Q", start[:8])[0] if len(start) >= 8 else 0
        return 2 < size < 2**40 and start[8:9] == b"{" and b'"posterax"' in start
    if what == "report":
        return b'<meta name="generator" content="posterax' in start
    if what == "table":
        return start.startswith(b"method,nll,nll_standard_error,")
    if start[:1] == b"[":  # of --json
        return start == b"[]\n" or any(
            all(b'"' + word + b'": ' in start for word in words.split(b",")) for words in _PREDICTED
        )
    head = b"," + start.split(b"\n")[0].rstrip() + b","
    return any(b"," + words + b"," in head for words in _PREDICTED)


def safe_text(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula gets a quote in front; numbers do not.

    Example:
        >>> from posterax.commands.writing import safe_text
        >>> safe_text("=1+1"), safe_text("-5"), safe_text("plain")
        ("'=1+1", '-5', 'plain')
    """
    if not isinstance(value, str) or not value.lstrip(" ").startswith(_FORMULA):
        return value
    if _HARMLESS.fullmatch(value):
        return value
    try:
        float(value)
    except ValueError:
        return "'" + value
    return value


def plain(value: Any) -> Any:
    """Numbers, lists and dictionaries as JSON has them; what is not finite is ``None``."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # an array, or a number of NumPy's
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)

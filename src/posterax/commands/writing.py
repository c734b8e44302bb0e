"""What commands write: whole files or none, and cells that a spreadsheet does not run."""

import math
import re
import struct
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .._util.writing import check_writable
from . import Refused

if TYPE_CHECKING:
    import pandas as pd

_HARMLESS = re.compile(r"[+-]\d[\d., ]*")  # no formula: -1,5 and +41 31
_FORMULA = frozenset("=+-@")  # how a cell begins that a spreadsheet would run
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")  # letters and signs that show nothing


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
        >>> safe_text("\\n\\u200b=1+1")  # behind what is not seen
        "'\\n\\u200b=1+1"
    """
    if not isinstance(value, str) or not _runs(value) or _HARMLESS.fullmatch(value):
        return value
    try:
        float(value)
    except ValueError:
        return "'" + value
    return value


def _runs(text: str) -> bool:
    """Whether the first character that shows is one that a formula begins with.

    A spreadsheet strips blanks, and reads full-width signs as plain ones. Tabs and ends of lines
    begin a new cell.
    """
    if text[:1].isascii() and text[:1].isalnum():  # nearly all
        return False
    if text.lstrip(" ")[:1] in ("\t", "\r", "\n"):
        return True
    for character in unicodedata.normalize("NFKC", text):
        kind = unicodedata.category(character)
        if kind[0] not in "ZCM" and character not in _BLANK:
            return character in _FORMULA
    return False


def safe_frame(frame: "pd.DataFrame") -> "pd.DataFrame":
    """A table whose text and names no spreadsheet runs.

    Example:
        >>> import pandas as pd
        >>> from posterax.commands.writing import safe_frame
        >>> print(safe_frame(pd.DataFrame({"=A1": ["@b", "c"], "n": [-1, 2]})).to_csv(index=False))
        '=A1,n
        '@b,-1
        c,2
    """
    from pandas.api.types import is_numeric_dtype

    for name in frame.columns:
        if not is_numeric_dtype(frame[name].dtype):
            frame[name] = frame[name].astype(object).map(safe_text, na_action="ignore")
    return frame.rename(columns=safe_text)


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

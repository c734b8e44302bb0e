"""Numbers and foreign text as a page shows them."""

import tomllib
import unicodedata
from collections.abc import Iterable
from pathlib import Path

import numpy as np

MISSING = "–"
LONGEST = 80  # characters of a cell; what is longer is cut
LEVEL = 0.9  # of intervals
TEXTS = tomllib.loads(
    (Path(__file__).parent / "texts.toml")
    .read_text(encoding="utf-8")
    .replace("{level}", f"{100 * LEVEL:.0f} %")
)


def show(value: float | None, digits: int = 3) -> str:
    """A number to so many significant digits, with commas; "–" for what is none.

    Example:
        >>> from posterax.report.words import show
        >>> show(1234.56), show(0.012345), show(-0.0), show(float("nan")), show(3e-9)
        ('1,235', '0.0123', '0', '–', '3e-9')
    """
    if value is None or not np.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    size = int(np.floor(np.log10(abs(value))))
    if size >= 9 or size < -4:
        mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        return f"{mantissa}e{int(power)}".replace("-", "−", int(value < 0))
    return fixed(value, max(digits - 1 - size, 0))


def short(value: float, digits: int = 4) -> str:
    """As ``show``, without zeros at the end.

    Example:
        >>> from posterax.report.words import short
        >>> short(2.0), short(1234.0), short(0.125), short(1200.0)
        ('2', '1,234', '0.125', '1,200')
    """
    text = show(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def fixed(value: float | None, decimals: int) -> str:
    """A number with so many decimals, and a proper minus sign.

    Example:
        >>> from posterax.report.words import fixed
        >>> fixed(-1234.5, 1), fixed(-0.001, 1), fixed(None, 2)
        ('−1,234.5', '0.0', '–')
    """
    value = float("nan") if value is None else float(value)
    if not np.isfinite(value):
        return MISSING
    if abs(value) >= 1e9:
        return show(value)
    text = f"{value:,.{decimals}f}"
    if not text.strip("-0.,"):
        text = text.lstrip("-")
    return text.replace("-", "−")


def decimals(values: np.ndarray, digits: int = 3) -> int:
    """How many decimals show the typical one of these numbers to so many digits.

    Example:
        >>> from posterax.report.words import decimals
        >>> decimals([90.0, 80.0]), decimals([0.012, 0.034]), decimals([1e12])
        (1, 4, 0)
    """
    values = np.abs(np.asarray(values, np.float64).ravel())
    values = values[np.isfinite(values) & (values > 0)]
    if not len(values):
        return 0
    return int(np.clip(digits - 1 - np.floor(np.log10(np.median(values))), 0, 6))


def percent(share: float, digits: int = 0) -> str:
    """A share as a percentage.

    Example:
        >>> from posterax.report.words import percent
        >>> percent(0.914), percent(float("nan"))
        ('91 %', '–')
    """
    text = fixed(100 * float(share), digits)
    return text if text == MISSING else f"{text} %"


def many(number: int, one: str, more: str | None = None) -> str:
    """A number and its noun.

    Example:
        >>> from posterax.report.words import many
        >>> many(1, "row"), many(1200, "row"), many(2, "class", "classes")
        ('1 row', '1,200 rows', '2 classes')
    """
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def cut(given: object, most: int = LONGEST) -> str:
    """Text that came with the data, in one line: no control characters, and not too long.

    Characters that turn the direction of what follows are taken out; right-to-left letters stay.

    Example:
        >>> from posterax.report.words import cut
        >>> cut("a" * 9, 4), cut("two\\nlines"), cut("\\u202eevil"), cut("  ")
        ('aaa…', 'two lines', 'evil', '(blank)')
    """
    text = str(given)[: 4 * most + 16]  # what is cut away anyhow is not looked at
    # Cc, Cf, Cs: control, formatting (direction, joiners of width 0) and broken surrogates
    letters = [
        " " if c in "\n\r\t\v\f\u2028\u2029" else c
        for c in text
        if c in "\n\r\t\v\f\u200d" or unicodedata.category(c) not in ("Cc", "Cf", "Cs")
    ]
    text = " ".join("".join(letters).split())
    if not text:
        return "(blank)"
    return text if len(text) <= most else text[: most - 1] + "…"


def cut_apart(names: Iterable[object], most: int = LONGEST) -> list[str]:
    """Names cut so that different ones stay different: where they begin alike, the end is kept.

    Example:
        >>> from posterax.report.words import cut_apart
        >>> cut_apart(["width of the first", "width of the second", "w"], 12)
        ['width… first', 'width…second', 'w']
    """
    long = [cut(name, 10 * most) for name in names]
    short = [cut(name, most) for name in long]
    tail = most // 2
    return [
        f"{name[: most - tail - 1].rstrip()}…{name[-tail:]}"
        if len(name) > most and short.count(head) > 1
        else head
        for name, head in zip(long, short, strict=True)
    ]


def cell(value: object, places: int | None = None) -> str:
    """A value of a table as it stands there: a number, a date, text, or "–" where none is.

    Example:
        >>> from posterax.report.words import cell
        >>> cell(3), cell(2.5), cell(None), cell("text"), cell(True), cell(float("inf"))
        ('3', '2.5', '–', 'text', 'True', '–')
    """
    import pandas as pd

    if value is None or value is pd.NaT or value is pd.NA:
        return MISSING
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | np.integer):
        # years and codes have no commas
        return str(int(value)).replace("-", "−") if abs(int(value)) < 10**15 else show(int(value))
    if isinstance(value, float | np.floating):
        return short(float(value)) if places is None else fixed(float(value), places)
    if isinstance(value, pd.Timestamp):
        plain = value == value.normalize()
        return value.strftime("%Y-%m-%d" if plain else "%Y-%m-%d %H:%M:%S")
    return cut(value)

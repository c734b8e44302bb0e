"""Text cells that hold numbers or dates, read where all of a column agree on how."""

import re
import warnings
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

AGREE = 0.95  # of a column's cells; the others count as missing, and are counted
_MONEY = r"[€$£¥₹]|EUR|USD|GBP|CHF|JPY"
_CELL = re.compile(
    rf"(?P<sign>[+\-−])?\s*(?P<before>{_MONEY})?\s*(?P<minus>[\-−])?"
    r"(?P<number>(?:\d|\.\d)[\d.,'’ \u00a0\u202f\u2009]*(?:[eE][+-]?\d+)?)"
    rf"(?P<after>\s*(?:%|{_MONEY})|\s+[A-Za-zµ°]{{1,5}}[²³]?)?"
)
# (decimal mark, mark of thousands), what is said of it, and how such a number looks
FORMS: list[tuple[str, str, str, re.Pattern[str]]] = [
    (".", "", "", re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")),
    (".", ",", "commas as marks of thousands", re.compile(r"([1-9]\d{0,2}(,\d{3})+|\d+)(\.\d+)?")),
    (",", "", "decimal commas", re.compile(r"\d+(,\d+)?([eE][+-]?\d+)?")),
    (",", ".", "decimal commas", re.compile(r"([1-9]\d{0,2}(\.\d{3})+|\d+)(,\d+)?")),
    (".", " ", "spaces as marks of thousands", re.compile(r"\d{1,3}( \d{3})*(\.\d+)?")),
    (",", " ", "decimal commas", re.compile(r"\d{1,3}( \d{3})*(,\d+)?")),
    (".", "'", "apostrophes as marks of thousands", re.compile(r"\d{1,3}('\d{3})*(\.\d+)?")),
]
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(\.\d{3})+")
ADDRESS = re.compile(r"(\d{1,3}\.){3}\d{1,3}")  # of a computer: no number
_ZONE = re.compile(r".*:.*\d(Z|[+-]\d{2}(:?\d{2})?)")
_DAYS = ["%Y/%m/%d", "%Y.%m.%d", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y"]
_DAYS += ["%d %b %Y", "%d %B %Y", "%b %d %Y", "%B %d %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y"]
_DAYS += ["%b %Y", "%B %Y", "%m/%d/%y", "%d/%m/%y", "%d.%m.%y", "%d-%b-%y"]
_TIMES = ["", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p"]
CLOCKS = ["%H:%M", "%H:%M:%S"]
DATES = ["ISO8601", *(day + time for day in _DAYS for time in _TIMES), *CLOCKS]
_LIKE_A_DATE = re.compile(
    r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}.*|\d{4}-\d{2}|\d{1,2}:\d{2}(:\d{2})?"
    r"|(\d{1,2}[ -])?[A-Za-z]{3,9}[ -].*\d{2,4}.*"
)


class Read(NamedTuple):
    """A column of text as numbers or dates."""

    values: pd.Series
    form: Any  # of numbers: decimal mark, mark of thousands, unit; of dates: their format
    said: str
    odd: list[str]  # cells that hold none and count as missing

    def words(self, what: str) -> list[str]:
        """What is said of the column: how it was read, and how many cells hold no such thing."""
        words, count = [self.said] if self.said else [], len(self.odd)
        if count:
            cells, s = (f"{count} cells hold", "") if count > 1 else ("a cell holds", "s")
            words.append(f"{cells} no {what} ({self.odd[0][:40]!r}) and count{s} as missing")
        return words


def texts(column: pd.Series) -> pd.Series:
    """Cells as text without outer spaces, missing ones as NaN; 1.0 and 1 are the same label.

    Example:
        >>> import pandas as pd
        >>> from posterax.tables.cells import texts
        >>> texts(pd.Series([1.0, 2.5, None])).tolist()
        ['1', '2.5', nan]
    """

    def text(value: Any) -> Any:
        if isinstance(value, float | np.floating) and float(value).is_integer():
            value = int(value)
        return str(value).strip()

    column = column.astype(object)
    known = column.notna() & (column.map(lambda v: not isinstance(v, str) or v.strip() != ""))
    return column.map(text, na_action="ignore").where(known, np.nan)


def as_numbers(column: pd.Series) -> Read | None:
    """Numbers in text, where the cells agree on how they are written; otherwise ``None``.

    Example:
        >>> import pandas as pd
        >>> from posterax.tables.cells import as_numbers
        >>> read = as_numbers(pd.Series(["€ 1,200", "€ 850.50", None]))
        >>> read.values.tolist(), read.said
        ([1200.0, 850.5, nan], 'in €, commas as marks of thousands')
        >>> as_numbers(pd.Series(["5 kg", "7 lb"]))
    """
    cells = texts(column).dropna()
    if not len(cells) or cells.map(lambda cell: bool(ADDRESS.fullmatch(cell))).all():
        return None
    parts = cells.map(_parts)
    marks = {part[1] for part in parts if part is not None}
    if len(marks) != 1:
        return None
    digits = [part[2] for part in parts if part is not None]
    fitting = [sum(map(bool, map(form[3].fullmatch, digits))) for form in FORMS]
    if max(fitting) < AGREE * len(cells):
        return None
    decimal, thousands, said, _ = FORMS[fitting.index(max(fitting))]
    (mark,) = marks
    pointed = [number for number in digits if "." in number]
    if pointed and decimal + thousands == "." and all(map(_THOUSANDS.fullmatch, pointed)):
        said = f"{pointed[0]} read as a decimal; may be thousands"
        if re.fullmatch(_MONEY, mark):  # which has two decimals, or none
            decimal, thousands = ",", "."
    if decimal + thousands == ",." and not any("," in number for number in digits):
        said = "points as marks of thousands"
    form = {"decimal": decimal, "thousands": thousands, "unit": mark}
    values = numbers(column, form)
    odd = cells[values[cells.index].isna()].tolist()
    words = ", ".join(word for word in (f"in {mark}" if mark else "", said) if word)
    return Read(values, form, words, odd)


def numbers(column: pd.Series, form: dict[str, str] | None) -> pd.Series:
    """A column as floats, text by its form; what is no number is missing."""
    if pd.api.types.is_timedelta64_dtype(column.dtype):
        return column / np.timedelta64(1, "s")
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.astype(np.float64)
    form = form or {"decimal": ".", "thousands": "", "unit": ""}
    decimal, thousands = form["decimal"], form["thousands"]
    pattern = next(f[3] for f in FORMS if f[:2] == (decimal, thousands))
    plain = FORMS[0][3]

    def number(cell: Any) -> float:
        if isinstance(cell, float):  # missing
            return cell
        part = _parts(cell)
        if part is None or part[1] not in ("", form["unit"]):  # euros are no dollars
            return np.nan
        sign, _, digits = part
        if pattern.fullmatch(digits):
            digits = digits.replace(thousands, "") if thousands else digits
            return sign * float(digits.replace(decimal, "."))
        # one without marks may stand among the others; with them it would be another number
        return sign * float(digits) if plain.fullmatch(digits) and "." not in digits else np.nan

    return texts(column).map(number).astype(np.float64)


def _parts(cell: str) -> tuple[float, str, str] | None:
    """Sign, unit and digits of a cell."""
    match = _CELL.fullmatch(cell)
    if match is None or (match["sign"] and match["minus"]):
        return None
    before, after = match["before"] or "", (match["after"] or "").strip()
    if before and after:
        return None
    negative = (match["sign"] or match["minus"]) in ("-", "−")
    digits = re.sub("[\u00a0\u202f\u2009]", " ", match["number"]).replace("’", "'").strip()
    return (-1.0 if negative else 1.0), before or after, digits


def as_dates(column: pd.Series) -> Read | None:
    """Dates in text, where the cells agree on how they are written; otherwise ``None``.

    Example:
        >>> import pandas as pd
        >>> from posterax.tables.cells import as_dates
        >>> as_dates(pd.Series(["31.12.2024", "01.02.2025"])).form
        '%d.%m.%Y'
    """
    cells = texts(column).dropna()
    if not len(cells):
        return None
    look = cells.iloc[:: max(1, len(cells) // 200)]  # all formats on some, the fitting one on all
    if look.map(lambda cell: bool(_LIKE_A_DATE.fullmatch(cell))).mean() < AGREE:
        return None
    few = look.iloc[:10].tolist()
    forms = ["ISO8601", *(form for form in DATES[1:] if any(_fits(cell, form) for cell in few))]
    read = {form: int(dates(look, form).notna().sum()) for form in forms}
    best = max(forms, key=lambda form: read[form])  # the first of the best
    values = dates(column, best)
    odd = cells[values[cells.index].isna()].tolist()
    if len(odd) > (1 - AGREE) * len(cells):
        return None
    said = "" if best == "ISO8601" else f"as {best}"
    other = best.replace("%m/%d", "%d/%m").replace("%d-%m", "%m-%d")
    if other != best:
        there = dates(column, other)[cells.index].notna().sum()
        if there > len(cells) - len(odd):
            best, values, odd, said = other, dates(column, other), [], f"as {other}"
        elif there == len(cells) - len(odd):
            order = "month/day" if "/" in best else "day-month"
            said = f"as {order}; {other} would fit too"
    if best == "ISO8601" and look.map(lambda cell: bool(_ZONE.fullmatch(cell))).any():
        said = "times in UTC"
    return Read(values, best, said, odd)


def _fits(cell: str, form: str) -> bool:
    try:
        datetime.strptime(cell, form)
    except ValueError:
        return False
    return True


def dates(column: pd.Series, form: str) -> pd.Series:
    """A column as times without a zone; what is no date is missing."""
    if not pd.api.types.is_datetime64_any_dtype(column.dtype):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            column = pd.to_datetime(texts(column), format=form, errors="coerce", utc=True)
    zoned = column.dt.tz is not None
    return column.dt.tz_convert("UTC").dt.tz_localize(None) if zoned else column

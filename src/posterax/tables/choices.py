"""What becomes of a column of a table, as it is used and as it is checked in a file."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
import pandas as pd

from .cells import DATES, FORMS, texts

MISSING, RARE = "(missing)", "(rare)"
CYCLES = {"month": 12, "weekday": 7, "hour": 24}
KINDS = ("number", "boolean", "category", "ordinal", "date", "left out")


LATER = {"codes", "squash", "low", "high", "spare"}  # which files of before lack


@dataclass(frozen=True)
class Column:
    """A column: what it is, what was done, and what is needed to do it again.

    Args:
        name: in the table.
        kind: number, boolean, category, ordinal, date, or left out.
        done: what was done, in words.
        missing: cells without a value, at fit.
        categories: different texts, at fit.
        gaps: whether missing values are marked.
        fill: what stands for a missing value, one for each part.
        form: decimal mark, mark of thousands and unit of numbers in text.
        kept: categories with a column of their own; of an ordinal its levels in their order.
        rare: how many categories share one.
        format: of dates, as ``strftime`` has it.
        parts: of dates: time, month, weekday, hour.
        codes: whether categories or levels are numbers in the table.
        squash: centre and scale of a number that is drawn together by a signed logarithm.
        low: the least number or day at fit.
        high: and the largest.
        spare: rows that a fit sees as rare ones, so that what is unseen has something to go by.
    """

    name: str
    kind: str
    done: str
    missing: int
    categories: int | None = None
    gaps: bool = False
    fill: list[float] = field(default_factory=list)
    form: dict[str, str] | None = None
    kept: list[str] = field(default_factory=list)
    rare: int = 0
    format: str = ""
    parts: list[str] = field(default_factory=list)
    codes: bool = False
    squash: list[float] = field(default_factory=list)
    low: float | None = None
    high: float | None = None
    spare: int = 0

    @property
    def cell_names(self) -> list[str]:
        """Names of the numbers that a cell of a number, boolean or date becomes."""
        if self.kind != "date":
            return ["0"]
        pairs = [[p] if p == "time" else [f"{p} sine", f"{p} cosine"] for p in self.parts]
        return [name for pair in pairs for name in pair]

    @property
    def labels(self) -> list[str]:
        """Of a category: the texts that have a column, and one for all others.

        Files of before ``spare`` have that only where a text was rare.
        """
        return [*self.kept, RARE] if self.rare or self.spare else self.kept

    def as_json(self) -> dict[str, Any]:
        """Plain values; what files of before lack only where it says something."""
        node, plain = asdict(self), asdict(Column("", "", "", 0))
        return {k: v for k, v in node.items() if k not in LATER or v != plain[k]}

    @classmethod
    def from_json(cls, node: Any) -> "Column":
        """A column of a file; everything that no fit gives is refused."""
        known = {f.name for f in fields(cls)}
        if not isinstance(node, dict) or not known - LATER <= set(node) <= known:
            raise ValueError("columns: an entry with other keys than a column has")
        column = cls(**node)
        wrong = next((name for name, right in _rules(column) if not right), None)
        if wrong:
            raise ValueError(f"columns: {wrong} of {str(column.name)[:40]!r} is no such value")
        return column


def _rules(c: Column) -> list[tuple[str, bool]]:
    """What must hold of each value, in an order in which each may rely on those before it."""
    rules: list[tuple[str, bool]] = [
        ("name", isinstance(c.name, str)),
        ("kind", isinstance(c.kind, str) and c.kind in KINDS),
        ("done", isinstance(c.done, str)),
        ("missing", _count(c.missing)),
        ("categories", c.categories is None or _count(c.categories)),
        ("gaps", isinstance(c.gaps, bool)),
        ("rare", _count(c.rare)),
        ("format", c.format in ("", *DATES) if isinstance(c.format, str) else False),
        ("kept", _list_of(c.kept, str) and len(set(c.kept)) == len(c.kept)),
        ("parts", _list_of(c.parts, str) and set(c.parts) <= {"time", *CYCLES}),
        ("fill", _list_of(c.fill, float) and all(map(math.isfinite, c.fill))),
        ("form", c.form is None or _is_form(c.form)),
        ("codes", isinstance(c.codes, bool)),
        ("spare", _count(c.spare)),
        ("squash", _list_of(c.squash, float) and all(map(math.isfinite, c.squash))),
        ("low", _is_range(c.low, c.high)),
    ]
    if all(right for _, right in rules):
        used = c.kind not in ("left out", "category")
        rules += [
            ("parts", (c.kind == "date") == bool(c.parts) and len(set(c.parts)) == len(c.parts)),
            ("format", (c.kind == "date") == bool(c.format)),
            ("fill", len(c.fill) == (len(c.cell_names) if used else 0)),
            ("kept", (c.kind in ("category", "ordinal")) == bool(c.kept) and RARE not in c.kept),
            ("gaps", not (c.kind == "category" and c.gaps) or MISSING in c.kept),
            ("codes", not c.codes or c.kind in ("category", "ordinal")),
            ("kept", not (c.kind == "ordinal" and c.codes) or _rising(c.kept)),
            ("spare", not c.spare or c.kind == "category"),
            ("low", c.low is None or c.kind in ("number", "date")),
            ("squash", not c.squash or (c.kind == "number" and _is_squash(c.squash))),
        ]
    return rules


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _list_of(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)


def _is_range(low: object, high: object) -> bool:
    if low is None and high is None:
        return True
    ends = [end for end in (low, high) if isinstance(end, float) and math.isfinite(end)]
    return len(ends) == 2 and ends[0] <= ends[1]


def _is_squash(values: list[float]) -> bool:
    return len(values) == 2 and values[1] > 0


def _rising(levels: list[str]) -> bool:
    """Whether these are numbers in their order."""
    try:
        numbers = [float(level) for level in levels]
    except ValueError:
        return False
    return all(map(math.isfinite, numbers)) and numbers == sorted(set(numbers))


def _is_form(value: object) -> bool:
    if not isinstance(value, dict) or set(value) != {"decimal", "thousands", "unit"}:
        return False
    marks = (value["decimal"], value["thousands"])
    return isinstance(value["unit"], str) and marks in [form[:2] for form in FORMS]


# -- cells as numbers


def date_parts(values: pd.Series, parts: Sequence[str]) -> dict[str, pd.Series]:
    """Days since 1970, and each cycle as a point on a circle: December lies next to January."""
    cells = {}
    # microseconds reach all years that a date can have; nanoseconds do not
    passed = (values.to_numpy("datetime64[us]") - np.datetime64(0, "us")) / np.timedelta64(1, "D")
    days = pd.Series(passed, index=values.index)
    for part in parts:
        if part == "time":
            cells[part] = days.astype(np.float64)
            continue
        position = {
            "month": values.dt.month - 1 + (values.dt.day - 1) / 31,
            "weekday": values.dt.day_of_week,
            "hour": values.dt.hour + values.dt.minute / 60,
        }[part]
        angle = 2 * np.pi * position.astype(np.float64) / CYCLES[part]
        cells[f"{part} sine"], cells[f"{part} cosine"] = np.sin(angle), np.cos(angle)
    return cells


def squashed(values: pd.Series, centre: float, scale: float) -> pd.Series:
    """Numbers by the signed logarithm of their distance from a centre, in units of a scale.

    Example:
        >>> import pandas as pd
        >>> from posterax.tables.choices import squashed
        >>> squashed(pd.Series([3.0, 5.0, -1e6]), 3.0, 2.0).round(2).tolist()
        [0.0, 0.69, -13.12]
    """
    apart = (values - centre) / scale
    return pd.Series(np.sign(apart) * np.log1p(np.abs(apart)), index=values.index)


def coded(values: pd.Series) -> pd.Series:
    """Codes that are numbers as text, whether a file has 7, 7.0 or 007.

    Example:
        >>> import pandas as pd
        >>> from posterax.tables.choices import coded
        >>> coded(pd.Series(["007", "7.0", "A7", None])).tolist()
        ['7', '7', 'A7', nan]
    """
    plain = pd.to_numeric(values.astype(object), errors="coerce")
    return texts(plain.astype(object)).where(plain.notna(), texts(values))


def truths(values: pd.Series) -> pd.Series:
    """Booleans as 0 and 1; everything else is missing."""
    by_name = {"true": 1.0, "false": 0.0}
    if pd.api.types.is_bool_dtype(values.dtype):
        return values.astype(object).map({True: 1.0, False: 0.0}).astype(np.float64)
    if pd.api.types.is_numeric_dtype(values.dtype):  # a block of a file without gaps
        return values.astype(np.float64).where(values.isin([0, 1]))
    return texts(values).str.lower().map(by_name).astype(np.float64)

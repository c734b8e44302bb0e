"""What becomes of a column of a table: chosen by its cells at fit, and checked in a file."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pandas as pd

from .cells import CLOCKS, DATES, FORMS, as_dates, as_numbers, dates, numbers, texts

MISSING, RARE = "(missing)", "(rare)"
CYCLES = {"month": 12, "weekday": 7, "hour": 24}
KINDS = ("number", "boolean", "category", "date", "left out")
MOST_CATEGORIES = 30  # of a column; rarer ones are one category
RARELY = 0.005  # of the rows, and at least 2 and at most 20 of them: rarer is rare
GAPS = 20  # at most so many numbers for each row, where they count rows
IDENTIFIER = 0.9  # of a column's texts differ, and there are more than 20 of them


@dataclass(frozen=True)
class Column:
    """A column: what it is, what was done, and what is needed to do it again.

    Args:
        name: in the table.
        kind: number, boolean, category, date, or left out.
        done: what was done, in words.
        missing: cells without a value, at fit.
        categories: different texts, at fit.
        gaps: whether missing values are marked.
        fill: what stands for a missing value, one for each part.
        form: decimal mark, mark of thousands and unit of numbers in text.
        kept: categories with a column of their own.
        rare: how many categories share one.
        format: of dates, as ``strftime`` has it.
        parts: of dates: time, month, weekday, hour.
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

    @property
    def cell_names(self) -> list[str]:
        """Names of the numbers that a cell of a number, boolean or date becomes."""
        if self.kind != "date":
            return ["0"]
        pairs = [[p] if p == "time" else [f"{p} sine", f"{p} cosine"] for p in self.parts]
        return [name for pair in pairs for name in pair]

    @property
    def labels(self) -> list[str]:
        """Of a category: the texts that have a column, and one for all others where any is rare."""
        return [*self.kept, RARE] if self.rare else self.kept

    @classmethod
    def from_json(cls, node: Any) -> "Column":
        """A column of a file; everything that no fit gives is refused."""
        if not isinstance(node, dict) or set(node) != {f.name for f in fields(cls)}:
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
    ]
    if all(right for _, right in rules):
        used = c.kind not in ("left out", "category")
        rules += [
            ("parts", (c.kind == "date") == bool(c.parts) and len(set(c.parts)) == len(c.parts)),
            ("format", (c.kind == "date") == bool(c.format)),
            ("fill", len(c.fill) == (len(c.cell_names) if used else 0)),
            ("kept", (c.kind == "category") == bool(c.kept) and RARE not in c.kept),
            ("gaps", not (c.kind == "category" and c.gaps) or MISSING in c.kept),
        ]
    return rules


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _list_of(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)


def _is_form(value: object) -> bool:
    if not isinstance(value, dict) or set(value) != {"decimal", "thousands", "unit"}:
        return False
    marks = (value["decimal"], value["thousands"])
    return isinstance(value["unit"], str) and marks in [form[:2] for form in FORMS]


# -- at fit


def choose(name: str, values: pd.Series) -> Column:  # noqa: PLR0911
    """What becomes of a column."""
    missing, rows = int(texts(values).isna().sum()), len(values)
    if missing == rows:
        return Column(name, "left out", "no values", missing)
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(object)
    if pd.api.types.is_timedelta64_dtype(values.dtype):
        return _number(name, numbers(values, None), "number", ["in seconds"], None)
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        zoned = values.dt.tz is not None
        return _date(name, dates(values, "ISO8601"), "ISO8601", ["times in UTC"] * zoned)
    if not pd.api.types.is_numeric_dtype(values.dtype) or pd.api.types.is_bool_dtype(values.dtype):
        known = truths(values)
        if known.isna().sum() == missing:
            return _number(name, known, "boolean", [], None)
        if (read := as_numbers(values)) is not None:
            return _number(name, read.values, "number", read.words("number"), read.form)
        if (read := as_dates(values)) is not None:
            return _date(name, read.values, read.form, read.words("date"))
        return _category(name, values, missing)
    if np.iscomplexobj(values):
        raise ValueError(f"column {name!r} holds complex numbers")
    return _number(name, values.astype(np.float64), "number", [], None)


def _number(
    name: str, values: pd.Series, kind: str, said: list[str], form: dict[str, str] | None
) -> Column:
    known, missing = values.dropna(), int(values.isna().sum())
    if np.isinf(known).any():
        raise ValueError(f"column {name!r} holds an infinite number")
    if known.nunique() == 1 and not missing:
        return Column(name, "left out", f"constant ({known.iloc[0]:.6g})", missing)
    if _counts_rows(name, values):
        return Column(name, "left out", "row numbers", missing)
    fill = float(known.median()) if kind == "number" else float(known.mean() >= 0.5)
    if missing:
        said = [*said, f"gaps filled with {fill:.6g} and marked"]
    done = "; ".join([*said, "standardised"] if kind == "number" else ["0 and 1", *said])
    return Column(name, kind, done, missing, gaps=missing > 0, fill=[fill], form=form)


def _category(name: str, values: pd.Series, missing: int) -> Column:
    counts = texts(values).value_counts()
    rows = len(values)
    if len(counts) > 20 and len(counts) > IDENTIFIER * (rows - missing):
        done = f"identifier: {len(counts):,} different texts in {rows - missing:,} rows"
        return Column(name, "left out", done, missing)
    if len(counts) == 1 and not missing:
        return Column(name, "left out", "constant", missing, categories=1)
    least = min(max(2, RARELY * rows), 20)
    often = counts[(counts >= least) & (counts.index != RARE)]  # a text like our own is rare
    frequent = sorted(map(str, often.index[:MOST_CATEGORIES]))
    rare = len(counts) - len(frequent)
    if not frequent and not missing:
        return Column(name, "left out", "every text is rare", missing, categories=len(counts))
    said = [f"a column for each of {len(frequent)} texts" if frequent else "marked where missing"]
    if rare:
        said.append(f"{rare:,} rare ones together")
    if missing:
        said.append("gaps a category")
        frequent = list(dict.fromkeys([*frequent, MISSING]))
    counted: dict[str, Any] = {"categories": len(counts), "gaps": missing > 0, "rare": rare}
    return Column(name, "category", "; ".join(said), missing, kept=frequent, **counted)


def _date(name: str, values: pd.Series, form: str, said: list[str]) -> Column:
    known, missing = values.dropna(), int(values.isna().sum())
    if known.nunique() == 1 and not missing:
        return Column(name, "left out", "constant", missing)
    days = date_parts(known, ["time"])["time"]
    span = days.max() - days.min()
    parts = [] if form in CLOCKS else ["time"]
    if span > 300 and known.dt.month.nunique() > 3:
        parts.append("month")
    if span > 14 and known.dt.day_of_week.nunique() > 2:
        parts.append("weekday")
    if known.dt.hour.nunique() > 2 or not parts:
        parts.append("hour")
    words = {"time": "days", "month": "month of the year", "weekday": "day of the week"}
    said = [", ".join(words.get(part, "hour of the day") for part in parts), *said]
    fill = [float(cells.median()) for cells in date_parts(known, parts).values()]
    if missing:
        said.append("gaps filled with the median and marked")
    how: dict[str, Any] = {"fill": fill, "format": form, "parts": parts}
    return Column(name, "date", "; ".join(said), missing, gaps=missing > 0, **how)


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


def truths(values: pd.Series) -> pd.Series:
    """Booleans as 0 and 1; everything else is missing."""
    by_name = {"true": 1.0, "false": 0.0}
    if pd.api.types.is_bool_dtype(values.dtype):
        return values.astype(object).map({True: 1.0, False: 0.0}).astype(np.float64)
    if pd.api.types.is_numeric_dtype(values.dtype):  # a block of a file without gaps
        return values.astype(np.float64).where(values.isin([0, 1]))
    return texts(values).str.lower().map(by_name).astype(np.float64)


def _counts_rows(name: str, values: pd.Series) -> bool:
    """Whether a column is the number of the row, as other programs add it.

    Part of a table has gaps where the other rows were, and is to be judged as the whole is.
    """
    if name.lower() not in ("id", "index", "row", "no", "nr", "column 1", "unnamed: 0"):
        return False
    steps = np.diff(values.to_numpy(dtype=np.float64))
    counting = np.all((steps >= 1) & (steps == np.round(steps)))
    return len(steps) > 0 and bool(counting) and float(steps.mean()) <= GAPS

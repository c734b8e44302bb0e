"""What was chosen for one column of a table, and how it lies in a file."""

import math
from dataclasses import dataclass, field, fields
from typing import Any

from .cells import DATES, FORMS

MISSING, RARE = "(missing)", "(rare)"
CYCLES = {"month": 12, "weekday": 7, "hour": 24}
KINDS = ("number", "boolean", "category", "date", "left out")


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

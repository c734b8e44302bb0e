"""What commands print: tables for people, JSON for machines, both on standard output."""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .._util.streams import watched
from . import one_line
from .writing import plain

SHOWN_CLASSES = 12  # of a confusion matrix
WIDE = 160  # columns where nobody looks: a file or a pipe has no edge


def console() -> Console:
    """Standard output as it is: no markup or emoji in names that come from data."""
    width = None if watched("stdout") else WIDE
    return Console(width=width, highlight=False, emoji=False, markup=False)


def print_json(content: Any) -> None:
    """One JSON document; what is not finite, which JSON has no number for, is null."""
    typer.echo(json.dumps(plain(content), indent=2, ensure_ascii=False, allow_nan=False))


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str = "",
    *,
    left: Sequence[str] = (),
) -> Table:
    """A table: the first column, and those named in ``left``, are text, the others numbers."""
    made = Table(
        title=Text(title), caption=Text(caption) if caption else None,
        box=SIMPLE_HEAD, show_edge=False, padding=(0, 2, 0, 0),
    )  # fmt: skip
    made.title_justify = made.caption_justify = "left"
    for i, column in enumerate(columns):
        made.add_column(
            column, justify="right" if i and column not in left else "left", no_wrap=not i
        )
    for row in rows:
        made.add_row(*(Text(one_line(cell)) for cell in row))
    return made


def score_table(title: str, card: dict[str, Any], caption: str = "") -> Table:
    """The scores of a model's card with their intervals and baselines."""
    from ..metrics.evaluate import table as rows
    from .scoring import stored

    heads = ("score", "value", "95 % interval", "baseline")
    return table(title, heads, rows(stored(card)), caption)


def class_tables(card: dict[str, Any]) -> list[Table | Text]:
    """What is taken for what, and where to draw the line between two classes."""
    found: list[Table | Text] = []
    matrix = card.get("confusion")
    if matrix and len(matrix["classes"]) <= SHOWN_CLASSES:
        rows = [
            [name, *(f"{count:,.6g}" for count in counts)]
            for name, counts in zip(matrix["classes"], matrix["counts"], strict=True)
        ]
        found.append(table("Classes", ["true, taken for", *matrix["classes"]], rows))
    if best := card.get("threshold"):
        found.append(Text(one_line(
            f"Called {best['class']} from a probability of {best['value']:.3g} on, the largest F1 "
            f"is {best['f1']:.3f} (precision {best['precision']:.1%}, recall {best['recall']:.1%}; "
            "chosen on these rows)"
        )))  # fmt: skip
    return found


def verdict_line(verdict: dict[str, Any], most: int = 3) -> Text:
    """The verdict of a card with its first reasons.

    Example:
        >>> from posterax.commands.showing import verdict_line
        >>> found = {"level": "care", "words": "Use with care", "reasons": ["One.", "Two."]}
        >>> str(verdict_line(found, 1))
        'Use with care: One. (1 more: --report or --json)'
    """
    reasons = verdict["reasons"]
    left = len(reasons) - most
    more = f" ({left} more: --report or --json)" if left > 0 else ""
    return Text(one_line(f"{verdict['words']}: {' '.join(reasons[:most])}{more}"))


def pairs(title: str, facts: dict[str, Any]) -> Table:
    """Names and what they are, one a line; a name without a value is left out."""
    made = Table(box=None, show_header=False, show_edge=False, padding=(0, 2, 0, 0))
    made.title, made.title_justify = Text(title, style="bold"), "left"
    made.add_column(style="dim", no_wrap=True)
    made.add_column()
    for name, value in facts.items():
        if value not in (None, "", [], {}):
            made.add_row(Text(one_line(name.replace("_", " "))), Text(one_line(words(value))))
    return made


def words(value: Any) -> str:
    """A value as one writes it in a line of text.

    Example:
        >>> from posterax.commands.showing import words
        >>> words(True), words(12345), words(0.123456), words([1, 2])
        ('yes', '12,345', '0.1235', '1, 2')
    """
    if value is None or isinstance(value, bool):
        return {None: "", True: "yes", False: "no"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else "not finite"
    if isinstance(value, dict):
        known = {name: v for name, v in value.items() if v is not None}
        return ", ".join(f"{str(name).replace('_', ' ')} {words(v)}" for name, v in known.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(words, value))
    return str(value)

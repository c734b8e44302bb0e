"""What a page is made of: sections of paragraphs, tables, pictures and text to copy."""

import dataclasses
from typing import Any, Literal

from .words import cut

Level = Literal["good", "care", "bad"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """A sentence of the verdict, how serious it is, and the section that has more."""

    level: Level
    text: str
    section: str = ""


@dataclasses.dataclass(frozen=True)
class Picture:
    """A drawing (SVG that is safe to put on the page) and what it shows."""

    svg: Any
    caption: str
    kind: str = "picture"


@dataclasses.dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    kind: str = "text"


@dataclasses.dataclass(frozen=True)
class Pictures:
    """Pictures, or small tables, side by side where there is room."""

    pictures: list[Any]
    kind: str = "pictures"


@dataclasses.dataclass(frozen=True)
class Code:
    """Text to copy."""

    label: str
    text: str
    kind: str = "code"


@dataclasses.dataclass(frozen=True)
class Heat:
    """A cell whose ground is the darker the larger its share is."""

    text: str
    share: float


@dataclasses.dataclass(frozen=True)
class Table:
    """Heads and rows; the columns in ``right`` are numbers. A long one can be folded away."""

    heads: list[str]
    rows: list[list[Any]]
    caption: str
    right: frozenset[int] = frozenset()
    folded: str = ""  # the line to unfold it by
    style: str = ""  # "wide": the last column may wrap; "stack": on a phone it goes below
    kind: str = "table"


@dataclasses.dataclass
class Section:
    """A part of the page; ``findings`` go into the verdict at its head."""

    id: str
    title: str
    blocks: list[Any] = dataclasses.field(default_factory=list)
    findings: list[Finding] = dataclasses.field(default_factory=list)

    def say(self, text: str) -> None:
        """Add a paragraph."""
        self.blocks.append(Text(text))

    def find(self, level: Level, text: str) -> None:
        """Add to the verdict."""
        self.findings.append(Finding(level, text, self.id))


def facts(heads: tuple[str, str], rows: dict[str, Any], caption: str, folded: str = "") -> Table:
    """A table of names and values."""
    cells = [[cut(k, 120), cut(v, 400)] for k, v in rows.items()]
    return Table(list(heads), cells, caption, style="wide", folded=folded)

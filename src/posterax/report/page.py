"""What a page is made of: sections of paragraphs, tables, pictures and text to copy.

The template asks each block for its ``kind``.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from markupsafe import Markup

from .words import cut

Level = Literal["good", "care", "bad"]


class Finding(NamedTuple):
    """A sentence of the verdict, how serious it is, and what its section says of it."""

    level: Level
    text: str
    section: str = ""
    more: str = ""


class Text(NamedTuple):
    """A paragraph."""

    text: str
    kind: str = "text"


class Picture(NamedTuple):
    """A drawing (SVG that is safe to put on the page) and what it shows."""

    svg: Markup
    caption: str
    kind: str = "picture"


class Code(NamedTuple):
    """Text to copy."""

    label: str
    text: str
    kind: str = "code"


class Heat(NamedTuple):
    """A cell with a background that is darker the larger its share is."""

    text: str
    share: float


class Table(NamedTuple):
    """Heads and rows; the columns in ``right`` are numbers. A long one can be folded away."""

    heads: list[str]
    rows: Sequence[Sequence[str | Heat]]
    caption: str
    right: frozenset[int] = frozenset()
    folded: str = ""  # the line to unfold it by
    style: str = ""  # "wide": the last column may wrap; "stack": on a phone it goes below
    kind: str = "table"


class Pictures(NamedTuple):
    """Pictures, or small tables, side by side where there is room."""

    pictures: list[Picture | Table]
    kind: str = "pictures"


@dataclasses.dataclass
class Section:
    """A part of the page."""

    id: str
    title: str
    blocks: list[Text | Table | Pictures | Code] = dataclasses.field(default_factory=list)

    def say(self, text: str) -> None:
        """Add a paragraph."""
        self.blocks.append(Text(text))

    def tell(self, findings: Sequence[Finding]) -> None:
        """A paragraph for each finding of the verdict that belongs here."""
        for finding in findings:
            if finding.section == self.id and finding.more:
                self.say(finding.more)

    def show(self, *pictures: Picture | Table | None) -> None:
        """Add pictures side by side; those that could not be drawn are left out."""
        self.blocks.append(Pictures([picture for picture in pictures if picture is not None]))


def facts(
    heads: tuple[str, str], rows: Mapping[str, object], caption: str, folded: str = ""
) -> Table:
    """A table of names and values."""
    cells = [[cut(k, 120), cut(v, 400)] for k, v in rows.items()]
    return Table(list(heads), cells, caption, style="wide", folded=folded)

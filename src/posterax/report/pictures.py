"""matplotlib's drawings as parts of a page: inline SVG in the page's own colours and letters.

Colours become variables of the style sheet, so that a picture follows the light or dark theme;
numbers are rounded, ids are made unique, and the same drawing gives the same bytes.
"""

import io
import re
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from ..plot import style
from .page import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.ticker import MaxNLocator

WIDTH, HEIGHT = 4.9, 3.7  # inches: 353 × 266 points, so that letters are legible on a phone
WRONG, FAINT = "#B3261E", "#D0D0D0"  # what fell outside; lines of the grid

# what is drawn in → the variable of style.css
COLOURS = {
    style.MEAN: "ink",
    style.DATA: "muted",
    style.EPISTEMIC: "blue",
    style.EPISTEMIC_FILL: "blue-fill",
    style.TOTAL: "amber",
    style.TOTAL_FILL: "amber-fill",
    style.STRIP_FILL: "strip",
    style.CHAINS[1]: "orange",
    WRONG: "bad",
    FAINT: "line",
    "#FFFFFF": "paper",
    "#000000": "ink",
}
SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",  # letters stay letters: to be searched, read aloud and scaled
    "svg.hashsalt": "posterax",
    "text.parse_math": False,  # a $ in the name of a column is a $
    "font.family": "sans-serif",
    "font.size": 10.5,
    "axes.labelsize": 10.5,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "legend.fontsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": style.DATA,
    "axes.labelcolor": style.MEAN,
    "xtick.color": style.DATA,
    "ytick.color": style.DATA,
    "xtick.labelcolor": style.MEAN,
    "ytick.labelcolor": style.MEAN,
    "text.color": style.MEAN,
    "axes.linewidth": 0.7,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "hatch.linewidth": 0.6,
    "axes.unicode_minus": True,
    "axes.formatter.useoffset": False,
}


def draw(
    name: str, title: str, caption: str, onto: Callable[["Axes"], Any], height: float = HEIGHT
) -> Picture:
    """Let a function draw on axes, and make the result part of the page.

    Args:
        name: of the picture, unique on the page.
        title: what it is, in a few words, for whoever hears the page.
        caption: below it; it is the long description too.
        onto: draws on the axes that it gets.
        height: in inches; the width is the same for all.

    Example:
        >>> from posterax.report.pictures import draw
        >>> picture = draw("line", "A line", "It rises.", lambda axes: axes.plot([0, 1], [0, 1]))
        >>> picture.svg[:41], "Date" in picture.svg
        (Markup('<svg class="picture" role="img" aria-labe'), False)
    """
    import matplotlib
    from matplotlib.figure import Figure

    # whatever a user's own settings are, a report looks the same
    with (
        matplotlib.rc_context({**matplotlib.rcParamsDefault, **SETTINGS}),
        warnings.catch_warnings(),
    ):
        # a letter that matplotlib's font lacks is drawn by the browser all the same
        warnings.filterwarnings("ignore", "Glyph")
        warnings.filterwarnings("ignore", "Matplotlib currently does not support")
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.subplots()
        onto(axes)
        for other in figure.axes[1:]:  # a second scale has a line of its own
            other.spines["right"].set_visible(True)
        handles, labels = axes.get_legend_handles_labels()
        if labels and axes.get_legend() is None:
            columns = 2 if max(map(len, labels)) <= 25 and len(labels) > 1 else 1
            figure.legend(
                handles, labels, loc="outside lower left", ncols=columns, frameon=False,
                handlelength=1.8, columnspacing=1.4, labelspacing=0.35, borderpad=0.2,
            )  # fmt: skip
        stream = io.StringIO()
        figure.savefig(
            stream, format="svg", transparent=True,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )  # fmt: skip
    return Picture(Markup(_inline(stream.getvalue(), name, title, caption)), caption)


def few_ticks() -> "MaxNLocator":
    """At most five of them, for axes on a phone."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(5)


def _inline(svg: str, name: str, title: str, caption: str) -> str:
    """matplotlib's file without its head, in variables and with ids of its own."""
    body = svg[svg.index("<svg") :]
    box = re.search(r'viewBox="([^"]*)"', body)
    assert box is not None
    body = body[body.index(">") + 1 : body.rindex("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r"<style.*?</style>", "", body, flags=re.DOTALL)
    used = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', body))
    used_ids = {a or b for a, b in used}
    # only tags are changed, never the words between them
    body = re.sub(r"<[^>]+>", lambda tag: _tag(tag[0], name, used_ids), body)
    body = re.sub(r">\s+<", "><", body)
    # groups that say nothing any more
    while (shorter := re.sub(r"<g>((?:(?!</?g).)*)</g>", r"\1", body, flags=re.DOTALL)) != body:
        body = shorter
    head = (
        f'<svg class="picture" role="img" aria-labelledby="{name}-t {name}-d" '
        f'viewBox="{box[1]}" preserveAspectRatio="xMidYMid meet">'
        f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(caption)}</desc>'
    )
    return head + body.strip() + "</svg>"


def _tag(tag: str, name: str, used: set[str]) -> str:
    tag = re.sub(r' id="([^"]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", tag)
    tag = re.sub(r'xlink:href="#', f'href="#{name}-', tag)
    tag = re.sub(r"url\(#", f"url(#{name}-", tag)
    tag = re.sub(r"(?<![#\w])(-?\d+\.\d{2})\d+", r"\1", tag)
    # one family of letters for the whole page
    tag = re.sub(r"font: ([\d.]+)px [^;\"]+", r"font-size: \1px", tag)
    tag = re.sub(r"font-family: [^;\"]+;? ?", "", tag)
    tag = re.sub(r"\s+", " ", tag)
    return re.sub(r"#[0-9a-fA-F]{6}\b", lambda m: _variable(m[0]), tag)


def _variable(colour: str) -> str:
    known = COLOURS.get(colour.upper()) or COLOURS.get(colour)
    return colour if known is None else f"var(--{known})"

"""matplotlib's drawings as parts of a page: inline SVG in the page's own colours and letters.

Colours become variables of the style sheet, so that a picture follows the light or dark theme;
numbers are rounded, ids are made unique, and the same drawing gives the same bytes. What a picture
is called and what is said below it is in texts.toml.
"""

import io
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from ..plot import style
from .page import Picture
from .words import TEXTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
LINE: dict[str, Any] = {
    "color": style.EPISTEMIC, "marker": "o", "markersize": 4.5, "linewidth": 1.6
}  # fmt: skip
ERRORS = LINE | {"elinewidth": 1, "capsize": 2.5}  # a line with error bars
DOTS: dict[str, Any] = {"linestyle": "none", "marker": "o", "markeredgewidth": 0}
FILLED = style.BLUE | {"fill": True, "linewidth": 0.8}  # of a histogram


def draw(
    name: str, onto: Callable[["Axes"], Any], *, height: float | None = None, **words: str
) -> Picture:
    """Let a function draw on axes, and make the result part of the page.

    Args:
        name: of the picture in texts.toml, which has its title, for whoever hears the page, and
            the caption below it. The last part of the name is unique on the page.
        onto: draws on the axes that it gets.
        height: in inches; the width is the same for all.
        words: fill the braces of title and caption.

    Example:
        >>> from posterax.report.pictures import draw
        >>> picture = draw("numbers.parts", lambda axes: axes.plot([0, 1], [0, 1]))
        >>> picture.svg[:41], "Date" in picture.svg
        (Markup('<svg class="picture" role="img" aria-labe'), False)
    """
    import matplotlib
    from matplotlib.figure import Figure

    kind, _, name = name.partition(".")
    text = TEXTS[kind][name]
    title, caption = (text[part].format_map(words) for part in ("title", "caption"))
    size = (WIDTH, height or text.get("height", HEIGHT))
    # whatever a user's own settings are, a report looks the same
    settings = matplotlib.rc_params_from_file(Path(__file__).parent / "picture.mplstyle")
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # a letter that matplotlib's font lacks is drawn by the browser all the same
        warnings.filterwarnings("ignore", "Glyph")
        warnings.filterwarnings("ignore", "Matplotlib currently does not support")
        figure = Figure(figsize=size, layout="constrained")
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
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(stream, format="svg", transparent=True, metadata=metadata)
    return Picture(Markup(_inline(stream.getvalue(), name, title, caption)), caption)


def label(axes: "Axes", x: str, y: str, *, few: bool = False) -> None:
    """Names at both sides, and with ``few`` at most five ticks below, for axes on a phone."""
    from matplotlib.ticker import MaxNLocator

    axes.set(xlabel=x, ylabel=y)
    if few:
        axes.xaxis.set_major_locator(MaxNLocator(5))


def diagonal(axes: "Axes", low: float, high: float, name: str) -> None:
    """A dotted line where both sides are equal."""
    ends = [low, high]
    axes.plot(ends, ends, ":", color=style.MEAN, linewidth=1.1, label=name)


def _inline(svg: str, name: str, title: str, caption: str) -> str:
    """matplotlib's file without its head, in variables and with ids of its own."""
    head, _, body = svg[svg.index("<svg") : svg.rindex("</svg>")].partition(">")
    box = head.partition('viewBox="')[2].partition('"')[0]
    body = re.sub(
        r"<metadata>.*?</metadata>|<!--.*?-->|<style.*?</style>", "", body, flags=re.DOTALL
    )
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', body))
    # only tags are changed, never the words between them
    body = re.sub(r"<[^>]+>", lambda tag: _tag(tag[0], name, used), body)
    body = re.sub(r">\s+<", "><", body)
    # groups that say nothing any more
    while (shorter := re.sub(r"<g>((?:(?!</?g).)*)</g>", r"\1", body, flags=re.DOTALL)) != body:
        body = shorter
    return (
        f'<svg class="picture" role="img" aria-labelledby="{name}-t {name}-d" '
        f'viewBox="{box}" preserveAspectRatio="xMidYMid meet">'
        f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(caption)}</desc>'
        f"{body.strip()}</svg>"
    )


def _tag(tag: str, name: str, used: set[str]) -> str:
    tag = re.sub(r' id="([^"]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", tag)
    for pattern, new in (
        (r'xlink:href="#', f'href="#{name}-'),
        (r"url\(#", f"url(#{name}-"),
        (r"(?<![#\w])(-?\d+\.\d{2})\d+", r"\1"),
        # one family of letters for the whole page
        (r"font: ([\d.]+)px [^;\"]+", r"font-size: \1px"),
        (r"font-family: [^;\"]+;? ?", ""),
        (r"\s+", " "),
    ):
        tag = re.sub(pattern, new, tag)
    return re.sub(r"#[0-9a-fA-F]{6}\b", _variable, tag)


def _variable(colour: re.Match[str]) -> str:
    known = COLOURS.get(colour[0].upper())
    return colour[0] if known is None else f"var(--{known})"

"""Methods beside each other."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..selection import Comparison
from .style import DATA, EPISTEMIC, EPISTEMIC_FILL, Axes, annotate, many_axes

if TYPE_CHECKING:
    import pandas as pd

Table = Mapping[str, Mapping[str, Any]]

COMPARED = ["score", "se", "difference", "difference_se"]  # columns of px.compare's table


class Cell(NamedTuple):
    """A score of a method: its value, standard error, and the repeats behind them."""

    value: float
    error: float
    repeats: np.ndarray


def comparison(
    axes: Axes | Sequence[Axes],
    table: "Table | pd.DataFrame | Comparison",
    *,
    scores: Sequence[str] | None = None,
    errors: float = 2.0,
    title: str | None = None,
) -> Any:
    """Draw a table of methods and their scores: a row for each method, a panel for each score.

    Dots are the scores, bars ± two standard errors of them, small ticks the repeats (seeds) where
    the table has them. Every score has a scale of its own.

    Args:
        axes: where to draw: one, in which the panels stand side by side, or one for each score.
        table: ``{method: {score: value}}``, where a value is a number, a tuple (value, standard
            error) or a list of repeats, whose mean and standard error are drawn; or a data frame
            with a row for each method and a column for each score, where rows with the same name
            are repeats; or what ``px.compare`` returns, and its ``to_pandas()``.
        scores: which of them, in this order (default: all).
        errors: how many standard errors a bar reaches.
        title: above the (first) axes.

    Returns:
        What ``axes`` was.

    Example:
        >>> from matplotlib.figure import Figure
        >>> import posterax as px
        >>> table = {"ensemble": {"NLL": [0.21, 0.24, 0.22]}, "one network": {"NLL": (0.3, 0.01)}}
        >>> axes = px.plot.comparison(Figure().subplots(), table)
        >>> [text.get_text() for text in axes.get_yticklabels()]
        ['ensemble', 'one network']
    """
    cells = _cells(table)
    names = list(cells)
    known = list(dict.fromkeys(score for row in cells.values() for score in row))
    chosen = known if scores is None else list(scores)
    missing = [score for score in chosen if score not in known]
    if missing or not chosen:
        raise ValueError(f"scores: the table has {', '.join(known) or 'none'}, not {missing}")
    panels = _panels(axes, len(chosen))
    for index, (panel, score) in enumerate(zip(panels, chosen, strict=True)):
        column = {name: row[score] for name, row in cells.items() if score in row}
        _panel(panel, names, column, errors, first=index == 0)
        panel.locator_params(axis="x", nbins=3 if len(chosen) > 1 else 6)
        panel.set_xlabel(score)
    given: Any = panels[0] if many_axes(axes) else axes
    if len(chosen) > 1 and not many_axes(axes):  # the legend of the axes that were given
        drawn = [row[score] for row in cells.values() for score in chosen if score in row]
        error = np.nan if any(cell.error for cell in drawn) else 0.0
        repeated = any(len(cell.repeats) for cell in drawn)
        invisible = Cell(np.nan, error, np.full(int(repeated), np.nan))
        _dots(given, [invisible], np.array([np.nan]), errors)
    annotate(given, title)
    return axes


def _panels(axes: Any, count: int) -> list[Axes]:
    if many_axes(axes):
        if np.size(axes) != count:
            raise ValueError(f"axes: one, or one for each of {count} scores, got {np.size(axes)}")
        return list(np.ravel(axes))
    if count == 1:
        return [axes]
    axes.set_axis_off()
    gap = 0.08
    width = (1 - gap * (count - 1)) / count
    return [axes.inset_axes((i * (width + gap), 0, width, 1)) for i in range(count)]


def _panel(
    axes: Axes, names: list[str], column: dict[str, Cell], errors: float, *, first: bool
) -> None:
    at = {name: len(names) - 1 - row for row, name in enumerate(names)}
    for height in at.values():
        axes.axhline(height, color=DATA, linewidth=0.4, alpha=0.4, zorder=1)
    _dots(axes, list(column.values()), np.array([at[name] for name in column], float), errors)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_yticks(list(at.values()), names if first else [""] * len(names))
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)


def _dots(axes: Axes, cells: list[Cell], heights: np.ndarray, errors: float) -> None:
    value, error = (np.array([cell[part] for cell in cells]) for part in (0, 1))
    known = error != 0
    if known.any():
        axes.errorbar(
            value[known], heights[known], xerr=errors * error[known], fmt="none", ecolor=EPISTEMIC,
            elinewidth=1.6, capsize=3, label=f"± {errors:g} standard errors", zorder=3,
        )  # fmt: skip
    pairs = zip(cells, heights, strict=True)
    repeats = [(r, height) for cell, height in pairs for r in cell.repeats]
    if repeats:
        axes.plot(
            *np.array(repeats).T, "|", color=DATA, markersize=7, markeredgewidth=0.8,
            label="repeats", zorder=2,
        )  # fmt: skip
    axes.plot(
        value, heights, "o", color=EPISTEMIC, markerfacecolor=EPISTEMIC_FILL, markersize=6.5,
        label="mean" if repeats else "value", zorder=4,
    )  # fmt: skip


# -- tables


def _cells(table: "Table | pd.DataFrame | Comparison") -> dict[str, dict[str, Cell]]:
    frame: Any = table.to_pandas() if isinstance(table, Comparison) else table
    table = _of_frame(frame) if hasattr(frame, "iterrows") else frame
    if not isinstance(table, Mapping) or not table:
        raise TypeError(
            "table must be {method: {score: value}}, a data frame or what px.compare returns, and "
            f"not empty, got {type(table).__name__}"
        )
    if not all(isinstance(row, Mapping) for row in table.values()):
        raise TypeError("table: each method needs its scores by name, {method: {score: value}}")
    return {
        str(name): {str(score): _cell(v, f"{name}, {score}") for score, v in row.items()}
        for name, row in table.items()
    }


def _of_frame(frame: "pd.DataFrame") -> Table:
    """Rows with one name are repeats; a column ``X_se`` has the standard errors of ``X``."""
    if set(frame.columns) >= set(COMPARED):
        by = str(frame.index.name or "score")
        frame = frame[COMPARED].rename(columns={"score": by, "se": f"{by}_se"})
    numbers = frame.select_dtypes("number")
    columns = [c for c in numbers if not (str(c).endswith("_se") and str(c)[:-3] in numbers)]

    def value(rows: "pd.DataFrame", column: str) -> Any:
        values, error = rows[column].to_numpy(np.float64), f"{column}_se"
        if len(rows) > 1:
            return values
        return (values[0], rows[error].iloc[0]) if error in rows else values[0]

    groups = numbers.groupby(level=0, sort=False)
    return {str(name): {c: value(rows, c) for c in columns} for name, rows in groups}


def _cell(given: Any, name: str) -> Cell:
    pair, repeats = given, np.zeros(0)
    try:
        if np.ndim(given) and not isinstance(given, tuple):
            repeats = np.asarray(given, np.float64)
            n = len(repeats)
            pair = repeats.mean(), repeats.std(ddof=1) / np.sqrt(n) if n > 1 else 0.0
        value, error = pair[:2] if isinstance(pair, tuple) else (pair, 0.0)
        cell = Cell(float(value), float(error), repeats)
    except (TypeError, ValueError):
        kinds = "a number, (value, standard error) or a list of repeats"
        raise TypeError(f"table: {name} must be {kinds}, got {given!r}") from None
    if not (np.isfinite(cell.value) and cell.error >= 0):
        raise ValueError(f"table: {name} must be finite with an error of 0 or more, got {given!r}")
    return cell

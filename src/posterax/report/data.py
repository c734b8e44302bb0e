"""The table that was learned from: its columns, what is missing, the target."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..plot.style import EPISTEMIC, EPISTEMIC_FILL, MEAN
from ..posteriors import Posterior
from ..tables.base import BayesianEstimator
from .page import Picture, Section, Table
from .pictures import draw, few_ticks
from .subject import Subject
from .words import MISSING, cell, cut, cut_apart, many, percent, short

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MOST_COLUMNS = 200  # shown; of wider tables the others are counted
UNFOLDED = 15
KINDS = {
    "number": "Columns of numbers",
    "whole number": "Columns of whole numbers",
    "yes or no": "Columns of yes or no",
    "date": "Columns of dates",
    "text": "Columns of text",
}
MOST_CLASSES = 20  # bars


def section(subject: Subject, card: Mapping[str, Any]) -> Section:
    """Rows, columns, what was done to each, and the target's histogram."""
    part = Section("data", "Data")
    frame = subject.train_x
    n = len(subject.train_y)
    if frame is None:
        part.say(f"{many(n, 'training row')} of inputs that are not a table.")
    else:
        missing = int(frame.isna().to_numpy().sum())
        gaps = f"{many(missing, 'cell is', 'cells are')} empty" if missing else "no cell is empty"
        judged = f" {many(subject.tested, 'row')} more were held out." if subject.held_out else ""
        size = f"{many(n, 'row')} of {many(frame.shape[1], 'column')}"
        part.say(f"The model was trained on {size}; {gaps}.{judged}")
    told = _done(subject.fitted, card)
    part.show(_target(subject), _facts(subject, told))
    if frame is not None:
        part.blocks.append(_columns(frame, told))
    return part


def _facts(subject: Subject, told: "dict[str, Told]") -> Table:
    """The size of everything, beside the picture."""
    frame = subject.train_x
    sizes = {"Training rows": f"{len(subject.train_y):,}"}
    if subject.held_out:
        sizes["Held-out rows"] = f"{subject.tested:,}"
    if frame is not None:
        kinds = [
            _kind(frame.iloc[:, i], told.get(str(frame.columns[i])))
            for i in range(min(frame.shape[1], MOST_COLUMNS))
        ]
        sizes["Columns"] = f"{frame.shape[1]:,}"
        if len(set(kinds)) > 1:
            sizes |= {KINDS[k]: f"{kinds.count(k):,}" for k in KINDS if k in kinds}
        missing = float(frame.isna().to_numpy().mean()) if frame.size else 0.0
        sizes["Missing cells"] = percent(missing, 1) if missing else "none"
    sizes["Target"] = cut(subject.target, 40)
    if subject.classifies:
        sizes["Classes"] = f"{len(subject.classes):,}"
    else:
        values = subject._first(subject.train_y)
        sizes |= {"Mean": short(values.mean()), "Deviation": short(values.std())}
        sizes["Distinct values"] = f"{len(np.unique(values)):,}"
    rows: list[list[Any]] = [[name, value] for name, value in sizes.items()]
    return Table(["Fact", "Value"], rows, "In short", frozenset({1}))


def _target(subject: Subject) -> Picture:
    if subject.classifies:
        return _class_bars(subject)
    values = subject._first(subject.train_y)
    bins = int(np.clip(2 * np.cbrt(len(values)), 5, 40))

    def onto(axes: "Axes") -> None:
        counts, edges = np.histogram(values, bins)
        axes.stairs(
            counts, edges, fill=True, facecolor=EPISTEMIC_FILL, edgecolor=EPISTEMIC, linewidth=0.8
        )
        axes.axvline(values.mean(), color=MEAN, linewidth=1.1, linestyle="--", label="mean")
        axes.set_xlabel(cut(subject.target, 40))
        axes.set_ylabel("rows")
        axes.set_xlim(edges[0], edges[-1])
        axes.xaxis.set_major_locator(few_ticks())

    low, middle, high = np.quantile(values, [0, 0.5, 1])
    return draw(
        "target", f"Histogram of {subject.target}",
        f"The target, {subject.target}, in the training rows: from {short(low)} to {short(high)}, "
        f"mean {short(values.mean())}, median {short(middle)}, deviation {short(values.std())}.",
        onto, height=2.7,
    )  # fmt: skip


def _class_bars(subject: Subject) -> Picture:
    known = subject.train_y[subject.train_y >= 0]
    counts = np.bincount(known, minlength=len(subject.classes))
    order = np.argsort(-counts, kind="stable")[:MOST_CLASSES]
    rest = len(counts) - len(order)

    def onto(axes: "Axes") -> None:
        names = [cut(subject.classes[i], 18) for i in order]
        bars = axes.barh(
            range(len(order)), counts[order], color=EPISTEMIC_FILL, edgecolor=EPISTEMIC,
            linewidth=0.8, height=0.66,
        )  # fmt: skip
        axes.bar_label(bars, [f"{c:,}" for c in counts[order]], padding=3, fontsize=10)
        axes.set_yticks(range(len(order)), names)
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.set_xlabel("rows")
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_locator(few_ticks())

    most, least = counts[order[0]], counts.min()
    more = f" Another {many(rest, 'class', 'classes')} are rarer." if rest else ""
    return draw(
        "target", f"Rows of each class of {subject.target}",
        f"The target, {subject.target}, has {many(len(counts), 'class', 'classes')} in the "
        f"training rows, of {least:,} to {most:,} rows ({percent(most / max(counts.sum(), 1))} for "
        f"the most frequent).{more}",
        onto, height=1.1 + 0.26 * len(order),
    )  # fmt: skip


class Told(NamedTuple):
    """What the model tells of a column."""

    kind: str
    done: str


def _done(fitted: BayesianEstimator | Posterior | None, card: Mapping[str, Any]) -> dict[str, Told]:
    """What was done to each column, as the file tells it, by name."""
    columns = getattr(fitted, "columns_", None)
    rows = card.get("columns") or (columns.summary() if columns is not None else [])
    return {
        str(row["name"]): Told(str(row.get("kind", "")), cut(row.get("done", MISSING), 160))
        for row in rows
    }


def _columns(frame: "pd.DataFrame", done: dict[str, Told]) -> Table:
    import pandas as pd

    rows: list[list[Any]] = []
    names = cut_apart(frame.columns[:MOST_COLUMNS], 60)
    for i in range(min(frame.shape[1], MOST_COLUMNS)):
        name, values = str(frame.columns[i]), frame.iloc[:, i]
        told = done.get(name)
        kind = _kind(values, told)
        missing = int(values.isna().sum())
        numeric = kind in ("number", "whole number")
        shown = pd.to_numeric(values, errors="coerce") if numeric else None
        spread = _dates(values) if kind == "date" else _range(values, shown)
        what = "standardised" if numeric or kind == "yes or no" else MISSING
        if told is not None:
            what = told.done
        rows.append([
            names[i], kind, f"{missing:,}" if missing else "0", f"{values.nunique():,}",
            spread, what,
        ])  # fmt: skip
    left = frame.shape[1] - len(rows)
    caption = "Columns of the training rows" + (f"; {left:,} more are not shown" if left else "")
    heads = ["Column", "Kind", "Missing", "Distinct", "Range or most frequent", "What was done"]
    folded = f"Show all {many(len(rows), 'column')}" if len(rows) > UNFOLDED else ""
    return Table(heads, rows, caption, frozenset({2, 3}), folded=folded, style="wide")


def _kind(values: "pd.Series", told: Told | None = None) -> str:
    from pandas.api import types

    if told is not None and told.kind == "date":  # text that was read as dates
        return "date"
    if types.is_bool_dtype(values):
        return "yes or no"
    if types.is_datetime64_any_dtype(values):
        return "date"
    if types.is_integer_dtype(values):
        return "whole number"
    if types.is_numeric_dtype(values):
        return "number"
    return "text"


def _dates(values: "pd.Series") -> str:
    """From the first to the last; what cannot be read is passed over."""
    import warnings

    import pandas as pd

    with warnings.catch_warnings():  # of days and months that could be either
        warnings.simplefilter("ignore")
        known = pd.to_datetime(values, errors="coerce", format="mixed", utc=True).dropna()
    if not len(known):
        return MISSING
    return f"{known.min():%Y-%m-%d} to {known.max():%Y-%m-%d}"


def _range(values: "pd.Series", numbers: "pd.Series | None") -> str:
    if numbers is not None:
        known = numbers.to_numpy(np.float64, na_value=np.nan)
        known = known[np.isfinite(known)]
        if len(known) and _kind(values) == "whole number":
            return f"{cell(int(known.min()))} to {cell(int(known.max()))}"  # a year has no comma
        return f"{short(known.min())} to {short(known.max())}" if len(known) else MISSING
    known = values.dropna()
    if not len(known):
        return MISSING
    counts = known.astype(str).value_counts()
    # equally frequent ones by name, so that the same data give the same page
    best = min(counts[counts == counts.iloc[0]].index)
    # a mark and an isolate keep the percentage in place beside right-to-left letters
    return f"\u200e\u2068{cut(best, 24)}\u2069 ({percent(counts.iloc[0] / len(known))})"

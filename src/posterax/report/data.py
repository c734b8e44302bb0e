"""The tables: what was learned from, and the rows the model is most and least certain about."""

import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..plot.style import BLUE, MEAN
from ..posteriors import Posterior
from ..tables.base import BayesianEstimator
from .page import Picture, Section, Table
from .pictures import FILLED, draw, label
from .subject import Subject
from .words import LEVEL, MISSING, cell, cut, cut_apart, decimals, fixed, many, percent, short

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MOST_COLUMNS = 200  # shown; of wider tables the others are counted
UNFOLDED = 15
KINDS = {
    "number": "numbers", "whole number": "whole numbers", "yes or no": "yes or no",
    "date": "dates", "text": "text",
}  # fmt: skip
MOST_CLASSES = 20  # bars
SHOWN_ROWS, SHOWN_COLUMNS = 10, 12  # of the least and the most certain
Done = tuple[str, str]  # the kind of a column, and what was done to it, as the model says


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
    done = _done(subject.fitted, card)
    part.show(_target(subject), _facts(subject, done))
    if frame is not None:
        part.blocks.append(_columns(frame, done))
    return part


def _facts(subject: Subject, done: dict[str, Done]) -> Table:
    """The size of everything, beside the picture."""
    frame = subject.train_x
    sizes = {"Training rows": f"{len(subject.train_y):,}"}
    if subject.held_out:
        sizes["Held-out rows"] = f"{subject.tested:,}"
    if frame is not None:
        shown = list(frame.items())[:MOST_COLUMNS]
        kinds = [_kind(values, done.get(str(name))) for name, values in shown]
        sizes["Columns"] = f"{frame.shape[1]:,}"
        if len(set(kinds)) > 1:
            counts = {f"Columns of {KINDS[k]}": kinds.count(k) for k in KINDS if k in kinds}
            sizes |= {name: f"{count:,}" for name, count in counts.items()}
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
        axes.stairs(counts, edges, **FILLED)
        axes.axvline(values.mean(), color=MEAN, linewidth=1.1, linestyle="--", label="mean")
        axes.set_xlim(edges[0], edges[-1])
        label(axes, cut(subject.target, 40), "rows", few=True)

    low, median, high = map(short, np.quantile(values, [0, 0.5, 1]))
    return draw(
        "numbers.target", onto, target=subject.target, low=low, median=median, high=high,
        mean=short(values.mean()), deviation=short(values.std()),
    )  # fmt: skip


def _class_bars(subject: Subject) -> Picture:
    known = subject.train_y[subject.train_y >= 0]
    counts = np.bincount(known, minlength=len(subject.classes))
    order = np.argsort(-counts, kind="stable")[:MOST_CLASSES]
    shown, rest = counts[order], len(counts) - len(order)

    def onto(axes: "Axes") -> None:
        bars = axes.barh(range(len(order)), shown, **BLUE, linewidth=0.8, height=0.66)
        axes.bar_label(bars, [f"{c:,}" for c in shown], padding=3, fontsize=10)
        axes.set_yticks(range(len(order)), [cut(subject.classes[i], 18) for i in order])
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.tick_params(axis="y", length=0)
        label(axes, "rows", "", few=True)

    return draw(
        "classes.target", onto, height=1.1 + 0.26 * len(order), target=subject.target,
        classes=many(len(counts), "class", "classes"), least=f"{counts.min():,}",
        most=f"{shown[0]:,}", share=percent(shown[0] / max(counts.sum(), 1)),
        more=f" Another {many(rest, 'class', 'classes')} are rarer." if rest else "",
    )  # fmt: skip


def _done(fitted: BayesianEstimator | Posterior | None, card: Mapping[str, Any]) -> dict[str, Done]:
    """What was done to each column, by name; the card's word goes first."""
    columns = getattr(fitted, "columns_", None)
    rows = card.get("columns") or (columns.summary() if columns is not None else [])
    return {
        str(row["name"]): (str(row.get("kind", "")), cut(row.get("done", MISSING), 160))
        for row in rows
    }


def _columns(frame: "pd.DataFrame", done: dict[str, Done]) -> Table:
    rows: list[list[Any]] = []
    names = cut_apart(frame.columns[:MOST_COLUMNS], 60)
    for shown, (name, values) in zip(names, frame.items(), strict=False):
        kind = _kind(values, done.get(str(name)))
        default = MISSING if kind in ("date", "text") else "standardised"
        rows.append([
            shown, kind, f"{values.isna().sum():,}", f"{values.nunique():,}",
            _range(values, kind), done.get(str(name), ("", default))[1],
        ])  # fmt: skip
    left = frame.shape[1] - len(rows)
    caption = "Columns of the training rows" + (f"; {left:,} more are not shown" if left else "")
    heads = ["Column", "Kind", "Missing", "Distinct", "Range or most frequent", "What was done"]
    folded = f"Show all {many(len(rows), 'column')}" if len(rows) > UNFOLDED else ""
    return Table(heads, rows, caption, frozenset({2, 3}), folded=folded, style="wide")


def _kind(values: "pd.Series", done: Done | None) -> str:
    from pandas.api import types

    if done is not None and done[0] == "date":  # text that was read as dates
        return "date"
    kinds = {
        "yes or no": types.is_bool_dtype,
        "date": types.is_datetime64_any_dtype,
        "whole number": types.is_integer_dtype,
        "number": types.is_numeric_dtype,
    }
    return next((name for name, fits in kinds.items() if fits(values)), "text")


def _range(values: "pd.Series", kind: str) -> str:
    """From the least to the largest, or the most frequent; what cannot be read is passed over."""
    import pandas as pd

    known: Any = values.dropna()
    if kind == "date":
        with warnings.catch_warnings():  # of days and months that could be either
            warnings.simplefilter("ignore")
            known = pd.to_datetime(values, errors="coerce", format="mixed", utc=True).dropna()
    elif kind in ("number", "whole number"):
        known = known.to_numpy(np.float64)
        known = known[np.isfinite(known)]
    if not len(known):
        return MISSING
    if kind in ("text", "yes or no"):
        counts = known.astype(str).value_counts()
        # equally frequent ones by name, so that the same data give the same page
        best = min(counts[counts == counts.iloc[0]].index)
        # a mark and an isolate keep the percentage in place beside right-to-left letters
        return f"\u200e\u2068{cut(best, 24)}\u2069 ({percent(counts.iloc[0] / len(known))})"
    # a year has no comma
    write = {"number": short, "whole number": lambda v: cell(int(v)), "date": "{:%Y-%m-%d}".format}
    return f"{write[kind](known.min())} to {write[kind](known.max())}"


# -- the least and the most certain rows, as they stand in the table


def certain_rows(subject: Subject) -> Section:
    """Two tables, of the least and of the most certain rows."""
    part = Section("rows", "Rows: the most and the least certain")
    score, by = (
        (subject.entropy, "entropy") if subject.classifies else (subject.std, "predicted deviation")
    )
    more = ""
    if subject.x is not None and subject.x.shape[1] > SHOWN_COLUMNS:
        more = f"; the first {SHOWN_COLUMNS} of {subject.x.shape[1]:,} columns are shown"
    looked = f"Of the {many(len(score), 'row')} looked at, by their {by}"
    part.say(f"{looked}. Inputs are as they were given{more}.")
    order, count = np.argsort(-score, kind="stable"), min(SHOWN_ROWS, len(score))
    for name, chosen in (("least", order), ("most", order[::-1])):
        caption = f"The {count} {name} certain rows"
        part.blocks.append(_rows_table(subject, chosen[:count], caption))
    return part


def _rows_table(subject: Subject, rows: np.ndarray, caption: str) -> Table:
    columns = _answers(subject, rows)
    if subject.x is not None:
        frame = subject.x.iloc[:, :SHOWN_COLUMNS]
        for name, (_, column) in zip(cut_apart(frame.columns, 24), frame.items(), strict=True):
            is_number = column.dtype.kind in "iufb"
            places = _places(column) if column.dtype.kind == "f" else None
            shown = [cell(value, places) for value in column.iloc[rows].tolist()]
            columns.append((name, is_number, shown if is_number else [cut(v, 32) for v in shown]))
    heads, numeric, cells = zip(*columns, strict=True)
    right = frozenset(np.flatnonzero(numeric).tolist())
    return Table(list(heads), list(zip(*cells, strict=True)), caption, right)


def _answers(s: Subject, rows: np.ndarray) -> list[tuple[str, bool, Iterable[str]]]:
    """Columns of what was predicted and what is true: head, whether they are numbers, cells."""
    if s.classifies:
        held, part = ("Right", s.right), _nats
        answers = [
            ("Predicted", False, [s.classes[i] for i in s.p.argmax(-1)[rows]]),
            ("Probability", True, map(_sure, s.p.max(-1)[rows])),
            ("True", False, [s.classes[i] for i in s.y[rows]]),
        ]
    else:
        places = decimals(s.std)
        held, part = ("Inside", s.inside), partial(fixed, decimals=places)
        ends = zip(map(part, s.low[rows]), map(part, s.high[rows]), strict=True)
        true_places = 0 if np.all(s.true == np.round(s.true)) else places
        answers = [
            ("Predicted", True, map(part, s.mean[rows])),
            (f"{percent(LEVEL)} interval", True, [f"{low} to {high}" for low, high in ends]),
            ("True", True, [fixed(value, true_places) for value in s.true[rows]]),
        ]
    return [
        (s.counted, True, [s.numbers[i] for i in rows]),
        *answers,
        (held[0], False, ["yes" if holds else "no" for holds in held[1][rows]]),
        ("Epistemic", True, map(part, s.epistemic[rows])),
        ("Aleatoric", True, map(part, s.aleatoric[rows])),
    ]


def _sure(probability: float) -> str:
    return "> 99.9 %" if probability > 0.9995 else percent(probability, 1)


def _nats(value: float) -> str:
    return "< 0.001" if abs(value) < 0.0005 else fixed(value, 3)


def _places(column: "pd.Series") -> int | None:
    """The decimals that these numbers have, if they are few."""
    values = column.to_numpy(np.float64)
    values = values[np.isfinite(values)]
    if not len(values) or np.abs(values).max() >= 1e9:
        return None
    for places in range(5):
        if np.allclose(values, np.round(values, places), rtol=0, atol=1e-9):
            return places
    return None if np.abs(values).max() < 1e-3 else decimals(values, 4)

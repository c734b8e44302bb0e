"""What drives the predictions: columns, how each matters, what would change a row, its like."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ..plot.style import BLUE, EPISTEMIC, EPISTEMIC_FILL
from ..tables import explain
from ..tables.base import LEAST_ROWS, BayesianEstimator
from ..tables.explain.dependence import dependences
from ..tables.explain.nearby import Space
from ..tables.explain.table import Table as Rows
from .outcome import SEED
from .page import Picture, Section, Table
from .pictures import ERRORS, FAINT, LINE, draw, label
from .subject import Subject, sample_rows
from .words import LEVEL, cell, cut, cut_apart, decimals, fixed, many, percent, show

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MOST_COLUMNS = 200  # of wider tables there is no such section
MOST_AT_ONCE = 8192
PREDICTED = 20_000  # rows in all permutations together
BARS, CURVES, CHANGES, NEAREST, SHOWN_COLUMNS = 12, 4, 3, 5, 8  # shown
GRID, CURVE_ROWS = 15, 100
FEW_VALUES = 8  # of whole numbers that are drawn one by one
LOOKED_AT, TRAINING = 500, 5000  # rows to find the most unusual among, and to compare them with
NAMES = ("first", "second", "third", "fourth")  # of the pictures of curves in texts.toml


def sections(subject: Subject) -> list[Section]:
    """One section for an estimator of a table, none for anything else."""
    fitted = subject.fitted
    if not isinstance(fitted, BayesianEstimator) or subject.x is None or subject.train_x is None:
        return []
    if subject.train_x.shape[1] > MOST_COLUMNS or len(subject.x) < 2:
        return []
    if subject.classifies and len(subject.classes) < 2:
        return []
    part = Section("drives", "What drives the predictions")
    some = sample_rows(len(subject.train_x), TRAINING)
    block = _block(len(subject.outcome.y))
    training = Rows(fitted, subject.train_x.iloc[some], block)
    found = _importance(subject, part, block)
    _curves(subject, part, found, training)
    if np.size(subject.y) == len(subject.y):
        _changes(subject, part, found, training)
    _nearest(subject, part, found)
    return [part]


def _block(rows: int) -> int | None:
    """As many rows at once as the scores were computed of: the programs for that are there."""
    return max(rows, LEAST_ROWS) if rows <= MOST_AT_ONCE else None


# -- columns


def _importance(subject: Subject, part: Section, block: int | None) -> explain.Importance:
    assert subject.x is not None
    columns = subject.x.shape[1]
    repeats = 5 if columns <= 10 else 3 if columns <= 30 else 1
    rows = int(np.clip(PREDICTED // (columns * repeats), 50, 1000))
    y: Any = subject.y
    if subject.classifies:
        y = subject.fitted.classes_[y]  # type: ignore[union-attr]
    found = explain.importance(
        subject.fitted, Rows(subject.fitted, subject.x, block), y, repeats=repeats, rows=rows,
        level=LEVEL, key=SEED,
    )  # fmt: skip
    nll = found.scores["nll"]
    clear = int(np.sum(nll.low > 0))
    first = found.order[0]
    part.say(
        f"How much worse the predictions of {many(found.rows, 'row')} become when the cells of one "
        "column are exchanged among them. "
        + ("" if subject.held_out else "These are training rows, which flatters what was learned "
           "by heart. ")
        + (
            f"{cut(found.columns[first], 60)} matters most: without it the NLL is higher by "
            f"{show(nll.value[first])} nats a row. Of {many(columns, 'column')} {clear} "
            f"{'has' if clear == 1 else 'have'} an interval above 0 ({percent(LEVEL)}, over rows). "
            "Columns that say the same share their importance, and a column that "
            "predicts is not always one that causes."
            if clear
            else f"None of the {many(columns, 'column')} has an interval above 0: as far as these "
            "rows can tell, the model predicts as well without any one of them."
        )
    )  # fmt: skip
    part.show(_bars(found), _table(found, found.order[:BARS], "The most important columns"))
    if len(found.columns) > BARS:
        every = _table(found, found.order, "All columns by their importance")
        part.blocks.append(every._replace(folded=f"Show all {many(columns, 'column')}"))
    return found


def _bars(found: explain.Importance) -> Picture:
    order = found.order[:BARS]
    value, low, high = (values[order] for values in found.scores["nll"])
    names = cut_apart([found.columns[i] for i in order], 18)

    def onto(axes: "Axes") -> None:
        at = np.arange(len(order))
        axes.barh(at, value, **BLUE, linewidth=0.8, height=0.62)
        ends = np.array([value - low, high - value])
        how: dict[str, Any] = {"elinewidth": 1.2, "capsize": 3, "linestyle": "none"}
        axes.errorbar(value, at, xerr=ends, **how, color=EPISTEMIC)
        axes.axvline(0, color=FAINT, linewidth=0.8, zorder=0)
        axes.set_yticks(at, names)
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        label(axes, "rise of the NLL (nats a row)", "", few=True)

    return draw(
        "influence.importance", onto, height=1.2 + 0.28 * len(order), rows=many(found.rows, "row"),
        repeats=many(found.repeats, "time"),
    )  # fmt: skip


def _table(found: explain.Importance, order: np.ndarray, caption: str) -> Table:
    second = list(found.scores)[1]
    heads = ["Column", "Rise of NLL", percent(LEVEL), f"Rise of {second.replace('rmse', 'RMSE')}"]
    names = cut_apart([found.columns[i] for i in order], 40)
    nll, other = found.scores["nll"], found.scores[second].value
    places, others = decimals(nll.value[found.order[:3]]), decimals(other[found.order[:3]])
    rows = []
    for name, i in zip(names, order, strict=True):
        last = percent(other[i], 1) if second == "error" else fixed(other[i], others)
        ends = f"{fixed(nll.low[i], places)} to {fixed(nll.high[i], places)}"
        rows.append([name, fixed(nll.value[i], places), ends, last])
    return Table(heads, rows, caption, frozenset({1, 2, 3}))


# -- how the mean changes with a column


def _curves(subject: Subject, part: Section, found: explain.Importance, training: Rows) -> None:
    nll = found.scores["nll"].value
    numbers = [training.number_of(found.columns[i]) for i in found.order if nll[i] > 0]
    drawn = [
        made
        for made in dependences(training, numbers[:CURVES], GRID, LEVEL, CURVE_ROWS, SEED)
        if len(made.values) > 1
    ]
    if not drawn:
        return
    ends = []
    for made in drawn:
        k = _output(subject, made)
        ends += [a.reshape(len(a), -1)[:, k] for a in (made.low, made.high)]
    values = np.concatenate(ends)
    room = 0.05 * max(float(np.ptp(values)), 1e-12)
    limits = (float(values.min()) - room, float(values.max()) + room)
    shown = zip(NAMES, drawn, strict=False)
    part.show(*(_curve(subject, name, made, limits) for name, made in shown))


def _curve(
    subject: Subject, name: str, made: explain.Dependence, limits: tuple[float, float]
) -> Picture:
    k = _output(subject, made)
    what = f"The mean of {subject.target}"
    if subject.classifies:
        what = f"The probability of {subject.classes[k]}"
    return draw(
        f"influence.{name}", lambda axes: dependence(axes, made, k, limits=limits),
        column=cut(made.column, 40), what=what, rows=many(made.rows, "row"),
    )  # fmt: skip


def _output(subject: Subject, made: explain.Dependence) -> int:
    """Of two classes the second, of more the one that varies most; of targets the first."""
    if not subject.classifies:
        return 0
    return 1 if made.mean.shape[1] == 2 else int(np.argmax(np.ptp(made.mean, axis=0)))


def dependence(
    axes: "Axes",
    curve: explain.Dependence,
    output: int = 0,
    *,
    limits: tuple[float, float] | None = None,
) -> "Axes":
    """Draw the mean prediction over a column, with the posterior's band.

    Args:
        axes: where to draw.
        curve: of ``explain.partial_dependence``.
        output: which class or target, where there are several.
        limits: of the vertical axis, so that several pictures can be compared.

    Example:
        >>> import numpy as np
        >>> from matplotlib.figure import Figure
        >>> from posterax.report.influence import dependence
        >>> from posterax.tables.explain import Dependence
        >>> at = np.array([0.0, 1.0])
        >>> curve = Dependence("a", "number", [0.0, 1.0], at, at, at - 1, at + 1, 0.9, 10)
        >>> dependence(Figure().subplots(), curve).get_xlabel()
        'a'
    """
    mean, low, high = (
        a.reshape(len(a), -1)[:, output] for a in (curve.mean, curve.low, curve.high)
    )
    at = curve.positions
    if curve.kind in ("text", "ordinal", "boolean"):
        at = np.arange(len(mean))
        ends = np.maximum([mean - low, high - mean], 0)
        axes.errorbar(at, mean, ends, **ERRORS | {"linestyle": "none"})
        words = cut_apart([cell(value) for value in curve.values], 14)
        turn: dict[str, Any] = {"rotation": 30, "ha": "right"} if sum(map(len, words)) > 40 else {}
        axes.set_xticks(at, words, **turn)
        axes.set_xlim(-0.6, len(at) - 0.4)
    elif curve.kind == "whole number" and len(at) <= FEW_VALUES:
        axes.errorbar(at, mean, np.maximum([mean - low, high - mean], 0), **ERRORS)
        axes.set_xticks(at, [cell(value) for value in curve.values])
        axes.margins(x=0.15)
    else:
        axes.fill_between(at, low, high, color=EPISTEMIC_FILL, linewidth=0)
        axes.plot(at, mean, **LINE | {"markersize": 3.2})
    if curve.kind == "date":
        _dates(axes)
    axes.set_ylim(limits)
    what = "mean prediction"
    if curve.classes is not None:
        what = f"probability of {cut(curve.classes[output], 20)}"
    label(
        axes, cut(curve.column, 40), what,
        few=curve.kind in ("number", "whole number") and len(at) > FEW_VALUES,
    )  # fmt: skip
    return axes


def _dates(axes: "Axes") -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=6)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))


# -- what would change a row


def _changes(subject: Subject, part: Section, found: explain.Importance, training: Rows) -> None:
    assert subject.x is not None
    score = subject.entropy if subject.classifies else subject.std
    order = np.argsort(-score, kind="stable")
    chosen = {"the least certain": order[0], "a typical one": order[len(order) // 2]}
    if len(order) < 3:
        chosen.pop("a typical one")
    part.say(
        "What would change the prediction of a row: one column at a time takes other values that "
        "occur in the training rows, and all others stay. A row changed like this may not exist."
    )
    most = [found.columns[i] for i in found.order[:30]]
    tables = []
    for name, i in chosen.items():
        made = explain.what_if(
            subject.fitted, subject.x.iloc[[i]], training, columns=most, grid=GRID, level=LEVEL
        )
        row = f"{subject.counted} {subject.numbers[i]}, {name}"
        tables.append(_class_changes(made, row) if subject.classifies
                      else _number_changes(subject, made, row))  # fmt: skip
    part.blocks.extend(tables)


def _number_changes(subject: Subject, made: explain.Changes, row: str) -> Table:
    places, now = decimals(subject.std), made.now
    lines = []
    for sign in (1, -1):
        for one in made.by_column(sign)[:CHANGES]:
            by = fixed(one.mean - now.mean, places)
            lines.append([
                cut(one.column, 40), _cell(made.row[one.column]), _cell(one.value),
                fixed(one.mean, places), ("" if by.startswith("−") else "+") + by,
                f"{fixed(one.low, places)} to {fixed(one.high, places)}",
            ])  # fmt: skip
    ends = f"{fixed(now.low, places)} to {fixed(now.high, places)}"
    return Table(
        ["Column", "Now", "Instead", "Predicted", "Change", f"{percent(LEVEL)} interval"], lines,
        f"{row}: predicted {fixed(now.mean, places)} ({percent(LEVEL)} interval {ends}). The "
        "largest rises and falls by changing one column",
        frozenset({1, 2, 3, 4, 5}),
    )  # fmt: skip


def _class_changes(made: explain.Changes, row: str) -> Table:
    now, label_now = made.now, cut(made.now.label, 40)
    flips = made.flips[:CHANGES]
    shown = flips or made.by_column(-1)[:CHANGES]
    lines = [
        [
            cut(one.column, 40), _cell(made.row[one.column]), _cell(one.value),
            cut(one.label, 40), percent(one.mean, 1),
            f"{percent(one.low)} to {percent(one.high)}",
        ]
        for one in shown
    ]  # fmt: skip
    what = "The smallest changes of one column that lead to another class"
    if not flips:
        what = "No change of one column leads to another class; the ones that come closest"
    heads = ["Column", "Now", "Instead", "Predicted", f"Probability of {label_now}",
             f"{percent(LEVEL)} of the posterior"]  # fmt: skip
    caption = f"{row}: predicted {label_now}, with {percent(now.mean, 1)}. {what}"
    return Table(heads, lines, caption, frozenset({1, 2, 4, 5}))


def _cell(value: Any) -> str:
    return cut(cell(value), 24)


# -- rows like it


def _nearest(subject: Subject, part: Section, found: explain.Importance) -> None:
    assert subject.x is not None
    assert subject.train_x is not None
    known = sample_rows(len(subject.train_x), TRAINING)
    space = Space(Rows(subject.fitted, subject.train_x.iloc[known]))
    looked = sample_rows(len(subject.x), LOOKED_AT)
    own = not subject.held_out  # a training row finds itself
    points = space.of(Rows(subject.fitted, subject.x.iloc[looked]).frame)
    distances, rows = space.nearest(points, min(NEAREST + own, len(known)))
    distances, rows = distances[:, int(own) :], rows[:, int(own) :]
    if not distances.shape[1]:
        return
    odd = int(np.argmax(distances[:, 0]))
    at = looked[odd]
    usual = float(space.percentile(distances[[odd], 0])[0])
    called = f"{subject.counted} {subject.numbers[at]}"
    sample = f" of {many(len(known), 'training row')}" if len(known) < len(subject.train_x) else ""
    part.say(
        f"{called} is the most unusual of {many(len(looked), 'row')}: its nearest training row"
        f"{sample} is {show(distances[odd, 0])} away, in deviations of the columns, and "
        f"{percent(usual / 100)} of the training rows are closer to theirs. Where all near rows "
        "are far, a prediction rests on what the model assumes."
    )
    columns = [found.columns[i] for i in found.order if found.columns[i] in
               list(map(str, subject.train_x.columns))][:SHOWN_COLUMNS]  # fmt: skip
    heads = ["Row", "Distance", cut(subject.target, 24), *cut_apart(columns, 24)]
    lines = [[called, "–", _target(subject, subject.y, at), *_cells(subject.x, columns, at)]]
    for distance, place in zip(distances[odd], known[rows[odd]], strict=True):
        lines.append([
            f"Training row {place:,}", fixed(distance, 2),
            _target(subject, subject.train_y, place), *_cells(subject.train_x, columns, place),
        ])  # fmt: skip
    caption = f"{called} and the {many(len(lines) - 1, 'nearest training row')}"
    right = frozenset({1, *(() if subject.classifies else (2,))})
    part.blocks.append(Table(heads, lines, caption, right))


def _target(subject: Subject, y: np.ndarray, row: int) -> str:
    if subject.classifies:
        return subject.classes[int(y[row])] if y[row] >= 0 else "–"
    return cell(float(subject._first(y)[row]))


def _cells(frame: "pd.DataFrame", columns: list[str], row: int) -> list[str]:
    named = dict(zip(map(str, frame.columns), frame.iloc[row].tolist(), strict=True))
    return [_cell(named[name]) for name in columns]

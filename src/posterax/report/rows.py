"""The rows the model is most and least certain about, as they stand in the table."""

from typing import TYPE_CHECKING, Any

import numpy as np

from .page import Section, Table
from .subject import LEVEL, Subject
from .words import cell, cut, cut_apart, decimals, fixed, many, percent

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 10  # rows of each table
MOST_COLUMNS = 12  # of the inputs


def section(subject: Subject) -> Section:
    """Two tables, of the least and of the most certain rows."""
    part = Section("rows", "Rows: the most and the least certain")
    score = subject.entropy if subject.classifies else subject.std
    by = "entropy" if subject.classifies else "predicted deviation"
    part.say(
        f"Of the {many(len(score), 'row')} looked at, by their {by}. Inputs are as they were given"
        + (
            f"; the first {MOST_COLUMNS} of {subject.x.shape[1]:,} columns are shown."
            if subject.x is not None and subject.x.shape[1] > MOST_COLUMNS
            else "."
        )
    )
    order = np.argsort(-score, kind="stable")
    count = min(SHOWN, len(score))
    part.blocks.append(_table(subject, order[:count], f"The {count} least certain rows"))
    part.blocks.append(_table(subject, order[::-1][:count], f"The {count} most certain rows"))
    return part


def _table(subject: Subject, rows: np.ndarray, caption: str) -> Table:
    heads, cells, right = _answers(subject, rows)
    if subject.x is not None:
        frame = subject.x.iloc[rows, :MOST_COLUMNS]
        names = cut_apart(frame.columns, 24)
        for i in range(frame.shape[1]):
            column = frame.iloc[:, i]
            numeric = column.dtype.kind in "iufb"
            if numeric:
                right.add(len(heads))
            places = _places(subject.x.iloc[:, i]) if column.dtype.kind == "f" else None
            heads.append(names[i])
            for row, value in zip(cells, column.tolist(), strict=True):
                row.append(cell(value, places) if numeric else cut(cell(value), 32))
    return Table(heads, cells, caption, frozenset(right))


def _answers(subject: Subject, rows: np.ndarray) -> tuple[list[str], list[list[Any]], set[int]]:
    if subject.classifies:
        names = subject.classes
        heads = [
            subject.counted, "Predicted", "Probability", "True", "Right", "Epistemic", "Aleatoric",
        ]  # fmt: skip
        cells: list[list[Any]] = [
            [
                subject.numbers[i], names[int(subject.p[i].argmax())], _sure(subject.p[i].max()),
                names[int(subject.y[i])], "yes" if subject.right[i] else "no",
                _nats(subject.epistemic[i]), _nats(subject.aleatoric[i]),
            ]
            for i in rows.tolist()
        ]  # fmt: skip
        return heads, cells, {0, 2, 5, 6}
    places = decimals(subject.std)
    integers = subject.true == np.round(subject.true)
    true_places = 0 if integers.all() else places
    heads = [
        subject.counted, "Predicted", f"{percent(LEVEL)} interval", "True", "Inside", "Epistemic",
        "Aleatoric",
    ]  # fmt: skip
    cells = [
        [
            subject.numbers[i], fixed(subject.mean[i], places),
            f"{fixed(subject.low[i], places)} to {fixed(subject.high[i], places)}",
            fixed(subject.true[i], true_places),
            "yes" if subject.inside[i] else "no",
            fixed(subject.epistemic[i], places), fixed(subject.aleatoric[i], places),
        ]
        for i in rows.tolist()
    ]  # fmt: skip
    return heads, cells, {0, 1, 2, 3, 5, 6}


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

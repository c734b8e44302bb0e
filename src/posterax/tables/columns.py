"""From a data frame with text, gaps and dates to numbers, and an account of what was done.

What is learned is a list of plain choices, one a column, which a file holds as JSON.
"""

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from .cells import dates, numbers, texts
from .choices import MISSING, RARE, Column, choose, date_parts, truths

MOST_CATEGORIES = 200  # that a file may name in a column; a fit has far fewer


class Columns:
    """What was learned about the columns of a table.

    Args:
        columns: the choices, as ``learn`` or a file gives them.

    Example:
        >>> import pandas as pd
        >>> from posterax.tables.columns import Columns
        >>> frame = pd.DataFrame({"size": [50.0, None, 80.0, 61.0], "town": list("abab")})
        >>> columns = Columns.learn(frame)
        >>> columns.names_out
        ['size', 'size is missing', 'town = a', 'town = b']
        >>> columns.transform(frame)[1].tolist()
        [61.0, 1.0, 0.0, 1.0]
    """

    def __init__(self, columns: Sequence[Column]):
        self.columns = list(columns)
        self.used = [column for column in self.columns if column.kind != "left out"]
        self._texts = [column for column in self.used if column.kind == "category"]
        # what fills a gap, by column and part: of numbers, and of those whose gaps are marked
        self._plain: dict[tuple[str, str], float] = {}
        self._marked: dict[tuple[str, str], float] = {}
        for column in self.used:
            for j, fill in enumerate(column.fill):
                # a gap of a date is marked once for all its parts
                group = self._marked if column.gaps and j == 0 else self._plain
                group[column.name, column.cell_names[j]] = fill

    @classmethod
    def learn(cls, frame: Any) -> "Columns":
        """Look at a table and choose what becomes of each column."""
        frame = as_frame(frame)
        columns = cls([choose(name, frame[name]) for name in frame.columns])
        if not columns.used:
            why = "; ".join(f"{c.name!r}: {c.done}" for c in columns.columns[:4])
            raise ValueError(f"no column is left to learn from ({why})")
        return columns

    @property
    def names(self) -> list[str]:
        """Names of the table's columns."""
        return [column.name for column in self.columns]

    @property
    def text(self) -> list[str]:
        """Names of columns whose cells are to be read as text: "1.234" may be 1234 there."""
        plain = (None, {"decimal": ".", "thousands": "", "unit": ""})
        kinds = ("category", "date")
        return [c.name for c in self.used if c.kind in kinds or c.form not in plain]

    @property
    def names_out(self) -> list[str]:
        """Names of the matrix' columns."""
        names = [
            name if part in ("0", "time") else f"{name}, {part}"
            for name, part in (*self._plain, *self._marked)
        ]
        names += [f"{name} is missing" for name, _ in self._marked]
        return names + [f"{c.name} = {label}" for c in self._texts for label in c.labels]

    @property
    def fills(self) -> np.ndarray:
        """What stands for a gap, of the matrix' first columns: those that hold numbers."""
        return np.array([*self._plain.values(), *self._marked.values()], np.float64)

    def transform(self, frame: Any) -> np.ndarray:
        """The matrix of a table with these columns, in any order; others are ignored."""
        frame = self._checked(frame)
        cells = {
            (column.name, part): values
            for column in self.used
            for part, values in self._cells(column, frame).items()
        }
        matrix = [cells[key].fillna(fill) for key, fill in (self._plain | self._marked).items()]
        matrix += [cells[key].isna() for key in self._marked]
        for column in self._texts:
            text = cells[column.name, "0"].fillna(MISSING)
            text = text.where(text.isin(column.kept), RARE)
            matrix += [text == label for label in column.labels]
        return np.column_stack([values.to_numpy(np.float64) for values in matrix])

    def look(self, frame: Any) -> Counter[tuple[str, str]]:
        """What is new in a table: (what, column) ↦ in how many cells.

        ``"unseen"``: a category that was not there or rare at fit; ``"gap"``: a missing value in a
        column that had none; ``"unreadable"``: text where a number or a date is expected;
        ``"extra"``: a column that the fit did not have.
        """
        frame = self._checked(frame)
        counts: Counter[tuple[str, str]] = Counter()
        for name in set(frame.columns) - set(self.names):
            counts["extra", name] = len(frame)
        for column in self.used:
            cells, there = self._cells(column, frame), texts(frame[column.name]).notna()
            if not column.gaps:
                counts["gap", column.name] = int((~there).sum())
            if column.kind == "category":
                unseen = there & ~cells["0"].isin(column.kept)
                counts["unseen", column.name] = int(unseen.sum())
            else:
                first = next(iter(cells.values()))
                counts["unreadable", column.name] = int((there & first.isna()).sum())
        return +counts

    def summary(self) -> list[dict[str, Any]]:
        """One row a column: name, kind, what was done, missing cells, categories."""
        shown = ("name", "kind", "done", "missing", "categories")
        return [{name: getattr(column, name) for name in shown} for column in self.columns]

    def as_json(self) -> list[dict[str, Any]]:
        """Plain lists, numbers and text."""
        return [asdict(column) for column in self.columns]

    @classmethod
    def from_json(cls, nodes: Any) -> "Columns":
        """The columns of a file; raises ValueError for what no ``as_json`` gives."""
        if not isinstance(nodes, list):
            raise ValueError("columns: not a list")
        columns = cls([Column.from_json(node) for node in nodes])
        if not columns.used or len(set(columns.names)) != len(columns.names):
            raise ValueError("columns: none in use, or one twice")
        most = max(columns.used, key=lambda column: len(column.kept))
        if len(most.kept) > MOST_CATEGORIES:
            raise ValueError(f"columns: {len(most.kept):,} categories of {most.name[:40]!r}")
        return columns

    # -- inside

    def _checked(self, table: Any) -> pd.DataFrame:
        """The table, if every column in use is there."""
        frame = as_frame(table, self.names)
        missing = [column.name for column in self.used if column.name not in frame.columns]
        if missing:
            near = difflib.get_close_matches(missing[0], map(str, frame.columns), n=1)
            others = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
            raise ValueError(
                f"column {missing[0]!r} is missing{others}: the model was fitted with it"
                + (f"; is it {near[0]!r} here?" if near else "")
            )
        return frame

    def _cells(self, column: Column, frame: pd.DataFrame) -> dict[str, pd.Series]:
        values = frame[column.name]
        if column.kind == "category":
            return {"0": texts(values)}
        if column.kind == "boolean":
            return {"0": truths(values)}
        if column.kind == "date":
            return date_parts(dates(values, column.format), column.parts)
        read = numbers(values, column.form)
        if np.isinf(read).any():
            raise ValueError(f"column {column.name!r} holds an infinite number")
        return {"0": read}


def as_frame(table: Any, names: Sequence[str] | None = None) -> pd.DataFrame:
    """A data frame with text as names; an array's columns are x0, x1, … or have ``names``."""
    if not isinstance(table, pd.DataFrame):
        array = np.asarray(table, dtype=None if hasattr(table, "dtype") else object)
        if array.ndim != 2:
            raise ValueError(f"X must be a table of rows and columns, got shape {array.shape}")
        if names is None:
            names = [f"x{i}" for i in range(array.shape[1])]
        if len(names) != array.shape[1]:
            raise ValueError(
                f"X has {array.shape[1]} columns, the model was fitted with {len(names)}"
            )
        return pd.DataFrame(array, columns=list(names)).infer_objects()
    double = table.columns[table.columns.duplicated()]
    if len(double):
        raise ValueError(f"X has several columns named {str(double[0])!r}: rename them")
    return table.set_axis([str(name) for name in table.columns], axis=1)

"""From a data frame with text, gaps and dates to numbers, and an account of what was done.

What is learned is a list of plain choices, one a column, which a file holds as JSON.
"""

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from .cells import dates, numbers, texts
from .choices import MISSING, RARE, Column, coded, date_parts, squashed, truths
from .choosing import ASKED, choose

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
        ['size', 'size is missing', 'town = a', 'town = b', 'town = (rare)']
        >>> columns.transform(frame)[1].tolist()
        [61.0, 1.0, 0.0, 1.0, 0.0]
        >>> Columns.learn(frame, {"size": "ordinal"}).transform(frame)[:, 0].tolist()
        [0.0, 1.0, 2.0, 1.0]
    """

    def __init__(self, columns: Sequence[Column]):
        self.columns = list(columns)
        self.used = [column for column in self.columns if column.kind != "left out"]
        self._texts = [column for column in self.used if column.kind == "category"]
        self._limits: dict[str, Any] = {}  # of hashes of rows that stand in for unseen texts
        # what fills a gap, by column and part: of numbers, and of those whose gaps are marked
        self._plain: dict[tuple[str, str], float] = {}
        self._marked: dict[tuple[str, str], float] = {}
        for column in self.used:
            for j, fill in enumerate(column.fill):
                # a gap of a date is marked once for all its parts
                group = self._marked if column.gaps and j == 0 else self._plain
                group[column.name, column.cell_names[j]] = fill

    @classmethod
    def learn(cls, frame: Any, kinds: Mapping[str, str] | None = None) -> "Columns":
        """Look at a table and choose what becomes of each column.

        ``kinds`` says of some columns, by name, that they are a number, a category or an ordinal.
        """
        frame = as_frame(frame)
        kinds = check_kinds(kinds or {}, [*frame.columns])
        columns = cls([choose(name, frame[name], kinds.get(name)) for name in frame.columns])
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
        kinds = ("category", "ordinal", "date")
        return [
            c.name for c in self.used if not c.codes and (c.kind in kinds or c.form not in plain)
        ]

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

    def transform(self, frame: Any, *, learning: bool = False) -> np.ndarray:
        """The matrix of a table with these columns, in any order; others are ignored.

        ``learning`` is for the rows of a fit: in a column without rare texts some of them, always
        the same, stand in for texts that will be new, and are encoded as rare.
        """
        frame = self._checked(frame)
        cells = {
            (column.name, part): values
            for column in self.used
            for part, values in self._cells(column, frame).items()
        }
        matrix = [cells[key].fillna(fill) for key, fill in (self._plain | self._marked).items()]
        matrix += [cells[key].isna() for key in self._marked]
        words = None
        for column in self._texts:
            text = cells[column.name, "0"].fillna(MISSING)
            text = text.where(text.isin(column.kept), RARE)
            if learning and column.spare:
                words = frame.astype(object).map(str) if words is None else words
                text = text.mask(self._drawn(words, column), RARE)
            matrix += [text == label for label in column.labels]
        return np.column_stack([values.to_numpy(np.float64) for values in matrix])

    def look(self, frame: Any) -> Counter[tuple[str, str]]:
        """What is new in a table: (what, column) ↦ in how many cells.

        ``"unseen"``: a category that was not there or rare at fit; ``"level"``: an ordinal's level
        that was not there, which counts as missing; ``"gap"``: a missing value in a
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
            elif column.kind == "ordinal":
                counts["level", column.name] = int((there & cells["0"].isna()).sum())
            else:
                first = next(iter(cells.values()))
                counts["unreadable", column.name] = int((there & first.isna()).sum())
        return +counts

    def outside(self, frame: Any) -> pd.Series:
        """Names of the columns in which a row lies outside the table of the fit, with commas.

        Numbers and dates below the least or above the largest, and texts that were not there or
        rare; empty for a row that is inside.
        """
        frame = self._checked(frame)
        names = pd.Series("", index=frame.index, dtype=object)
        for column in self.used:
            cells = self._cells(column, frame, plain=True)
            first = next(iter(cells.values()))
            if column.kind == "category":
                beyond = first.notna() & ~first.isin(column.kept)
            elif column.kind == "ordinal":
                beyond = self._beyond(column, frame)
            elif column.low is not None:
                beyond = (first < column.low) | (first > column.high)
            else:
                continue
            before = names[beyond]
            names[beyond] = before.where(before == "", before + ", ") + column.name
        return names

    def summary(self) -> list[dict[str, Any]]:
        """One row a column: name, kind, what was done, missing cells, categories."""
        shown = ("name", "kind", "done", "missing", "categories")
        return [{name: getattr(column, name) for name in shown} for column in self.columns]

    def as_json(self) -> list[dict[str, Any]]:
        """Plain lists, numbers and text."""
        return [column.as_json() for column in self.columns]

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

    def _drawn(self, cells: pd.DataFrame, column: Column) -> np.ndarray:
        """Rows that stand in for unseen texts: by their cells, so that equal rows go together.

        The first table sets the share of its rows that do, also for further parts of it.
        """
        named = cells.assign(**{"": column.name})
        hashed = pd.util.hash_pandas_object(named, index=False).to_numpy()
        if column.name not in self._limits:
            self._limits[column.name] = np.unique(hashed)[: column.spare].max(initial=0)
        return np.asarray(hashed <= self._limits[column.name])

    def _beyond(self, column: Column, frame: pd.DataFrame) -> pd.Series:
        """Where an ordinal's value is none of its levels, nor between two that are numbers."""
        values = frame[column.name]
        if not column.codes:
            cells = texts(values)
            return cells.notna() & ~cells.isin(column.kept)
        read = pd.to_numeric(values, errors="coerce")
        return (read < float(column.kept[0])) | (read > float(column.kept[-1]))

    def _cells(
        self, column: Column, frame: pd.DataFrame, *, plain: bool = False
    ) -> dict[str, pd.Series]:
        """Numbers or text, a series for each part; ``plain`` numbers are in their own units."""
        values = frame[column.name]
        if column.kind == "category":
            return {"0": coded(values) if column.codes else texts(values)}
        if column.kind == "ordinal":
            return {"0": _ranks(column, values)}
        if column.kind == "boolean":
            return {"0": truths(values)}
        if column.kind == "date":
            return date_parts(dates(values, column.format), column.parts)
        read = numbers(values, column.form)
        if np.isinf(read).any():
            raise ValueError(f"column {column.name!r} holds an infinite number")
        return {"0": squashed(read, *column.squash) if column.squash and not plain else read}


def check_kinds(kinds: Any, names: Sequence[str]) -> dict[str, str]:
    """What a user says of columns, refused where there is no such column or kind.

    Example:
        >>> from posterax.tables.columns import check_kinds
        >>> check_kinds({"zip": "category"}, ["zip", "size"])
        {'zip': 'category'}
        >>> check_kinds({"zip": "text"}, ["zip", "size"])
        Traceback (most recent call last):
        ValueError: columns: 'zip' cannot be 'text': allowed are 'number', 'category', 'ordinal'
    """
    kinds = {str(name): kind for name, kind in kinds.items()}
    for name, kind in kinds.items():
        if kind not in ASKED:
            allowed = ", ".join(map(repr, ASKED))
            raise ValueError(f"columns: {name!r} cannot be {kind!r}: allowed are {allowed}")
        if name not in names:
            near = difflib.get_close_matches(name, map(str, names), n=1)
            hint = f"; is it {near[0]!r}?" if near else ""
            raise ValueError(f"columns: there is no column {name!r} in X{hint}")
    return kinds


def _ranks(column: Column, values: pd.Series) -> pd.Series:
    """Places in the order of the levels; a number between two levels lies between their ranks."""
    if not column.codes:
        return texts(values).map({level: float(i) for i, level in enumerate(column.kept)})
    read = pd.to_numeric(values, errors="coerce").astype(np.float64)
    levels = [float(level) for level in column.kept]
    ranks = np.interp(read.to_numpy(), levels, np.arange(len(levels), dtype=np.float64))
    return pd.Series(ranks, index=values.index).where(read.notna())


def has_more_than_numbers(table: Any) -> bool:
    """Whether a data frame has text, dates, gaps: what no matrix of numbers holds.

    Example:
        >>> import pandas as pd
        >>> from posterax.tables.columns import has_more_than_numbers
        >>> [has_more_than_numbers(pd.DataFrame({"a": a})) for a in ([1, 2], ["b", "c"], [1, None])]
        [False, True, True]
    """
    if not (isinstance(table, pd.DataFrame) or hasattr(table, "to_pandas")):
        return False
    frame = as_frame(table)
    numbers = all(pd.api.types.is_numeric_dtype(kind) for kind in frame.dtypes)
    return not numbers or bool(frame.isna().any(axis=None))


def as_frame(table: Any, names: Sequence[str] | None = None) -> pd.DataFrame:
    """A data frame with text as names; an array's columns are x0, x1, … or have ``names``."""
    if not isinstance(table, pd.DataFrame) and hasattr(table, "to_pandas"):  # of Polars, Arrow
        table = table.to_pandas()
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

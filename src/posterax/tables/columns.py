"""From a data frame with text, gaps and dates to numbers, and an account of what was done.

What is learned is a list of plain choices, one a column, which a file holds as JSON. The same
choices make scikit-learn's transformers, at fit and after loading, by their public arguments.
"""

import difflib
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from .cells import dates, numbers, texts
from .choices import MISSING, RARE, Column
from .learned import date_parts, learned, truths

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
        self._groups = _Groups(self.used)

    @classmethod
    def learn(cls, frame: Any) -> "Columns":
        """Look at a table and choose what becomes of each column."""
        frame = as_frame(frame)
        columns = cls([learned(name, frame[name]) for name in frame.columns])
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
        return self._groups.names_out()

    @property
    def fills(self) -> np.ndarray:
        """What stands for a gap, of the matrix' first columns: those that hold numbers."""
        return np.array([*self._groups.plain.values(), *self._groups.marked.values()], np.float64)

    @cached_property
    def _transformer(self) -> ColumnTransformer:
        """Made when it is first needed: a table of thousands of columns takes seconds."""
        return self._groups.transformer()

    def transform(self, frame: Any) -> np.ndarray:
        """The matrix of a table with these columns, in any order; others are ignored."""
        prepared = self._prepared(self._checked(frame))
        with warnings.catch_warnings():  # unseen categories are counted by ``look``
            warnings.simplefilter("ignore")
            return np.asarray(self._transformer.transform(prepared), dtype=np.float64)

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

    def _prepared(self, frame: pd.DataFrame) -> pd.DataFrame:
        cells = {
            f"{i}.{part}": values
            for i, column in enumerate(self.used)
            for part, values in self._cells(column, frame).items()
        }
        return pd.DataFrame(cells, index=frame.index)

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


# -- scikit-learn's transformers, from the choices


class _Groups:
    """Cells that are treated alike: numbers, numbers whose gaps are marked, categories."""

    def __init__(self, used: Sequence[Column]):
        self.plain: dict[str, float] = {}  # cell ↦ what fills a gap
        self.marked: dict[str, float] = {}
        self.texts: dict[str, Column] = {}
        self.names: dict[str, str] = {}
        self.owners: dict[str, str] = {}  # cell ↦ column
        for i, column in enumerate(used):
            if column.kind == "category":
                self.texts[f"{i}.0"] = column
                continue
            for j, (part, fill) in enumerate(zip(column.cell_names, column.fill, strict=True)):
                # a gap of a date is marked once for all its parts
                group = self.marked if column.gaps and j == 0 else self.plain
                cell, plain = f"{i}.{part}", part in ("0", "time")
                group[cell], self.owners[cell] = fill, column.name
                self.names[cell] = column.name if plain else f"{column.name}, {part}"

    def names_out(self) -> list[str]:
        """What the matrix' columns are, in the order in which the transformers give them."""
        names = [self.names[cell] for cell in (*self.plain, *self.marked)]
        names += [f"{self.owners[cell]} is missing" for cell in self.marked]
        for column in self.texts.values():
            labels = [*column.kept, RARE] if column.rare else column.kept
            names += [f"{column.name} = {label}" for label in labels]
        return names

    def transformer(self) -> ColumnTransformer:
        """Transformers fitted to a small table that shows each choice: the median of a column
        that holds one number is this number, and a text that is shown once is rare.
        """
        steps: list[tuple[str, Any, list[str]]] = []
        shown: dict[str, list[Any]] = {cell: [fill] * 2 for cell, fill in self.plain.items()}
        shown |= {cell: [np.nan, fill] for cell, fill in self.marked.items()}
        if self.plain:
            steps.append(("numbers", SimpleImputer(strategy="median"), [*self.plain]))
        if self.marked:
            imputer = SimpleImputer(strategy="median", add_indicator=True)
            steps.append(("numbers with gaps", imputer, [*self.marked]))
        if self.texts:
            rare = {cell: [RARE] if c.rare else [] for cell, c in self.texts.items()}
            shown |= {cell: [*c.kept * 2, *rare[cell]] for cell, c in self.texts.items()}
            encoder = OneHotEncoder(
                categories=[[*c.kept, *rare[cell]] for cell, c in self.texts.items()],
                handle_unknown="infrequent_if_exist",
                min_frequency=2,
                sparse_output=False,
            )
            gaps = SimpleImputer(strategy="constant", fill_value=MISSING)
            steps.append(("categories", make_pipeline(gaps, encoder), [*self.texts]))
        rows = max((len(values) for values in shown.values()), default=0)
        for cell, values in shown.items():  # a value that is there twice changes nothing
            values += [values[1] if cell in self.names else values[0]] * (rows - len(values))
        made = ColumnTransformer(steps)
        return made.fit(pd.DataFrame(shown)) if steps else made

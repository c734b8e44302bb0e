"""The target of a table: taken out, and recognised as numbers or as classes."""

import difflib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ..tables.cells import as_dates, as_numbers, texts
from . import Refused

Task = Literal["regression", "classification"]
LEAST_ROWS = 10
FEW_CLASSES = 10  # integers of so many values or fewer are classes
MOST_CLASSES = 200
KIND_OF = {"categorical": "category", "numeric": "number", "ordinal": "ordinal"}  # by option


@dataclass(frozen=True)
class Parts:
    """A table, taken apart; rows without a target are gone."""

    X: pd.DataFrame  # its index counts rows as the file does
    y: np.ndarray  # (rows,) float64, int64, bool, or text as objects
    weight: np.ndarray | None = None
    names: dict[str, Any] = field(default_factory=dict)  # of target, ignore, weight in the table
    notes: list[str] = field(default_factory=list)  # what was done, a line each
    left_out: int = 0  # rows without a target
    columns: int = 0  # of the table
    source: Any = None  # of a table that is not read at once: all of it; these are a sample

    def only(self, rows: np.ndarray) -> "Parts":
        """Some of the rows."""
        weight = None if self.weight is None else self.weight[rows]
        return replace(self, X=self.X.iloc[rows], y=self.y[rows], weight=weight)

    def targets(self, task: "Task") -> np.ndarray:
        """Targets as the estimators take them: fractions as labels are text."""
        if task == "regression":
            return self.y.astype(np.float64)
        return self.y.astype(str).astype(object) if self.y.dtype.kind == "f" else self.y


def recognise_task(
    y: ArrayLike, asked: str | None = None, lines: Sequence[int] | None = None
) -> tuple[Task, str]:
    """Regression or classification, and why; ``asked`` decides where it is given.

    ``lines`` are those of the file, to name a cell by.

    Example:
        >>> from posterax.commands.targets import recognise_task
        >>> recognise_task([1.5, 2.5, 3.0])
        ('regression', 'the target holds numbers with fractions')
        >>> recognise_task(["a", "b"])
        ('classification', 'the target holds text')
    """
    y = np.asarray(y)
    if asked not in (None, "regression", "classification"):
        raise Refused(f"--task must be regression or classification, got {asked!r}", 2)
    values = np.unique(y.astype(str) if y.dtype == object else y)
    text, n = y.dtype.kind not in "biuf", len(values)
    stray = _stray(y, lines) if text else ""
    if text:
        holds, labels = "text" + (f": {stray}" if stray else ""), True
    elif y.dtype.kind == "b":
        holds, labels = "yes or no", True
    elif y.dtype.kind == "f" and np.any(values != np.round(values)):
        holds, labels = "numbers with fractions", False
    else:
        holds = f"{n:,} different whole numbers"
        labels = n <= 2 or (n <= FEW_CLASSES and len(y) >= 5 * n)
    guess: Task = "classification" if labels else "regression"
    task = cast(Task, asked) if asked else guess
    if task == "regression" and text:
        holds = stray or f"the target holds {str(y[0])[:40]!r}"
        raise Refused(f"--task regression needs numbers, but {holds}")
    if task == "classification" and (n > MOST_CLASSES or n > max(2, len(y) / 2)):
        raise Refused(
            f"the target has {n:,} different values in {len(y):,} rows: too many for classes"
            + ("" if text else "; --task regression treats them as numbers")
            + (f", and not numbers, since {stray}" if stray else "")
        )
    return task, "--task says so" if asked else f"the target holds {holds}"


def _stray(y: np.ndarray, lines: Sequence[int] | None) -> str:
    """Which cell keeps a column from being numbers, where most of the others are."""
    cells = pd.Series(y).astype(str)
    odd = np.flatnonzero(pd.to_numeric(cells, errors="coerce").isna())
    if not 0 < len(odd) <= len(y) / 10 or len(y) < 10:
        return ""
    where = f"row {odd[0] + 1}" if lines is None else f"line {lines[odd[0]]}"
    return f"{cells.iloc[odd[0]][:40]!r} in {where} is not a number"


def split_target(
    frame: pd.DataFrame,
    target: str,
    ignore: str | list[str] | None = None,
    weight: str | None = None,
    *,
    scoring: bool = False,
) -> Parts:
    """The columns to learn from, the target and the weights.

    Args:
        frame: of ``read_table``.
        target: name of the column to predict.
        ignore: names of columns to leave out, a list or separated by commas.
        weight: name of the column that says how often a row counts.
        scoring: the rows are not to be learned from, so that one is enough.
    """
    names = [str(name) for name in frame.columns]
    target = column_name(names, target, "--target")
    unused = list_of_names(names, ignore, "--ignore")
    weight = None if weight is None else column_name(names, weight, "--weight")
    if target in unused or weight == target:
        raise Refused(f"{target!r} is the target: it cannot be ignored or be the weight", 2)
    there = frame[target].notna().to_numpy()
    rows, notes = frame[there], []
    if not len(rows):
        raise Refused(f"the target {target!r} has no values")
    if missing := len(frame) - len(rows):
        no = f"no {target!r} and"
        notes.append(counted(missing, f"row has {no} is left out", f"rows have {no} are left out"))
    weights = None if weight is None else _weights(rows[weight], weight)
    y = _values(rows[target], target, notes)
    if len(y) < LEAST_ROWS and not scoring:
        has = counted(len(y), "row has", "rows have")
        raise Refused(f"{has} a target; {LEAST_ROWS} are the least to learn anything from")
    if len(pd.unique(y)) == 1 and not scoring:
        raise Refused(f"the target {target!r} is {str(y[0])[:40]!r} in every row: nothing to learn")
    X = rows.drop(columns=[target, *unused, *([] if weight is None else [weight])])
    if X.shape[1] == 0:
        raise Refused(f"no column is left beside the target {target!r}")
    head = frame.attrs.get("head", 0)  # a spreadsheet counts the head of a CSV as its first line
    counts = "line of the file" if head else "row of the file"
    X.index = pd.Index(np.flatnonzero(there) + 1 + head, name=counts)
    options = {"target": target, "ignore": unused or None, "weight": weight}
    return Parts(X, y, weights, options, notes, missing, frame.shape[1])


def rows_to_score(
    frame: pd.DataFrame,
    path: str | Path,
    target: str,
    weight: str | None,
    classes: ArrayLike | None,
) -> Parts:
    """Rows of another table with targets as the fitted ones: labels of ``classes``, or numbers."""
    column_name(list(frame.columns), target, f"{path}, --target")
    parts = split_target(frame, target, weight=weight, scoring=True)
    if classes is not None:
        return replace(parts, y=as_labels(parts.y, classes))
    if parts.y.dtype == object:
        raise Refused(f"{path}: its target holds {str(parts.y[0])[:40]!r}, not a number")
    return parts


def column_name(names: Sequence[str], name: str, option: str) -> str:
    """A column's name, as it was asked for, or the only one that differs in case or spaces."""
    if name in names:
        return name
    alike = [known for known in names if known.strip().lower() == name.strip().lower()]
    if len(alike) == 1:
        return alike[0]
    if near := difflib.get_close_matches(name, names, n=3, cutoff=0.6):
        hint = "did you mean " + " or ".join(map(repr, near)) + "?"
    else:
        hint = "there are " + ", ".join(map(repr, names[:8])) + (", …" if len(names) > 8 else "")
    raise Refused(f"{option}: no column {name!r}; {hint}", 2)


def list_of_names(known: Sequence[str], names: str | list[str] | None, option: str) -> list[str]:
    """Columns by name; a name may hold a comma itself."""
    if isinstance(names, str):
        parts = [part.strip() for part in names.split(",") if part.strip()]
        names = [names] if names in known else parts
    return [column_name(known, name, option) for name in names or ()]


def kinds_of(known: Sequence[str], said: dict[str, Any]) -> dict[str, str]:
    """What the options say of columns: name ↦ kind, as an estimator's ``columns`` takes it.

    Example:
        >>> from posterax.commands.targets import kinds_of
        >>> kinds_of(["zip", "n", "grade"], {"categorical": "zip", "ordinal": ["grade"]})
        {'zip': 'category', 'grade': 'ordinal'}
    """
    kinds: dict[str, str] = {}
    for option, kind in KIND_OF.items():
        for name in list_of_names(known, said.get(option), f"--{option}"):
            if name in kinds:
                raise Refused(f"--{option}: {name!r} is named as {kinds[name]} too; choose one", 2)
            kinds[name] = kind
    return kinds


def counted(count: int, one: str, many: str) -> str:
    """A number with its noun.

    Example:
        >>> from posterax.commands.targets import counted
        >>> counted(1, "row", "rows"), counted(1200, "row", "rows")
        ('1 row', '1,200 rows')
    """
    return f"{count:,} {one if count == 1 else many}"


def as_labels(y: np.ndarray, classes: ArrayLike) -> np.ndarray:
    """Labels of another file as those that were fitted: there 1, 1.0 and "1" may be the same.

    Example:
        >>> import numpy as np
        >>> from posterax.commands.targets import as_labels
        >>> as_labels(np.array([1, 0]), ["0.0", "1.0", "no"]).tolist()
        ['1.0', '0.0']
    """
    known = {label: label for label in np.asarray(classes).tolist()}
    for label in [*known]:
        known.setdefault(str(label), label)
        with suppress(ValueError):
            known.setdefault(float(label), label)
    labels = [known.get(label, known.get(str(label), label)) for label in y.tolist()]
    fitted = set(known.values()) >= set(labels)
    return np.array(labels, dtype=np.asarray(classes).dtype if fitted else object)


def _values(column: pd.Series, name: str, notes: list[str]) -> np.ndarray:
    """Targets as numbers, booleans or text."""
    if pd.api.types.is_bool_dtype(column.dtype):
        return column.to_numpy(dtype=bool)
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    if not pd.api.types.is_numeric_dtype(column.dtype):
        if pd.api.types.is_datetime64_any_dtype(column.dtype) or as_dates(column) is not None:
            raise Refused(f"the target {name!r} holds dates: give a number, such as days")
        read, long = as_numbers(column), column.astype(str).str.fullmatch(r"\d{16,}")
        if read is None or read.odd or long.any():  # a float would round the long ones
            return texts(column).to_numpy(dtype=object)
        how = f" ({read.said})" if read.said else ""
        notes.append(f"the target {name!r} is text that holds numbers{how}")
        column = read.values
    if pd.api.types.is_integer_dtype(column.dtype):
        return column.to_numpy(dtype="uint64" if column.max() >= 2**63 else "int64")
    numbers = column.to_numpy(dtype=np.float64)
    integers = np.all(numbers == np.round(numbers)) and np.all(np.abs(numbers) < 2**53)
    return numbers.astype(np.int64) if integers else numbers


def _weights(column: pd.Series, name: str) -> np.ndarray:
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64)
    if not np.all(np.isfinite(numbers)) or np.any(numbers < 0) or not np.any(numbers > 0):
        raise Refused(f"--weight: column {name!r} must hold numbers of 0 or more, not all 0")
    return numbers

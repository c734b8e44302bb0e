"""The target of a table: taken out, and recognised as numbers or as classes."""

import difflib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ..tables.cells import as_dates, as_numbers, texts
from . import Refused

__all__ = ["Parts", "Task", "as_labels", "column_name", "counted", "recognise_task", "split_target"]

Task = Literal["regression", "classification"]
LEAST_ROWS = 10
FEW_CLASSES = 10  # integers of so many values or fewer are classes
MOST_CLASSES = 200


class Parts(NamedTuple):
    """A table, taken apart; rows without a target are gone."""

    X: pd.DataFrame
    y: np.ndarray  # (rows,) float64, int64, bool, or text as objects
    weight: np.ndarray | None
    notes: list[str]  # what was done, a line each
    left_out: int  # rows without a target


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
    text = y.dtype.kind not in "biuf"
    stray = _stray(y, lines) if text else ""
    if asked == "regression" or (asked is None and not text and not _classes(y, values)):
        if text:
            holds = stray or f"the target holds {str(y[0])[:40]!r}"
            raise Refused(f"--task regression needs numbers, but {holds}")
        if asked:
            return "regression", "--task says so"
        fractions = y.dtype.kind == "f" and np.any(y != np.round(y))
        why = "numbers with fractions" if fractions else f"{len(values):,} different whole numbers"
        return "regression", f"the target holds {why}"
    if len(values) > MOST_CLASSES or (len(values) > 2 and len(values) > len(y) / 2):
        raise Refused(
            f"the target has {len(values):,} different values in {len(y):,} rows: too many for "
            "classes"
            + ("" if text else "; --task regression treats them as numbers")
            + (f", and not numbers, since {stray}" if stray else "")
        )
    if asked:
        return "classification", "--task says so"
    kind = {"b": "yes or no"}.get(y.dtype.kind, f"{len(values)} different whole numbers")
    kind = ("text" + (f": {stray}" if stray else "")) if text else kind
    return "classification", "the target holds " + kind


def _stray(y: np.ndarray, lines: Sequence[int] | None) -> str:
    """Which cell keeps a column from being numbers, where most of the others are."""
    cells = pd.Series(y).astype(str)
    odd = np.flatnonzero(pd.to_numeric(cells, errors="coerce").isna())
    if not 0 < len(odd) <= len(y) / 10 or len(y) < 10:
        return ""
    where = f"row {odd[0] + 1}" if lines is None else f"line {lines[odd[0]]}"
    return f"{cells.iloc[odd[0]][:40]!r} in {where} is not a number"


def _classes(y: np.ndarray, values: np.ndarray) -> bool:
    """Whether numbers look like labels."""
    if y.dtype.kind == "b":
        return True
    if np.any(values != np.round(values)):
        return False
    return len(values) <= 2 or (len(values) <= FEW_CLASSES and len(y) >= 5 * len(values))


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
    unused = list_of_names(frame, ignore, "--ignore")
    target = column_name(frame, target, "--target")
    notes = []
    dropped = [target, *unused]
    column = frame[target]
    missing = column.isna().to_numpy()
    if missing.all():
        raise Refused(f"the target {target!r} has no values")
    if missing.any():
        rows = counted(int(missing.sum()), "row has", "rows have")
        left = "is" if missing.sum() == 1 else "are"
        notes.append(f"{rows} no {target!r} and {left} left out")
    weight = None if weight is None else column_name(frame, weight, "--weight")
    if target in unused or weight == target:
        raise Refused(f"{target!r} is the target: it cannot be ignored or be the weight", 2)
    weights = None
    if weight is not None:
        dropped.append(weight)
        weights = _weights(frame[weight][~missing], weight)
    y = _values(column[~missing], target, notes)
    if len(y) < LEAST_ROWS and not scoring:
        raise Refused(
            f"{counted(len(y), 'row has', 'rows have')} a target; {LEAST_ROWS} are the least to "
            "learn anything from"
        )
    if len(pd.unique(y)) == 1 and not scoring:
        raise Refused(f"the target {target!r} is {str(y[0])[:40]!r} in every row: nothing to learn")
    X = frame.loc[~missing].drop(columns=dropped).reset_index(drop=True)
    if X.shape[1] == 0:
        raise Refused(f"no column is left beside the target {target!r}")
    return Parts(X, y, weights, notes, int(missing.sum()))


def rows_to_score(
    frame: pd.DataFrame,
    path: str | Path,
    target: str,
    weight: str | None,
    classes: ArrayLike | None,
) -> Parts:
    """Rows of another table with targets as the fitted ones: labels of ``classes``, or numbers."""
    parts = split_target(frame, target, weight=weight, scoring=True)
    if classes is not None:
        return parts._replace(y=as_labels(parts.y, classes))
    if parts.y.dtype == object:
        raise Refused(f"{path}: its target holds {str(parts.y[0])[:40]!r}, not a number")
    return parts


def column_name(frame: pd.DataFrame, name: str, option: str) -> str:
    """A column's name, as it was asked for, or the only one that differs in case or spaces."""
    names = [str(known) for known in frame.columns]
    if name in names:
        return name
    alike = [known for known in names if known.strip().lower() == name.strip().lower()]
    if len(alike) == 1:
        return alike[0]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    shown = near or names[:8]
    hint = "did you mean " + " or ".join(map(repr, near)) if near else "there are "
    hint += "?" if near else ", ".join(map(repr, shown)) + ("" if len(names) <= 8 else ", …")
    raise Refused(f"{option}: no column {name!r}; {hint}", 2)


def in_full(
    frame: pd.DataFrame, target: str, ignore: str | list[str] | None, weight: str | None
) -> tuple[str, list[str] | None, str | None]:
    """The names that target, columns to ignore and weight have in the table."""
    return (
        column_name(frame, target, "--target"),
        list_of_names(frame, ignore, "--ignore") or None,
        None if weight is None else column_name(frame, weight, "--weight"),
    )


def list_of_names(frame: pd.DataFrame, names: str | list[str] | None, option: str) -> list[str]:
    """Columns by name; a name may hold a comma itself."""
    if names is None:
        return []
    if isinstance(names, str):
        one = names in map(str, frame.columns)
        names = [names] if one else [name.strip() for name in names.split(",") if name.strip()]
    return [column_name(frame, name, option) for name in names]


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
    text = not pd.api.types.is_numeric_dtype(column.dtype)
    if pd.api.types.is_datetime64_any_dtype(column.dtype) or (
        text and as_dates(column) is not None
    ):
        raise Refused(f"the target {name!r} holds dates: give a number, say days since the first")
    if text:
        read = as_numbers(column)
        if read is None or read.odd:
            return texts(column).to_numpy(dtype=object)
        if column.astype(str).str.fullmatch(r"\d{16,}").any():  # a float would round them
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

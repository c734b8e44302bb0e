"""Which rows of a table are held out: at random, the last in time, or whole groups."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.model_selection import (
    GroupKFold,
    GroupShuffleSplit,
    KFold,
    StratifiedKFold,
    TimeSeriesSplit,
    train_test_split,
)

from ..tables.cells import as_dates, as_numbers, dates, texts
from . import Refused
from .targets import Parts, Task, column_name, counted

Way = Literal["random", "time", "group"]
WAYS: tuple[Way, ...] = ("random", "time", "group")
IN_ORDER = 0.99  # rank correlation of a date with the order of the rows
KNOWN, DISTINCT = 0.95, 0.5  # of its cells, and of their values, for a date that orders the rows
MOST_HELD = 10_000  # rows of a table that is not read at once
MOST_TIED = 1.5  # times the rows to hold out, where many have the same time


@dataclass(frozen=True)
class Split:
    """How rows are held out, and by which column."""

    way: Way
    column: str | None = None
    order: np.ndarray | None = None  # of time: a number for each row, NaN where there is none
    groups: np.ndarray | None = None

    def facts(self) -> dict[str, str | None]:
        """As the card has it."""
        return {"split": self.way, "by": self.column}


def choose_split(
    parts: Parts, split: str | None = None, time: str | None = None, group: str | None = None
) -> tuple[Parts, Split]:
    """How to hold rows out, as asked for, or by a date that orders the rows.

    The column of groups is taken out of the inputs: new rows will be of other groups.

    Args:
        parts: the table; what was chosen is added to its notes.
        split: ``"random"``, ``"time"`` or ``"group"`` (default: by the columns).
        time: the column of times.
        group: the column of groups.
    """
    _check(split, time, group)
    if parts.source is not None:
        if split not in (None, "random") or time or group:
            option = "--time" if time else "--group" if group else f"--split {split}"
            rows = f"of {parts.source.rows:,} rows some are held out at random"
            raise Refused(f"{option}: {rows}; leave it out, and name other rows by --test FILE", 2)
        return parts, Split("random")
    names = [str(name) for name in parts.X.columns]
    if group is not None:
        name = column_name(names, group, "--group")
        groups = texts(parts.X[name]).fillna("").to_numpy(dtype=object)
        if len(np.unique(groups.astype(str))) < 2:
            raise Refused(f"--group: column {name!r} has one value in every row; name another", 2)
        if len(names) == 1:
            raise Refused(f"--group: no column is left to learn from beside {name!r}", 2)
        parts.notes.append(f"rows of the same {name!r} are held out together; it is no input")
        parts = replace(parts, X=parts.X.drop(columns=name))
        return parts, Split("group", name, groups=groups)
    if split == "random":
        return parts, Split("random")
    if time is not None or split == "time":
        name = _named(parts.X, time, names)
        order = moments(parts.X[name])
        if order is None:
            raise Refused(f"--time: column {name!r} holds neither dates nor numbers", 2)
        parts.notes.append(f"the last rows by {name!r} are held out")
        return parts, Split("time", name, order)
    for name in names:
        if (order := dates_of(parts.X[name])) is not None and in_order(order):
            note = f"the rows are in the order of {name!r}: the last ones are held out"
            parts.notes.append(f"{note}; --split random holds out a random share")
            return parts, Split("time", name, order)
    return parts, Split("random")


def _check(way: str | None, time: str | None, group: str | None) -> None:
    if way is not None and way not in WAYS:
        raise Refused(f"--split must be {', '.join(WAYS[:-1])} or {WAYS[-1]}, got {way!r}", 2)
    if time is not None and group is not None:
        raise Refused("give --time or --group, not both", 2)
    wrong = {"--time": time is not None and way in ("random", "group")}
    wrong["--group"] = group is not None and way in ("random", "time")
    for option, there in wrong.items():
        if there:
            raise Refused(f"--split {way} takes no {option}: leave one of them out", 2)
    if way == "group" and group is None:
        raise Refused("--split group: name the column of groups, --group COLUMN", 2)


def _named(X: pd.DataFrame, time: str | None, names: Sequence[str]) -> str:
    """The column of times: as named, or the only one of dates."""
    if time is not None:
        return column_name(names, time, "--time")
    found = [name for name in names if dates_of(X[name]) is not None]
    if len(found) != 1:
        there = f"there are {', '.join(map(repr, found))}" if found else "none holds dates"
        raise Refused(f"--split time: name the column of times, --time COLUMN; {there}", 2)
    return found[0]


def dates_of(values: pd.Series) -> np.ndarray | None:
    """Days since 1970 of a column of dates, NaN for gaps; ``None`` for another column."""
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        column = dates(values, "ISO8601")
    elif pd.api.types.is_numeric_dtype(values.dtype) or (read := as_dates(values)) is None:
        return None
    else:
        column = read.values
    days = (column.to_numpy("datetime64[us]") - np.datetime64(0, "us")) / np.timedelta64(1, "D")
    return np.asarray(days, np.float64)


def moments(values: pd.Series) -> np.ndarray | None:
    """A number for each row by which it comes earlier or later."""
    if (days := dates_of(values)) is not None:
        return days
    if pd.api.types.is_numeric_dtype(values.dtype):
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    read = as_numbers(values)
    return None if read is None else read.values.to_numpy(dtype=np.float64)


def in_order(order: np.ndarray) -> bool:
    """Whether times follow the rows, up or down, and mostly differ.

    Example:
        >>> import numpy as np
        >>> from posterax.commands.splitting import in_order
        >>> in_order(np.arange(40.0)), in_order(np.repeat([1.0, 2.0], 20))
        (True, False)
    """
    known = np.isfinite(order)
    values = order[known]
    if len(values) < max(KNOWN * len(order), 3) or len(np.unique(values)) < DISTINCT * len(values):
        return False
    return bool(abs(stats.spearmanr(np.flatnonzero(known), values).statistic) > IN_ORDER)


def hold_out(
    parts: Parts, kind: Task, share: float, seed: int, split: Split
) -> tuple[Parts, Parts | None]:
    """A share of the rows apart from the others, where there are enough of them."""
    n, names = len(parts.y), parts.y.astype(str)
    size = max(2, round(share * n))
    if parts.source is not None:
        size = min(size, MOST_HELD)
    if split.order is not None:
        train, held = _last(split.order, size)
    elif split.groups is not None:
        shuffled = GroupShuffleSplit(1, test_size=share, random_state=seed)
        train, held = next(shuffled.split(np.arange(n), groups=split.groups.astype(str)))
    else:
        train, held = _at_random(names, kind, size, seed)
    if kind == "classification":  # a class that only rows held out have is learned, not scored
        both = np.isin(names[held], names[train])
        train, held = np.concatenate([train, held[~both]]), held[both]
    weighty = parts.weight is None or np.any(parts.weight[held])
    if not weighty or len(held) < 2 or len(np.unique(names[train])) < 2:
        parts.notes.append("too few rows to hold any out: there are no scores")
        return parts, None
    return parts.only(np.sort(train)), parts.only(np.sort(held))


def _at_random(
    names: np.ndarray, kind: Task, size: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    n, classes = len(names), None
    if kind == "classification":
        known, counts = np.unique(names, return_counts=True)
        if counts.min() > 1 and len(known) <= min(size, n - size):
            classes = names
    train, held = train_test_split(
        np.arange(n), test_size=size, random_state=seed, stratify=classes
    )
    return train, held


def _last(order: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The last rows in time; those of one time stay together, and those without are learned."""
    known = np.sort(order[np.isfinite(order)])
    if len(known) <= size:
        lacking = counted(len(known), "row has", "rows have")
        raise Refused(f"--time: {lacking} a time, too few to hold {size} out; take --split random")
    cutoff = known[-size]
    held = order >= cutoff
    later = order > cutoff
    if held.sum() > MOST_TIED * size and later.any():
        held = later
    return np.flatnonzero(~held), np.flatnonzero(held)


def folds_of(
    X: pd.DataFrame, labels: np.ndarray, classes: bool, folds: int, seed: int, split: Split
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows to learn from and rows to score on, for each fold.

    By time each fold is scored on rows later than those it learns from; by group no group is in
    both.
    """
    if split.order is not None:
        order = np.argsort(split.order, kind="stable")
        order = order[np.isfinite(split.order[order])]
        parts = [(order[a], order[b]) for a, b in TimeSeriesSplit(folds).split(order)]
    elif split.groups is not None:
        groups = split.groups.astype(str)
        if len(np.unique(groups)) < folds:
            there = counted(len(np.unique(groups)), "group", "groups")
            raise Refused(f"--folds: {folds} folds need as many groups, there are {there}")
        parts = [*GroupKFold(folds).split(X, groups=groups)]
    else:
        kind = StratifiedKFold if classes else KFold
        return list(kind(folds, shuffle=True, random_state=seed).split(X, labels))
    if classes:  # labels that are not learned are not scored
        parts = [(a, b[np.isin(labels[b], labels[a])]) for a, b in parts]
        if not all(len(b) and len(np.unique(labels[a])) > 1 for a, b in parts):
            raise Refused(
                "--folds: a fold has too few classes; take fewer folds, or --split random"
            )
    return parts

"""What becomes of a column of a table: chosen at fit, by its cells or by a word of the user."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from .cells import CLOCKS, as_dates, as_numbers, dates, numbers, texts
from .choices import MISSING, RARE, Column, coded, date_parts, squashed, truths

ASKED = ("number", "category", "ordinal")  # kinds that a user may ask for
MOST_KEPT = 30  # categories of a column; rarer ones are one category
MOST_LEVELS = 200  # of an ordinal
RARELY = 0.005  # of the rows, and at least 2 and at most 20 of them: rarer is rare
SPARED = 0.015  # of the rows stand in for unseen texts, where no text is rare
GAPS = 20  # at most so many numbers for each row, where they count rows
IDENTIFIER = 0.9  # of a column's texts differ, and there are more than 20 of them
_CODE = re.compile(r"(^|[^a-z])(zip|plz|code|postcode|zipcode|postal)([^a-z]|$)|[a-z]_?id$", re.I)
REPEATS = 5  # rows for each value of a code, at least
FEW_VALUES, MANY_ROWS = 10, 50  # whole numbers that may be amounts or codes
FAR, LEAST_DISTINCT = 10.0, 20  # deviations from the mean, of a number with long tails
NORMAL_QUARTILES = 1.349  # deviations between the quartiles of a Gaussian


def choose(name: str, values: pd.Series, kind: str | None = None) -> Column:  # noqa: PLR0911
    """What becomes of a column; ``kind`` is what the user says it is."""
    missing, rows = int(texts(values).isna().sum()), len(values)
    if missing == rows:
        return Column(name, "left out", "no values", missing)
    if kind is not None:
        return _AS_ASKED[kind](name, values)
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(object)
    if pd.api.types.is_timedelta64_dtype(values.dtype):
        return _number(name, numbers(values, None), "number", ["in seconds"], None)
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        zoned = values.dt.tz is not None
        return _date(name, dates(values, "ISO8601"), "ISO8601", ["times in UTC"] * zoned)
    if not pd.api.types.is_numeric_dtype(values.dtype) or pd.api.types.is_bool_dtype(values.dtype):
        known = truths(values)
        if known.isna().sum() == missing:
            return _number(name, known, "boolean", [], None)
        if (read := as_numbers(values)) is not None:
            return _number(name, read.values, "number", read.words("number"), read.form)
        if (read := as_dates(values)) is not None:
            return _date(name, read.values, read.form, read.words("date"))
        return _category(name, texts(values))
    if np.iscomplexobj(values):
        raise ValueError(f"column {name!r} holds complex numbers")
    values = values.astype(np.float64)
    if _is_code(name, values):
        return _category(name, coded(values), ["codes by the column's name"], codes=True)
    return _number(name, values, "number", [], None)


# -- of each kind


def _number(
    name: str, values: pd.Series, kind: str, said: list[str], form: dict[str, str] | None
) -> Column:
    known, missing = values.dropna(), int(values.isna().sum())
    if np.isinf(known).any():
        raise ValueError(f"column {name!r} holds an infinite number")
    if known.nunique() == 1 and not missing:
        return Column(name, "left out", f"constant ({known.iloc[0]:.6g})", missing)
    if _counts_rows(name, values):
        return Column(name, "left out", "row numbers", missing)
    fill = float(known.median()) if kind == "number" else float(known.mean() >= 0.5)
    if missing:
        said = [*said, f"gaps filled with {fill:.6g} and marked"]
    how: dict[str, Any] = {"gaps": missing > 0, "fill": [fill], "form": form}
    if kind == "boolean":
        return Column(name, kind, "; ".join(["0 and 1", *said]), missing, **how)
    how |= {"low": float(known.min()), "high": float(known.max())}
    whole = bool(np.all(known == np.round(known)))
    distinct = known.nunique()
    if whole and 2 < distinct <= FEW_VALUES and len(known) >= MANY_ROWS * distinct:
        said = [*said, f"{distinct} whole numbers as amounts"]
    if squash := _tails(known):
        how |= {"squash": squash, "fill": [float(squashed(pd.Series([fill]), *squash).iloc[0])]}
        said = [*said, f"signed logarithm of its long tails (about {squash[0]:.6g})"]
    return Column(name, kind, "; ".join([*said, "standardised"]), missing, **how)


def _tails(known: pd.Series) -> list[float]:
    """Centre and scale of a number that lies too far out for a straight scale, or nothing."""
    deviation = float(known.std(ddof=0))
    if not deviation or not np.isfinite(deviation) or known.nunique() < LEAST_DISTINCT:
        return []
    if float((known - known.mean()).abs().max()) <= FAR * deviation:
        return []
    centre = float(known.median())
    scale = float(known.quantile(0.75) - known.quantile(0.25)) / NORMAL_QUARTILES
    scale = scale or float((known - centre).abs().mean())
    return [centre, scale] if np.isfinite(scale) and scale > 0 else []


def _category(
    name: str, cells: pd.Series, said: list[str] | None = None, *, codes: bool = False
) -> Column:
    counts, rows, missing = cells.value_counts(), len(cells), int(cells.isna().sum())
    if not codes and not said and len(counts) > 20 and len(counts) > IDENTIFIER * (rows - missing):
        done = f"identifier: {len(counts):,} different texts in {rows - missing:,} rows"
        return Column(name, "left out", done, missing)
    if len(counts) == 1 and not missing:
        return Column(name, "left out", "constant", missing, categories=1)
    least = min(max(2, RARELY * rows), 20)
    often = counts[(counts >= least) & (counts.index != RARE)]  # a text like our own is rare
    frequent = sorted(map(str, often.index[:MOST_KEPT]))
    rare = len(counts) - len(frequent)
    if not frequent and not missing:
        return Column(name, "left out", "every text is rare", missing, categories=len(counts))
    said = list(said or ())
    said.append(f"a column for each of {len(frequent)} texts" if frequent else "marked if missing")
    spare = 0 if rare else max(1, round(SPARED * rows))
    if rare:
        said.append(f"{rare:,} rare ones together")
    if missing:
        said.append("gaps a category")
        frequent = list(dict.fromkeys([*frequent, MISSING]))
    counted: dict[str, Any] = {"categories": len(counts), "gaps": missing > 0, "rare": rare}
    counted |= {"kept": frequent, "codes": codes, "spare": spare}
    return Column(name, "category", "; ".join(said), missing, **counted)


def _date(name: str, values: pd.Series, form: str, said: list[str]) -> Column:
    known, missing = values.dropna(), int(values.isna().sum())
    if known.nunique() == 1 and not missing:
        return Column(name, "left out", "constant", missing)
    days = date_parts(known, ["time"])["time"]
    span = days.max() - days.min()
    parts = [] if form in CLOCKS else ["time"]
    if span > 300 and known.dt.month.nunique() > 3:
        parts.append("month")
    if span > 14 and known.dt.day_of_week.nunique() > 2:
        parts.append("weekday")
    if known.dt.hour.nunique() > 2 or not parts:
        parts.append("hour")
    words = {"time": "days", "month": "month of the year", "weekday": "day of the week"}
    said = [", ".join(words.get(part, "hour of the day") for part in parts), *said]
    fill = [float(cells.median()) for cells in date_parts(known, parts).values()]
    if missing:
        said.append("gaps filled with the median and marked")
    how: dict[str, Any] = {"fill": fill, "format": form, "parts": parts}
    if "time" in parts:
        how |= {"low": float(days.min()), "high": float(days.max())}
    return Column(name, "date", "; ".join(said), missing, gaps=missing > 0, **how)


# -- as a user asks


def _as_number(name: str, values: pd.Series) -> Column:
    if pd.api.types.is_numeric_dtype(values.dtype):
        return _number(name, values.astype(np.float64), "number", ["as asked"], None)
    read = as_numbers(values)
    known = numbers(values, None) if read is None else read.values
    if known.isna().all():
        cell = texts(values).dropna().iloc[0]
        raise ValueError(
            f"columns: {name!r} is to be a number but holds {cell[:40]!r}; allowed are "
            f"{', '.join(map(repr, ASKED))}: take 'category' or 'ordinal'"
        )
    odd = int(known.isna().sum() - texts(values).isna().sum())
    said = ["as asked"] if read is None else ["as asked", *read.words("number")]
    if read is None and odd:
        said.append(f"{odd:,} cells hold no number and count as missing")
    return _number(name, known, "number", said, None if read is None else read.form)


def _as_category(name: str, values: pd.Series) -> Column:
    codes = _is_numeric(values)
    return _category(name, coded(values) if codes else texts(values), ["as asked"], codes=codes)


def _as_ordinal(name: str, values: pd.Series) -> Column:
    """Ranks: numbers by value, text by its own order, by a number within, or by the alphabet."""
    codes = _is_numeric(values)
    cells = coded(values) if codes else texts(values)
    levels, how = _order(values, cells.dropna().unique().tolist(), codes)
    if len(levels) > MOST_LEVELS:
        raise ValueError(
            f"columns: {name!r} has {len(levels):,} different values, and an ordinal at most "
            f"{MOST_LEVELS}: take 'number'"
        )
    missing = int(cells.isna().sum())
    if len(levels) == 1 and not missing:
        return Column(name, "left out", "constant", missing, categories=1)
    fill = float(cells.map({level: i for i, level in enumerate(levels)}).median())
    shown = " < ".join(level[:20] for level in levels[:6]) + (" < …" if len(levels) > 6 else "")
    said = ["as asked", f"ranks of {len(levels)} values {how} ({shown})"]
    if missing:
        said.append("gaps filled with the median rank and marked")
    done = "; ".join([*said, "standardised"])
    more: dict[str, Any] = {"gaps": missing > 0, "fill": [fill], "kept": levels, "codes": codes}
    return Column(name, "ordinal", done, missing, categories=len(levels), **more)


def _order(values: pd.Series, levels: list[str], codes: bool) -> tuple[list[str], str]:
    """Levels in order, and in which."""
    if codes:
        return sorted(levels, key=float), "by value"
    if isinstance(values.dtype, pd.CategoricalDtype) and values.dtype.ordered:
        own = [str(level).strip() for level in values.dtype.categories]
        return sorted(levels, key=own.index), "in the column's own order"
    inside = [re.search(r"\d+(\.\d+)?", level) for level in levels]
    found = [float(match[0]) for match in inside if match]
    if len(found) == len(levels) == len(set(found)):
        pairs = sorted(zip(found, levels, strict=True))
        return [level for _, level in pairs], "by the number within"
    return sorted(levels), "in alphabetical order"


_AS_ASKED: dict[str, Callable[[str, pd.Series], Column]] = {
    "number": _as_number, "category": _as_category, "ordinal": _as_ordinal
}  # fmt: skip


# -- what a column looks like


def _is_numeric(values: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(values.dtype) and not pd.api.types.is_bool_dtype(
        values.dtype
    )


def _is_code(name: str, values: pd.Series) -> bool:
    """Whether whole numbers are codes by their column's name, and come again and again."""
    known = values.dropna()
    if not _CODE.search(name) or not np.all(known == np.round(known)):
        return False
    return known.nunique() > 2 and len(known) >= REPEATS * known.nunique()


def _counts_rows(name: str, values: pd.Series) -> bool:
    """Whether a column is the number of the row, as other programs add it.

    Part of a table has gaps where the other rows were, and is to be judged as the whole is.
    """
    if name.lower() not in ("id", "index", "row", "no", "nr", "column 1", "unnamed: 0"):
        return False
    steps = np.diff(values.to_numpy(dtype=np.float64))
    counting = np.all((steps >= 1) & (steps == np.round(steps)))
    return len(steps) > 0 and bool(counting) and float(steps.mean()) <= GAPS

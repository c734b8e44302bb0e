"""Tables: read from a folder, or fetched once and cached; and what a network is shown of them."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from .._util.program_cache import user_cache
from .._util.writing import written
from ..tables.standardise import standardiser

T = TypeVar("T")
OPENML = {"mushroom": 24, "adult": 1590, "covertype": 1596}  # numbers of the sets
LABELS = {"mushroom": "class", "adult": "income", "covertype": "cover-type"}
NO_ORDER = ("wilderness-area", "soil-type")  # numbers that stand for kinds


def folders() -> list[Path]:
    """Where data sets are looked for: ``$POSTERAX_DATA``, then the user's cache.

    Example:
        >>> from posterax.bandits.tables import folders
        >>> folders()[-1].name
        'posterax'
    """
    given = os.environ.get("POSTERAX_DATA")
    cache = user_cache()
    return [Path(given), cache] if given else [cache]


def nowhere(why: str = "") -> str:
    """Where a file was looked for, and what to do: the rest of a refusal."""
    searched = " and ".join(str(folder) for folder in folders())
    return f"not in {searched}{why}: put it there, or name its folder in POSTERAX_DATA"


def fetched(file: str, fetch: Callable[[], T]) -> T:
    """What OpenML has, or a refusal that says where the file was looked for."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn tells of each of its attempts
            return fetch()
    except Exception as error:
        why = f", and OpenML gave none ({error})"
        raise FileNotFoundError(f"{file} is {nowhere(why)}") from error


def table(name: str) -> pd.DataFrame:
    """A table by its name: ``"mushroom"``, ``"adult"`` or ``"covertype"``.

    ``NAME.csv`` or ``NAME.csv.gz`` is read from the first of ``folders()`` that has it, there or in
    its folder ``bandits`` (which may hold ``covertype_subset.npz`` instead, a sixth of that set).
    Otherwise scikit-learn fetches it from OpenML, and it is stored in the cache. Missing values are
    NaN.

    Raises:
        FileNotFoundError: where there is none to be had, with what to do.
    """
    if name not in OPENML:
        raise ValueError(f"name must be one of {', '.join(OPENML)}, got {name!r}")
    endings = (".csv", ".csv.gz", "_subset.npz")
    for folder in folders():
        for path in (folder / part / f"{name}{end}" for part in ("", "bandits") for end in endings):
            if path.is_file():
                return _read(path)
    frame = fetched(f"{name}.csv", lambda: _fetch(name))
    folders()[-1].mkdir(parents=True, exist_ok=True)
    cached = folders()[-1] / f"{name}.csv.gz"
    with written(cached, binary=True) as file:
        frame.to_csv(file, index=False, compression="gzip")
    return _read(cached)


def read_csv(path: str | Path | IO[str]) -> pd.DataFrame:
    """A CSV file, in which ``?`` and nothing are missing values, and words such as NA are not."""
    return pd.read_csv(path, keep_default_na=False, na_values=["?", ""], skipinitialspace=True)


def _read(path: Path) -> pd.DataFrame:
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as stored:
            frame = pd.DataFrame(stored["x_numeric"], columns=stored["numeric_names"])
            for column in NO_ORDER:
                frame[column] = stored[column.replace("-", "_")]
            frame[LABELS["covertype"]] = stored["y"]
    else:
        frame = read_csv(path)
    for column in NO_ORDER:
        if column in frame:
            frame[column] = frame[column].astype(str)
    return frame.drop(columns="split", errors="ignore")


def _fetch(name: str) -> pd.DataFrame:
    from sklearn.datasets import fetch_openml

    answer = fetch_openml(data_id=OPENML[name], as_frame=True)
    frame = answer.data.rename(columns=lambda c: c.replace("%3F", ""))
    if name == "covertype":  # two groups of zeros and a one become two columns
        for group, title in zip(("Wilderness_Area", "Soil_Type"), NO_ORDER, strict=True):
            members = [c for c in frame if c.startswith(group)]
            frame[title] = frame[members].astype(float).to_numpy().argmax(1) + 1
            frame = frame.drop(columns=members)
    return frame.assign(**{LABELS[name]: answer.target})


def check_names(columns: pd.Index) -> None:
    """Refuse two columns with one name."""
    twice = columns[columns.duplicated()]
    if len(twice):
        raise ValueError(f"there is more than one column {twice[0]!r}: give each a name of its own")


def encode(x: ArrayLike) -> np.ndarray:
    """A table as numbers: standardised, or a column of zeros and ones for each value.

    Example:
        >>> import pandas as pd
        >>> from posterax.bandits.tables import encode
        >>> encode(pd.DataFrame({"a": [1.0, 3.0], "b": ["u", "v"]}))
        array([[-1.,  1.,  0.],
               [ 1.,  0.,  1.]], dtype=float32)
    """
    frame = x if isinstance(x, pd.DataFrame) else pd.DataFrame(np.asarray(x))
    if not len(frame) or not len(frame.columns):
        raise ValueError(f"x needs at least one row and one column, got {frame.shape}")
    check_names(frame.columns)
    frame = frame.infer_objects()  # numbers in arrays of objects are numbers
    parts = []
    for name in frame:
        column = frame[name]
        missing = column.isna().to_numpy()
        if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
            values = column.to_numpy(np.float64, na_value=np.nan)[:, None]
            if not np.isfinite(values[~missing]).all():
                raise ValueError(f"x: column {name!r} has infinite values")
            if not missing.all():
                values = standardiser(values[~missing], np.ones((~missing).sum()))(values)
            parts.append(np.where(missing[:, None], 0, values))
            if missing.any():
                parts.append(missing[:, None])
        else:
            words = column.astype(object).where(~column.isna(), "?").astype(str)
            parts.append(pd.get_dummies(words).to_numpy())
    return np.concatenate(parts, 1).astype(np.float32)

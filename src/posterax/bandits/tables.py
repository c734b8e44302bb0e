"""The tables of the named environments: read from a folder, or fetched once and cached."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
OPENML = {"mushroom": 24, "adult": 1590, "covertype": 1596}  # numbers of the sets
LABELS = {"mushroom": "class", "adult": "income", "covertype": "cover-type"}
MISSING = ["?", ""]


def folders() -> list[Path]:
    """Where data sets are looked for: ``$POSTERAX_DATA``, then the user's cache.

    Example:
        >>> from posterax.bandits.tables import folders
        >>> folders()[-1].name
        'posterax'
    """
    given = os.environ.get("POSTERAX_DATA")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "posterax"
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


def table(name: str) -> "pd.DataFrame":
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
    frame.to_csv(cached, index=False)
    return _read(cached)


def _read(path: Path) -> "pd.DataFrame":
    import pandas as pd

    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as stored:
            return _covertype(dict(stored))
    frame = pd.read_csv(path, keep_default_na=False, na_values=MISSING, skipinitialspace=True)
    for column in ("wilderness-area", "soil-type"):  # numbers without an order
        if column in frame:
            frame[column] = frame[column].astype(str)
    return frame.drop(columns="split", errors="ignore")


def _covertype(stored: dict[str, np.ndarray]) -> "pd.DataFrame":
    import pandas as pd

    frame = pd.DataFrame(stored["x_numeric"], columns=stored["numeric_names"])
    frame["wilderness-area"] = stored["wilderness_area"].astype(str)
    frame["soil-type"] = stored["soil_type"].astype(str)
    frame["cover-type"] = stored["y"]
    return frame


def _fetch(name: str) -> "pd.DataFrame":
    from sklearn.datasets import fetch_openml

    answer = fetch_openml(data_id=OPENML[name], as_frame=True)
    frame = answer.data.rename(columns=lambda c: c.replace("%3F", ""))
    if name == "covertype":  # two groups of zeros and a one become two columns
        for group, title in (("Wilderness_Area", "wilderness-area"), ("Soil_Type", "soil-type")):
            members = [c for c in frame if c.startswith(group)]
            frame[title] = frame[members].astype(float).to_numpy().argmax(1) + 1
            frame = frame.drop(columns=members)
    return frame.assign(**{LABELS[name]: answer.target})

"""Tables with labels for the experiments: found in a folder, or fetched once and kept."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .data import fetched, folders

if TYPE_CHECKING:
    import pandas as pd

OPENML = {"mushroom": 24, "adult": 1590, "covertype": 1596}  # numbers of the sets
LABELS = {"mushroom": "class", "adult": "income", "covertype": "cover-type"}
MISSING = ["?", ""]


def table(name: str) -> "pd.DataFrame":
    """A table by its name: ``"mushroom"``, ``"adult"`` or ``"covertype"``.

    ``NAME.csv`` or ``NAME.csv.gz`` is read from the first of
    [`folders`][posterax.experiments.data.folders] that has it, there or in its folder ``bandits``
    (which may hold ``covertype_subset.npz`` instead, a sixth of that set). What is nowhere is
    fetched from OpenML by scikit-learn, and kept in the cache. Missing values are NaN.

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
    found = fetched(f"{name}.csv", lambda: _fetch(name))
    folders()[-1].mkdir(parents=True, exist_ok=True)
    kept = folders()[-1] / f"{name}.csv.gz"
    found.to_csv(kept, index=False)
    return _read(kept)


def _read(path: Path) -> "pd.DataFrame":
    import pandas as pd

    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as stored:
            return _covertype(dict(stored))
    found = pd.read_csv(path, keep_default_na=False, na_values=MISSING, skipinitialspace=True)
    for column in ("wilderness-area", "soil-type"):  # numbers without an order
        if column in found:
            found[column] = found[column].astype(str)
    return found.drop(columns="split", errors="ignore")


def _covertype(stored: dict[str, np.ndarray]) -> "pd.DataFrame":
    import pandas as pd

    found = pd.DataFrame(stored["x_numeric"], columns=stored["numeric_names"])
    found["wilderness-area"] = stored["wilderness_area"].astype(str)
    found["soil-type"] = stored["soil_type"].astype(str)
    found["cover-type"] = stored["y"]
    return found


def _fetch(name: str) -> Any:
    from sklearn.datasets import fetch_openml

    fetched = fetch_openml(data_id=OPENML[name], as_frame=True)
    found = fetched.data.rename(columns=lambda c: c.replace("%3F", ""))
    if name == "covertype":  # two groups of zeros and a one become two columns
        for group, title in (("Wilderness_Area", "wilderness-area"), ("Soil_Type", "soil-type")):
            members = [c for c in found if c.startswith(group)]
            found[title] = found[members].astype(float).to_numpy().argmax(1) + 1
            found = found.drop(columns=members)
    return found.assign(**{LABELS[name]: fetched.target})

"""The tables: real sets with their splits, simulated ones with a known truth, and gaps.

Nothing of posterax is imported, since the workers of other libraries read this too.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.model_selection import train_test_split

from benchmarks.tables_peers import simulated

Splits = list[tuple[np.ndarray, np.ndarray]]
REGRESSION, CLASSES = "regression", "classification"
METRIC = {REGRESSION: "RMSE", CLASSES: "share of wrong labels"}
UCI = {
    "Boston": "bostonHousing",
    "concrete": "concrete",
    "yacht": "yacht",
    "power": "power-plant",
    "wine-red": "wine-quality-red",
    "protein": "protein-tertiary-structure",
}
GAP_COLUMNS = {"Boston": 13, "concrete": 8, "yacht": 6, "power": 4, "wine-red": 11, "protein": 9}
DROPPED = ("cnt", "casual", "registered", "instant", "dteday")  # of bike sharing, as bde does
FUTURE = 0.2  # of the weeks of CO2


class Table(NamedTuple):
    """A data set with the row numbers of its splits, (train, test) each."""

    name: str
    task: str
    x: Any  # an array, or a data frame where columns are text
    y: np.ndarray  # classes are 0 … K−1
    splits: Splits
    whole: bool = False  # targets are whole numbers, so the likelihood is that of a mass
    truth: Callable[[np.ndarray], Any] | None = None  # the distribution of y at x

    @property
    def metric(self) -> str:
        """What its error is."""
        return METRIC[self.task]

    def rows(self, index: np.ndarray) -> Any:
        """Some rows of x."""
        return self.x.iloc[index] if isinstance(self.x, pd.DataFrame) else self.x[index]


class Plan(NamedTuple):
    """How a set is read, and how often it is run."""

    load: Callable[[str], Table]
    task: str
    runs: int  # splits, or seeds where the split is fixed
    fixed: bool = False
    group: str = "main"

    def cells(self, most: int | None = None) -> list[tuple[int, int]]:
        """(split, seed) of each run."""
        runs = range(min(self.runs, most or self.runs))
        return [(0 if self.fixed else i, i) for i in runs]


def folder() -> Path:
    """Where the sets are that do not come with scikit-learn."""
    named = os.environ.get("POSTERAX_DATA")
    if not named:
        raise SystemExit("POSTERAX_DATA must name the directory that holds uci/*.npz")
    return Path(named)


def _uci(name: str) -> Table:
    """With the splits of Hernández-Lobato and Adams (2015)."""
    stored = np.load(folder() / "uci" / f"{UCI[name]}.npz", allow_pickle=False)
    count = sum(key.startswith("test_idx") for key in stored.files)
    splits = [(stored[f"train_idx_{i:02d}"], stored[f"test_idx_{i:02d}"]) for i in range(count)]
    x, y = stored["x"], stored["y"]
    return Table(name, REGRESSION, x, y, splits, whole=name == "wine-red")


def _gap(name: str) -> Table:
    """The middle third of one column left out, a split for each column (Foong et al. 2019)."""
    table = _uci(name.removesuffix(" gap"))
    stored = np.load(folder() / "uci_gap" / f"{UCI[table.name]}.npz", allow_pickle=False)
    tests = [stored[f"test_idx_{i:02d}"] for i in range(len(stored.files))]
    splits = [(np.setdiff1d(np.arange(len(table.y)), test), test) for test in tests]
    return table._replace(name=name, splits=splits)


def random_splits(y: np.ndarray, task: str, count: int) -> Splits:
    """Four fifths to learn from, one to test on, the classes in proportion."""
    rows, labels = np.arange(len(y)), y if task == CLASSES else None
    return [
        tuple(train_test_split(rows, test_size=0.2, random_state=seed, stratify=labels))
        for seed in range(count)
    ]


def _sklearn(name: str) -> Table:
    load = getattr(datasets, f"load_{name.replace(' ', '_')}")
    x, y = load(return_X_y=True)
    task = REGRESSION if name == "diabetes" else CLASSES
    splits = random_splits(y, task, SETS[name].runs)
    return Table(name, task, x, y, splits, whole=name == "diabetes")


def _file(name: str) -> Table:
    """Airfoil and bike sharing; split 0 is the one that bde publishes."""
    file = {"airfoil": "airfoil.csv", "bike sharing": "bike_sharing_hour.csv.gz"}[name]
    frame = pd.read_csv(folder() / "tables" / file)
    target = "target" if name == "airfoil" else "cnt"
    x = frame.drop(columns=[c for c in DROPPED if c in frame] if target == "cnt" else [target])
    y = frame[target].to_numpy(float)
    splits = random_splits(y, REGRESSION, SETS[name].runs)
    return Table(name, REGRESSION, x.to_numpy(float), y, splits, whole=target == "cnt")


def _adult(name: str) -> Table:
    """Text columns as they are, "?" too; the official test rows."""
    frame = pd.read_csv(folder() / "bandits" / "adult.csv.gz", keep_default_na=False)
    y = (frame["income"] == ">50K").to_numpy(int)
    official = (frame["split"] == "train").to_numpy()
    splits = [(np.flatnonzero(official), np.flatnonzero(~official))]
    return Table(name, CLASSES, frame.drop(columns=["split", "income"]), y, splits)


def _mushroom(name: str) -> Table:
    """Letters only; two mushrooms in five thousand would already be an error of 0.1 %."""
    frame = pd.read_csv(folder() / "mushroom.csv", keep_default_na=False)
    y = (frame["class"] == "p").to_numpy(int)
    return Table(name, CLASSES, frame.drop(columns="class"), y, random_splits(y, CLASSES, 1))


def _covertype(name: str) -> Table:
    """Ten numbers, and wilderness and soil as indicators."""
    stored = np.load(folder() / "bandits" / "covertype_subset.npz", allow_pickle=False)
    groups = [np.eye(int(stored[k].max()))[stored[k] - 1] for k in ("wilderness_area", "soil_type")]
    x = np.hstack([stored["x_numeric"].astype(float), *groups])
    y = stored["y"].astype(int) - 1
    return Table(name, CLASSES, x, y, random_splits(y, CLASSES, 1))


def _co2(name: str) -> Table:
    """Weeks as a year with decimals and the part of the year; the last fifth is the future."""
    frame = pd.read_csv(folder() / "mauna_loa_co2_weekly.csv", parse_dates=["date"]).dropna()
    season = frame["date"].dt.dayofyear.to_numpy(float) / 365.25
    x = np.stack([frame["date"].dt.year.to_numpy(float) + season, season], axis=1)
    rows, known = np.arange(len(frame)), round((1 - FUTURE) * len(frame))
    y = frame["co2_ppmv"].to_numpy(float)
    return Table(name, REGRESSION, x, y, [(rows[:known], rows[known:])])


def _simulated(name: str) -> Table:
    drawn = simulated.draw(name, SETS[name].runs)
    return Table(name, REGRESSION, *drawn, whole=name == "counts", truth=simulated.TRUTHS[name])


def _bde(name: str) -> Table:
    """Inputs and targets standardised by the training rows of the published split."""
    table = _file(name.removeprefix("bde "))
    train, _ = table.splits[0]
    x, y = ((v - v[train].mean(0)) / v[train].std(0) for v in (table.x, table.y))
    return Table(name, REGRESSION, x, y, table.splits[:1])


SETS: dict[str, Plan] = {
    **{name: Plan(_uci, REGRESSION, 20) for name in ("Boston", "concrete", "yacht")},
    **{name: Plan(_uci, REGRESSION, 5) for name in ("power", "wine-red")},
    "protein": Plan(_uci, REGRESSION, 3),
    "diabetes": Plan(_sklearn, REGRESSION, 5),
    "airfoil": Plan(_file, REGRESSION, 5),
    "bike sharing": Plan(_file, REGRESSION, 5),
    "CO2": Plan(_co2, REGRESSION, 3, fixed=True),
    **{name: Plan(_simulated, REGRESSION, 5) for name in simulated.TRUTHS},
    **{name: Plan(_sklearn, CLASSES, 5) for name in ("breast cancer", "wine", "digits")},
    "mushroom": Plan(_mushroom, CLASSES, 3, fixed=True),
    "adult": Plan(_adult, CLASSES, 3, fixed=True),
    "covertype": Plan(_covertype, CLASSES, 3, fixed=True),
    **{
        f"{name} gap": Plan(_gap, REGRESSION, count, group="gap")
        for name, count in GAP_COLUMNS.items()
    },
    **{
        f"bde {name}": Plan(_bde, REGRESSION, 5, fixed=True, group="bde")
        for name in ("airfoil", "bike sharing")
    },
}


def load(name: str) -> Table:
    """One set by its name."""
    return SETS[name].load(name)


def names(group: str = "main", task: str | None = None) -> list[str]:
    """The sets of a group."""
    return [
        n for n, plan in SETS.items() if plan.group == group and (not task or plan.task == task)
    ]

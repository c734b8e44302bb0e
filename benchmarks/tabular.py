"""The tables of the benchmarks: nine data sets, five splits each, and validation splits inside."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn import datasets
from sklearn.model_selection import train_test_split

SPLITS = 5
UCI = {
    "Boston": "bostonHousing",
    "concrete": "concrete",
    "yacht": "yacht",
    "power": "power-plant",
    "wine-red": "wine-quality-red",
}
SKLEARN = {
    "diabetes": datasets.load_diabetes,
    "breast cancer": datasets.load_breast_cancer,
    "wine": datasets.load_wine,
    "digits": datasets.load_digits,
}


class Table(NamedTuple):
    """A data set with the row numbers of its splits, (train, test) each."""

    name: str
    classes: bool
    x: np.ndarray
    y: np.ndarray
    splits: list[tuple[np.ndarray, np.ndarray]]

    def validation(self, split: int) -> tuple[np.ndarray, np.ndarray]:
        """A fifth of a split's training rows held out; its test rows are not touched."""
        rows = self.splits[split][0]
        labels = self.y[rows] if self.classes else None
        kept, held = train_test_split(
            rows, test_size=0.2, random_state=1000 + split, stratify=labels
        )
        return kept, held


def tables() -> list[Table]:
    """All nine; the UCI sets come with the splits of Hernández-Lobato and Adams (2015)."""
    found = []
    for name, file in UCI.items():
        stored = np.load(_folder() / "uci" / f"{file}.npz", allow_pickle=False)
        splits = [
            (stored[f"train_idx_{i:02d}"], stored[f"test_idx_{i:02d}"]) for i in range(SPLITS)
        ]
        found.append(Table(name, False, stored["x"], stored["y"], splits))
    for name, load in SKLEARN.items():
        x, y = load(return_X_y=True)
        classes = name != "diabetes"
        found.append(Table(name, classes, x, y, random_splits(y, classes)))
    return found


def _folder() -> Path:
    folder = os.environ.get("POSTERAX_DATA")
    if not folder:
        raise SystemExit("POSTERAX_DATA must name the directory that holds uci/*.npz")
    return Path(folder)


def large_tables() -> list[Table]:
    """Two with tens of thousands of rows, one split each: for the study of defaults only."""
    folder = _folder()
    protein = np.load(folder / "uci" / "protein-tertiary-structure.npz", allow_pickle=False)
    split = [(protein["train_idx_00"], protein["test_idx_00"])]
    trees = np.load(folder / "bandits" / "covertype_subset.npz", allow_pickle=False)
    one_hot = [np.eye(int(trees[k].max()))[trees[k] - 1] for k in ("wilderness_area", "soil_type")]
    x = np.hstack([trees["x_numeric"].astype(float), *one_hot])[:40_000]
    y = trees["y"][:40_000].astype(int)
    return [
        Table("protein", False, protein["x"], protein["y"], split),
        Table("covertype", True, x, y, random_splits(y, True)[:1]),
    ]


def random_splits(y: np.ndarray, classes: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """Four fifths to learn from, one to test on, the classes in proportion."""
    rows, labels = np.arange(len(y)), y if classes else None
    splits = []
    for seed in range(SPLITS):
        train, test = train_test_split(rows, test_size=0.2, random_state=seed, stratify=labels)
        splits.append((train, test))
    return splits

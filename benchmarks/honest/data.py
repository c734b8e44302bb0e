"""Eight data sets in three splits: rows to fit, rows to choose by, rows to score, inputs far away.

Five tables of numbers to predict, the curve of Blundell et al. (2015) with a gap, and two sets of
classes. Splits of the UCI files are their own first three; elsewhere the seed is the number of the
split. A fifth of the training rows is for validation, and of the others at most 1,000 are fitted.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn import datasets
from sklearn.model_selection import train_test_split

import posterax as px

UCI = {"boston": "bostonHousing", "concrete": "concrete", "yacht": "yacht",
       "wine": "wine-quality-red"}  # fmt: skip
CLASSES = {"breast_cancer": 2, "digits": 10}
HIDDEN = {"digits": (100,), "curve_gap": (50, 50)}
NAMES = ("boston", "concrete", "yacht", "wine", "airfoil", "curve_gap", "breast_cancer", "digits")
PRIORS = {"unit": False, "fan_in": True}
SPLITS = 3
MOST_ROWS = 1000


class Split(NamedTuple):
    """Rows to fit, to choose by and to score, and inputs far from all of them."""

    x: np.ndarray
    y: np.ndarray
    x_val: np.ndarray
    y_val: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    x_far: np.ndarray


def load(name: str, number: int) -> Split:
    """One split of one data set."""
    if name == "curve_gap":
        return _curve(number)
    x, y, train, test = _rows(name, number)
    labels = y[train] if name in CLASSES else None
    train, val = train_test_split(train, test_size=0.2, random_state=1000 + number, stratify=labels)
    train = train[:MOST_ROWS]
    x = (x / 16).astype(np.float32) if name == "digits" else standardised(x, train)
    y = y.astype(np.int32) if name in CLASSES else standardised(y, train)
    far = 1 - x[test] if name == "digits" else 3 * x[test]
    return Split(x[train], y[train], x[val], y[val], x[test], y[test], far)


def standardised(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Values minus the mean of some rows, over their deviation; a constant column becomes 0."""
    mean, deviation = values[rows].mean(0), values[rows].std(0)
    return ((values - mean) / np.where(deviation > 1e-9, deviation, 1)).astype(np.float32)


def _rows(name: str, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """All rows, and the numbers of those to train and to test."""
    if name in UCI:
        stored = np.load(_folder() / "uci" / f"{UCI[name]}.npz", allow_pickle=False)
        split = stored[f"train_idx_{number:02d}"], stored[f"test_idx_{number:02d}"]
        return stored["x"], stored["y"].reshape(-1), *split
    if name == "airfoil":
        table = np.loadtxt(_folder() / "tables" / "airfoil.csv", delimiter=",", skiprows=1)
        x, y, share = table[:, :-1], table[:, -1], 0.1
    else:
        read = {"digits": datasets.load_digits, "breast_cancer": datasets.load_breast_cancer}
        x, y = read[name](return_X_y=True)
        share = 0.2
    labels = y if name in CLASSES else None
    train, test = train_test_split(
        np.arange(len(y)), test_size=share, random_state=number, stratify=labels
    )
    return x, y, train, test


def _folder() -> Path:
    folder = os.environ.get("POSTERAX_DATA")
    if not folder:
        raise SystemExit("POSTERAX_DATA must name the directory with uci/*.npz and tables/*.csv")
    return Path(folder)


def _curve(number: int) -> Split:
    """300 points to fit; those to choose by and to score are drawn by the same law."""
    parts = [
        _points(2 * number, 150),
        _points(100 + 2 * number, 40),
        _points(200 + 2 * number, 100),
    ]
    line = np.linspace(-1, 2, 121, dtype=np.float32)
    inside = ((line >= 0) & (line <= 0.2)) | ((line >= 0.35) & (line <= 0.5))
    return Split(*(a for part in parts for a in part), line[~inside][:, None])


def _points(seed: int, half: int) -> tuple[np.ndarray, np.ndarray]:
    """x in [0, 0.2] and [0.35, 0.5], y = x + 0.3 sin 2π(x + ε) + 0.3 sin 4π(x + ε) + ε."""
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.uniform(0, 0.2, half), rng.uniform(0.35, 0.5, half)])
    e = 0.02 * np.random.default_rng(seed + 1).standard_normal(len(x))
    y = x + 0.3 * np.sin(2 * np.pi * (x + e)) + 0.3 * np.sin(4 * np.pi * (x + e)) + e
    return x[:, None].astype(np.float32), y.astype(np.float32)


def model(name: str, number: int, prior: str, inputs: int) -> Any:
    """The network, its prior and its likelihood; the first weights differ from split to split."""
    network = px.networks.MLP(inputs, CLASSES.get(name, 1), HIDDEN.get(name, (50,)), key=number)
    likelihood: Any = px.likelihoods.Categorical()
    if name not in CLASSES:
        likelihood = px.likelihoods.Gaussian(0.05 if name == "curve_gap" else "learned")
    return px.Model(network, px.priors.Gaussian(1.0, fan_in=PRIORS[prior]), likelihood)

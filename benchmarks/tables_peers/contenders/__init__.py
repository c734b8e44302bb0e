"""Who runs: a name, a class, and the environment that has its library.

The classes are imported in the worker, so that each process loads one library.
"""

from importlib import import_module
from typing import Any, NamedTuple

BOTH = ("regression", "classification")
HERE = "benchmarks.tables_peers.contenders"


class Entry(NamedTuple):
    """Where a contender is found, and what it can do."""

    place: str  # module and class
    label: str
    home: str  # "own", "peers" or "bde": which interpreter
    packages: tuple[str, ...]  # whose versions are stored
    tasks: tuple[str, ...] = BOTH


CONTENDERS: dict[str, Entry] = {
    "posterax": Entry("ours.Posterax", "posterax", "own", ("posterax", "jax", "numpy")),
    "catboost": Entry("boosting.CatBoost", "CatBoost", "peers", ("catboost",)),
    "catboost-virtual": Entry(
        "boosting.CatBoostVirtual", "CatBoost, virtual", "peers", ("catboost",), BOTH[:1]
    ),
    "catboost-rmse": Entry(
        "boosting.CatBoostMean", "CatBoost, RMSE", "peers", ("catboost",), BOTH[:1]
    ),
    "histgb": Entry("boosting.HistGB", "HistGB", "peers", ("scikit-learn",)),
    "lightgbm": Entry("boosting.LightGBM", "LightGBM", "peers", ("lightgbm",)),
    "xgboost": Entry("boosting.XGBoost", "XGBoost", "peers", ("xgboost-cpu",)),
    "ngboost": Entry("boosting.NGBoost", "NGBoost", "peers", ("ngboost", "scikit-learn")),
    "mapie": Entry("conformal.Mapie", "MAPIE", "peers", ("mapie", "scikit-learn"), BOTH[:1]),
    "gp": Entry("smooth.GaussianProcess", "GP", "peers", ("scikit-learn",)),
    "mlp": Entry("smooth.Perceptron", "MLP", "peers", ("scikit-learn",)),
    "bde": Entry("sampled.Bde", "bde", "bde", ("sklearn-contrib-bde", "jax"), BOTH[:1]),
    "truth": Entry("known.Truth", "the truth", "peers", ("scipy",), BOTH[:1]),
}


def make(name: str, task: str, seed: int) -> Any:
    """A contender that is ready to fit."""
    module, kind = CONTENDERS[name].place.split(".")
    return getattr(import_module(f"{HERE}.{module}"), kind)(task, seed)

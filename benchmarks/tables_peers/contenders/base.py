"""The contract of a contender, text columns, and a deviation for what predicts only a mean."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OneHotEncoder

from benchmarks.tables_peers.measures import Forecast, gaussian

HELD = 0.1  # of the training rows, for the deviation


class Contender:
    """``fit``, then ``values`` (a Forecast) or ``classes`` (probabilities) of test rows."""

    def __init__(self, task: str, seed: int):
        self.task, self.seed = task, seed

    @property
    def regresses(self) -> bool:
        """Whether values are predicted, not classes."""
        return self.task == "regression"

    def fit(self, x: Any, y: np.ndarray) -> None:
        """Learn from training rows."""
        raise NotImplementedError

    def values(self, x: Any) -> Forecast:
        """Mean, deviation and 90 % interval of each row."""
        raise NotImplementedError

    def classes(self, x: Any) -> np.ndarray:
        """Probabilities, a column for each class in order."""
        return self.model.predict_proba(x)

    model: Any


class MeanOnly(Contender):
    """A scikit-learn estimator whose deviation is the RMS residual of a held-out tenth.

    It is then fitted to all training rows.
    """

    def estimator(self) -> Any:
        """A fresh one with default settings."""
        raise NotImplementedError

    def encode(self, x: Any, first: bool = False) -> Any:
        """What the library makes of a data frame with text."""
        return x

    def fit(self, x: Any, y: np.ndarray) -> None:
        x = self.encode(x, first=True)
        if self.regresses:
            self.std = residual_scale(self.estimator, x, y, self.seed)
        self.model = self.estimator().fit(x, y)

    def values(self, x: Any) -> Forecast:
        return gaussian(self.model.predict(self.encode(x)), self.std)

    def classes(self, x: Any) -> np.ndarray:
        return self.model.predict_proba(self.encode(x))


def residual_scale(make: Callable[[], Any], x: Any, y: np.ndarray, seed: int) -> float:
    """The root of the mean squared residual on a tenth that a first fit has not seen."""
    part, held = train_test_split(np.arange(len(y)), test_size=HELD, random_state=seed)
    model = make().fit(take(x, part), y[part])
    return float(np.sqrt(np.mean((model.predict(take(x, held)) - y[held]) ** 2)))


def take(x: Any, rows: np.ndarray) -> Any:
    """Rows of an array or a frame."""
    return x.iloc[rows] if isinstance(x, pd.DataFrame) else x[rows]


def text_columns(x: Any) -> list[str]:
    """Those of a frame that are not numbers."""
    if not isinstance(x, pd.DataFrame):
        return []
    return [c for c in x.columns if not pd.api.types.is_numeric_dtype(x[c])]


class Categories:
    """Text columns as pandas categories; a word that training rows had not is missing."""

    def __init__(self, x: Any):
        self.kinds = {c: pd.CategoricalDtype(sorted(x[c].unique())) for c in text_columns(x)}

    def __call__(self, x: Any) -> Any:
        known = {c: x[c].where(x[c].isin(kind.categories)) for c, kind in self.kinds.items()}
        return x.assign(**known).astype(self.kinds) if self.kinds else x


def one_hot(x: Any) -> Any:
    """A transformer of text columns to indicators; numbers pass."""
    return make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), text_columns(x)),
        remainder="passthrough",
    )

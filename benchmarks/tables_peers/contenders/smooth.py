"""scikit-learn's Gaussian processes and perceptrons, on standardised columns."""

from typing import Any

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.tables_peers.contenders.base import (
    Contender,
    MeanOnly,
    one_hot,
    take,
    text_columns,
)
from benchmarks.tables_peers.measures import Forecast, gaussian

GP_ROWS = {"regression": 1000, "classification": 500}  # it takes the cube of its rows


def prepared(x: Any) -> list[Any]:
    """Indicators for text, then columns of deviation 1."""
    return [*([one_hot(x)] if text_columns(x) else []), StandardScaler()]


class GaussianProcess(Contender):
    """One length scale and learned noise; at most 1,000 random rows, 500 for classes."""

    def fit(self, x: Any, y: np.ndarray) -> None:
        most = GP_ROWS[self.task]
        if len(y) > most:
            labels = None if self.regresses else y
            rows = np.arange(len(y))
            rows, _ = train_test_split(
                rows, train_size=most, random_state=self.seed, stratify=labels
            )
            x, y = take(x, rows), y[rows]
        if self.regresses:
            kernel = ConstantKernel() * RBF() + WhiteKernel()
            process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=self.seed)
        else:
            process = GaussianProcessClassifier(1.0 * RBF(), random_state=self.seed)
        self.model = make_pipeline(*prepared(x), process).fit(x, y)

    def values(self, x: Any) -> Forecast:
        return gaussian(*self.model.predict(x, return_std=True))


class Perceptron(MeanOnly):
    """MLPRegressor with inputs and targets standardised, or MLPClassifier with inputs."""

    def fit(self, x: Any, y: np.ndarray) -> None:
        self.steps = lambda: prepared(x)
        super().fit(x, y)

    def estimator(self) -> Any:
        if not self.regresses:
            return make_pipeline(*self.steps(), MLPClassifier(random_state=self.seed))
        network = make_pipeline(*self.steps(), MLPRegressor(random_state=self.seed))
        return TransformedTargetRegressor(network, transformer=StandardScaler())

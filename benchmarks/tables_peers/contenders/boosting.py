"""Boosted trees, with default settings and one thread."""

import os
from typing import Any

import numpy as np

from benchmarks.tables_peers.contenders.base import (
    Categories,
    Contender,
    MeanOnly,
    one_hot,
    text_columns,
)
from benchmarks.tables_peers.measures import Forecast, gaussian

THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))


class CatBoost(Contender):
    """RMSEWithUncertainty: a mean and a variance for every row; the default loss for classes."""

    loss = "RMSEWithUncertainty"

    def options(self, x: Any) -> dict[str, Any]:
        """What is set: a seed, threads, silence, and which columns are text."""
        quiet = {"verbose": False, "allow_writing_files": False, "thread_count": THREADS}
        return quiet | {"random_seed": self.seed, "cat_features": text_columns(x)}

    def fit(self, x: Any, y: np.ndarray) -> None:
        from catboost import CatBoostClassifier, CatBoostRegressor

        options = self.options(x)
        if self.regresses:
            self.model = CatBoostRegressor(loss_function=self.loss, **options)
        else:
            self.model = CatBoostClassifier(**options)
        self.model.fit(x, y)

    def values(self, x: Any) -> Forecast:
        mean, variance = self.model.predict(x, prediction_type="RMSEWithUncertainty").T
        return gaussian(mean, np.sqrt(variance))


class CatBoostVirtual(Contender):
    """Posterior sampling and ten virtual ensembles: knowledge and data uncertainty together."""

    def fit(self, x: Any, y: np.ndarray) -> None:
        from catboost import CatBoostRegressor

        self.model = CatBoostRegressor(
            loss_function="RMSEWithUncertainty", posterior_sampling=True, verbose=False,
            allow_writing_files=False, thread_count=THREADS, random_seed=self.seed,
        ).fit(x, y)  # fmt: skip

    def values(self, x: Any) -> Forecast:
        options = {"prediction_type": "TotalUncertainty", "virtual_ensembles_count": 10}
        mean, knowledge, noise = self.model.virtual_ensembles_predict(x, **options).T
        return gaussian(mean, np.sqrt(knowledge + noise))


class CatBoostMean(MeanOnly):
    """Its default loss, and the residuals of a held-out tenth."""

    def estimator(self) -> Any:
        from catboost import CatBoostRegressor

        return CatBoostRegressor(
            verbose=False, allow_writing_files=False, thread_count=THREADS, random_seed=self.seed
        )  # fmt: skip


class Binned(MeanOnly):
    """Libraries that take pandas categories."""

    def encode(self, x: Any, first: bool = False) -> Any:
        if first:
            self.categories = Categories(x)
        return self.categories(x)


class HistGB(Binned):
    """scikit-learn's."""

    def estimator(self) -> Any:
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        kind = HistGradientBoostingRegressor if self.regresses else HistGradientBoostingClassifier
        return kind(random_state=self.seed)


class LightGBM(Binned):
    """Its scikit-learn estimators."""

    def estimator(self) -> Any:
        from lightgbm import LGBMClassifier, LGBMRegressor

        kind = LGBMRegressor if self.regresses else LGBMClassifier
        return kind(random_state=self.seed, n_jobs=THREADS, verbose=-1)


class XGBoost(Binned):
    """Its scikit-learn estimators."""

    def estimator(self) -> Any:
        from xgboost import XGBClassifier, XGBRegressor

        kind = XGBRegressor if self.regresses else XGBClassifier
        return kind(random_state=self.seed, n_jobs=THREADS, enable_categorical=True)


class NGBoost(Contender):
    """A Gaussian for every row, or class probabilities, by natural gradients."""

    def fit(self, x: Any, y: np.ndarray) -> None:
        from ngboost import NGBClassifier, NGBRegressor
        from ngboost.distns import k_categorical

        self.words = one_hot(x) if text_columns(x) else None
        x = self.words.fit_transform(x) if self.words else x
        quiet = {"random_state": self.seed, "verbose": False}
        if self.regresses:
            self.model = NGBRegressor(**quiet)
        else:
            self.model = NGBClassifier(Dist=k_categorical(int(y.max()) + 1), **quiet)
        self.model.fit(x, y)

    def values(self, x: Any) -> Forecast:
        said = self.model.pred_dist(x).params
        return gaussian(said["loc"], said["scale"])

    def classes(self, x: Any) -> np.ndarray:
        return self.model.predict_proba(self.words.transform(x) if self.words else x)

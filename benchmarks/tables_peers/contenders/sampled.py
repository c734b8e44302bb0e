"""bde: an ensemble of small networks, each sampled by MCLMC, with the settings of its README."""

from typing import Any

import numpy as np

from benchmarks.tables_peers.contenders.base import Contender
from benchmarks.tables_peers.measures import Forecast, gaussian

SETTINGS = {
    "hidden_layers": [16, 16], "n_members": 8, "epochs": 200, "validation_split": 0.15,
    "lr": 1e-3, "weight_decay": 1e-4, "warmup_steps": 5000, "n_samples": 2000, "n_thinning": 2,
    "patience": 10,
}  # fmt: skip


class Bde(Contender):
    """A Gaussian with its mean and deviation, as its authors score it."""

    def fit(self, x: Any, y: np.ndarray) -> None:
        from bde import BdeRegressor
        from bde.loss import GaussianNLL

        self.scales = [(v.mean(0), v.std(0) + 1e-8) for v in (x, y)]
        (x_mean, x_std), (y_mean, y_std) = self.scales
        self.model = BdeRegressor(seed=self.seed, loss=GaussianNLL(), **SETTINGS)
        self.model.fit(x=(x - x_mean) / x_std, y=((y - y_mean) / y_std).reshape(-1, 1))

    def values(self, x: Any) -> Forecast:
        (x_mean, x_std), (y_mean, y_std) = self.scales
        mean, std = self.model.predict((x - x_mean) / x_std, mean_and_std=True)
        return gaussian(y_mean + y_std * np.asarray(mean), y_std * np.asarray(std))

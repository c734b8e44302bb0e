"""MAPIE: conformal intervals around scikit-learn's boosted trees."""

from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

from benchmarks.tables_peers.contenders.base import Contender
from benchmarks.tables_peers.measures import LEVEL, Z90, Forecast, gaussian

CROSS_ROWS = 5000  # more of them: one held-out fifth instead of five folds


class Mapie(Contender):
    """CV+ with five folds; its density is a Gaussian with the width of the interval."""

    def fit(self, x: Any, y: np.ndarray) -> None:
        from mapie.regression import CrossConformalRegressor, SplitConformalRegressor

        trees = HistGradientBoostingRegressor(random_state=self.seed)
        if len(y) <= CROSS_ROWS:
            options = {"confidence_level": LEVEL, "random_state": self.seed}
            self.model = CrossConformalRegressor(trees, **options).fit_conformalize(x, y)
            return
        parts = train_test_split(x, y, test_size=0.2, random_state=self.seed)
        self.model = SplitConformalRegressor(trees, confidence_level=LEVEL, prefit=False)
        self.model.fit(parts[0], parts[2]).conformalize(parts[1], parts[3])

    def values(self, x: Any) -> Forecast:
        mean, interval = self.model.predict_interval(x)
        low, high = interval[:, 0, 0], interval[:, 1, 0]
        return gaussian(mean, (high - low) / (2 * Z90), low, high)

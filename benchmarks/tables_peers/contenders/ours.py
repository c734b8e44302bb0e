"""posterax with nothing set but a seed, and ``columns="auto"`` where a column is text."""

from typing import Any

import numpy as np

import posterax as px
from benchmarks.tables_peers.contenders.base import Contender, take, text_columns
from benchmarks.tables_peers.measures import LEVEL, Forecast, Judged, mass_of

ROWS = 1000  # judged at a time
SAMPLES = 100  # posterior draws of a prediction that is scored, at most


class Posterax(Contender):
    """px.BayesianRegressor or px.BayesianClassifier."""

    def fit(self, x: Any, y: np.ndarray) -> None:
        kind = px.BayesianRegressor if self.regresses else px.BayesianClassifier
        text = {"columns": "auto"} if text_columns(x) else {}
        self.model = kind(random_state=self.seed, verbose=False, **text).fit(x, y)

    def values(self, x: Any) -> Forecast:
        predictive = self.model.predictive(x)
        low, high = predictive.interval(LEVEL)
        mean, std = np.asarray(predictive.mean, float), np.asarray(predictive.std, float)
        counts = predictive.kind == "counts"

        def judge(y: np.ndarray, whole: bool) -> Judged:
            places = np.array_split(np.arange(len(y)), -(-len(y) // ROWS))
            each = [self._judge(take(x, rows), y[rows], whole and not counts) for rows in places]
            return Judged(*(np.concatenate(column) for column in zip(*each, strict=True)))

        kind = "mass" if counts else "density"
        return Forecast(mean, std, np.asarray(low), np.asarray(high), judge, kind)

    def _judge(self, x: Any, y: np.ndarray, whole: bool) -> Judged:
        """The scores of a block of rows."""
        predictive = self.model.predictive(x, samples=min(SAMPLES, self.model.samples))
        nll = -np.asarray(predictive.log_prob(y), float)
        mass = mass_of(lambda at: below(predictive, at), y, nll) if whole else nll
        return Judged(nll, np.asarray(px.metrics.crps_each(predictive, y), float), mass)


def below(predictive: Any, at: np.ndarray) -> np.ndarray:
    """P(Y ≤ at), which a distribution of positive values is not asked below 0."""
    try:
        return predictive.cdf(at)
    except ValueError:
        return np.where(at < 0, 0, predictive.cdf(np.maximum(at, 1e-9)))

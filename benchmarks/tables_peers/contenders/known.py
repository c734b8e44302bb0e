"""The distribution that simulated targets were drawn from: what nothing can beat."""

from typing import Any

import numpy as np

from benchmarks.tables_peers import measures, simulated
from benchmarks.tables_peers.contenders.base import Contender


class Truth(Contender):
    """Of one simulated set, named by the worker."""

    name: str

    def fit(self, x: Any, y: np.ndarray) -> None:
        """Nothing to learn."""

    def values(self, x: Any) -> measures.Forecast:
        return measures.truth(simulated.TRUTHS[self.name](x))

"""The training rows nearest to a row, and whether it is a usual one."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.neighbors import NearestNeighbors

from ..._util.checks import whole_number
from ..._util.text import in_columns
from .table import Table, cell_text, sample_rows

LOOKED_AT = 1000  # training rows whose own distances say what is usual


@dataclass(frozen=True, eq=False, repr=False)
class Nearest:
    """The nearest training rows.

    ``rows`` are their places in the table, from 0, and ``index`` what its index calls them;
    ``percentile`` says how many training rows in a hundred are closer to their own nearest row
    than this one is to its.
    """

    rows: np.ndarray
    index: list[Any]
    distances: np.ndarray
    percentile: float
    table: pd.DataFrame

    def to_pandas(self) -> pd.DataFrame:
        """The rows with their distances."""
        return self.table.assign(distance=self.distances)

    def __repr__(self) -> str:
        frame = self.to_pandas()
        columns = ["distance", *[c for c in frame.columns if c != "distance"][:8]]
        rows = [["row", *map(str, columns)]]
        for name, row in zip(self.index, frame[columns].itertuples(index=False), strict=True):
            rows.append([str(name), *map(cell_text, row)])
        usual = f"{self.percentile:.0f} of 100 training rows are closer to their nearest row"
        return "\n".join([*in_columns(rows), usual])


def nearest(estimator: Any, X_train: ArrayLike, x: Any, k: int = 5) -> Nearest:
    r"""The training rows nearest to a row, and how usual its distance is.

        d(a, b)² = Σⱼ (zⱼ(a) − zⱼ(b))²

    over the columns of the matrix that the model sees: numbers in deviations of the training rows,
    and 0 and 1 for texts, gaps and booleans as they are, so that two different texts are √2 apart,
    as two random numbers typically are. All columns weigh the same, whether they matter to the
    predictions or not. Near rows are no reason for the prediction; far ones are a warning.

    Args:
        estimator: a fitted ``BayesianRegressor`` or ``BayesianClassifier``.
        X_train: the rows it was fitted to.
        x: one row: a list, a dictionary, a ``Series`` or a table of one row. A training row finds
            itself, at distance 0.
        k: how many.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> from posterax.tables import explain
        >>> X = np.random.default_rng(0).normal(size=(60, 2))
        >>> model = px.BayesianRegressor(steps=20, members=1, random_state=0).fit(X, X[:, 0])
        >>> usual = explain.nearest(model, X, [0.0, 0.0], k=2)
        >>> len(usual.rows), usual.percentile < explain.nearest(model, X, [9.0, 9.0]).percentile
        (2, True)

    References:
        Cover & Hart, Nearest Neighbor Pattern Classification, IEEE Transactions on Information
        Theory 1967.
    """
    k = whole_number("k", k)
    table = Table(estimator, X_train)
    row = table.row(x)
    space = Space(table)
    distances, rows = space.nearest(space.of(row), min(k, len(table)))
    index = list(getattr(X_train, "index", range(len(table))))
    return Nearest(
        rows[0], [index[i] for i in rows[0]], distances[0],
        float(space.percentile(distances[:, 0])[0]), table.frame.iloc[rows[0]].set_axis(
            pd.Index([index[i] for i in rows[0]]), axis=0
        ),
    )  # fmt: skip


class Space:
    """Rows as points: numbers in deviations of the training rows, marks as 0 and 1."""

    def __init__(self, table: Table):
        matrix = table.encoded()
        marks = np.all((matrix == 0) | (matrix == 1), axis=0)
        spread = matrix.std(0)
        self.table = table
        self.kept = spread > 1e-12 * np.maximum(np.abs(matrix).max(0), 1e-300)
        self.shift = np.where(marks, 0, matrix.mean(0))
        self.scale = np.where(marks | ~self.kept, 1, spread)
        self.points = self._scaled(matrix)
        self.tree = NearestNeighbors().fit(self.points)
        self._usual: np.ndarray | None = None

    def _scaled(self, matrix: np.ndarray) -> np.ndarray:
        # a constant column tells rows apart only where it is no longer constant, by itself
        return np.where(self.kept, (matrix - self.shift) / self.scale, 0)

    def of(self, frame: pd.DataFrame) -> np.ndarray:
        """The points of other rows."""
        return self._scaled(self.table.encoded(frame))

    def nearest(self, points: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Distances and numbers of the nearest training rows, (points, k) each."""
        distances, rows = self.tree.kneighbors(points, k)
        return distances, rows

    def percentile(self, distances: np.ndarray) -> np.ndarray:
        """How many training rows in a hundred are closer to their nearest row than this."""
        if self._usual is None:
            if len(self.points) < 2:
                return np.full(len(distances), np.nan)
            some = sample_rows(len(self.points), LOOKED_AT, 0)
            self._usual = np.sort(self.nearest(self.points[some], 2)[0][:, 1])
        below = np.searchsorted(self._usual, distances, side="left")
        return 100 * below / len(self._usual)

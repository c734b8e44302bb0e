"""How far the mean prediction varies with each column: importance without targets."""

import numpy as np

from ..cells import texts
from .dependence import Curves, curves
from .table import Progress, Table, weighted_quantiles


def effects(
    table: Table, weight: np.ndarray, level: float, rows: int | None, key: int,
    progress: Progress | None,
) -> np.ndarray:  # fmt: skip
    """The effect of each column, and the ends of its interval, (3, columns)."""
    used = [j for j in range(len(table.names)) if table.used(j)]
    most = 200 if rows is None else min(200, rows)
    found = np.zeros((3, len(table.names)))
    half = 0.5 if hasattr(table.estimator, "classes_") else 1.0
    for j, part in zip(used, curves(table, used, 20, most, key, progress), strict=True):
        if len(part.levels) < 2:
            continue
        share = _shares(table, j, part, weight)
        apart = part.each - np.einsum("v,svk->sk", share, part.each)[:, None]
        variance = np.einsum("v,svk->sk", share, np.square(apart))
        many = variance.sum(1) * half if half < 1 else variance.mean(1)
        deviation = np.sqrt(many)
        ends = weighted_quantiles(deviation, part.weights, [(1 - level) / 2, (1 + level) / 2])
        found[:, j] = part.weights @ deviation, *ends
    return found


def _shares(table: Table, j: int, part: Curves, weight: np.ndarray) -> np.ndarray:
    """The share of the rows that lies at each value of the grid, or nearest to it."""
    if part.place is None:
        cells = texts(table.frame.iloc[:, j])
        mass = np.array(
            [weight[(cells == cells.iloc[row]).to_numpy()].sum() for row in part.levels]
        )
    else:
        known = np.isfinite(part.place)
        at = part.place[part.levels]
        nearest = np.searchsorted((at[1:] + at[:-1]) / 2, part.place[known])
        mass = np.bincount(nearest, weight[known], len(at))
    return mass / mass.sum()

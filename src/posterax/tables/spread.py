"""Which rows a regressor holds out, to measure how wide its intervals have to be."""

import numpy as np

from ..recalibrate.spread import measure
from .standardise import Rows

__all__ = ["held_out", "measure"]

SHARE, MOST_ROWS = 0.2, 2000  # held out
LEAST_ROWS = 100  # of a table; fewer leave too few to measure with


def held_out(rows: Rows, seed: int) -> np.ndarray:
    """Row numbers to hold out; a row that comes again is held out with its copies."""
    n = len(rows.x)
    random = np.random.default_rng(seed)
    table = np.column_stack([rows.x, rows.y.reshape(n, -1)]) + 0.0  # no −0, which is 0
    # equal rows have equal hashes; should two others share one, nothing is lost
    odd = random.integers(2**63, size=table.shape[1], dtype=np.uint64) | np.uint64(1)
    bits = table.view(np.uint64)
    group = np.unique(np.sum((bits ^ bits >> np.uint64(29)) * odd, axis=1), return_inverse=True)[1]
    place = random.permutation(group.max() + 1)[group]
    wanted = min(round(SHARE * n), MOST_ROWS)
    return np.flatnonzero(place <= np.sort(place)[wanted - 1])

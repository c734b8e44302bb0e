"""Seconds of a training loop, and what it has at a geometric grid of them; numpy alone."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.convergence import readout

FIRST, FACTOR = 0.5, 1.5


class Clock:
    """Runs from when it is made; stands still while a checkpoint is written."""

    def __init__(self, folder: str | Path, limit: float):
        self.folder, self.limit = Path(folder), limit
        self.points: list[dict[str, Any]] = []
        self._grid = itertools.takewhile(
            lambda s: s < limit, (FIRST * FACTOR**i for i in itertools.count())
        )
        self._next = next(self._grid, limit)
        self._away = 0.0
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """So far, checkpoints aside."""
        return time.perf_counter() - self._began - self._away

    @property
    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return self.seconds >= self._next

    @property
    def over(self) -> bool:
        """Whether the time is over; the last checkpoint is that of the limit."""
        return bool(self.points) and self.points[-1]["seconds"] >= self.limit

    def save(self, mu: readout.Arrays, sigma: readout.Arrays, steps: int) -> None:
        """Keep what there is now."""
        seconds, began = self.seconds, time.perf_counter()
        file = f"{len(self.points):03d}.npz"
        readout.save(self.folder / file, mu, sigma)
        self.points.append({"seconds": seconds, "steps": steps, "file": file})
        while self._next <= seconds < self.limit:
            self._next = next(self._grid, self.limit)
        self._away += time.perf_counter() - began


def own_draws(rows: int) -> int:
    """Draws for a library's own ELBO, which must agree with the judge's."""
    return 200 if rows < 10_000 else 10


def orders(rows: int, size: int, seed: int) -> Iterator[np.ndarray]:
    """Row numbers of minibatches, epoch by epoch in another order, the last one smaller."""
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(rows)
        yield from (order[i : i + size] for i in range(0, rows, size))

"""Callbacks: what ``fit`` tells the outside between two chunks of steps.

A callback is any function of an [`Event`][posterax.fitting.callbacks.Event]; raising ``StopFit``
ends the fit, which returns what there is.
"""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .running import RunningPredictive

__all__ = ["CSVWriter", "Event", "RunningPredictive", "StopFit", "TensorBoardWriter"]


class Event(NamedTuple):
    """News of a fit: the steps since the last event, and their terms, one value a step."""

    phase: str
    step: int
    total: int
    terms: dict[str, np.ndarray]
    make: Callable[[], Any] | None = None

    @property
    def posterior(self) -> Any:
        """The posterior of the draws since the last event, or ``None`` where there are none."""
        return None if self.make is None else self.make()


class StopFit(Exception):
    """Raise in a callback to end the fit and keep its posterior.

    Before there is one, while a sampler warms up, ``fit`` saves its checkpoint and raises it too.
    """


class CSVWriter:
    """Write every step's terms to a CSV file.

    Args:
        path: the file; a new fit starts it anew, a resumed one goes on.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._columns: list[str] | None = None

    def __call__(self, event: Event) -> None:
        first = event.step - max((len(v) for v in event.terms.values()), default=0)
        if self._columns is None and first > 0 and self.path.exists():
            with self.path.open(newline="") as file:  # a resumed fit goes on in its own file
                self._columns = next(csv.reader(file), ["phase", "step"])[2:]
        fresh = self._columns is None
        header = fresh or list(event.terms) != self._columns
        self._columns = list(event.terms)
        with self.path.open("w" if fresh else "a", newline="") as file:
            writer = csv.writer(file)
            if header:
                writer.writerow(["phase", "step", *self._columns])
            for row in range(event.step - first):
                values = [f"{event.terms[name][row]:.8g}" for name in self._columns]
                writer.writerow([event.phase, first + row + 1, *values])


class TensorBoardWriter:
    """Write every step's terms as TensorBoard scalars (needs ``posterax[tensorboard]``).

    Args:
        directory: where the event file goes.
    """

    def __init__(self, directory: str | Path):
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise ImportError(
                "TensorBoardWriter needs tensorboardX: pip install 'posterax[tensorboard]'"
            ) from error
        self._writer: Any = SummaryWriter(str(directory))

    def __call__(self, event: Event) -> None:
        for name, values in event.terms.items():
            first = event.step - len(values)
            for i, value in enumerate(values):
                self._writer.add_scalar(f"{event.phase}/{name}", float(value), first + i + 1)
        self._writer.flush()

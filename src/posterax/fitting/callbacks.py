"""Callbacks: what ``fit`` tells the outside between two chunks of steps.

A callback is any function of an [`Event`][posterax.fitting.callbacks.Event]; raising ``StopFit``
ends the fit, which returns what there is.
"""

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._util.writing import append_file, written
from .running import RunningPredictive

__all__ = ["CSVWriter", "Event", "RunningPredictive", "StopFit", "TensorBoardWriter"]

HEAD = ["phase", "step"]  # the first columns of a CSV file


class Event(NamedTuple):
    """News of a fit: the steps since the last event, and their terms, one value a step."""

    phase: str
    step: int
    total: int
    terms: dict[str, np.ndarray]
    make: Callable[[], Any] | None = None
    number: int = 0  # of the phase, from 0
    pace: float | None = None  # seconds a step, looks and compilation aside; not known at first

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
        path: the file; a new fit starts it anew, a resumed one goes on after its own last step:
            rows of steps that it takes again are replaced.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._columns: list[str] | None = None
        self._reached: tuple[int, int] | None = None  # phase and step of the last row

    def __call__(self, event: Event) -> None:
        first = event.step - max((len(v) for v in event.terms.values()), default=0)
        if self._goes_on(event.number, first):
            append_file(self.path, self._rows(event, first))
        else:
            with written(self.path) as file:
                file.writelines(self._kept(event, first))
                file.write(self._rows(event, first))
        self._reached = event.number, event.step

    def _goes_on(self, phase: int, first: int) -> bool:
        """Whether an event is the next after what this object wrote last."""
        if self._reached is None or not self.path.exists():
            return False
        return (phase, first) == self._reached or (phase > self._reached[0] and first == 0)

    def _kept(self, event: Event, first: int) -> Iterator[str]:
        """Lines of an earlier run of this fit, before those of steps that it takes again."""
        self._columns = None
        if (event.number == 0 and first == 0) or not self.path.is_file():
            return
        with self.path.open(newline="", encoding="utf-8") as file:
            for line in file:
                row = next(csv.reader([line]), [])
                if not line.endswith("\n") or len(row) < 2:  # cut by a crash
                    return
                if row[:2] == HEAD:
                    self._columns = row[2:]
                elif row[0] == event.phase and int(row[1]) > first:
                    return
                yield line

    def _rows(self, event: Event, first: int) -> str:
        text = io.StringIO()
        writer = csv.writer(text)
        if list(event.terms) != self._columns:
            self._columns = list(event.terms)
            writer.writerow([*HEAD, *self._columns])
        for row in range(event.step - first):
            values = [f"{event.terms[name][row]:.8g}" for name in self._columns]
            writer.writerow([event.phase, first + row + 1, *values])
        return text.getvalue()


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

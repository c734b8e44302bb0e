"""How a posterior came about: its settings, and the course of the fit."""

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np

Report = tuple[np.ndarray, np.ndarray]  # steps 0, 1, …, and the values computed there


@dataclass(eq=False, repr=False)
class Record:
    """How a posterior came about: settings and history. Not part of any computation.

    Args:
        method: the method's name.
        settings: what it was, and what it was fitted to.
        terms: the history of what is known at each step.
        final: where the fit stopped, to continue from.
        interrupted: whether by Ctrl-C.
        reports: the history of what is computed at some steps only, with those steps.
    """

    method: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    terms: dict[str, np.ndarray] = field(default_factory=dict)
    final: Any = None
    _: KW_ONLY
    interrupted: bool = False
    reports: dict[str, Report] = field(default_factory=dict)

    @property
    def history(self) -> dict[str, np.ndarray]:
        """The course of the fit, one value a step; a report holds until the next."""
        dense = {
            name: one_a_step(report, 0, self._steps(name)) for name, report in self.reports.items()
        }
        return self.terms | dense

    def _steps(self, name: str) -> int:
        """The steps of the phase that a name belongs to."""
        phase = name.rpartition("/")[0]
        lengths = [len(v) for n, v in self.terms.items() if n.rpartition("/")[0] == phase]
        return max(lengths, default=0)

    def follow(self, before: "Record") -> None:
        """Put the history of an earlier fit, from which this one started, in front."""
        self.reports = {
            name: _joined(before.reports.get(name), before._steps(name), report)
            for name, report in self.reports.items()
        }
        self.terms = {
            name: np.concatenate([before.terms.get(name, values[:0]), values])
            for name, values in self.terms.items()
        }


def _joined(before: Report | None, shift: int, after: Report) -> Report:
    if before is None:
        return after[0] + shift, after[1]
    steps = np.concatenate([before[0], after[0] + shift])
    return steps, np.concatenate([before[1], after[1]])


def one_a_step(report: Report, start: int, stop: int) -> np.ndarray:
    """A report as a value for each of the steps ``start … stop−1``: each holds until the next.

    Example:
        >>> import numpy as np
        >>> from posterax.posteriors.record import one_a_step
        >>> one_a_step((np.array([0, 16]), np.array([3.0, 2.0])), 14, 18)
        array([3., 3., 2., 2.])
    """
    steps, values = report
    at = np.searchsorted(steps, np.arange(start, stop), "right") - 1
    return np.where(at < 0, np.nan, values[np.maximum(at, 0)]).astype(values.dtype)

"""Figures of several seeds: their mean, and differences between rows that share the seeds."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Estimate(NamedTuple):
    """A mean over n seeds, its standard error, and the half-width of its 95 % t-interval."""

    mean: float
    error: float
    half: float

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return abs(self.mean) > self.half


def estimate(values: Sequence[float] | np.ndarray) -> Estimate:
    """Mean ± t₀.₉₇₅(n − 1) · s/√n; with one value nothing is known of the error.

    Example:
        >>> from experiments.pairs import estimate
        >>> [round(v, 3) for v in estimate([1.0, 2.0, 3.0])]
        [2.0, 0.577, 2.484]
    """
    from scipy.stats import t

    array = np.asarray(values, np.float64)
    n = len(array)
    if n < 2:
        return Estimate(float(array.mean()), np.nan, np.nan)
    error = float(array.std(ddof=1) / np.sqrt(n))
    return Estimate(float(array.mean()), error, float(t.ppf(0.975, n - 1)) * error)


def estimates(runs: Sequence[Mapping[str, float]], names: Iterable[str]) -> dict[str, Any]:
    """``estimate`` of each of these figures over the runs, as dictionaries."""
    return {name: estimate([run[name] for run in runs])._asdict() for name in names}


def differences(
    values: Mapping[str, Sequence[float]], rows: Sequence[str], against: Sequence[str], sign: int
) -> dict[str, dict[str, Estimate]]:
    """Row minus reference, seed by seed: for each reference, and for the ``"best"`` of them.

    The best is the reference with the best mean over the same seeds, known only afterwards: a
    comparison that favours the references.

    Args:
        values: by name, one figure a seed, in the same order.
        rows: names to compare.
        against: names of the references.
        sign: 1 where more is better, −1 where less is.

    Example:
        >>> from experiments.pairs import differences
        >>> nll = {"a": [0.3, 0.5], "b": [0.4, 0.7], "c": [0.2, 0.3]}
        >>> paired = differences(nll, ["c"], ["a", "b"], sign=-1)
        >>> round(paired["c"]["best"].mean, 3), round(paired["c"]["b"].mean, 3)
        (-0.15, -0.3)
    """
    best = max(against, key=lambda name: sign * np.mean(values[name]))
    return {
        row: {
            name: estimate(np.subtract(values[row], values[best if name == "best" else name]))
            for name in ("best", *against)
        }
        for row in rows
    }

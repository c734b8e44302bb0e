r"""The recalibrated predictive of counts: sums and steps where regression has integrals.

Its distribution function G = R ∘ F is looked up at counts, every one in the bulk. From there

    E y = Σ_{k ≥ 0} (1 − G(k)),   quantile(q) = min { k : G(k) ≥ q }

and draws are quantiles at random levels.
"""

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from .recalibrated import RecalibratedPredictive, checked_levels

SIDE = 64  # counts looked up on each side of the median, at most
DOUBLINGS = 60  # of the way to where nothing is left


class RecalibratedCounts(RecalibratedPredictive):
    """A predictive of counts that was recalibrated; made by ``px.recalibrate.Isotonic``."""

    def quantile(self, q: ArrayLike) -> np.ndarray:
        """The least count with R(F) of at least q; first axis where ``q`` is an array."""
        levels = checked_levels(q)
        shape = self._base.mean.shape
        asked = levels.reshape(-1, *[1] * len(shape)) + np.zeros(shape)
        under, over, _ = self._between(asked)
        for i, level in enumerate(levels):  # counts between two that were looked up: by halving
            while np.any(over[i] - under[i] > 1):
                middle = np.ceil((under[i] + over[i]) / 2)
                enough = self.cdf(np.maximum(middle, 0)) >= level
                wide = over[i] - under[i] > 1
                under[i] = np.where(wide & ~enough, middle, under[i])
                over[i] = np.where(wide & enough, middle, over[i])
        return over if np.ndim(q) else over[0]

    def _inverse(self, levels: np.ndarray) -> np.ndarray:
        under, over, share = self._between(levels)
        # counts between two that were looked up share the mass evenly
        return np.maximum(under + np.ceil(share * (over - under)), under + 1)

    def _between(self, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Neighbours among the counts looked up, the level in between, and what share of the way.

        The level is above R(F) of the first, and at most that of the second.
        """
        flat = levels.reshape(len(levels), -1)
        counts, reached = (table.reshape(len(table), -1) for table in self._steps)
        columns = []
        for u, count, below in zip(flat.T, counts.T, reached.T, strict=True):
            at = np.searchsorted(below, u)
            mass = np.diff(below, prepend=0)[at]
            left = (below[at] - u) / np.where(mass > 0, mass, 1)
            columns.append((count[at] - _gaps(count)[at], count[at], 1 - left))
        under, over, share = np.moveaxis(np.array(columns), 0, -1).reshape(3, *levels.shape)
        return under, over, share

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        counts, below = self._steps
        step, mass = _gaps(counts), np.diff(below, axis=0, prepend=0)
        centre = counts - (step - 1) / 2
        mean = np.sum(mass * centre, axis=0)
        return mean, np.sum(mass * (np.square(centre - mean) + (step**2 - 1) / 12), axis=0)

    @cached_property
    def _steps(self) -> tuple[np.ndarray, np.ndarray]:
        """Counts in rising order, (…, N, …), and the distribution function there."""
        low, middle, high = self._reach()
        smaller, larger = middle - _offsets(middle - low)[::-1], middle + _offsets(high - middle)
        counts = np.concatenate([smaller, middle[None], larger])
        below = np.stack([self.cdf(count) for count in counts])
        below = np.maximum.accumulate(below, axis=0)  # rounding may let it fall
        below[-1] = 1
        return counts, below

    def _reach(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The median of the predictive, and counts with hardly anything below and beyond them."""
        first, middle, last = np.asarray(
            self._base.quantile(np.array([0.01, 0.5, 0.99])), np.float64
        )
        width = np.maximum(last - first, 1)
        low, high, top = np.maximum(first - width, 0), last + width, self._visible[1]
        for _ in range(DOUBLINGS):
            over = (low > 0) & (np.asarray(self._base.cdf(low)) > 1 - top)
            under = np.asarray(self._base.cdf(high)) < top
            if not np.any(over | under):
                break
            width = 2 * width
            low = np.where(over, np.maximum(low - width, 0), low)
            high = np.where(under, high + width, high)
        return low, middle, high


def _offsets(half: np.ndarray) -> np.ndarray:
    """Integers 1, 2, … up to ``half``; where that is far, with growing gaps."""
    j = np.arange(1, min(SIDE, int(half.max(initial=0))) + 1).reshape(-1, *[1] * half.ndim)
    growth = np.full(half.shape, 5.0)
    for _ in range(30):  # half · sinh(growth · j / SIDE) / sinh(growth) starts with gaps of 1
        growth = np.arcsinh(growth * np.maximum(half / SIDE, 1))
    far = np.floor(half * np.sinh(growth * j / SIDE) / np.sinh(growth) + 0.5)
    return np.minimum(np.maximum(j, far), half)


def _gaps(counts: np.ndarray) -> np.ndarray:
    """How many counts each one stands for: those above the one before it."""
    return np.maximum(np.diff(counts, axis=0, prepend=counts[:1] - 1), 1)

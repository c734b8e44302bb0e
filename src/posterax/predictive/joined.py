r"""Moments of predictions over parts of the draws, joined to those over all.

By the formula of Chan, Golub and LeVeque (Updating Formulae and a Pairwise Algorithm for Computing
Sample Variances, COMPSTAT 1982), with n and n′ the draws, or the weight, behind each part:

    m ← m + (m′ − m) n′/(n + n′),   n v ← n v + n′ v′ + (m′ − m)² n n′/(n + n′)
"""

from typing import Any, NamedTuple

import numpy as np
from scipy import special


class Moments(NamedTuple):
    """Summary of the predictive, one row per input."""

    mean: np.ndarray
    variance: np.ndarray
    epistemic: np.ndarray
    aleatoric: np.ndarray
    total: np.ndarray


class Joined:
    """The moments of all that was added, in float64."""

    def __init__(self, classes: bool):
        self._classes = classes
        self._amount = 0.0
        self._mean: Any = 0.0
        self._squares: Any = 0.0  # the amount times the variance of the means over draws
        self._aleatoric: Any = 0.0

    def add(self, part: Moments, amount: float) -> None:
        """Join the moments over draws that weigh ``amount`` together."""
        spread = part.variance if self._classes else part.epistemic
        before = self._amount
        self._amount = before + amount
        share = amount / self._amount
        change = np.asarray(part.mean, np.float64) - self._mean
        self._mean = self._mean + share * change
        self._squares = self._squares + amount * spread + np.square(change) * before * share
        self._aleatoric = (1 - share) * self._aleatoric + share * part.aleatoric

    def moments(self) -> Moments:
        """Over all draws so far."""
        mean, aleatoric, spread = self._mean, self._aleatoric, self._squares / self._amount
        if self._classes:
            # rounding must not make information negative
            total = np.maximum(special.entr(mean).sum(-1), aleatoric)
            return Moments(mean, spread, total - aleatoric, aleatoric, total)
        total = spread + aleatoric
        return Moments(mean, total, spread, aleatoric, total)

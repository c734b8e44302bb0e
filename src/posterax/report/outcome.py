"""Predictions of some rows beside what came true: what a verdict and the pictures look at."""

import dataclasses
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from ..diagnostics.chance import effective
from ..metrics.inputs import class_probabilities
from ..predictive import Predictive
from ..recalibrate.base import probability_below
from .words import LEVEL, percent

SEED = 0  # random seed of a report


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """Predictions and targets, as numbers or as labels 0 … K−1, with everything made of them.

    Of several targets it is the first. ``weight`` is how often each row counts.
    """

    predictive: Predictive
    y: np.ndarray
    weight: np.ndarray | None = None

    @property
    def kind(self) -> str:
        return self.predictive.kind

    @property
    def classifies(self) -> bool:
        return self.kind == "classification"

    @cached_property
    def shares(self) -> np.ndarray:
        """The weight of each row; their sum is 1."""
        weight = np.ones(len(self.y)) if self.weight is None else np.asarray(self.weight, float)
        return weight / weight.sum()

    @cached_property
    def worth(self) -> float:
        """How many equal rows these are worth."""
        return effective(self.shares)

    def average(self, values: np.ndarray) -> float:
        """The mean over rows by their weight."""
        return float(self.shares @ values)

    def error_of_mean(self, values: np.ndarray) -> float:
        """Its standard error."""
        spread = self.average(np.square(values - self.average(values)))
        return float(np.sqrt(spread / max(self.worth - 1, 1)))

    # -- regression and counts, of the first target where there are several

    def _first(self, values: ArrayLike) -> np.ndarray:
        values = np.asarray(values, np.float64)
        return values.reshape(len(values), -1)[:, 0]

    def _quantile(self, level: float) -> np.ndarray:
        return self._first(self.predictive.quantile(np.array([level]))[0])

    true = cached_property(lambda self: self._first(self.y))
    mean = cached_property(lambda self: self._first(self.predictive.mean))
    std = cached_property(lambda self: self._first(self.predictive.std))
    low = cached_property(lambda self: self._quantile((1 - LEVEL) / 2))
    high = cached_property(lambda self: self._quantile((1 + LEVEL) / 2))

    # deviations, of numbers; nats, of classes
    epistemic = cached_property(lambda self: self._part(self.predictive.epistemic))
    aleatoric = cached_property(lambda self: self._part(self.predictive.aleatoric))

    def _part(self, values: np.ndarray) -> np.ndarray:
        part = self._first(values)
        return part if self.classifies else np.sqrt(part)

    @cached_property
    def inside(self) -> np.ndarray:
        """Whether the interval holds the truth."""
        return (self.low <= self.true) & (self.true <= self.high)

    @cached_property
    def promised(self) -> float:
        """The mass of the intervals: the level, or of counts what lies on their whole numbers."""
        if self.kind != "counts":
            return LEVEL
        low, high = self.predictive.quantile(np.array([(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
        mass = np.asarray(self.predictive.cdf(high), np.float64)
        return self.average(self._first(mass - probability_below(self.predictive, low)))

    @property
    def promise(self) -> str:
        """``promised`` in words."""
        return percent(self.promised, 0 if self.promised == LEVEL else 1)

    @cached_property
    def transform(self) -> np.ndarray:
        """P(Y ≤ y), uniform if calibrated; of counts a random place on the step."""
        u = self._first(self.predictive.cdf(self.y))
        if self.kind == "counts":
            below = self._first(probability_below(self.predictive, self.y))
            # a stream of its own: data drawn by the same seed would be correlated with it
            place = np.random.default_rng([SEED, 1]).random(len(u))
            u = below + place * (u - below)
        return u

    @cached_property
    def nll(self) -> np.ndarray:
        """−log p(y | x, D) of each row."""
        each = np.asarray(self.predictive.log_prob(self.y), np.float64)
        return -each.reshape(len(self.y), -1).sum(-1)

    # -- classes

    p = cached_property(lambda self: class_probabilities(self.predictive))
    right = cached_property(lambda self: self.p.argmax(-1) == self.y)
    entropy = cached_property(lambda self: np.asarray(self.predictive.total, np.float64))

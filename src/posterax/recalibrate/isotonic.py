r"""Isotonic recalibration of a regression's quantiles.

F is the predictive distribution function. Over held-out data F(y) should be uniform; R is how it is
distributed instead, and R ∘ F is the recalibrated distribution function:

    R(p) = P(F(Y) ≤ p),   quantile(q) = F⁻¹(R⁻¹(q))
"""

import dataclasses
import math
import warnings
from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike

from .._util.checks import whole_number
from .._util.keys import KeyLike, as_key
from ..predictive import Predictive
from .base import Recalibration, probability_transform, targets
from .recalibrated import RecalibratedCounts, RecalibratedPredictive


@dataclasses.dataclass(frozen=True)
class Isotonic(Recalibration):
    r"""Quantile recalibration of regression and counts (Kuleshov et al. 2018).

    R is monotone and piecewise linear through (0, 0), (F₍ᵣ₎, r / (n + 1)) and (1, 1), where F₍ᵣ₎ is
    the r-th smallest F(y) of n held-out rows. A new row that is exchangeable with them has
    F(y) ≤ F₍ᵣ₎ with probability r / (n + 1), so the quantiles at the knots are right whatever the
    predictive was. (Frequencies rise by themselves: isotonic regression would change nothing.)

    The paper has a knot at every row. Here they are √n rows apart, and closer and closer towards
    both ends, where it matters: the slope of R, which the density needs, would be noise between
    neighbouring rows, and R is not known better than to 1/√n anyway.

    Args:
        places: F(y) at the knots; for several outputs one column each.
        levels: R there.
        n: held-out rows that it was fitted on.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.zeros((400, 1), "float32")
        >>> network = px.networks.MLP(1, 1, (4,), key=0)
        >>> model = px.Model(network, px.priors.Gaussian(0.01), px.likelihoods.Gaussian(0.1))
        >>> predictive = px.prior_posterior(model, x).predict(x, samples=20, key=0)  # N(0, 0.1²)
        >>> y = 0.2 * np.random.default_rng(0).normal(size=(2, 400))  # twice as wide
        >>> isotonic = px.recalibrate.Isotonic.fit(predictive, y[0])
        >>> low, high = isotonic(predictive).interval(0.9)
        >>> bool(0.85 < np.mean((low <= y[1]) & (y[1] <= high)) < 0.95)
        True

    Reference:
        Kuleshov, Fenner and Ermon, *Accurate uncertainties for deep learning using calibrated
        regression*, ICML 2018.
    """

    kinds, instead = ("regression", "counts"), "px.recalibrate.Temperature"
    arrays = ("places", "levels")

    places: Any
    levels: Any
    n: int

    def __post_init__(self) -> None:
        super().__post_init__()
        places, levels = np.asarray(self.places), np.asarray(self.levels)
        if levels.ndim != 1 or places.ndim == 0:
            raise ValueError("levels must be a list of numbers, and places one of as many")
        ends = [np.all(a[0] == 0) and np.all(a[-1] == 1) for a in (places, levels)]
        rises = np.all(np.diff(places, axis=0) >= 0) and np.all(np.diff(levels) > 0)
        if not (all(ends) and rises and len(places) == len(levels)):
            raise ValueError("places and levels must rise together from 0 to 1")

    def __repr__(self) -> str:
        columns = np.asarray(self.places).reshape(len(self.levels), -1).T
        shown = [
            f"{q:g} → " + " ".join(f"{np.interp(q, self.levels, column):.3g}" for column in columns)
            for q in (0.05, 0.5, 0.95)
        ]
        knots = f"{len(self.levels)} knots from {self.n} rows"
        return f"Isotonic(quantiles {', '.join(shown)}; {knots})"

    @classmethod
    def fit(
        cls, predictive: Predictive, y: ArrayLike, *, every: int | None = None, key: KeyLike = 0
    ) -> "Isotonic":
        """How F(y) of held-out data is distributed, for each output alone.

        Args:
            predictive: of held-out inputs.
            y: their targets.
            every: rows from one knot to the next in the middle (default √n; 1: every row, as
                in the paper, with a density that is noise).
            key: for counts, whose F jumps: F(y) is drawn uniformly from its jump.
        """
        cls.check_kind(predictive)
        y = targets(y, predictive.mean.shape)
        n = len(y)
        every = max(1, math.isqrt(n)) if every is None else whole_number("every", every)
        reached = probability_transform(predictive, y, partial(jax.random.uniform, as_key(key)))
        outside = np.mean((reached <= 0) | (reached >= 1))
        if outside > 0.01:
            warnings.warn(
                f"{outside:.0%} of the held-out y lie where the predictive sees nothing at all: "
                "widen it by px.recalibrate.Spread, or use px.recalibrate.ConformalInterval",
                stacklevel=2,
            )
        ranks = _ranks(n, every)
        places = np.sort(np.clip(reached, 0, 1), axis=0)[ranks - 1]
        zero = np.zeros((1, *y.shape[1:]))
        levels = np.concatenate([[0], ranks / (n + 1), [1]])
        return cls(np.concatenate([zero, places, zero + 1]), levels, n)

    def __call__(self, predictive: Predictive) -> RecalibratedPredictive:
        """The predictive with the distribution function R ∘ F."""
        self.check_kind(predictive)
        made = RecalibratedCounts if predictive.kind == "counts" else RecalibratedPredictive
        return made(predictive, np.asarray(self.places), np.asarray(self.levels))


def _ranks(n: int, every: int) -> np.ndarray:
    """1, 2, 4, … to ``every``, then so many apart, and the same from the other end."""
    end = [2**i for i in range(every.bit_length()) if 2**i < every and 2**i <= n]
    count = max(2, round((n + 1) / every) - 1)
    first = min(every, n)
    middle = np.linspace(first, max(n + 1 - first, first), count).round().astype(int)
    ranks = np.concatenate([np.array(end, int), middle])
    return np.unique(np.concatenate([ranks, n + 1 - ranks]))

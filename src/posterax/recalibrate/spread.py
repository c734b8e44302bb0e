r"""How wide the intervals have to be: one factor, measured on rows that the fit has not seen.

For each held-out row and level the *reach* is (y − mean) / (edge − mean), with the edge of the
central interval on y's side: 1 on the edge, below 1 inside. Intervals widened by the reach's
quantile at their own level hold that share of the rows (as in split conformal prediction, Lei et
al. 2018). The factor is the geometric mean over four levels, drawn towards 1 where rows are few.
"""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._util.checks import whole_number
from ..predictive import Predictive
from .base import Recalibration, numbers, shown, targets

LEVELS = np.array([0.5, 0.8, 0.9, 0.95])
PRIOR_ROWS = 30  # a factor of 1 counts as much as so many rows
LIMITS = (1 / 3, 3)


@dataclasses.dataclass(frozen=True)
class Spread(Recalibration):
    r"""One factor by which a regression's deviations from its mean are widened or narrowed.

    The mean, the shape and the parts of the variance stay; each deviation is ``value`` times what
    it was, so the result is a predictive like any other. ``px.BayesianRegressor`` does this by
    itself (``calibrate=True``).

    Args:
        value: the factor, between 1/3 and 3; one for each output where there are several.
        n: held-out rows that it was fitted on.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> network = px.networks.MLP(1, 1, (4,), key=0)
        >>> model = px.Model(network, px.priors.Gaussian(0.01), px.likelihoods.Gaussian(0.1))
        >>> x = np.zeros((400, 1), "float32")
        >>> predictive = px.prior_posterior(model, x).predict(x, samples=20, key=0)  # N(0, 0.1²)
        >>> y = 0.2 * np.random.default_rng(0).normal(size=400)  # twice as wide
        >>> spread = px.recalibrate.Spread.fit(predictive, y)
        >>> bool(1.7 < spread.value < 2.1)
        True
        >>> bool(np.allclose(spread(predictive).std, spread.value * predictive.std))
        True
    """

    kinds = ("regression",)
    instead = "px.recalibrate.Temperature (of classes) or px.recalibrate.Isotonic (of counts)"

    value: Any
    n: int

    def __post_init__(self) -> None:
        if not np.all(np.asarray(self.value, np.float64) > 0):
            raise ValueError(f"value must be above 0, got {self.value!r}")
        object.__setattr__(self, "value", numbers(self.value))
        whole_number("n", self.n)

    def __repr__(self) -> str:
        return f"Spread({shown(self.value)}, from {self.n} rows)"

    @classmethod
    def fit(cls, predictive: Predictive, y: ArrayLike) -> "Spread":
        """The factor that makes intervals hold as many held-out rows as they say.

        Args:
            predictive: of held-out inputs.
            y: their targets.
        """
        cls.check_kind(predictive)
        y = targets(y, predictive.mean.shape)
        return cls(measure(predictive, y, np.ones(len(y))), len(y))

    def __call__(self, predictive: Predictive) -> Predictive:
        """The predictive as wide as held-out data ask for."""
        self.check_kind(predictive)
        return predictive.widened(self.value)


def measure(predictive: Predictive, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The factor by which deviations from the mean should be wider, shaped like one target.

    Args:
        predictive: of the held-out rows, before any widening.
        y: their targets.
        weight: how often each counts.

    Example:
        See [`Spread`][posterax.recalibrate.Spread], where every row counts once.
    """
    mean = predictive.mean
    edges = predictive.quantile(np.concatenate([(1 - LEVELS) / 2, (1 + LEVELS) / 2]))
    low, high = edges[: len(LEVELS)], edges[len(LEVELS) :]
    edge = np.where(y > mean, high, low)
    with np.errstate(invalid="ignore", divide="ignore"):
        reach = (y - mean) / (edge - mean)
    # a mean outside its own interval: beyond any edge; no width and no error: as it should be
    reach = np.where(np.isnan(reach), 1.0, np.where(reach < 0, LIMITS[1], reach))
    wanted = np.stack([
        np.quantile(r, level, axis=0, weights=weight, method="inverted_cdf")
        for r, level in zip(reach, LEVELS, strict=True)
    ])  # fmt: skip
    rows = weight.sum() ** 2 / np.square(weight).sum()  # as many of equal weight say as much
    factor = np.exp(np.mean(np.log(np.clip(wanted, *LIMITS)), axis=0))
    return np.asarray(factor ** (rows / (rows + PRIOR_ROWS)))

r"""Independent draws with weights: what importance sampling returns.

Σ vᵢ F(cᵢ) with vᵢ = wᵢ / Σ w estimates E[F(w) | D], and (Σ w)² / Σ w² says how many draws count.
The largest weights follow a generalised Pareto distribution, whose shape k tells how heavy their
tail is: 1/k moments are finite. Replaced by the quantiles of that distribution, they no longer
depend on which single candidate happened to come (Vehtari et al. 2024).
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from .._util.keys import KeyLike
from ..model import Parameters
from .base import Evidence, evaluate_each
from .draws import Draws


class WeightedDraws(Draws):
    r"""Independent candidates with weights, (chain, draw); made by ``px.ImportanceSampling``.

    ``log_weights`` are normalised, and Pareto smoothed where the method was asked to;
    ``stats["log_weight"]`` holds log p(D, c) − log q(c) as it was. ``khat`` is the shape of the
    weights' tail (NaN where it cannot be found, and on a grid); ``log_normaliser`` is log p(D)
    where the user knew it, and makes ``expectation`` the plain, unbiased mean of w F.
    """

    khat: Any = None
    log_normaliser: Any = None

    @property
    def effective_sample_size(self) -> float:
        """(Σ w)² / Σ w²: how many equally weighted draws tell as much."""
        return effective(self.log_weights)

    def expectation(
        self, function: Callable[[Parameters], Any], *, samples: int | None = None, key: KeyLike = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        if samples is not None:
            return super().expectation(function, samples=samples, key=key)
        count = int(np.prod(self.shape))
        values = np.asarray(evaluate_each(function, self.bare(), jnp.arange(count)), np.float64)
        if self.log_normaliser is None:
            w, known = np.exp(normalised(self.log_weights)).ravel(), False
        else:
            raw = np.asarray(self.stats["log_weight"], np.float64).ravel()
            w, known = np.exp(raw - float(self.log_normaliser)) / count, True
        # what has no weight may have no value either
        used = np.expand_dims(w > 0, tuple(range(1, values.ndim)))
        values = np.where(used, values, 0)
        mean = np.tensordot(w, values, axes=1)
        if not known:  # the delta method for a ratio of two means
            return mean, np.sqrt(np.tensordot(np.square(w), np.square(values - mean), axes=1))
        each = count * w.reshape(used.shape) * values
        return mean, each.std(axis=0, ddof=1) / np.sqrt(count)


def normalised(log_weights: ArrayLike) -> np.ndarray:
    """Log weights whose exponentials sum to one, in float64."""
    raw = np.asarray(log_weights, np.float64)
    return raw - raw.max() - np.log(np.sum(np.exp(raw - raw.max())))


def effective(log_weights: ArrayLike) -> float:
    """The effective sample size of draws with these log weights.

    Example:
        >>> import numpy as np
        >>> from posterax.posteriors.weighted import effective
        >>> round(effective(np.log([0.5, 0.5, 1e-9])), 3)
        2.0
    """
    return float(1 / np.sum(np.exp(2 * normalised(log_weights))))


def evidence_of(log_weights: np.ndarray) -> Evidence:
    """log of the mean weight, and its standard error by the delta method."""
    raw = np.asarray(log_weights, np.float64).ravel()
    best, n = raw.max(), raw.size
    w = np.exp(raw - best)
    error = w.std(ddof=1) / (np.sqrt(n) * w.mean()) if n > 1 else np.inf
    return Evidence(float(best + np.log(w.mean())), float(error))


def pareto_smooth(
    log_weights: np.ndarray, relative_efficiency: float = 1.0
) -> tuple[np.ndarray, float]:
    """Log weights with a smoothed tail, normalised, and k-hat; both by arviz-stats.

    ``relative_efficiency`` is the effective share of the draws, where they depend on one another.
    NaN, and weights as they are, where the tail says nothing: below 25 candidates, or where the
    largest weights are all the same or nothing beside the very largest.
    """
    raw = np.asarray(log_weights, np.float64)
    plain = normalised(raw)
    if raw.size < 25:
        return plain, np.nan
    from arviz_stats.base import array_stats

    with np.errstate(all="ignore"):
        try:
            smooth, khat = array_stats.psislw(-raw.ravel(), r_eff=relative_efficiency)
        except ValueError:  # all tail values are the same
            return plain, np.nan
    if not np.isfinite(khat) or np.any(np.isnan(smooth)):
        return plain, np.nan
    return smooth.reshape(raw.shape), float(khat)

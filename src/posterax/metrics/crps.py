r"""The continuous ranked probability score, of the predictive's own distribution.

    CRPS(F, y) = ∫ (F(z) − 1[z ≥ y])² dz = E|Y − y| − ½ E|Y − Y′|,  Y, Y′ ~ F independent

A predictive is a mixture over posterior samples. Of Gaussians both expectations have closed forms
(Grimit et al. 2006), the second a sum over pairs, and for many samples the integral of F (1 − F);
counts make the integral a sum. For all others it is twice the pinball loss of the predictive's
quantiles, averaged over their levels.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from numpy.typing import ArrayLike

from ..likelihoods import Gaussian, MultivariateGaussian
from ..predictive import Predictive
from ..predictive.sampled import SampledOutputs
from .inputs import Forecast, Weight, aligned, only_values, weighted_mean

LEVELS = 200  # of quantiles; the error for a Gaussian is below 6e-5 of its deviation
COUNTS = 1024  # to sum at most, one by one; beyond, quantiles do
REACH = 10.0  # deviations beyond which (1 − F)² is left out
PAIRS = 1024  # posterior samples up to which all pairs of them are summed
PLACES = 4096  # of F at most for more samples; beyond, quantiles do
STEP = 0.75  # between places, in deviations of the narrowest Gaussian: exact to about 2e-8
LIGHT = 1e-8  # weight of the samples, all together, that do not say where to look


def crps(predictive: Forecast, y: ArrayLike, *, weight: Weight = None) -> float:
    """The mean continuous ranked probability score, in the units of y; smaller is better.

    That of a point prediction is its absolute error. Several targets of one example are scored
    each alone and averaged; ``crps_each`` has them apart.

    Args:
        predictive: of regression or counts.
        y: targets.
        weight: of each example.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.zeros((3, 1), "float32")
        >>> model = px.Model(px.networks.MLP(1, 1, (4,), key=0), None, px.likelihoods.Gaussian(0.1))
        >>> predictive = px.prior_posterior(model, x).predict(x, key=0)
        >>> px.metrics.crps(predictive, np.zeros(3)) < px.metrics.crps(predictive, np.full(3, 9.0))
        True

    References:
        Gneiting & Raftery, Strictly Proper Scoring Rules, Prediction, and Estimation, JASA 2007.
        Grimit et al., The Continuous Ranked Probability Score for Circular Variables and its
        Application to Mesoscale Forecast Ensemble Verification, QJRMS 2006 (Gaussian mixtures).
    """
    return weighted_mean(crps_each(predictive, y), weight)


def crps_each(predictive: Forecast, y: ArrayLike) -> np.ndarray:
    """The score of every target, in their shape: ``crps_each(…).mean(0)`` is for each output.

    Exact to float precision for Gaussian likelihoods: up to 1024 posterior samples by all pairs of
    them; for more, whose pairs would take minutes, by an integral over at most 4096 places of y
    that does not err noticeably either (where 4096 are too few, since noise is below about 1/3000
    of the range of y, by quantiles). Within about 1e-3 of itself for counts that spread over fewer
    than a thousand; through 200 quantiles for others, which for one Gaussian errs by less than 6e-5
    standard deviations.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.zeros((3, 1), "float32")
        >>> model = px.Model(px.networks.MLP(1, 2, (4,), key=0), None, px.likelihoods.Gaussian(0.1))
        >>> predictive = px.prior_posterior(model, x).predict(x, key=0)
        >>> px.metrics.crps_each(predictive, np.zeros((3, 2))).shape
        (3, 2)
    """
    predictive = only_values(predictive)
    y = aligned(y, predictive.mean.shape).astype(np.float64)
    each = _exact(predictive, y)
    wide = np.isnan(each)
    return np.where(wide, _by_quantiles(predictive, y), each) if wide.any() else each


def _exact(predictive: Predictive, y: np.ndarray) -> np.ndarray:
    """The score where it can be computed exactly, and NaN elsewhere."""
    reduce, nowhere = _reduction(predictive), np.full(y.shape, np.nan)
    try:
        if reduce is None:
            return nowhere
        each = predictive._stream(reduce, predictive._inner_targets(y))[0]
    except NotImplementedError:  # outputs that have no distribution each, as a multinomial's
        return nowhere
    each = each.reshape(y.shape).astype(np.float64)
    return each if predictive._units is None else each * predictive._units.scale


def _reduction(predictive: Predictive) -> Callable[..., tuple[jax.Array]] | None:
    if not isinstance(predictive, Predictive):
        return None
    if isinstance(predictive._model.likelihood, Gaussian | MultivariateGaussian):
        return _of_gaussians if predictive.samples <= PAIRS else _of_many_gaussians
    return _of_counts if predictive.kind == "counts" else None


def _by_quantiles(predictive: Predictive, y: np.ndarray) -> np.ndarray:
    """2 ∫ pinball_q(y − Q(q)) dq, with levels close together at the ends where Q is steep."""
    u = (np.arange(LEVELS) + 0.5) / LEVELS
    levels, weights = u * u * (3 - 2 * u), u * (1 - u)
    above = y - np.asarray(predictive.quantile(levels), np.float64)
    q = levels.reshape(-1, *[1] * y.ndim)
    return 2 * np.average(np.maximum(q * above, (q - 1) * above), axis=0, weights=weights)


def _of_gaussians(sampled: SampledOutputs, extra: PyTree) -> tuple[jax.Array]:
    """E|Y − y| − ½ E|Y − Y′| of a Gaussian mixture, a sum over pairs of samples."""

    mean, std = _moments(sampled)

    def pairs(sample: tuple[jax.Array, jax.Array]) -> jax.Array:
        other, scale = sample
        return sampled.average(_mean_distance(mean - other, jnp.hypot(std, scale)))

    apart = sampled.average(_mean_distance(mean - jnp.asarray(sampled.y), std))
    return (apart - 0.5 * sampled.average(jax.lax.map(pairs, (mean, std))),)


def _of_many_gaussians(sampled: SampledOutputs, extra: PyTree) -> tuple[jax.Array]:
    r"""E|Y − y| − ∫ F (1 − F): what is integrated is smooth, and evenly spaced places do.

    The error of places h apart falls as exp(−π² σ² / h²) for the least deviation σ. NaN where
    they would be too many.
    """
    mean, std = _moments(sampled)
    apart = sampled.average(_mean_distance(mean - jnp.asarray(sampled.y), std))
    counts = sampled.weights > LIGHT / len(sampled.weights)
    counts = counts.reshape(-1, *[1] * (mean.ndim - 1))
    low = jnp.min(jnp.where(counts, mean - REACH * std, jnp.inf), axis=0)
    high = jnp.max(jnp.where(counts, mean + REACH * std, -jnp.inf), axis=0)
    places = jnp.ceil((high - low) / (STEP * jnp.min(jnp.where(counts, std, jnp.inf), axis=0)))
    fits = places <= PLACES
    steps = jnp.max(jnp.where(fits, places, 0)).astype(int)
    width = (high - low) / steps

    def add(step: jax.Array, total: jax.Array) -> jax.Array:
        below = jax.scipy.stats.norm.cdf(low + step * width, mean, std)
        # weights sum to one within rounding only: 1 − F would be off by that wherever F is 1
        return total + sampled.average(below) * sampled.average(1 - below)

    inside = jax.lax.fori_loop(0, steps, add, jnp.zeros_like(apart))
    return (jnp.where(fits, apart - width * inside, jnp.nan),)


def _mean_distance(mean: jax.Array, std: jax.Array) -> jax.Array:
    """E|X| of a Gaussian."""
    at = mean / std
    return mean * jax.scipy.special.erf(at / np.sqrt(2)) + 2 * std * jax.scipy.stats.norm.pdf(at)


def _of_counts(sampled: SampledOutputs, extra: PyTree) -> tuple[jax.Array]:
    """Σ_k (F(k) − 1[k ≥ y])² over where F is neither 0 nor 1; beyond, the distance to y.

    NaN where there are too many counts to sum.
    """
    y = jnp.asarray(sampled.y).astype(sampled.outputs.dtype)
    mean, std = _moments(sampled)
    low = jnp.floor(jnp.maximum(jnp.min(mean - REACH * std, axis=0), 0))
    high = jnp.ceil(jnp.max(mean + REACH * std, axis=0)) + 1
    fits = high - low <= COUNTS

    def probability(k: jax.Array) -> jax.Array:
        def one(f: jax.Array, own: PyTree, side: PyTree) -> jax.Array:
            distribution = sampled.likelihood.marginal(f, own, side)
            return jnp.where(distribution.support(k), jnp.exp(distribution.log_prob(k)), 0)

        return sampled.average(sampled.each(one))

    def add(step: jax.Array, sums: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        total, below = sums
        k = low + step
        below = below + probability(k)  # adding up is far cheaper than distribution functions
        term = jnp.square(below - (k >= y))
        return total + jnp.where(k < high, term, 0), below

    steps = jnp.max(jnp.where(fits, high - low, 0)).astype(int)
    total, _ = jax.lax.fori_loop(0, steps, add, (jnp.zeros_like(low), jnp.zeros_like(low)))
    total = total + jnp.maximum(low - y, 0) + jnp.maximum(y - high, 0)
    return (jnp.where(fits, total, jnp.nan),)


def _moments(sampled: SampledOutputs) -> tuple[jax.Array, jax.Array]:
    """Mean and deviation of y under every sample, (samples, rows, …)."""

    def one(f: jax.Array, own: PyTree, side: PyTree) -> tuple[jax.Array, jax.Array]:
        marginal = sampled.likelihood.marginal(f, own, side)
        return marginal.mean, jnp.sqrt(marginal.variance)

    return sampled.each(one)

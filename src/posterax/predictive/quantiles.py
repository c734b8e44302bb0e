"""Distribution functions, quantiles and shortest intervals of y for a block of inputs."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import PyTree

from ..likelihoods.regression import EvenStudentT
from .sampled import SampledOutputs, allocate, draw_y

DRAWS = 1000  # of y at least, where quantiles come from draws
MOST_DRAWS = 4000  # and so many where there are more samples
HALVINGS = 40  # from 128 deviations to below float32
DOUBLINGS = 60  # of a bracket that started from draws
GRID = 256  # values of y at which the distribution function is looked up for shortest intervals
ROUNDING = 4e-6  # of a sum of a thousand weights in float32


def cdf(sampled: SampledOutputs, extra: PyTree) -> Any:
    """E_w P(Y ≤ y | w), for each output alone."""
    y = jnp.asarray(sampled.y)
    return _exact(sampled, lambda: _below(sampled, y), lambda: _share_below(sampled, y))


def quantiles(sampled: SampledOutputs, levels: jax.Array) -> Any:
    """Quantiles of y: of the mixture's distribution function, or of draws without one.

    For classes, those of their probabilities over the posterior.
    """
    if sampled.of_classes:
        return _weighted_quantile(sampled.probabilities(), sampled.weights, levels)
    return _exact(
        sampled,
        lambda: _bisect(sampled, levels),
        lambda: _weighted_quantile(*_draws(sampled), levels, jumps=_is_discrete(sampled)),
        continuous=True,
    )


def shortest(sampled: SampledOutputs, level: jax.Array) -> Any:
    """The shortest interval with mass ``level`` of y, or of the probabilities of classes."""
    if sampled.of_classes:
        return _weighted_shortest(sampled.probabilities(), sampled.weights, level)
    return _exact(
        sampled,
        lambda: _exact_shortest(sampled, level),
        lambda: _weighted_shortest(*_draws(sampled), level),
        continuous=True,
    )


# -- with a distribution function


def _exact(
    sampled: SampledOutputs,
    exact: Callable[[], jax.Array],
    from_draws: Callable[[], jax.Array],
    continuous: bool = False,
) -> jax.Array:
    """``exact`` where the likelihood has the distribution function of an output."""
    if continuous and _is_discrete(sampled):
        return from_draws()
    try:
        return exact()
    except NotImplementedError:
        return from_draws()


def _is_discrete(sampled: SampledOutputs) -> bool:
    return bool(sampled.likelihood.distribution(*sampled.first(), sampled.side).is_discrete)


def _below(sampled: SampledOutputs, y: jax.Array) -> jax.Array:
    def one(f: jax.Array, own: PyTree, side: PyTree) -> jax.Array:
        distribution = sampled.likelihood.marginal(f, own, side)
        # distribution functions are defined on the support only: log y, for one, is not beyond it
        least, most = _support(distribution)
        inside = distribution.cdf(jnp.clip(y, least, most))
        return jnp.where(y < least, 0, jnp.where(y > most, 1, inside))

    each = sampled.each(one)
    # small numbers are summed: a sum close to 1 would lose, in float32, how close it is
    below, above = sampled.average(each), sampled.average(1 - each)
    return jnp.where(below < above, below, 1 - above)


def _support(distribution: dist.Distribution) -> tuple[Any, Any]:
    support = distribution.support
    return getattr(support, "lower_bound", -jnp.inf), getattr(support, "upper_bound", jnp.inf)


def _one(sampled: SampledOutputs) -> dist.Distribution:
    """The distribution of the first sample: of which family they all are."""
    return sampled.likelihood.marginal(*sampled.first(), sampled.side)


def _bracket(sampled: SampledOutputs, level: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Values of y with less and with more than the level below them."""
    if isinstance(_one(sampled), dist.Normal | EvenStudentT):

        def spread(f: jax.Array, own: PyTree, side: PyTree) -> Any:
            distribution = sampled.likelihood.marginal(f, own, side)
            return distribution.mean, jnp.sqrt(distribution.variance)

        mean, std = sampled.each(spread)
        shape = (len(level), *mean.shape[1:])
        low, high = jnp.min(mean - 64 * std, axis=0), jnp.max(mean + 64 * std, axis=0)
        return jnp.broadcast_to(low, shape), jnp.broadcast_to(high, shape)

    # deviations may be infinite, or far larger than what is asked for: draws are neither
    def reach(f: jax.Array, own: PyTree, side: PyTree) -> Any:
        distribution = sampled.likelihood.marginal(f, own, side)
        ends = _support(distribution)
        return tuple(jnp.broadcast_to(end, distribution.batch_shape) for end in ends)

    least, most = sampled.each(reach)
    least, most = jnp.min(least, axis=0), jnp.max(most, axis=0)
    n = min(max(64, len(sampled.weights)), DRAWS)
    drawn = draw_y(sampled, allocate(sampled.weights, n), sampled.key)
    shape = (len(level), *drawn.shape[1:])
    low, high = (jnp.broadcast_to(end(drawn, axis=0), shape) for end in (jnp.min, jnp.max))
    width = jnp.maximum(high - low, 1e-3 * jnp.maximum(jnp.abs(high), 1e-3))

    def wider(state: PyTree) -> Any:
        low, high, width, _, number = state
        over = jax.lax.map(lambda y: _below(sampled, y), low) > level
        under = jax.lax.map(lambda y: _below(sampled, y), high) < level
        low = jnp.where(over, jnp.maximum(low - width, least), low)
        high = jnp.where(under, jnp.minimum(high + width, most), high)
        return low, high, 2 * width, jnp.any(over | under), number + 1

    def going(state: PyTree) -> jax.Array:
        return state[3] & (state[4] < DOUBLINGS)

    start = (low, high, width, jnp.asarray(True), jnp.asarray(0))
    return jax.lax.while_loop(going, wider, start)[:2]


def _bisect(sampled: SampledOutputs, levels: jax.Array) -> jax.Array:
    """Bisection of E_w[F(y | w)] = q for all inputs and levels at once, as (rows, levels, …).

    Levels are the same for all rows, (levels,), or their own for each, (levels, rows, …).
    """
    level = levels.astype(sampled.outputs.dtype)
    if level.ndim == 1:
        level = level.reshape(-1, *[1] * len(_one(sampled).batch_shape))
    low, high = _bracket(sampled, level)

    def halve(_: int, bracket: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bracket
        middle = 0.5 * (low + high)
        under = jax.lax.map(lambda y: _below(sampled, y), middle) < level
        return jnp.where(under, middle, low), jnp.where(under, high, middle)

    low, high = jax.lax.fori_loop(0, HALVINGS, halve, (low, high))
    return jnp.moveaxis(0.5 * (low + high), 0, 1)


def _exact_shortest(sampled: SampledOutputs, level: jax.Array) -> jax.Array:
    """The mass below the shortest interval from a table of F; then its ends, by bisection.

    The width of an interval is flat where it is least, so that the table's error in the mass below
    hardly tells; that in the mass inside would, and there is none.
    """
    level = level.astype(sampled.outputs.dtype)
    tail = (1 - level) / 1000
    marks = _bisect(sampled, jnp.stack([tail, 0.5 + 0 * tail, 1 - tail]))
    low, median, high = marks[:, 0], marks[:, 1], marks[:, 2]
    # close together near the median, so that heavy tails do not take most of the points
    share = jnp.sinh(4 * jnp.linspace(-1, 1, GRID, dtype=low.dtype)) / jnp.sinh(4.0)
    share = share.reshape(-1, *[1] * low.ndim)
    points = median + share * jnp.where(share < 0, median - low, high - median)
    below = jax.lax.map(lambda y: _below(sampled, y), points)

    def least(points: jax.Array, below: jax.Array) -> jax.Array:
        upper = jnp.interp(below + level, below, points)
        width = jnp.where(below + level <= below[-1], upper - points, jnp.inf)
        return below[jnp.argmin(width)]

    flat = jax.vmap(least, in_axes=1)(points.reshape(GRID, -1), below.reshape(GRID, -1))
    start = jnp.clip(flat.reshape(low.shape), 0, 1 - level)
    return _bisect(sampled, jnp.stack([start, start + level]))


# -- without


def _draws(sampled: SampledOutputs) -> tuple[jax.Array, jax.Array]:
    n = max(DRAWS, min(len(sampled.weights), MOST_DRAWS))
    return draw_y(sampled, allocate(sampled.weights, n), sampled.key), jnp.full((n,), 1 / n)


def _share_below(sampled: SampledOutputs, y: jax.Array) -> jax.Array:
    drawn, weights = _draws(sampled)
    return jnp.tensordot(weights, (drawn <= y).astype(weights.dtype), axes=1)


def _ranked(values: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Values in order over the first axis, and their weights, each as (all the rest, draws)."""
    order = jnp.argsort(values, axis=0)
    ranked = jnp.take_along_axis(values, order, axis=0)
    mass = w.astype(jnp.result_type(float))[order]
    return ranked.reshape(len(w), -1).T.astype(mass.dtype), mass.reshape(len(w), -1).T


def _weighted_quantile(
    values: jax.Array, w: jax.Array, levels: jax.Array, jumps: bool = False
) -> jax.Array:
    """Quantiles over the first axis with weights, as (rows, levels, …).

    Of whole numbers (``jumps``) the least value that has the level below it.
    """

    def one(ranked: jax.Array, mass: jax.Array) -> jax.Array:
        total = jnp.cumsum(mass)
        if jumps:
            return ranked[jnp.minimum(jnp.searchsorted(total, levels - ROUNDING), len(w) - 1)]
        # each draw sits in the middle of its own weight; ends are clamped
        return jnp.interp(levels, total - 0.5 * mass, ranked)

    flat = jax.vmap(one)(*_ranked(values, w))
    return jnp.moveaxis(flat.reshape(*values.shape[1:], -1), -1, 1)


def _weighted_shortest(values: jax.Array, w: jax.Array, level: jax.Array) -> jax.Array:
    """The shortest interval between draws with at least mass ``level``, as (rows, 2, …)."""

    def one(ranked: jax.Array, mass: jax.Array) -> jax.Array:
        total = jnp.cumsum(mass)
        last = jnp.searchsorted(total, total - mass + level - ROUNDING)
        width = jnp.where(last < len(w), ranked[jnp.minimum(last, len(w) - 1)] - ranked, jnp.inf)
        first = jnp.argmin(width)
        return jnp.stack([ranked[first], ranked[jnp.minimum(last[first], len(w) - 1)]])

    flat = jax.vmap(one)(*_ranked(values, w))
    return jnp.moveaxis(flat.reshape(*values.shape[1:], 2), -1, 1)

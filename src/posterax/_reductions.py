"""What streams: one block of inputs, all posterior samples, reduced to a row per input."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from .data import shuffle
from .likelihoods import Likelihood

DRAWS = 1000  # of y at least, where quantiles come from draws
HALVINGS = 40  # from 128 deviations to below float32


class Particles(NamedTuple):
    """Weighted draws of a posterior by identity: a key each, or an index each."""

    ids: Any
    weights: jax.Array


class Block(NamedTuple):
    """One block of inputs with the network's outputs for every posterior sample."""

    likelihood: Likelihood
    outputs: jax.Array  # (samples, rows, …)
    own: Any  # the likelihood's parameters, (samples, …)
    side: Any
    weights: jax.Array
    y: Any
    key: jax.Array

    def each(self, function: Callable[..., Any], *more: Any) -> Any:
        """Apply ``function(outputs, own, side, …)`` to every sample."""
        return jax.vmap(lambda f, own, *args: function(f, own, self.side, *args))(
            self.outputs, self.own, *more
        )

    def average(self, values: jax.Array) -> jax.Array:
        """The weighted mean over samples."""
        return jnp.tensordot(self.weights.astype(values.dtype), values, axes=1)


@eqx.filter_jit
def reduce_block(
    reduce: Callable[[Block, Any], Any],
    source: Any,
    x: Any,
    y: Any,
    particles: Particles,
    key: jax.Array,
    extra: Any,
) -> Any:
    model = source.model
    outputs, own = source.evaluate(particles.ids, x)
    side = model.likelihood.split(x)[1]
    block = Block(model.likelihood, outputs, own, side, particles.weights, y, key)
    return reduce(block, extra)


def moments(block: Block, extra: Any) -> Any:
    def one(f: jax.Array, own: Any, side: Any) -> tuple[jax.Array, jax.Array]:
        distribution = block.likelihood.distribution(f, own, side)
        return distribution.mean, distribution.variance

    means, variances = block.each(one)
    mean = block.average(means)
    epistemic = block.average(jnp.square(means - mean))
    aleatoric = block.average(variances)
    total = epistemic + aleatoric
    return mean, total, epistemic, aleatoric, total


def class_moments(block: Block, extra: Any) -> Any:
    p = block.each(block.likelihood.probabilities)
    mean = block.average(p)
    variance = block.average(jnp.square(p - mean))
    aleatoric = block.average(_entropy(p))
    # rounding must not make information negative
    total = jnp.maximum(_entropy(mean), aleatoric)
    return mean, variance, total - aleatoric, aleatoric, total


def _entropy(p: jax.Array) -> jax.Array:
    return -jnp.sum(jax.scipy.special.xlogy(p, p), axis=-1)


def log_prob(block: Block, extra: Any) -> Any:
    each = block.each(
        lambda f, own, side: block.likelihood.log_prob(f, jnp.asarray(block.y), own, side)
    )
    weights = block.weights.astype(each.dtype)[:, None]
    return (jax.nn.logsumexp(each, axis=0, b=weights),)


def outputs(block: Block, extra: Any) -> Any:
    return (jnp.moveaxis(block.outputs, 0, 1),)


def _draw_y(block: Block, index: jax.Array, key: jax.Array) -> jax.Array:
    """One draw of y from each of the samples ``index`` (an index may come again)."""
    f, own = jax.tree.map(lambda a: a[index], (block.outputs, block.own))
    keys = jax.random.split(key, len(index))
    return jax.vmap(
        lambda f, own, k: block.likelihood.distribution(f, own, block.side).sample(k)
    )(f, own, keys)  # fmt: skip


def draws(block: Block, extra: tuple[jax.Array, int]) -> Any:
    """``n`` draws of y: samples in random order, or by their weights where these differ."""
    pick, n = extra
    chosen = jax.random.choice(pick, len(block.weights), (n,), p=block.weights)
    equal = jnp.all(block.weights == block.weights[0])
    # each as often as the others, but not always the same ones where ``n`` is small
    in_turn = shuffle(jnp.arange(n) % len(block.weights), len(block.weights), pick)
    index = jnp.where(equal, in_turn, chosen)
    return (jnp.moveaxis(_draw_y(block, index, block.key), 0, 1),)


def quantiles(block: Block, levels: jax.Array) -> Any:
    """Quantiles of y: of the mixture's distribution function, or of draws without one."""
    f, own = jax.tree.map(lambda a: a[0], (block.outputs, block.own))
    one = block.likelihood.distribution(f, own, block.side)
    if one.is_discrete or one.event_shape != ():
        return (_sampled_quantiles(block, levels),)
    try:
        return (_exact_quantiles(block, levels),)
    except NotImplementedError:
        return (_sampled_quantiles(block, levels),)


def _exact_quantiles(block: Block, levels: jax.Array) -> jax.Array:
    """Bisection of E_w[F(y | w)] = q, all inputs and levels at once."""

    def spread(f: jax.Array, own: Any, side: Any) -> Any:
        distribution = block.likelihood.distribution(f, own, side)
        return distribution.mean, jnp.sqrt(distribution.variance)

    mean, std = block.each(spread)
    shape = (len(levels), *mean.shape[1:])
    level = levels.astype(mean.dtype).reshape(-1, *[1] * (mean.ndim - 1))
    low = jnp.broadcast_to(jnp.min(mean - 64 * std, axis=0), shape)
    high = jnp.broadcast_to(jnp.max(mean + 64 * std, axis=0), shape)

    def below(y: jax.Array) -> jax.Array:
        def one(f: jax.Array, own: Any, side: Any) -> jax.Array:
            return block.likelihood.distribution(f, own, side).cdf(y)

        return block.average(block.each(one))

    def halve(_: int, bracket: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bracket
        middle = 0.5 * (low + high)
        under = jax.lax.map(below, middle) < level
        return jnp.where(under, middle, low), jnp.where(under, high, middle)

    low, high = jax.lax.fori_loop(0, HALVINGS, halve, (low, high))
    return jnp.moveaxis(0.5 * (low + high), 0, 1)


def _sampled_quantiles(block: Block, levels: jax.Array) -> jax.Array:
    repeats = -(-DRAWS // len(block.weights))
    index = jnp.repeat(jnp.arange(len(block.weights)), repeats)
    return _weighted_quantile(
        _draw_y(block, index, block.key), block.weights[index] / repeats, levels
    )


def class_quantiles(block: Block, levels: jax.Array) -> Any:
    """Quantiles of the class probabilities over the posterior."""
    p = block.each(block.likelihood.probabilities)
    return (_weighted_quantile(p, block.weights, levels),)


def _weighted_quantile(values: jax.Array, w: jax.Array, levels: jax.Array) -> jax.Array:
    """Quantiles over the first axis with weights, as (rows, levels, …)."""
    order = jnp.argsort(values, axis=0)
    ranked = jnp.take_along_axis(values, order, axis=0)
    # each draw sits in the middle of its own weight; ends are clamped
    mass = w.astype(jnp.result_type(float))[order]
    place = jnp.cumsum(mass, axis=0) - 0.5 * mass
    flat = jax.vmap(lambda p, v: jnp.interp(levels, p, v), in_axes=1)(
        place.reshape(len(w), -1), ranked.reshape(len(w), -1).astype(place.dtype)
    )
    return jnp.moveaxis(flat.reshape(*values.shape[1:], -1), -1, 1)

"""A block of inputs and all posterior samples, reduced to a row per input."""

from typing import Any

import jax
import jax.numpy as jnp

from ..data import shuffle
from .block import Block


def moments(block: Block, extra: Any) -> Any:
    """By the law of total variance: mean, variance, epistemic, aleatoric, total."""

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
    """By entropies: mean and variance of the probabilities, epistemic, aleatoric, total."""
    p = block.probabilities()
    mean = block.average(p)
    variance = block.average(jnp.square(p - mean))
    aleatoric = block.average(_entropy(p))
    # rounding must not make information negative
    total = jnp.maximum(_entropy(mean), aleatoric)
    return mean, variance, total - aleatoric, aleatoric, total


def _entropy(p: jax.Array) -> jax.Array:
    return -jnp.sum(jax.scipy.special.xlogy(p, p), axis=-1)


def covariances(block: Block, extra: Any) -> Any:
    """Epistemic Cov_w(E[y | w]) and aleatoric E_w Cov[y | w] of the outputs of an example."""

    def one(f: jax.Array, own: Any, side: Any) -> tuple[jax.Array, jax.Array]:
        mean = block.likelihood.distribution(f, own, side).mean
        return mean.reshape(len(mean), -1), block.likelihood.output_covariance(f, own, side)

    means, inside = block.each(one)
    return _outer(block, means), block.average(inside)


def class_covariances(block: Block, extra: Any) -> Any:
    """The same of the indicators of the classes: Cov_w(p) and E_w[diag p − p pᵀ]."""
    p = block.probabilities()
    mean = block.average(p)
    epistemic = _outer(block, p)
    total = mean[..., None] * (jnp.eye(p.shape[-1]) - mean[..., None, :])
    return epistemic, total - epistemic


def _outer(block: Block, values: jax.Array) -> jax.Array:
    apart = values - block.average(values)
    weights = block.weights.astype(values.dtype)
    return jnp.einsum("s,s...i,s...j->...ij", weights, apart, apart, precision="highest")


def log_prob(block: Block, extra: Any) -> Any:
    """log E_w p(y | w)."""
    each = _log_likelihoods(block)
    return (jax.nn.logsumexp(each, axis=0, b=block.weights.astype(each.dtype)[:, None]),)


def log_likelihoods(block: Block, extra: Any) -> Any:
    """log p(y | w) of every sample."""
    return (_log_likelihoods(block).T,)


def _log_likelihoods(block: Block) -> jax.Array:
    y = jnp.asarray(block.y)
    if block.temperature is None:
        return block.each(lambda f, own, side: block.likelihood.log_prob(f, y, own, side))
    log_p = block.log_probabilities()
    labels = y.reshape(log_p.shape[1:-1])[..., None]
    picked = jnp.where(jnp.arange(log_p.shape[-1]) == labels, log_p, 0)
    return picked.reshape(*picked.shape[:2], -1).sum(-1)


def entropies(block: Block, n: int) -> Any:
    """−E log p(y) and −E log p(y | w), from ``n`` draws of y."""
    index = allocate(block.weights, n)

    def one(drawn: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        place, y = drawn
        each = _log_likelihoods(block._replace(y=y))
        weights = block.weights.astype(each.dtype)[:, None]
        return -jax.nn.logsumexp(each, axis=0, b=weights), -each[place]

    total, inside = jax.lax.map(one, (index, draw_y(block, index, block.key)))
    return total.mean(0), inside.mean(0)


def allocate(weights: jax.Array, n: int) -> jax.Array:
    """``n`` places of samples, each as often as its weight asks for, evenly spaced."""
    total = jnp.cumsum(weights)
    places = jnp.searchsorted(total, total[-1] * (jnp.arange(n) + 0.5) / n)
    return jnp.minimum(places, len(weights) - 1)


def outputs(block: Block, extra: Any) -> Any:
    """The network's outputs of every sample."""
    return (jnp.moveaxis(block.outputs, 0, 1),)


def conditional_means(block: Block, extra: Any) -> Any:
    """E[y | w] of every sample: for classes their probabilities."""
    if block.likelihood.kind == "classification":
        return (jnp.moveaxis(block.probabilities(), 0, 1),)
    means = block.each(lambda f, own, side: block.likelihood.distribution(f, own, side).mean)
    return (jnp.moveaxis(means, 0, 1),)


def draw_y(block: Block, index: jax.Array, key: jax.Array) -> jax.Array:
    """One draw of y from each of the samples ``index`` (an index may come again)."""
    keys = jax.random.split(key, len(index))
    if block.temperature is not None:
        log_p = block.log_probabilities()[index]
        return jax.vmap(jax.random.categorical)(keys, log_p)
    f, own = jax.tree.map(lambda a: a[index], (block.outputs, block.own))
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
    return (jnp.moveaxis(draw_y(block, index, block.key), 0, 1),)

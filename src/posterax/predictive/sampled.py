"""Outputs of all posterior samples for a block of inputs, and what they are reduced to."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..data import shuffle
from ..likelihoods import Likelihood
from ..program.compiled import compiled


class Particles(NamedTuple):
    """Weighted draws of a posterior by identity: a key each, or an index each."""

    ids: Any
    weights: jax.Array

    @classmethod
    def equal(cls, ids: PyTree) -> "Particles":
        """Draws that all weigh the same."""
        n = len(jax.tree.leaves(ids)[0])
        return cls(ids, jnp.full((n,), 1 / n))


class SampledOutputs(NamedTuple):
    """The network's outputs of every posterior sample for a block of inputs."""

    likelihood: Likelihood
    outputs: jax.Array  # (samples, rows, …)
    own: Any  # the likelihood's parameters, (samples, …)
    side: Any
    weights: jax.Array
    temperature: Any  # of class probabilities, where it is not 1
    y: Any
    key: jax.Array

    @property
    def of_classes(self) -> bool:
        """Whether y is a class, so that a sample gives probabilities."""
        return self.likelihood.kind == "classification"

    def each(self, function: Callable[..., Any], *more: Any) -> Any:
        """Apply ``function(outputs, own, side, …)`` to every sample."""
        return jax.vmap(lambda f, own, *args: function(f, own, self.side, *args))(
            self.outputs, self.own, *more
        )

    def first(self) -> tuple[Any, Any]:
        """The outputs, and the likelihood's parameters, of the first sample."""
        return jax.tree.map(lambda a: a[0], (self.outputs, self.own))

    def average(self, values: jax.Array) -> jax.Array:
        """The weighted mean over samples."""
        # by default a GPU's products of float32 may keep three digits only
        weights = self.weights.astype(values.dtype)
        return jnp.tensordot(weights, values, axes=1, precision="highest")

    def probabilities(self) -> jax.Array:
        """Class probabilities of every sample, (samples, rows, …, K)."""
        if self.temperature is None:
            return self.each(self.likelihood.probabilities)
        return jnp.exp(self.log_probabilities())

    def log_probabilities(self) -> jax.Array:
        """Their logarithms; with a temperature T, of p^(1/T) / Σ p^(1/T)."""
        log_p = self.each(self.likelihood.log_probabilities)
        if self.temperature is None:
            return log_p
        return jax.nn.log_softmax(log_p / self.temperature.astype(log_p.dtype))


@compiled
def reduce_sampled(
    reduce: Callable[[SampledOutputs, Any], Any],
    source: Any,
    x: PyTree,
    y: PyTree,
    particles: Particles,
    temperature: Any,
    key: jax.Array,
    extra: PyTree,
) -> Any:
    """``reduce`` of the outputs for a block of inputs ``x``, in one compiled program."""
    likelihood, weights = source.model.likelihood, particles.weights
    outputs, own = source.evaluate(particles.ids, x)
    side = likelihood.split(x)[1]
    sampled = SampledOutputs(likelihood, outputs, own, side, weights, temperature, y, key)
    return reduce(sampled, extra)


# -- reductions to a row for each input


def moments(sampled: SampledOutputs, extra: PyTree) -> Any:
    """Mean, variance, epistemic, aleatoric, total: by total variance, of classes by entropies."""
    if sampled.of_classes:
        p = sampled.probabilities()
        mean = sampled.average(p)
        variance = sampled.average(jnp.square(p - mean))
        aleatoric = sampled.average(_entropy(p))
        # rounding must not make information negative
        total = jnp.maximum(_entropy(mean), aleatoric)
        return mean, variance, total - aleatoric, aleatoric, total

    def one(f: jax.Array, own: PyTree, side: PyTree) -> tuple[jax.Array, jax.Array]:
        distribution = sampled.likelihood.distribution(f, own, side)
        return distribution.mean, distribution.variance

    means, variances = sampled.each(one)
    mean = sampled.average(means)
    epistemic = sampled.average(jnp.square(means - mean))
    aleatoric = sampled.average(variances)
    total = epistemic + aleatoric
    return mean, total, epistemic, aleatoric, total


def _entropy(p: jax.Array) -> jax.Array:
    return -jnp.sum(jax.scipy.special.xlogy(p, p), axis=-1)


def covariances(sampled: SampledOutputs, extra: PyTree) -> Any:
    """Epistemic Cov_w(E[y | w]) and aleatoric E_w Cov[y | w] of the outputs of an example.

    For classes of their indicators: Cov_w(p) and E_w[diag p − p pᵀ].
    """
    if sampled.of_classes:
        p = sampled.probabilities()
        mean = sampled.average(p)
        epistemic = _outer(sampled, p)
        total = mean[..., None] * (jnp.eye(p.shape[-1]) - mean[..., None, :])
        return epistemic, total - epistemic

    def one(f: jax.Array, own: PyTree, side: PyTree) -> tuple[jax.Array, jax.Array]:
        mean = sampled.likelihood.distribution(f, own, side).mean
        return mean.reshape(len(mean), -1), sampled.likelihood.output_covariance(f, own, side)

    means, inside = sampled.each(one)
    return _outer(sampled, means), sampled.average(inside)


def _outer(sampled: SampledOutputs, values: jax.Array) -> jax.Array:
    apart = values - sampled.average(values)
    weights = sampled.weights.astype(values.dtype)
    return jnp.einsum("s,s...i,s...j->...ij", weights, apart, apart, precision="highest")


def log_prob(sampled: SampledOutputs, extra: PyTree) -> Any:
    """log E_w p(y | w)."""
    return _log_average(sampled, _log_likelihoods(sampled))


def _log_average(sampled: SampledOutputs, each: jax.Array) -> jax.Array:
    """The logarithm of the weighted mean over samples, from logarithms (samples, rows)."""
    return jax.nn.logsumexp(each, axis=0, b=sampled.weights.astype(each.dtype)[:, None])


def log_likelihoods(sampled: SampledOutputs, extra: PyTree) -> Any:
    """log p(y | w) of every sample."""
    return _log_likelihoods(sampled).T


def _log_likelihoods(sampled: SampledOutputs) -> jax.Array:
    y = jnp.asarray(sampled.y)
    if sampled.temperature is None:
        return sampled.each(lambda f, own, side: sampled.likelihood.log_prob(f, y, own, side))
    log_p = sampled.log_probabilities()
    labels = y.reshape(log_p.shape[1:-1])[..., None]
    picked = jnp.where(jnp.arange(log_p.shape[-1]) == labels, log_p, 0)
    return picked.reshape(*picked.shape[:2], -1).sum(-1)


def entropies(sampled: SampledOutputs, n: int) -> Any:
    """−E log p(y) and −E log p(y | w), from ``n`` draws of y."""
    index = allocate(sampled.weights, n)

    def one(drawn: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        index, y = drawn
        each = _log_likelihoods(sampled._replace(y=y))
        return -_log_average(sampled, each), -each[index]

    total, inside = jax.lax.map(one, (index, draw_y(sampled, index, sampled.key)))
    return total.mean(0), inside.mean(0)


def allocate(weights: jax.Array, n: int) -> jax.Array:
    """Numbers of ``n`` samples, each as often as its weight asks for, evenly spaced."""
    total = jnp.cumsum(weights)
    numbers = jnp.searchsorted(total, total[-1] * (jnp.arange(n) + 0.5) / n)
    return jnp.minimum(numbers, len(weights) - 1)


def outputs(sampled: SampledOutputs, extra: PyTree) -> Any:
    """The network's outputs of every sample."""
    return jnp.moveaxis(sampled.outputs, 0, 1)


def conditional_means(sampled: SampledOutputs, extra: PyTree) -> Any:
    """E[y | w] of every sample: for classes their probabilities."""
    if sampled.of_classes:
        return jnp.moveaxis(sampled.probabilities(), 0, 1)
    means = sampled.each(lambda f, own, side: sampled.likelihood.distribution(f, own, side).mean)
    return jnp.moveaxis(means, 0, 1)


def draw_y(sampled: SampledOutputs, index: jax.Array, key: jax.Array) -> jax.Array:
    """One draw of y from each of the samples ``index`` (an index may come again)."""
    keys = jax.random.split(key, len(index))
    if sampled.temperature is not None:
        log_p = sampled.log_probabilities()[index]
        return jax.vmap(jax.random.categorical)(keys, log_p)
    f, own = jax.tree.map(lambda a: a[index], (sampled.outputs, sampled.own))
    distribution = sampled.likelihood.distribution
    return jax.vmap(lambda f, own, k: distribution(f, own, sampled.side).sample(k))(f, own, keys)


def draws(sampled: SampledOutputs, extra: tuple[jax.Array, int]) -> Any:
    """``n`` draws of y: samples in random order, or by their weights where these differ."""
    pick, n = extra
    chosen = jax.random.choice(pick, len(sampled.weights), (n,), p=sampled.weights)
    equal = jnp.all(sampled.weights == sampled.weights[0])
    # each as often as the others, but not always the same ones where ``n`` is small
    in_turn = shuffle(jnp.arange(n) % len(sampled.weights), len(sampled.weights), pick)
    index = jnp.where(equal, in_turn, chosen)
    return jnp.moveaxis(draw_y(sampled, index, sampled.key), 0, 1)

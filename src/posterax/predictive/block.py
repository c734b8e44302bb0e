"""What streams: one block of inputs with the network's outputs for all posterior samples."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from ..likelihoods import Likelihood


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
    temperature: Any  # of class probabilities, where it is not 1
    y: Any
    key: jax.Array

    def each(self, function: Callable[..., Any], *more: Any) -> Any:
        """Apply ``function(outputs, own, side, …)`` to every sample."""
        return jax.vmap(lambda f, own, *args: function(f, own, self.side, *args))(
            self.outputs, self.own, *more
        )

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


@eqx.filter_jit
def reduce_block(
    reduce: Callable[[Block, Any], Any],
    source: Any,
    x: Any,
    y: Any,
    particles: Particles,
    temperature: Any,
    key: jax.Array,
    extra: Any,
) -> Any:
    """``reduce`` of the block of inputs ``x``, in one compiled program."""
    likelihood = source.model.likelihood
    outputs, own = source.evaluate(particles.ids, x)
    side = likelihood.split(x)[1]
    return reduce(
        Block(likelihood, outputs, own, side, particles.weights, temperature, y, key), extra
    )

"""What streams: the network's outputs of all posterior samples for a block of inputs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..likelihoods import Likelihood


class Particles(NamedTuple):
    """Weighted draws of a posterior by identity: a key each, or an index each."""

    ids: Any
    weights: jax.Array


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


@eqx.filter_jit
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
    likelihood = source.model.likelihood
    outputs, own = source.evaluate(particles.ids, x)
    side = likelihood.split(x)[1]
    return reduce(
        SampledOutputs(likelihood, outputs, own, side, particles.weights, temperature, y, key),
        extra,
    )

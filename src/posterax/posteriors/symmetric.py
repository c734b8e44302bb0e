"""Posteriors that are symmetric about a centre: w = μ ± δ, with δ from a family's own noise."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..model import Parameters
from ..predictive import Particles
from ..program import shared_products
from .base import Posterior, map_samples


class Signed(NamedTuple):
    """The identity of a draw: the key of its noise, and the noise's sign."""

    key: jax.Array
    sign: jax.Array


class Symmetric(Posterior):
    """w = μ ± δ; a subclass says how δ is made (``deviation``), ``None`` where a weight is a point.

    Predictions use pairs μ + δ and μ − δ: both are draws, and together they miss the mean by less.
    """

    centred: ClassVar[bool] = True

    mu: Parameters

    def deviation(self, key: jax.Array) -> Parameters:
        """δ, a tree like the parameters with ``None`` for points."""
        raise NotImplementedError

    def entropy(self) -> jax.Array:
        """−E log q(w) in nats, over all parameters that are no points."""
        raise NotImplementedError

    def particles(self, key: jax.Array, samples: int | None) -> Particles:
        keys = jax.random.split(key, samples or 100)
        return Particles.equal(Signed(keys, jnp.ones(len(keys))))

    def antithetic(self, key: jax.Array, samples: int | None) -> Particles:
        return Particles.equal(opposite_pairs(key, samples or 100))

    def parameters(self, identity: PyTree) -> Parameters:
        return _move(self.mu, identity.sign, self.deviation(identity.key))

    def evaluate(self, ids: PyTree, x: PyTree) -> tuple[jax.Array, Any]:
        """For pairs μ ± δ the products with x are shared: x·μ by all samples, x·δ by two."""

        model, unfold = self.model.unfolded()
        random, points = eqx.partition(self.mu, self._random(ids.key[0]))
        random, points = map(unfold, (random, points))

        def network(weights: PyTree, x: PyTree) -> Any:
            own = Parameters(eqx.combine(weights, points.network), None)
            return model.apply(own, self.state, x, None, False)[0]

        single = len(ids.sign) == 1
        means = [] if single else shared_products.products(network, random.network, x)
        if not means:
            return super().evaluate(ids, x)

        def sides(key: jax.Array) -> Any:
            step = unfold(self.deviation(key))
            steps = shared_products.products(network, step.network, x)

            def side(sign: float) -> tuple[jax.Array, Any]:
                params = _move(random, sign, step)
                given = [mean + sign * part for mean, part in zip(means, steps, strict=True)]
                outputs = shared_products.outputs(network, params.network, x, given)
                return outputs, eqx.combine(params.likelihood, points.likelihood)

            return side

        return in_pairs(sides, ids, x)

    def _or_zero(self, std: Parameters) -> Parameters:
        """Deviations of all parameters: 0 for points, which have ``None``."""
        return jax.tree.map(lambda m, s: jnp.zeros_like(m) if s is None else s, self.mu, std)

    def _random(self, key: jax.Array) -> Parameters:
        """Which parameters have a deviation."""
        deviation = jax.eval_shape(self.deviation, key)
        return jax.tree.map(lambda m, d: d is not None, self.mu, deviation)


def in_pairs(sides: Callable[[jax.Array], Any], ids: Signed, x: PyTree) -> Any:
    """``sides(key)(sign)`` of every draw; what both of a pair share is computed once."""

    def pair(key: jax.Array) -> Any:
        side = sides(key)
        return jax.tree.map(lambda *both: jnp.stack(both), side(1.0), side(-1.0))

    pairs = map_samples(pair, ids.key[::2], 2 * jax.tree.leaves(x)[0].shape[0])
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[: len(ids.sign)], pairs)


@partial(jax.jit, static_argnums=1)
def opposite_pairs(key: jax.Array, n: int) -> Signed:
    """μ + δ and μ − δ in turn: both are draws of q, and together miss its mean by less."""
    keys = jnp.repeat(jax.random.split(key, -(-n // 2)), 2)[:n]
    return Signed(keys, 1.0 - 2 * (jnp.arange(n) % 2))


def _move(mu: Parameters, sign: Any, step: Parameters) -> Parameters:
    return jax.tree.map(
        lambda m, d: m if d is None else m + jnp.asarray(sign, m.dtype) * d, mu, step
    )

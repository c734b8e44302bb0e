"""The mean-field Gaussian posterior of variational inference."""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from .._noise import standard_normal_like
from .._special import softplus
from ..model import Parameters
from ..networks import shared
from ..predictive import Particles
from ..priors.base import LOG_2PI
from .base import Posterior, map_samples


class Signed(NamedTuple):
    """The identity of a draw: the key of its noise, and the noise's sign."""

    key: jax.Array
    sign: jax.Array


class MeanFieldGaussian(Posterior):
    r"""q(w) = ∏ᵢ N(wᵢ | μᵢ, σᵢ²) with σ = softplus(ρ).

    ``mu`` and ``rho`` are trees like the model's parameters; ``rho`` is ``None`` where a weight is
    a point.
    """

    centred: ClassVar[bool] = True

    mu: Parameters
    rho: Parameters

    def particles(self, key: jax.Array, samples: int | None) -> Particles:
        n = 100 if samples is None else samples
        return Particles(Signed(jax.random.split(key, n), jnp.ones(n)), jnp.full((n,), 1 / n))

    def antithetic(self, key: jax.Array, samples: int | None) -> Particles:
        n = 100 if samples is None else samples
        return Particles(opposite_pairs(key, n), jnp.full((n,), 1 / n))

    def parameters(self, identity: Any) -> Parameters:
        return _move(self.mu, identity.sign, self._step(identity.key))

    def _step(self, key: jax.Array) -> Parameters:
        """δ = σ ε."""
        noise = standard_normal_like(key, self.rho)
        return jax.tree.map(lambda r, e: softplus(r) * e, self.rho, noise)

    def evaluate(self, ids: Any, x: Any) -> tuple[jax.Array, Any]:
        """For pairs μ ± δ the products with x are shared: x·μ by all samples, x·δ by two."""

        random, points = eqx.partition(self.mu, self._is_random())

        def network(weights: Any, x: Any) -> Any:
            own = Parameters(eqx.combine(weights, points.network), None)
            return self.model.apply(own, self.state, x, None, False)[0]

        samples = len(ids.sign)
        means = shared.products(network, random.network, x) if samples > 1 else []
        if not means:
            return super().evaluate(ids, x)

        def pair(key: jax.Array) -> Any:
            step = self._step(key)
            steps = shared.products(network, step.network, x)

            def side(sign: float) -> tuple[jax.Array, Any]:
                params = _move(random, sign, step)
                given = [mean + sign * part for mean, part in zip(means, steps, strict=True)]
                found = shared.outputs(network, params.network, x, given)
                return found, eqx.combine(params.likelihood, points.likelihood)

            return jax.tree.map(lambda *both: jnp.stack(both), side(1.0), side(-1.0))

        pairs = map_samples(pair, ids.key[::2], 2 * jax.tree.leaves(x)[0].shape[0])
        return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[:samples], pairs)

    def _is_random(self) -> Parameters:
        return jax.tree.map(lambda m, r: r is not None, self.mu, self.rho)

    def sigma(self) -> Parameters:
        """Standard deviations; zero for points."""
        return jax.tree.map(
            lambda m, r: jnp.zeros_like(m) if r is None else softplus(r), self.mu, self.rho
        )

    def moments(self) -> tuple[Parameters, Parameters]:
        return self.mu, self.sigma()

    def log_prob(self, parameters: Parameters) -> jax.Array:
        """Σᵢ log N(wᵢ | μᵢ, σᵢ²) over all parameters that are not points."""

        def one(mu: jax.Array, rho: jax.Array | None, w: jax.Array) -> Any:
            if rho is None:
                return 0.0
            sigma = softplus(rho)
            each = -0.5 * jnp.square((w - mu) / sigma) - jnp.log(sigma) - 0.5 * LOG_2PI
            return jnp.sum(each)

        terms = jax.tree.map(one, self.mu, self.rho, parameters)
        return jax.tree.reduce(jnp.add, terms)


@partial(jax.jit, static_argnums=1)
def opposite_pairs(key: jax.Array, n: int) -> Signed:
    """μ + δ and μ − δ in turn: both are draws of q, and together miss its mean by less."""
    keys = jnp.repeat(jax.random.split(key, -(-n // 2)), 2)[:n]
    return Signed(keys, 1.0 - 2 * (jnp.arange(n) % 2))


def _move(mu: Parameters, sign: Any, step: Parameters) -> Parameters:
    return jax.tree.map(
        lambda m, d: m if d is None else m + jnp.asarray(sign, m.dtype) * d, mu, step
    )

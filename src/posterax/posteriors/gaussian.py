"""The mean-field Gaussian posterior of variational inference."""

from typing import Any

import jax
import jax.numpy as jnp

from .._noise import standard_normal_like
from .._special import softplus
from ..model import Parameters
from ..predictive import Particles
from .base import Posterior


class MeanFieldGaussian(Posterior):
    r"""q(w) = ∏ᵢ N(wᵢ | μᵢ, σᵢ²) with σ = softplus(ρ).

    ``mu`` and ``rho`` are trees like the model's parameters.
    """

    mu: Parameters
    rho: Parameters

    def particles(self, key: jax.Array, samples: int | None) -> Particles:
        n = 100 if samples is None else samples
        return Particles(jax.random.split(key, n), jnp.full((n,), 1 / n))

    def parameters(self, identity: Any) -> Parameters:
        return sample_gaussian(identity, self.mu, self.sigma())

    def sigma(self) -> Parameters:
        """Standard deviations."""
        return jax.tree.map(softplus, self.rho)

    def moments(self) -> tuple[Parameters, Parameters]:
        return self.mu, self.sigma()


def sample_gaussian(key: jax.Array, mu: Any, sigma: Any) -> Any:
    """w = μ + σ ε."""
    noise = standard_normal_like(key, mu)
    return jax.tree.map(lambda m, s, e: m + s * e, mu, sigma, noise)

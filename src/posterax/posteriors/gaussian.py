"""The mean-field Gaussian posterior of variational inference."""

from typing import Any

import jax
import jax.numpy as jnp

from .._util.noise import standard_normal_like
from .._util.special import softplus
from ..model import Parameters
from ..priors.base import LOG_2PI, normal_log_prob
from .base import Posterior
from .symmetric import Symmetric


class MeanFieldGaussian(Symmetric):
    r"""q(w) = ∏ᵢ N(wᵢ | μᵢ, σᵢ²) with σ = softplus(ρ).

    ``mu`` and ``rho`` are trees like the model's parameters; ``rho`` is ``None`` where a weight is
    a point.
    """

    rho: Parameters

    def deviation(self, key: jax.Array) -> Parameters:
        """δ = σ ε."""
        noise = standard_normal_like(key, self.rho)
        return jax.tree.map(lambda r, e: softplus(r) * e, self.rho, noise)

    def sigma(self) -> Parameters:
        """Standard deviations; zero for points."""
        return self._or_zero(jax.tree.map(softplus, self.rho))

    def mixture(self) -> Posterior:
        from .mixture import GaussianMixture

        return GaussianMixture(self.model, self.state, self.targets, mu=self.mu, rho=self.rho)

    def moments(self) -> tuple[Parameters, Parameters]:
        return self.mu, self.sigma()

    def log_prob(self, parameters: Parameters) -> jax.Array:
        """Σᵢ log N(wᵢ | μᵢ, σᵢ²) over all parameters that are not points."""

        def one(mu: jax.Array, rho: jax.Array | None, w: jax.Array) -> Any:
            return 0.0 if rho is None else jnp.sum(normal_log_prob(w, mu, softplus(rho)))

        terms = jax.tree.map(one, self.mu, self.rho, parameters)
        return jax.tree.reduce(jnp.add, terms)

    def entropy(self) -> jax.Array:
        """−E log q(w) = Σᵢ log σᵢ + ½ (1 + log 2π) over all parameters that are not points."""
        terms = jax.tree.map(
            lambda r: jnp.sum(jnp.log(softplus(r)) + 0.5 * (1 + LOG_2PI)), self.rho
        )
        return jax.tree.reduce(jnp.add, terms)

"""Gaussian posteriors in which weights are correlated: a full covariance, or one of low rank."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import cho_solve, solve_triangular

from .._util.memory import refuse_beyond_memory
from .._util.noise import noise_key, standard_normal
from ..model import Model, Parameters
from ..priors.base import LOG_2PI
from .symmetric import Symmetric


class Correlated(Symmetric):
    """What both have in common: the weights that are no points, as one vector."""

    def flat(self, parameters: Parameters) -> jax.Array:
        """The parameters that are no points as one vector, in tree order."""
        return ravel_pytree(self.model.bayesian(parameters))[0]

    def tree(self, flat: jax.Array) -> Parameters:
        """The inverse of ``flat``, with ``None`` for points."""
        return ravel_pytree(self.model.bayesian(self.mu))[1](flat)

    def variances(self) -> jax.Array:
        """The diagonal of the covariance."""
        raise NotImplementedError

    def moments(self) -> tuple[Parameters, Parameters]:
        return self.mu, self._or_zero(self.tree(jnp.sqrt(self.variances())))

    def log_prob(self, parameters: Parameters) -> jax.Array:
        """log N(w | μ, Σ) of all parameters that are no points."""
        away = self.flat(parameters) - self.flat(self.mu)
        return -0.5 * self._square(away) - self._log_root() - 0.5 * LOG_2PI * len(away)

    def entropy(self) -> jax.Array:
        """−E log q(w) = ½ log |Σ| + D/2 (1 + log 2π)."""
        return self._log_root() + 0.5 * (1 + LOG_2PI) * self.model.bayesian_size

    def _square(self, away: jax.Array) -> jax.Array:
        """(w − μ)ᵀ Σ⁻¹ (w − μ)."""
        raise NotImplementedError

    def _log_root(self) -> jax.Array:
        """Half the log determinant of the covariance."""
        raise NotImplementedError


class FullGaussian(Correlated):
    r"""q(w) = N(w | μ, L Lᵀ), L lower triangular.

    ``mu`` is a tree like the model's parameters; ``cholesky`` is L, (D, D), over the D of them that
    are no points, in tree order.
    """

    cholesky: jax.Array

    def deviation(self, key: jax.Array) -> Parameters:
        """δ = L ε."""
        noise = standard_normal(noise_key(key), self.cholesky.shape[:1], self.cholesky.dtype)
        return self.tree(self.cholesky @ noise)

    def covariance(self) -> jax.Array:
        """L Lᵀ, (D, D)."""
        return self.cholesky @ self.cholesky.T

    def variances(self) -> jax.Array:
        return jnp.sum(jnp.square(self.cholesky), axis=1)

    def _square(self, away: jax.Array) -> jax.Array:
        noise = solve_triangular(self.cholesky, away, lower=True)
        return noise @ noise

    def _log_root(self) -> jax.Array:
        return jnp.sum(jnp.log(jnp.abs(jnp.diag(self.cholesky))))


class LowRankGaussian(Correlated):
    r"""q(w) = N(w | μ, diag(σ²) + F Fᵀ), F of K columns.

    ``mu`` and ``sigma`` are trees like the model's parameters, ``sigma`` with ``None`` for points;
    ``factor`` is F, (D, K), over the D parameters that are none, in tree order.

    By the matrix inversion and determinant lemmas, with G = F/σ and z = (w − μ)/σ, the quadratic
    form is zᵀz − (Gᵀz)ᵀ C⁻¹ (Gᵀz) and the determinant |σ|² |C|, where C = I + GᵀG is only (K, K).
    """

    sigma: Parameters
    factor: jax.Array

    def deviation(self, key: jax.Array) -> Parameters:
        """δ = σ ε + F ε′."""
        own, shared = jax.random.split(noise_key(key))
        sigma = ravel_pytree(self.sigma)[0]
        noise = standard_normal(own, sigma.shape, sigma.dtype)
        common = standard_normal(shared, self.factor.shape[1:], self.factor.dtype)
        return self.tree(sigma * noise + self.factor @ common)

    def variances(self) -> jax.Array:
        return jnp.square(ravel_pytree(self.sigma)[0]) + jnp.sum(jnp.square(self.factor), axis=1)

    def _square(self, away: jax.Array) -> jax.Array:
        sigma = ravel_pytree(self.sigma)[0]
        z = away / sigma
        along = (self.factor / sigma[:, None]).T @ z
        return z @ z - along @ cho_solve((self._small(), True), along)

    def _small(self) -> jax.Array:
        """The Cholesky factor of C = I + GᵀG, G = F/σ."""
        scaled = self.factor / ravel_pytree(self.sigma)[0][:, None]
        identity = jnp.eye(scaled.shape[1], dtype=scaled.dtype)
        return jnp.linalg.cholesky(identity + scaled.T @ scaled)

    def _log_root(self) -> jax.Array:
        own = jnp.sum(jnp.log(ravel_pytree(self.sigma)[0]))
        return own + jnp.sum(jnp.log(jnp.diag(self._small())))


def refuse_large_covariance(model: Model, what: str, instead: str, matrices: int = 1) -> None:
    """Refuse matrices of weights by weights that the machine's memory cannot hold.

    Args:
        model: the model.
        what: the argument that asks for them.
        instead: what to use for a network of this size.
        matrices: how many of them are held at once.
    """
    d = model.bayesian_size
    width = np.dtype(jax.tree.leaves(model.parameters)[0].dtype).itemsize
    name = f"{what} for {d:,} weights ({matrices} × {d:,} × {d:,} numbers; {instead})"
    refuse_beyond_memory(name, matrices * width * d * d)

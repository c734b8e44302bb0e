"""The radial posterior: a direction at random, and the distance of a single Gaussian."""

from math import lgamma
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._util.noise import noise_key, standard_normal_like
from .._util.special import softplus
from ..model import Parameters
from .symmetric import Symmetric

_MEAN_LOG = -0.5 * (np.euler_gamma + np.log(2))  # E log r
_LOG_PEAK = 0.5 * np.log(2 / np.pi)  # the log density of r at 0


class Radial(Symmetric):
    r"""w = μ + σ ⊙ u r, for each array: u uniform on the unit sphere, r = |N(0, 1)|.

    σ = softplus(ρ). Most of a Gaussian in D dimensions lies in a thin shell at distance √D from
    its mean; here the distance ‖(w − μ)/σ‖ is r, whatever the size of the array. An array of D
    weights has the density

        log q(w) = ½ log(2/π) − r²/2 − (D − 1) log r − log S(D) − Σ log σ,   r = ‖(w − μ)/σ‖

    with S(D) = 2 π^{D/2} / Γ(D/2), the area of the sphere; a single weight is Gaussian. The
    deviation of a weight is σ/√D.

    ``mu`` and ``rho`` are trees like the model's parameters; ``rho`` is ``None`` for points.

    Reference:
        Farquhar, Osborne and Gal, *Radial Bayesian neural networks: beyond discrete support in
        large-scale Bayesian deep learning*, AISTATS 2020, who leave out the constants of log q.
    """

    rho: Parameters

    def deviation(self, key: jax.Array) -> Parameters:
        """δ = σ ε/‖ε‖ r."""
        direction, distance = jax.random.split(noise_key(key))
        noise = standard_normal_like(direction, self.rho)
        lengths = jax.tree.map(lambda r: jnp.zeros((), r.dtype), self.rho)
        lengths = standard_normal_like(distance, lengths)

        def one(rho: jax.Array, noise: jax.Array, length: jax.Array) -> jax.Array:
            return softplus(rho) * noise * (jnp.abs(length) / _norm(noise))

        return jax.tree.map(one, self.rho, noise, lengths)

    def moments(self) -> tuple[Parameters, Parameters]:
        std = jax.tree.map(lambda rho: softplus(rho) / np.sqrt(rho.size), self.rho)
        return self.mu, self._or_zero(std)

    def log_prob(self, parameters: Parameters) -> jax.Array:
        """log q(w) of all parameters that are no points, array by array."""

        def one(mu: jax.Array, rho: jax.Array | None, w: jax.Array) -> Any:
            if rho is None:
                return 0.0
            sigma = softplus(rho)
            r = _norm((w - mu) / sigma)
            shell = _log_area(rho.size) + jnp.sum(jnp.log(sigma))
            thinner = (rho.size - 1) * jnp.log(r) if rho.size > 1 else 0.0
            return _LOG_PEAK - 0.5 * jnp.square(r) - thinner - shell

        return jax.tree.reduce(jnp.add, jax.tree.map(one, self.mu, self.rho, parameters))

    def entropy(self) -> jax.Array:
        """−E log q(w), in closed form: E r² = 1 and E log r = −(γ + log 2)/2."""

        def one(rho: jax.Array) -> jax.Array:
            fixed = 0.5 - _LOG_PEAK + (rho.size - 1) * _MEAN_LOG + _log_area(rho.size)
            return fixed + jnp.sum(jnp.log(softplus(rho)))

        return jax.tree.reduce(jnp.add, jax.tree.map(one, self.rho))


def _norm(a: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(jnp.square(a)))


def _log_area(d: int) -> float:
    """The log of the area of the unit sphere in d dimensions."""
    return float(np.log(2) + d / 2 * np.log(np.pi) - lgamma(d / 2))

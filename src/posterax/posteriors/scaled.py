"""Posteriors whose noise is scaled weight by weight: the mean-field Gaussian, and the radial."""

from math import lgamma
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._util.noise import noise_key, standard_normal_like
from .._util.special import softplus
from .._util.tree import named_leaves, plain
from ..model import Parameters
from ..networks.parts import Where, select
from ..priors import Prior, is_prior
from ..priors.base import LOG_2PI, normal_log_prob
from ..program.compiled import compiled
from .base import Posterior
from .random_weights import forward
from .symmetric import Signed, Symmetric

_MEAN_LOG = -0.5 * (np.euler_gamma + np.log(2))  # E log r
_LOG_PEAK = 0.5 * np.log(2 / np.pi)  # the log density of r at 0


class Scaled(Symmetric):
    """δ = σ times noise with σ = softplus(ρ), array by array; a subclass says how each is spread.

    ``mu`` and ``rho`` are trees like the model's parameters; ``rho`` is ``None`` where a weight is
    a point.
    """

    rho: Parameters

    def moments(self) -> tuple[Parameters, Parameters]:
        return self.mu, self._or_zero(jax.tree.map(self._deviation_of, self.rho))

    def log_prob(self, parameters: Parameters) -> jax.Array:
        """log q(w), summed over all parameters that are no points."""

        def one(mu: jax.Array, rho: jax.Array | None, w: jax.Array) -> Any:
            return 0.0 if rho is None else self._log_prob_of(mu, rho, w)

        return jax.tree.reduce(jnp.add, jax.tree.map(one, self.mu, self.rho, parameters))

    def entropy(self) -> jax.Array:
        """−E log q(w), summed over all parameters that are no points."""
        return jax.tree.reduce(jnp.add, jax.tree.map(self._entropy_of, self.rho))

    def _deviation_of(self, rho: jax.Array) -> jax.Array:
        """The standard deviations of an array."""
        return softplus(rho)

    def _log_prob_of(self, mu: jax.Array, rho: jax.Array, w: jax.Array) -> jax.Array:
        """log q of one array."""
        raise NotImplementedError

    def _entropy_of(self, rho: jax.Array) -> jax.Array:
        """The entropy of one array."""
        raise NotImplementedError


class MeanFieldGaussian(Scaled):
    r"""q(w) = ∏ᵢ N(wᵢ | μᵢ, σᵢ²) with σ = softplus(ρ).

    ``mu`` and ``rho`` are trees like the model's parameters; ``rho`` is ``None`` where a weight is
    a point.
    """

    def deviation(self, key: jax.Array) -> Parameters:
        """δ = σ ε."""
        noise = standard_normal_like(key, self.rho)
        return jax.tree.map(lambda r, e: softplus(r) * e, self.rho, noise)

    def sigma(self) -> Parameters:
        """Standard deviations; zero for points."""
        return self.moments()[1]

    def evaluate_apart(self, ids: PyTree, x: PyTree) -> tuple[jax.Array, Any]:
        """As ``evaluate``, with noise of its own for every row where the network allows it.

        Each row's distribution is the same, and a sum over rows varies much less.
        """
        if jax.tree.leaves(self.state):
            return self.evaluate(ids, x)
        sigma = jax.tree.map(softplus, self.rho)

        def one(identity: Signed) -> tuple[jax.Array, Any]:
            noise = noise_key(identity.key), identity.sign
            outputs, _, params = forward(
                self.model, "auto", self.mu, sigma, self.state, x, *noise, None, training=False
            )
            return outputs, params.likelihood

        return jax.lax.map(one, ids)

    def mixture(self) -> Posterior:
        from .mixture import GaussianMixture

        return GaussianMixture(self.model, self.state, self.targets, mu=self.mu, rho=self.rho)

    def _log_prob_of(self, mu: jax.Array, rho: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.sum(normal_log_prob(w, mu, softplus(rho)))

    def _entropy_of(self, rho: jax.Array) -> jax.Array:
        return jnp.sum(jnp.log(softplus(rho)) + 0.5 * (1 + LOG_2PI))


class Radial(Scaled):
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

    def deviation(self, key: jax.Array) -> Parameters:
        """δ = σ ε/‖ε‖ r."""
        direction, distance = jax.random.split(noise_key(key))
        noise = standard_normal_like(direction, self.rho)
        lengths = jax.tree.map(lambda r: jnp.zeros((), r.dtype), self.rho)
        lengths = standard_normal_like(distance, lengths)

        def one(rho: jax.Array, noise: jax.Array, length: jax.Array) -> jax.Array:
            return softplus(rho) * noise * (jnp.abs(length) / _norm(noise))

        return jax.tree.map(one, self.rho, noise, lengths)

    def _deviation_of(self, rho: jax.Array) -> jax.Array:
        return softplus(rho) / np.sqrt(rho.size)

    def _log_prob_of(self, mu: jax.Array, rho: jax.Array, w: jax.Array) -> jax.Array:
        sigma = softplus(rho)
        r = _norm((w - mu) / sigma)
        shell = _log_area(rho.size) + jnp.sum(jnp.log(sigma))
        thinner = (rho.size - 1) * jnp.log(r) if rho.size > 1 else 0.0
        return _LOG_PEAK - 0.5 * jnp.square(r) - thinner - shell

    def _entropy_of(self, rho: jax.Array) -> jax.Array:
        # in closed form: E r² = 1 and E log r = −(γ + log 2)/2
        fixed = 0.5 - _LOG_PEAK + (rho.size - 1) * _MEAN_LOG + _log_area(rho.size)
        return fixed + jnp.sum(jnp.log(softplus(rho)))


def _norm(a: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(jnp.square(a)))


def _log_area(d: int) -> float:
    """The log of the area of the unit sphere in d dimensions."""
    return float(np.log(2) + d / 2 * np.log(np.pi) - lgamma(d / 2))


def mean_field_kl(
    priors: Parameters, mu: Parameters, sigma: Parameters, w: Parameters, *, closed: bool = True
) -> jax.Array:
    """KL(q ‖ p): closed form where there is one, else log q(w) − log p(w) at a draw w of q.

    Args:
        priors: a prior for every array.
        mu: means.
        sigma: deviations, ``None`` for points, which do not count.
        w: a draw.
        closed: whether to use closed forms.

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> from posterax.posteriors.scaled import mean_field_kl
        >>> one = jnp.ones(1)
        >>> print(mean_field_kl(px.priors.Gaussian(1.0), one, one, one))  # ½ μ²
        0.5
    """

    def leaf(prior: Prior, mu: jax.Array, sigma: PyTree, w: jax.Array) -> PyTree:
        if sigma is None:
            return None
        exact = prior.kl_from_gaussian(mu, sigma) if closed else None
        if exact is not None:
            return jnp.sum(exact)
        log_q = -0.5 * jnp.square((w - mu) / sigma) - jnp.log(sigma) - 0.5 * LOG_2PI
        return jnp.sum(log_q) - jnp.sum(prior.log_prob(w))  # which may be of all at once

    terms = jax.tree.map(leaf, priors, mu, sigma, w, is_leaf=is_prior)
    return jax.tree.reduce(jnp.add, terms)


# -- moments of any posterior, by the names of its arrays


def named_moments(
    posterior: Posterior, where: Where | None = None
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Mean and deviation, in float64, of the arrays that have a prior and that ``where`` chooses.

    Example:
        >>> import posterax as px
        >>> from posterax.demo import curve_data, curve_model
        >>> from posterax.posteriors.scaled import named_moments
        >>> posterior = px.fit(curve_model(), curve_data(16), px.BayesByBackprop(), steps=5, key=0)
        >>> list(named_moments(posterior, "layers.0.*")[0])
        ['network.layers.0.weight', 'network.layers.0.bias']
    """
    names = list(named_leaves(posterior.model.bayesian(posterior.model.parameters)))
    if where is not None:
        chosen = named_leaves(select(posterior.model.parameters.network, where))
        names = [f"network.{n}" for n, yes in chosen.items() if yes and f"network.{n}" in names]
    trees = [named_leaves(tree) for tree in moments_of(posterior)]
    mean, std = ({n: plain(tree[n]).astype(np.float64) for n in names} for tree in trees)
    return mean, std


def moments_of(posterior: Posterior) -> tuple[Parameters, Parameters]:
    """Mean and standard deviation of every parameter, as trees."""
    if isinstance(posterior, MeanFieldGaussian):
        return _compiled_moments(posterior.bare())
    return posterior.moments()


# one program in the place of one for each operation of softplus and each shape
_compiled_moments = compiled(MeanFieldGaussian.moments)

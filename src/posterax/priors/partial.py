r"""Weights without a posterior, and weights whose prior is what an earlier training found."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .base import Prior, positive
from .simple import Gaussian


class Flat(Prior):
    """No prior at all: such weights are learned as a point, by maximum likelihood.

    ``px.Model(…, where=…)`` gives it to the weights that ``where`` leaves out; in a
    [`ByPart`][posterax.priors.ByPart] it does the same by name.

    Example:
        >>> import posterax as px
        >>> prior = px.priors.ByPart({"*.bias": px.priors.Flat()})
        >>> network = px.networks.MLP(2, 1, (4,), key=0)
        >>> model = px.Model(network, prior, px.likelihoods.Gaussian(0.1))
        >>> model.bayesian_size  # 2 × 4 + 4 × 1, no bias among them
        12
    """

    def log_prob(self, w: jax.Array) -> jax.Array:
        return jnp.zeros_like(w)

    def sample(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        raise ValueError("a flat prior cannot be sampled")


class Trained(Prior):
    r"""w ~ N(w₀, max(relative · |w₀|, least)²) around the weights w₀ the network comes with.

    For a network that was trained before: its weights are the centre, and each may move in
    proportion to its size (empirical Bayes, as in MOPED). ``px.BayesByBackprop(initial_rho=
    "prior")`` starts from there, means and deviations alike. In a
    [`ByPart`][posterax.priors.ByPart] it is the prior of some weights only.

    Args:
        relative: deviation of a weight, as a share of its size.
        least: smallest deviation, for weights near zero.

    Example:
        >>> import posterax as px
        >>> trained = px.networks.MLP(2, 1, (4,), key=0)
        >>> model = px.Model(trained, px.priors.Trained(0.2), px.likelihoods.Gaussian(0.1))
        >>> bool((model.priors.network.layers[0].weight.loc == trained.layers[0].weight).all())
        True

    Reference:
        Krishnan, Subedar and Tickoo, *Specifying weight priors in Bayesian deep neural networks
        with empirical Bayes*, AAAI 2020.
    """

    relative: Any
    least: Any

    def __init__(self, relative: float = 0.1, least: float = 0.01):
        self.relative = positive("relative", relative)
        self.least = positive("least", least)

    def deviations(self, params: Any) -> Any:
        """How far each weight may move from where it is."""
        return jax.tree.map(
            lambda w: jnp.maximum(self.relative * jnp.abs(w), self.least).astype(w.dtype), params
        )

    def for_weight(self, name: str, w: jax.Array, fan_in: Callable[..., int]) -> Prior:
        return Gaussian(self.deviations(w), w)


def is_flat(prior: Any) -> bool:
    """Whether what has this prior is a point."""
    return isinstance(prior, Flat)

"""Different priors for different weights: by part of the tree, or one for each weight."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jax.tree_util import KeyPath
from jaxtyping import PyTree

from .._util.tree import named_leaves, path_name, same_structure
from ..networks.parts import matches
from .base import Flat, Prior, positive
from .simple import Gaussian, as_prior


class ByPart(Prior):
    """Different priors for different parts of the tree; the first pattern that matches decides.

    Args:
        parts: patterns over names like ``layers.0.weight`` (as in file names: ``*.bias``), or
            functions of (name, array), each with its prior.
        default: the prior of what no pattern matches.

    Example:
        >>> import posterax as px
        >>> prior = px.priors.ByPart(
        ...     {"*.bias": px.priors.Gaussian(10.0)}, default=px.priors.Laplace(0.1)
        ... )
        >>> model = px.Model(
        ...     px.networks.MLP(2, 1, (4,), key=0), prior, px.likelihoods.Gaussian(0.1)
        ... )
        >>> model.priors.network.layers[0].bias.scale.item()
        10.0
    """

    parts: tuple[tuple[Any, Prior], ...]
    default: Prior

    def __init__(self, parts: Mapping[Any, Any], default: Any = None):
        self.parts = tuple((pattern, as_prior(prior)) for pattern, prior in parts.items())
        self.default = as_prior(Gaussian(1.0) if default is None else default)

    def resolve(self, params: PyTree, fan_in: Callable[[tuple[int, ...], str], int]) -> Any:
        idle = dict(self.parts)

        def choose(path: KeyPath, w: jax.Array) -> Prior:
            name = path_name(path)
            for pattern, prior in self.parts:
                if matches(pattern, name, w):
                    idle.pop(pattern, None)
                    return prior.for_weight(name, w, fan_in)
            return self.default.for_weight(name, w, fan_in)

        tree = jtu.tree_map_with_path(choose, params)
        if idle:
            patterns, names = ", ".join(map(str, idle)), ", ".join(named_leaves(params))
            raise ValueError(f"prior: no weight matches {patterns}; the weights are {names}")
        return tree


class PerWeight(Prior):
    """A Gaussian with its own mean and deviation for every weight, as an earlier posterior gives.

    Covers the likelihood's parameters too, since they are part of what was learned.

    Args:
        loc: means, a tree like the model's parameters.
        scale: deviations, a tree of the same shape, with ``None`` for what is a point.
    """

    loc: Any
    scale: Any

    each: ClassVar[bool] = True

    def resolve(self, params: PyTree, fan_in: Callable[[tuple[int, ...], str], int]) -> Any:
        if not same_structure(params, self.loc.network):
            raise ValueError(
                "prior: another tree than the network's; use the network that it was fitted to"
            )
        return jax.tree.map(_around, self.loc.network, self.scale.network)

    def map_network(self, function: Callable[[Any], Any]) -> "PerWeight":
        """The same for other weights: ``function`` of both trees of the network."""
        trees = (self.loc, self.scale)
        return PerWeight(*(tree._replace(network=function(tree.network)) for tree in trees))

    def resolve_likelihood(self) -> Any:
        """The priors of the likelihood's own parameters."""
        return jax.tree.map(_around, self.loc.likelihood, self.scale.likelihood)


def _around(loc: jax.Array, scale: jax.Array | None) -> Prior:
    return Flat() if scale is None else Gaussian(scale, loc)


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

    relative: Any = eqx.field(converter=partial(positive, "relative"), default=0.1)
    least: Any = eqx.field(converter=partial(positive, "least"), default=0.01)

    def deviations(self, params: PyTree) -> Any:
        """How far each weight may move from where it is."""
        return jax.tree.map(
            lambda w: jnp.maximum(self.relative * jnp.abs(w), self.least).astype(w.dtype), params
        )

    def for_weight(self, name: str, w: jax.Array, fan_in: Callable[..., int]) -> Prior:
        return Gaussian(self.deviations(w), w)

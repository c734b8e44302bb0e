"""Different priors for different weights: by part of the tree, or one for each."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import jax.tree_util as jtu

from .._util.tree import path_name, same_structure
from ..networks.parts import matches
from .base import Prior
from .convert import as_prior
from .partial import Flat
from .simple import Gaussian


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

    def resolve(self, params: Any, fan_in: Callable[[tuple[int, ...], str], int]) -> Any:
        used: set[int] = set()

        def choose(path: Any, w: jax.Array) -> Prior:
            name = path_name(path)
            for i, (pattern, prior) in enumerate(self.parts):
                if pattern(name, w) if callable(pattern) else matches(name, pattern):
                    used.add(i)
                    return prior.for_weight(name, w, fan_in)
            return self.default.for_weight(name, w, fan_in)

        tree = jtu.tree_map_with_path(choose, params)
        idle = [str(pattern) for i, (pattern, _) in enumerate(self.parts) if i not in used]
        if idle:
            names = [path_name(p) for p, _ in jtu.tree_leaves_with_path(params)]
            raise ValueError(
                f"prior: no weight matches {', '.join(idle)}; the weights are {', '.join(names)}"
            )
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

    def resolve(self, params: Any, fan_in: Callable[[tuple[int, ...], str], int]) -> Any:
        if not same_structure(params, self.loc.network):
            raise ValueError(
                "prior: this posterior's weights have another tree than the network's; "
                "use it with the network it was fitted for"
            )
        return jax.tree.map(_around, self.loc.network, self.scale.network)

    def resolve_likelihood(self) -> Any:
        """The priors of the likelihood's own parameters."""
        return jax.tree.map(_around, self.loc.likelihood, self.scale.likelihood)


def _around(loc: jax.Array, scale: jax.Array | None) -> Prior:
    return Flat() if scale is None else Gaussian(scale, loc)

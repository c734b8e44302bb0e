"""Networks as bandits use them: what is paid for a context and an action."""

from functools import partial
from math import prod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..model import Model, Parameters
from ..networks.base import Network
from ..priors import Gaussian, Laplace, ScaleMixture, is_prior


class PerAction(Network):
    """A network with an output for each action: that of the action which was taken.

    Inputs are the context and, after it, the action as zeros and a one.
    """

    inner: Network
    features: int = eqx.field(static=True)

    def __init__(self, inner: Network, features: int):
        self.inner, self.features = inner, features
        self.params, self.state = inner.params, inner.state

    def init(self, key: jax.Array) -> Any:
        return self.inner.init(key)

    def fan_in(self, shape: tuple[int, ...], name: str = "") -> int:
        return self.inner.fan_in(shape, name)

    def apply(
        self,
        params: Any,
        state: Any,
        x: Any,
        key: jax.Array | None,
        training: bool,
        dropout: bool | None = None,
    ) -> tuple[Any, Any]:
        context, action = x[:, : self.features], x[:, self.features :]
        outputs, state = self.inner.apply(params, state, context, key, training, dropout)
        return jnp.sum(outputs * action, axis=-1, keepdims=True), state


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _cut(shapes: tuple[tuple[int, ...], ...], vector: jax.Array) -> list[jax.Array]:
    """Arrays of these shapes from one vector. Their gradients are put in a row again, where the
    derivative of a slice would pad each of them to the whole vector and add all up."""
    ends = np.cumsum([prod(shape) for shape in shapes])
    parts = zip(ends, shapes, strict=True)
    return [vector[end - prod(shape) : end].reshape(shape) for end, shape in parts]


def _cut_forward(shapes: Any, vector: jax.Array) -> tuple[list[jax.Array], None]:
    return _cut(shapes, vector), None


def _cut_backward(shapes: Any, _: None, grads: list[jax.Array]) -> tuple[jax.Array]:
    return (jnp.concatenate([jnp.ravel(g) for g in grads]),)


_cut.defvjp(_cut_forward, _cut_backward)


class Flat(Network):
    """A network whose weights are one vector: one kernel instead of one for every array.

    Small networks spend their time on starting kernels, and an update of weights that are one
    array is one of them.
    """

    inner: Network
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    treedef: Any = eqx.field(static=True)

    def __init__(self, inner: Network):
        leaves, self.treedef = jax.tree.flatten(inner.params)
        self.shapes = tuple(leaf.shape for leaf in leaves)
        self.inner, self.state = inner, inner.state
        known = not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
        # by numpy nothing compiles
        join: Any = np if known else jnp
        self.params = jnp.asarray(join.concatenate([join.ravel(leaf) for leaf in leaves]))

    def flatten(self, tree: Any) -> jax.Array:
        """A tree of weights as one vector."""
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])

    def unflatten(self, vector: jax.Array) -> Any:
        """The tree again."""
        return jax.tree.unflatten(self.treedef, _cut(self.shapes, vector))

    def init(self, key: jax.Array) -> Any:
        return self.flatten(self.inner.init(key))

    def apply(
        self,
        params: Any,
        state: Any,
        x: Any,
        key: jax.Array | None,
        training: bool,
        dropout: bool | None = None,
    ) -> tuple[Any, Any]:
        return self.inner.apply(self.unflatten(params), state, x, key, training, dropout)


def flat(model: Model) -> Model:
    """The model with one vector of weights, where one prior holds for all; else as it is.

    By types and shapes alone: within a trace the prior's numbers are not known.
    """
    prior = model.prior
    each = jax.tree.leaves(model.priors.network, is_leaf=is_prior)
    simple = isinstance(prior, Gaussian | ScaleMixture | Laplace)
    scalar = all(np.ndim(leaf) == 0 for leaf in jax.tree.leaves(prior))
    same = all(type(one) is type(prior) for one in each)  # a point has none
    if not (simple and scalar and same) or getattr(prior, "fan_in", False):
        return model
    network = Flat(model.network)
    return eqx.tree_at(
        lambda m: (m.network, m.priors, m.parameters),
        model,
        (
            network,
            Parameters(prior, model.priors.likelihood),
            Parameters(network.params, model.parameters.likelihood),
        ),
    )

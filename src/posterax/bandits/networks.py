"""Networks as bandits use them: what is paid for a context and an action."""

from collections.abc import Sequence
from functools import partial
from math import prod
from types import ModuleType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._util.jax_names import Tracer
from ..model import Model
from ..networks.base import Mode, Network
from ..priors import Gaussian, Laplace, ScaleMixture, is_prior


class PerAction(Network):
    """A network with an output for each action: that of the action which was taken.

    Inputs are the context and, after it, the action as zeros and a one. Where the likelihood reads
    k numbers, the first output of every action comes first, then the second of every action, ….
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

    def run(self, params: PyTree, state: PyTree, x: PyTree, mode: Mode) -> tuple[Any, Any]:
        context, action = x[:, : self.features], x[:, self.features :]
        outputs, state = self.inner.apply(params, state, context, *mode)
        by_action = outputs.reshape(len(outputs), -1, action.shape[1])
        return jnp.sum(by_action * action[:, None], axis=-1), state


WIDTH = 128  # a CPU that shares rows among its cores still has whole vectors of this length


Shapes = tuple[tuple[int, ...], ...]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _cut(shapes: Shapes, block: jax.Array) -> list[jax.Array]:
    """Arrays of these shapes from one block. Their gradients are put in a row again, where the
    derivative of a slice would pad each of them to the whole and add all up."""
    vector, ends = block.reshape(-1), np.cumsum([prod(shape) for shape in shapes])
    parts = zip(ends, shapes, strict=True)
    return [vector[end - prod(shape) : end].reshape(shape) for end, shape in parts]


def _join(arrays: Sequence[Any], xp: ModuleType = jnp) -> Any:
    """Arrays one after another in a block (rows, ``WIDTH``), with zeros at its end."""
    count = sum(a.size for a in arrays)
    rest = xp.zeros(-count % WIDTH, arrays[0].dtype)
    return xp.concatenate([*(xp.ravel(a) for a in arrays), rest]).reshape(-1, WIDTH)


_cut.defvjp(
    lambda shapes, block: (_cut(shapes, block), None), lambda shapes, _, grads: (_join(grads),)
)


class Flat(Network):
    """A network whose weights are one array: one kernel instead of one for every array.

    Small networks spend their time on starting kernels, and an update of weights that are one
    array is one of them. It is a block with a few entries at its end that nothing depends on, and
    not a vector: XLA divides the first axis among cores, and would be left with no other to
    vectorise (seven times the time of a step with 22,201 weights on two cores).
    """

    inner: Network
    shapes: Shapes = eqx.field(static=True)
    treedef: Any = eqx.field(static=True)

    def __init__(self, inner: Network):
        leaves, self.treedef = jax.tree.flatten(inner.params)
        self.shapes = tuple(leaf.shape for leaf in leaves)
        self.inner, self.state = inner, inner.state
        known = not any(isinstance(leaf, Tracer) for leaf in leaves)
        # by numpy nothing compiles
        given = [np.asarray(leaf) for leaf in leaves] if known else leaves
        self.params = jnp.asarray(_join(given, np if known else jnp))

    def flatten(self, tree: PyTree) -> jax.Array:
        """A tree of weights as one block."""
        return _join(jax.tree.leaves(tree))

    def unflatten(self, block: jax.Array) -> Any:
        """The tree again."""
        return jax.tree.unflatten(self.treedef, _cut(self.shapes, block))

    def init(self, key: jax.Array) -> Any:
        return self.flatten(self.inner.init(key))

    def run(self, params: PyTree, state: PyTree, x: PyTree, mode: Mode) -> tuple[Any, Any]:
        return self.inner.apply(self.unflatten(params), state, x, *mode)


def flat(model: Model) -> Model:
    """The model with one block of weights, where one prior holds for all; else as it is.

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
        lambda m: (m.network, m.priors, m.parameters), model,
        (network, model.priors._replace(network=prior),
         model.parameters._replace(network=network.params)),
    )  # fmt: skip

r"""Running a network's own program on weights that are distributions.

A weight becomes an array-like value, a
[`RandomArray`][posterax.program.random_weights.RandomArray]; the network runs on it unchanged
(Quax's multiple dispatch), and the value itself says what a product with it gives. Weights that are
used more than once, inside a loop, or other than as a factor of a product with data are no such
value but a plain sample (see ``reuse``): one, shared by the batch.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import quax
from jaxtyping import ArrayLike, PyTree

from .._util.jax_names import JaxprEqn, Primitive, bind, primitive
from .reuse import kinds
from .walker import STRUCTURAL, plain_call, walk

Shape = tuple[int, ...]

_DOT, _CONVOLUTION = primitive("dot_general"), primitive("conv_general_dilated")


class RandomArray(quax.ArrayValue):
    """A random weight that the network uses once, in one product with data."""

    def map(self, function: Callable[[jax.Array], jax.Array]) -> "RandomArray":
        """The same weight with its entries rearranged."""
        raise NotImplementedError

    def product(
        self,
        x: Any,
        multiply: Callable[[jax.Array, jax.Array], jax.Array],
        inside: Shape,
        outside: Callable[[jax.Array], Shape],
    ) -> jax.Array:
        """The product with x.

        Args:
            x: the other factor.
            multiply: ``multiply(weights, x)``, linear in both.
            inside: the shape of x with 1 along axes on which all entries meet the same weights
                as part of one example (the space of an image).
            outside: a function of the product that gives the same for it.
        """
        raise NotImplementedError


@quax.register(_DOT)
def _(lhs: RandomArray, rhs: ArrayLike, **params: Any) -> Any:
    return lhs.product(rhs, lambda w, x: _DOT.bind(w, x, **params), jnp.shape(rhs), jnp.shape)


@quax.register(_DOT)
def _(lhs: ArrayLike, rhs: RandomArray, **params: Any) -> Any:
    return rhs.product(lhs, lambda w, x: _DOT.bind(x, w, **params), jnp.shape(lhs), jnp.shape)


@quax.register(_CONVOLUTION)
def _(lhs: ArrayLike, rhs: RandomArray, **params: Any) -> Any:
    axes = params["dimension_numbers"]

    def sizes(shape: Shape, spec: Shape) -> Shape:
        # spec lists the axes: examples, channels, space …
        return tuple(size if axis in spec[:2] else 1 for axis, size in enumerate(shape))

    return rhs.product(
        lhs,
        lambda w, x: _CONVOLUTION.bind(x, w, **params),
        sizes(jnp.shape(lhs), axes.lhs_spec),
        lambda out: sizes(out.shape, axes.out_spec),
    )


def _register_rearrangement(operation: Primitive) -> None:
    @quax.register(operation)
    def _(w: RandomArray, **params: Any) -> Any:
        return w.map(lambda a: operation.bind(a, **params))


for _name in STRUCTURAL:
    _register_rearrangement(primitive(_name))


def run(
    function: Callable[..., PyTree],
    weights: PyTree,
    draw: Callable[[int, jax.Array, str], jax.Array | RandomArray],
    x: PyTree,
    *rest: PyTree,
) -> tuple[PyTree, PyTree]:
    """What ``function(weights, x, *rest)`` returns for random weights, and these.

    Args:
        function: the network.
        weights: means, point weights: what is random about.
        draw: of a leaf of ``weights``, by number, value and use (see ``reuse.uses``): a plain
            array, or for the use ``"product"`` also a random one.
        x: a batch of inputs.
        rest: other arguments (state).
    """
    traced: Any = jax.make_jaxpr(function, return_shape=True)
    program, shape = traced(weights, x, *rest)
    leaves, treedef = jax.tree.flatten(weights)
    use = kinds(program, len(leaves), len(jax.tree.leaves(x)))
    drawn = [draw(i, leaf, how) for i, (leaf, how) in enumerate(zip(leaves, use, strict=True))]
    arguments = [*drawn, *jax.tree.leaves((x, rest))]
    results = walk(
        program, arguments, _operation, constant=lambda value: value, enter=_enter, checkpoint=True
    )
    outputs = jax.tree.unflatten(jax.tree.structure(shape), results)
    return outputs, jax.tree.unflatten(treedef, drawn)


def _operation(eqn: JaxprEqn, values: list[Any]) -> list[Any]:
    # what no distribution reaches is left as it is: Quax cannot trace all of it
    if not _any_random(values):
        return bind(eqn, values)
    return quax.quaxify(lambda *values: bind(eqn, values))(*values)


def _enter(eqn: JaxprEqn, values: list[Any]) -> bool:
    return plain_call(eqn, values) and _any_random(values)


def _any_random(values: list[Any]) -> bool:
    return any(isinstance(value, RandomArray) for value in values)

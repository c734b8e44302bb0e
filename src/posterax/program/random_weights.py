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
from jax import lax
from jax.extend import core as jex
from jaxtyping import ArrayLike

from ..model import Model, Parameters
from .reuse import CALLS, kinds
from .shared import STRUCTURAL, bind, called

Shape = tuple[int, ...]


class RandomArray(quax.ArrayValue):
    """A random weight that the network uses once, in one product with data."""

    def map(self, function: Callable[[jax.Array], jax.Array]) -> "RandomArray":
        """The same weight seen through a rearrangement of its entries."""
        raise NotImplementedError

    def product(self, x: Any, multiply: Any, inside: Shape, outside: Any) -> jax.Array:
        """The product with x.

        Args:
            x: the other factor.
            multiply: ``multiply(weights, x)``, linear in both.
            inside: the shape of x with 1 along axes on which all entries meet the same weights
                as part of one example (the space of an image).
            outside: a function of the product that gives the same for it.
        """
        raise NotImplementedError


@quax.register(lax.dot_general_p)
def _(lhs: RandomArray, rhs: ArrayLike, **params: Any) -> Any:
    return lhs.product(
        rhs, lambda w, x: lax.dot_general_p.bind(w, x, **params), jnp.shape(rhs), jnp.shape
    )


@quax.register(lax.dot_general_p)
def _(lhs: ArrayLike, rhs: RandomArray, **params: Any) -> Any:
    return rhs.product(
        lhs, lambda w, x: lax.dot_general_p.bind(x, w, **params), jnp.shape(lhs), jnp.shape
    )


@quax.register(lax.conv_general_dilated_p)
def _(lhs: ArrayLike, rhs: RandomArray, **params: Any) -> Any:
    axes = params["dimension_numbers"]

    def sizes(shape: Any, spec: Any) -> Shape:
        # spec lists the axes: examples, channels, space …
        return tuple(size if axis in spec[:2] else 1 for axis, size in enumerate(shape))

    return rhs.product(
        lhs,
        lambda w, x: lax.conv_general_dilated_p.bind(x, w, **params),
        sizes(jnp.shape(lhs), axes.lhs_spec),
        lambda out: sizes(out.shape, axes.out_spec),
    )


def _see_through(primitive: Any) -> None:
    @quax.register(primitive)
    def _(w: RandomArray, **params: Any) -> Any:
        return w.map(lambda a: primitive.bind(a, **params))


for _name in STRUCTURAL:
    _see_through(getattr(lax, f"{_name}_p"))


def run(
    model: Model,
    params: Parameters,
    draw: Callable[[int, jax.Array, str], Any],
    state: Any,
    x: Any,
    key: jax.Array,
) -> tuple[jax.Array, Any, Parameters]:
    """Outputs of the network in training, its new state, and the parameters they are of.

    Args:
        model: the model.
        params: means, point weights: what is random about.
        draw: of a leaf of ``params``, by number, value and use (see ``reuse.uses``, and
            ``"likelihood"``): a plain array, or for the use ``"product"`` also a random one.
        state: the network's state.
        x: a batch of inputs.
        key: key of the network's own randomness (dropout).
    """

    def network(weights: Any, x: Any, state: Any) -> Any:
        return model.apply(Parameters(weights, None), state, x, key, training=True)

    traced: Any = jax.make_jaxpr(network, return_shape=True)
    program, shape = traced(params.network, x, state)
    leaves, treedef = jax.tree.flatten(params)
    count = len(jax.tree.leaves(params.network))
    use = kinds(program, count, len(jax.tree.leaves(x)))
    use += ["likelihood"] * (len(leaves) - count)
    values = [draw(i, leaf, how) for i, (leaf, how) in enumerate(zip(leaves, use, strict=True))]
    found = _run(program, *values[:count], *jax.tree.leaves((x, state)))
    outputs, state = jax.tree.unflatten(jax.tree.structure(shape), found)
    return outputs, state, jax.tree.unflatten(treedef, values)


def _run(program: jex.ClosedJaxpr, *arguments: Any) -> list[Any]:
    """A program on arrays and distributions.

    Operations that no distribution reaches are left as they are, so that what Quax cannot trace
    (a custom derivative) may be among them.
    """
    jaxpr = program.jaxpr
    known: dict[Any, Any] = dict(zip(jaxpr.invars, arguments, strict=True))
    known |= zip(jaxpr.constvars, program.consts, strict=True)

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, jex.Literal) else known[atom]

    for eqn in jaxpr.eqns:
        values, body = [read(atom) for atom in eqn.invars], called(eqn)
        if not any(isinstance(value, RandomArray) for value in values):
            found = bind(eqn, values)
        elif body is None or eqn.primitive.name not in CALLS:
            found = quax.quaxify(lambda *values, eqn=eqn: bind(eqn, list(values)))(*values)
        elif "policy" in eqn.params:  # checkpoint: what it saves is its point
            options = {name: eqn.params[name] for name in ("policy", "prevent_cse")}
            inner = jax.checkpoint(lambda *values, body=body: _run(body, *values), **options)
            found = inner(*values)
        else:
            found = _run(body, *values)
        known.update(zip(eqn.outvars, found, strict=True))
    return [read(atom) for atom in jaxpr.outvars]

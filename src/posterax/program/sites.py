r"""Where a network multiplies by its weights: what goes in, and what comes out, at every product.

A weight W (inputs × outputs) that is used once, in a product z = a W, meets an example through its
inputs a alone, and the derivative of anything with respect to W is the outer product of a with the
derivative with respect to z. Kronecker factors are made of these two, whatever the network: its
jaxpr tells where the products are, a zero added to z lets it be differentiated.

A convolution is a product too, of the patches of an image with its kernel, at every position.
"""

from collections.abc import Callable
from functools import reduce
from math import prod
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import PyTree

from .._util.jax_names import JaxprEqn, bind, shaped
from .reuse import PRODUCT, Use, find_uses
from .walker import PRODUCTS, plain_call, structural, walk

Function = Callable[[PyTree, PyTree], PyTree]
Axes = tuple[int | None, ...]  # which axis of the weight each axis is (``None``: of length 1)
Followed = tuple[jax.Array, int | None]  # an array, and the number of the weight that it is


class Site(NamedTuple):
    """A product with a weight: how its axes are read as (inputs, outputs), and how often."""

    order: tuple[int, ...]  # axes of the weight, those of the inputs first
    inputs: int
    outputs: int
    rows: int  # positions of one example that meet the weight


def find_sites(function: Function, weights: PyTree, x: PyTree) -> list[Site | None]:
    """For every weight of ``function(weights, x)`` its product, ``None`` where there is no one.

    ``x`` is a batch of one example, by shape. Weights that are used more than once, in a loop or
    otherwise than as a factor have none, nor have kernels of grouped or transposed convolutions.

    Example:
        >>> import jax.numpy as jnp
        >>> from posterax.program.sites import find_sites
        >>> w = {"bias": jnp.ones(3), "kernel": jnp.ones((2, 3))}
        >>> find_sites(lambda w, x: x @ w["kernel"] + w["bias"], w, jnp.ones((1, 2)))
        [None, Site(order=(0, 1), inputs=2, outputs=3, rows=1)]
    """
    program = jax.make_jaxpr(function)(weights, x)
    leaves = jax.tree.leaves(weights)
    each = find_uses(program, len(leaves), len(jax.tree.leaves(x)))
    return [
        _site(own[0], leaf.shape) if len(own) == 1 else None
        for leaf, own in zip(leaves, each, strict=True)
    ]


def through_sites(
    function: Function, weights: PyTree, x: PyTree, sites: list[Site | None], added: PyTree
) -> tuple[PyTree, list[jax.Array | None]]:
    """``function(weights, x)`` with something added at the products, and what went into them.

    Args:
        function: the network.
        weights: its weights.
        x: a batch of one example.
        sites: for each weight its product, or ``None`` for those that do not matter.
        added: for each weight (rows, outputs), added to its product, or ``None``.

    Returns:
        The outputs, and for each weight the inputs of its product, (rows, inputs), or ``None``.
    """
    program, shape = jax.make_jaxpr(function, return_shape=True)(weights, x)
    inputs: list[jax.Array | None] = [None] * len(sites)

    def rule(eqn: JaxprEqn, given: list[Followed]) -> list[Followed]:
        values = [value for value, _ in given]
        weight = _weight(given)
        if weight is None or eqn.primitive.name not in PRODUCTS:
            return [(value, weight if structural(eqn) else None) for value in bind(eqn, values)]
        position = [number for _, number in given].index(weight)
        inputs[weight] = _inputs(eqn, values, position)
        (product,) = bind(eqn, values)
        return [(product + _as_product(eqn, added[weight], product, position), None)]

    def enter(eqn: JaxprEqn, given: list[Followed]) -> bool:
        return plain_call(eqn, given) and _weight(given) is not None

    arguments: list[Followed] = [
        (leaf, None if site is None else i)
        for i, (leaf, site) in enumerate(zip(jax.tree.leaves(weights), sites, strict=True))
    ]
    arguments += [(leaf, None) for leaf in jax.tree.leaves(x)]
    results = walk(program, arguments, rule, constant=lambda value: (value, None), enter=enter)
    outputs = jax.tree.unflatten(jax.tree.structure(shape), [value for value, _ in results])
    return outputs, inputs


def _weight(given: list[Followed]) -> int | None:
    return next((number for _, number in given if number is not None), None)


def _moved(axes: Axes | None, step: JaxprEqn | int) -> Axes | None:
    """The axes of a weight after a rearrangement; ``None`` where they are lost track of."""
    if axes is None or isinstance(step, int) or step.primitive.name == "rev":
        return None
    if step.primitive.name == "transpose":
        return tuple(axes[i] for i in step.params["permutation"])
    before, after = shaped(step.invars[0]).shape, shaped(step.outvars[0]).shape
    if [size for size in before if size > 1] != [size for size in after if size > 1]:
        return None
    # all that is left keeps the order of entries: axes of length 1 come and go
    long = iter([axis for axis, size in zip(axes, before, strict=True) if size > 1])
    return tuple(next(long) if size > 1 else None for size in after)


def _site(use: Use, shape: tuple[int, ...]) -> Site | None:
    """The product of a weight that is used once, where it is one whose factors we know."""
    start: Axes | None = tuple(range(len(shape)))
    axes = reduce(_moved, use.path, start)
    if axes is None or use.eqn is None or use.kind != PRODUCT:
        return None
    options = use.eqn.params
    if use.eqn.primitive.name == "dot_general":
        contracted, batched = (pair[use.position] for pair in options["dimension_numbers"])
        if batched:
            return None
    else:
        if options["feature_group_count"] != 1 or options["batch_group_count"] != 1:
            return None
        contracted = options["dimension_numbers"].rhs_spec[1:]  # after the outputs: inputs, space
    free = [i for i in range(len(axes)) if i not in contracted]
    first, second = ([a for i in part if (a := axes[i]) is not None] for part in (contracted, free))
    # axes of length 1 may be anywhere
    second += [axis for axis in range(len(shape)) if axis not in (*first, *second)]
    inputs, outputs = (prod(shape[axis] for axis in part) for part in (first, second))
    rows = prod(shaped(use.eqn.outvars[0]).shape) // outputs
    return Site((*first, *second), inputs, outputs, rows)


def _inputs(eqn: JaxprEqn, factors: list[jax.Array], position: int) -> jax.Array:
    """What meets the weight, (rows, inputs)."""
    x = factors[1 - position]
    if eqn.primitive.name == "dot_general":
        contracted = eqn.params["dimension_numbers"][0][1 - position]
        free = [i for i in range(jnp.ndim(x)) if i not in contracted]
        width = prod(x.shape[i] for i in contracted)
        return x.transpose(*free, *contracted).reshape(-1, width)
    numbers = eqn.params["dimension_numbers"]
    kernel = [factors[1].shape[i] for i in numbers.rhs_spec[2:]]
    names = ("window_strides", "padding", "lhs_dilation", "rhs_dilation")
    options = {name: eqn.params[name] for name in names}
    images = x.transpose(numbers.lhs_spec)
    patches = lax.conv_general_dilated_patches(
        images, kernel, precision=lax.Precision.HIGHEST, **options
    )
    return jnp.moveaxis(patches, 1, -1).reshape(-1, patches.shape[1])


def _as_product(eqn: JaxprEqn, rows: jax.Array, product: jax.Array, position: int) -> jax.Array:
    """(rows, outputs) in the shape of the product."""
    if eqn.primitive.name == "dot_general":
        return (rows if position == 1 else rows.T).reshape(product.shape).astype(product.dtype)
    spec = eqn.params["dimension_numbers"].out_spec
    examples, channels, *space = (product.shape[i] for i in spec)
    moved = jnp.moveaxis(rows.reshape(examples, *space, channels), -1, 1)
    return moved.transpose(np.argsort(spec)).astype(product.dtype)

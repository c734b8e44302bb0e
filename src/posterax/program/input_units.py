r"""Which entries of a weight meet the same input unit of its layer.

Dropout sets inputs of a layer to zero, or, what is the same, the entries of its weight that meet
them: the columns of W in W h, the rows of w in h w, the input channels of a kernel. Which they are
depends on the network's program, not on the shape of the weight: the position of every entry is
followed, through transposes and reshapes, to the first product with data, where the contracted
index that it meets is read.
"""

from collections.abc import Callable
from functools import reduce
from math import prod
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from .._util.jax_names import JaxprEqn, shaped
from .reuse import PRODUCT, Use, find_uses


class InputUnits(NamedTuple):
    """The input units of one weight."""

    units: np.ndarray  # for every entry the number of its unit; broadcasts to the weight's shape
    inputs: int  # how many units there are
    raw: bool  # the units are the network's own inputs, which no layer has touched


def input_units(
    function: Callable[..., PyTree], weights: PyTree, x: PyTree, *rest: PyTree
) -> list[InputUnits | None]:
    """The input units of every leaf of ``weights``; ``None`` where none meets data in a product.

    Args:
        function: the network, ``function(weights, x, *rest)``.
        weights: a tree of arrays (or their shapes).
        x: inputs.
        rest: other arguments (state).

    Example:
        >>> import jax.numpy as jnp
        >>> from posterax.program.input_units import input_units
        >>> def network(w, x):
        ...     return w["outputs_first"] @ jnp.tanh(x @ w["inputs_first"] + w["bias"]).T
        >>> w = {"bias": (3,), "inputs_first": (2, 3), "outputs_first": (1, 3)}
        >>> w = {name: jnp.ones(shape) for name, shape in w.items()}
        >>> bias, first, second = input_units(network, w, jnp.ones((5, 2)))
        >>> bias, first.units.tolist(), second.units.tolist()
        (None, [[0], [1]], [[0, 1, 2]])
        >>> first.raw, second.raw
        (True, False)
    """
    leaves = jax.tree.leaves(weights)
    program = jax.make_jaxpr(function)(weights, x, *rest)
    uses = find_uses(program, len(leaves), len(jax.tree.leaves(x)), everywhere=True)
    return [_units(leaf.shape, own) for leaf, own in zip(leaves, uses, strict=True)]


def _units(shape: tuple[int, ...], uses: list[Use]) -> InputUnits | None:
    positions = np.arange(prod(shape)).reshape(shape)
    units, raw = np.full(positions.size, -1), False
    for use in uses:
        entries = reduce(_rearranged, use.path, positions)
        met = _met(use, entries.shape)
        if met is not None and np.all(units[entries] < 0):  # the first product has the mask
            units[entries] = units.max() + 1 + met
            raw = use.raw
    if not units.size or np.any(units < 0):
        return None
    count, units = int(units.max()) + 1, units.reshape(shape)
    for axis in range(units.ndim):
        first = np.take(units, [0], axis)
        units = first if np.all(units == first) else units
    return InputUnits(units.astype(np.int32), count, raw)


def _rearranged(entries: np.ndarray, step: JaxprEqn | int) -> np.ndarray:
    """What happens to a weight, to the positions of its entries."""
    if isinstance(step, int):
        return entries[step]
    if step.primitive.name == "transpose":
        entries = np.transpose(entries, step.params["permutation"])
    elif step.primitive.name == "rev":
        entries = np.flip(entries, step.params["dimensions"])
    return entries.reshape(shaped(step.outvars[0]).shape)


def _met(use: Use, shape: tuple[int, ...]) -> np.ndarray | None:
    """For every entry of the weight in a product the number of the unit that it meets."""
    if use.eqn is None or use.kind != PRODUCT:
        return None
    options = use.eqn.params
    if use.eqn.primitive.name == "dot_general":
        contracted, batch = (axes[use.position] for axes in options["dimension_numbers"])
        return _number(shape, (*batch, *contracted))
    if options["batch_group_count"] != 1:
        return None
    out, into, *_ = options["dimension_numbers"].rhs_spec
    group = _number(shape, (out,)) // (shape[out] // options["feature_group_count"])
    return group * shape[into] + _number(shape, (into,))


def _number(shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    """An array of a shape, its entries numbered by their indices along some axes."""
    number = np.zeros(shape, np.int64)
    for axis in axes:
        index = np.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(len(shape))])
        number = number * shape[axis] + index
    return number

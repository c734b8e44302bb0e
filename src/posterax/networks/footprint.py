"""How large a network's outputs and intermediate values are: traced, not computed."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import PyTree

from .._util.jax_names import shaped
from ..program.walker import equations

_KNOWN: dict[Any, "Footprint"] = {}


class Footprint(NamedTuple):
    """The shape of the outputs, and the bytes per example of the largest value on the way."""

    output: tuple[int, ...]
    widest: int


def footprint(network: Any, x: PyTree) -> Footprint:
    """The footprint of a forward pass over a batch like ``x``; remembered by shapes.

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> from posterax.networks.footprint import footprint
        >>> model = px.Model(
        ...     px.networks.MLP(3, 1, (50, 20), key=0), likelihood=px.likelihoods.Gaussian(0.1)
        ... )
        >>> footprint(model.network, jnp.ones((7, 3)))
        Footprint(output=(7, 1), widest=200)
    """
    leaves, treedef = jax.tree.flatten((network, x))
    key = (treedef, tuple((a.shape, a.dtype) if hasattr(a, "shape") else a for a in leaves))
    try:
        if key in _KNOWN:
            return _KNOWN[key]
    except TypeError:  # something in the network cannot be hashed
        return _trace(network, x)
    if len(_KNOWN) > 1000:
        _KNOWN.clear()
    return _KNOWN.setdefault(key, _trace(network, x))


def _trace(network: Any, x: PyTree) -> Footprint:
    output, sizes = _sizes(network, x)
    rows = jax.tree.leaves(x)[0].shape[0]
    more = jax.tree.map(lambda a: jax.ShapeDtypeStruct((rows + 1, *a.shape[1:]), a.dtype), x)
    # weights are values too; what grows with the batch is an activation
    try:
        grown = _sizes(network, more)[1]
    except (TypeError, ValueError):  # the network insists on its number of rows
        grown = sizes
    widest = max((b - a for a, b in zip(sizes, grown, strict=False)), default=0)
    return Footprint(output, max(widest, 0))


def _sizes(network: Any, x: PyTree) -> tuple[tuple[int, ...], list[int]]:
    """The shape of the outputs, and the bytes of every value of the traced program."""
    arrays, rest = eqx.partition((network.params, network.state), eqx.is_array)

    def forward(arrays: PyTree, x: PyTree) -> Any:
        params, state = eqx.combine(arrays, rest)
        return network.apply(params, state, x, jax.random.key(0), False)[0]

    program, outputs = jax.make_jaxpr(forward, return_shape=True)(arrays, x)
    if not hasattr(outputs, "shape"):
        raise TypeError(f"network must return one array, got {type(outputs).__name__}")
    values = [shaped(out) for eqn in equations(program) for out in eqn.outvars]
    return tuple(outputs.shape), [
        value.size * value.dtype.itemsize
        for value in values
        if not jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
    ]

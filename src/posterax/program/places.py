r"""Where the inputs of a layer come in: which entries of a weight meet the same input unit.

Dropout sets inputs of a layer to zero, or, what is the same, the entries of its weight that meet
them: the columns of W in W h, the rows of w in h w, the input channels of a kernel. Which they are
depends on the network's program, not on the shape of the weight. A pass over the jaxpr follows
the position of every entry, through transposes and reshapes, to the first product with data, and
reads there with which contracted index it meets.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend import core as jex

from .shared import LOOPS, PRODUCTS, called, structural


class Place(NamedTuple):
    """The inputs of one weight: by their number, in an array that broadcasts to the weight's."""

    units: np.ndarray
    inputs: int
    raw: bool  # the inputs are the network's own, which no layer has touched


class _Weight(NamedTuple):
    """A weight on its way to a product: the position in the weight of every entry."""

    number: int
    entries: np.ndarray


class _Other(NamedTuple):
    """Anything else: whether it depends on the inputs, and whether a layer lies in between."""

    data: bool
    touched: bool


class _Found:
    """What is known about one weight while the program is read."""

    def __init__(self, shape: tuple[int, ...]):
        self.shape, self.count, self.raw = shape, 0, False
        self.units = np.full(int(np.prod(shape)), -1)

    def add(self, entries: np.ndarray, units: np.ndarray, *, raw: bool) -> None:
        if np.any(self.units[entries.ravel()] >= 0):
            return  # used before: one mask, by the first product
        self.units[entries.ravel()] = self.count + units.ravel()
        self.count += int(units.max()) + 1
        self.raw = raw

    def place(self) -> Place | None:
        if not self.count or np.any(self.units < 0):
            return None
        units = self.units.reshape(self.shape)
        for axis in range(units.ndim):
            first = np.take(units, [0], axis)
            units = first if np.all(units == first) else units
        return Place(units.astype(np.int32), self.count, self.raw)


def places(function: Any, weights: Any, x: Any, *rest: Any) -> list[Place | None]:
    """The inputs of every leaf of ``weights``; ``None`` for one that meets no data in a product.

    Args:
        function: the network, ``function(weights, x, *rest)``.
        weights: a tree of arrays (or their shapes).
        x: inputs.
        rest: other arguments (state).

    Example:
        >>> import jax.numpy as jnp
        >>> from posterax.program.places import places
        >>> def network(w, x):
        ...     return w["outputs_first"] @ jnp.tanh(x @ w["inputs_first"] + w["bias"]).T
        >>> w = {"bias": (3,), "inputs_first": (2, 3), "outputs_first": (1, 3)}
        >>> w = {name: jnp.ones(shape) for name, shape in w.items()}
        >>> bias, first, second = places(network, w, jnp.ones((5, 2)))
        >>> bias, first.units.tolist(), second.units.tolist()
        (None, [[0], [1]], [[0, 1, 2]])
        >>> first.raw, second.raw
        (True, False)
    """
    leaves = jax.tree.leaves(weights)
    program = jax.make_jaxpr(function)(weights, x, *rest)
    found = [_Found(leaf.shape) for leaf in leaves]
    known: list[Any] = [
        _Weight(i, np.arange(leaf.size).reshape(leaf.shape)) for i, leaf in enumerate(leaves)
    ]
    known += [_Other(data=True, touched=False)] * len(jax.tree.leaves(x))
    known += [_Other(data=False, touched=False)] * (len(program.jaxpr.invars) - len(known))
    _walk(program.jaxpr, known, found)
    return [one.place() for one in found]


def _walk(jaxpr: Any, arguments: list[Any], found: list[_Found]) -> list[Any]:
    """Read one jaxpr; returns what is known of its outputs."""
    known: dict[Any, Any] = dict(zip(jaxpr.invars, arguments, strict=True))

    def read(atom: Any) -> Any:
        constant = _Other(data=False, touched=False)
        return constant if isinstance(atom, jex.Literal) else known.get(atom, constant)

    for eqn in jaxpr.eqns:
        inputs = [read(atom) for atom in eqn.invars]
        name, body = eqn.primitive.name, called(eqn)
        if body is not None and len(body.jaxpr.invars) == len(inputs):
            outs = _walk(body.jaxpr, inputs, found)
        elif isinstance(inputs[0] if inputs else None, _Weight) and structural(eqn):
            outs = [_rearranged(eqn, inputs[0])]
        else:
            if name in PRODUCTS:
                _product(eqn, inputs, found)
            elif name in LOOPS:
                _loop(eqn, inputs, found)
            outs = [_mixed(inputs, layer=name in PRODUCTS or _look_up(name, inputs))]
            outs *= len(eqn.outvars)
        known.update(zip(eqn.outvars, outs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _mixed(inputs: list[Any], *, layer: bool) -> _Other:
    others = [one for one in inputs if isinstance(one, _Other)]
    touched = len(others) < len(inputs) or any(one.touched for one in others)
    return _Other(any(one.data for one in others), touched or layer)


def _look_up(name: str, inputs: list[Any]) -> bool:
    """Whether inputs choose rows of a table: what comes out is no raw input any more."""
    return name == "gather" and not getattr(inputs[0], "data", False)


def _rearranged(eqn: Any, weight: _Weight) -> _Weight:
    """``structural`` operations, on the positions of the entries."""
    entries, name = weight.entries, eqn.primitive.name
    if name == "transpose":
        entries = np.transpose(entries, eqn.params["permutation"])
    elif name == "rev":
        entries = np.flip(entries, eqn.params["dimensions"])
    return weight._replace(entries=entries.reshape(eqn.outvars[0].aval.shape))


def _product(eqn: Any, inputs: list[Any], found: list[_Found]) -> None:
    weights = [i for i, one in enumerate(inputs[:2]) if isinstance(one, _Weight)]
    if len(weights) != 1:
        return
    side = weights[0]
    weight, other = inputs[side], inputs[1 - side]
    if not other.data:
        return
    if eqn.primitive.name == "dot_general":
        contracted, batch = eqn.params["dimension_numbers"]
        units = _number(weight.entries.shape, (*batch[side], *contracted[side]))
    elif side == 1 and eqn.params["batch_group_count"] == 1:
        out, into, *_ = eqn.params["dimension_numbers"].rhs_spec
        size = weight.entries.shape[out] // eqn.params["feature_group_count"]
        group = _number(weight.entries.shape, (out,)) // size
        units = group * weight.entries.shape[into] + _number(weight.entries.shape, (into,))
    else:
        return
    found[weight.number].add(weight.entries, units, raw=not other.touched)


def _number(shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    """An array of a shape, its entries numbered by their indices along some axes."""
    number = np.zeros(shape, np.int64)
    for axis in axes:
        index = np.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(len(shape))])
        number = number * shape[axis] + index
    return number


def _loop(eqn: Any, inputs: list[Any], found: list[_Found]) -> None:
    """The bodies of scan, while and cond; weights that the loop changes are not followed."""
    name, options = eqn.primitive.name, eqn.params
    if name == "cond":
        for branch in options["branches"]:
            _walk(branch.jaxpr, inputs[1:], found)
        return
    if name == "while":
        first = options["cond_nconsts"]
        last = first + options["body_nconsts"]
        carried = [_mixed(inputs, layer=False)] * len(inputs[last:])
        _walk(options["body_jaxpr"].jaxpr, [*inputs[first:last], *carried], found)
        return
    first = options["num_consts"]
    last = first + options["num_carry"]
    carried = [_mixed(inputs, layer=False)] * options["num_carry"]
    stacked = [one for one in inputs[last:] if isinstance(one, _Weight)]
    for step in range(options["length"] if stacked else 1):  # a layer at every step
        slices = [
            one._replace(entries=one.entries[step]) if isinstance(one, _Weight) else one
            for one in inputs[last:]
        ]
        _walk(options["jaxpr"].jaxpr, [*inputs[:first], *carried, *slices], found)

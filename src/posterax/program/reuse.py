"""How a network uses each of its weights: one pass that follows them all.

Local reparameterization and Flipout draw noise for the *use* of a weight, so they are right only
for a weight with a single use, as a factor of one matrix product or convolution with something
that depends on the inputs (its rows are then examples). A dispatch rule meets one use at a time;
the program tells how many there are.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
from jaxtyping import PyTree

from .._util.jax_names import ClosedJaxpr, JaxprEqn, scan_sizes
from .walker import LOOPS, PRODUCTS, plain_call, structural, walk, within

PRODUCT, REUSED, LOOP, OTHER, UNUSED = "product", "reused", "loop", "other", "unused"

# what happened to a weight: equations that rearrange it, and steps of a scan over it
Path = tuple[JaxprEqn | int, ...]


class Use(NamedTuple):
    """One use of a weight, by an equation (none where the weight is returned)."""

    kind: str
    path: Path
    eqn: JaxprEqn | None = None
    position: int = 0  # among the inputs of the equation
    raw: bool = False  # in a product with the network's own inputs, which no layer has touched


class _Weight(NamedTuple):
    """What is known about a weight."""

    number: int
    path: Path = ()


class _Other(NamedTuple):
    """And about anything else: does it depend on the inputs, does a layer lie in between?"""

    data: bool = False
    touched: bool = False


_Value = _Weight | _Other


def uses(function: Callable[..., PyTree], weights: PyTree, x: PyTree, *rest: PyTree) -> PyTree:
    """A tree like ``weights`` that says how each of them is used.

    - ``"product"``: once, as a factor of a product with something that depends on ``x``;
    - ``"loop"``: once, inside a scan, while or cond;
    - ``"other"``: once, in another way (a look-up, a scale, a bias, a product of two weights);
    - ``"reused"``: more than once;
    - ``"unused"``: not at all.

    Args:
        function: the network, ``function(weights, x, *rest)``.
        weights: a tree of arrays (or their shapes).
        x: inputs; their rows are examples.
        rest: other arguments (state).

    Example:
        >>> import jax.numpy as jnp
        >>> from posterax.program.reuse import uses
        >>> w = {"once": jnp.ones((2, 2)), "twice": jnp.ones((2, 2)), "scale": jnp.ones(2)}
        >>> def network(w, x):
        ...     x = x @ w["once"] * w["scale"]
        ...     return x @ w["twice"] @ w["twice"]
        >>> uses(network, w, jnp.ones((3, 2)))
        {'once': 'product', 'scale': 'other', 'twice': 'reused'}
    """
    leaves, treedef = jax.tree.flatten(weights)
    program = jax.make_jaxpr(function)(weights, x, *rest)
    return jax.tree.unflatten(treedef, kinds(program, len(leaves), len(jax.tree.leaves(x))))


def kinds(program: ClosedJaxpr, weights: int, data: int) -> list[str]:
    """The use of each of the first ``weights`` arguments; the next ``data`` are the inputs."""
    each = find_uses(program, weights, data)
    return [REUSED if len(own) > 1 else own[0].kind if own else UNUSED for own in each]


def find_uses(
    program: ClosedJaxpr, weights: int, data: int, *, everywhere: bool = False
) -> list[list[Use]]:
    """All uses of each of the first ``weights`` arguments, in the order of the program.

    With ``everywhere`` also those within loops, and within calls that are not plain; without, such
    an equation is itself the use.
    """
    arguments: list[_Value] = [*map(_Weight, range(weights)), *[_Other(data=True)] * data]
    arguments += [_Other()] * (len(program.in_avals) - len(arguments))
    uses: list[list[Use]] = [[] for _ in range(weights)]

    def read(program: ClosedJaxpr, arguments: list[_Value]) -> list[_Value]:
        enter = None if everywhere else plain_call
        return walk(program, arguments, rule, constant=lambda value: _Other(), enter=enter)

    def rule(eqn: JaxprEqn, inputs: list[_Value]) -> list[_Value]:
        name, first = eqn.primitive.name, inputs[0] if inputs else None
        if isinstance(first, _Weight) and structural(eqn):
            return [first._replace(path=(*first.path, eqn))]
        if everywhere and name in LOOPS:
            for body, values in _bodies(eqn, inputs):
                read(body, values)
            return [_mixed(inputs)] * len(eqn.outvars)
        factor = _data_factor(name, inputs)
        kind = PRODUCT if factor is not None else LOOP if name in LOOPS else OTHER
        raw = factor is not None and not factor.touched
        for position, value in enumerate(inputs):
            if isinstance(value, _Weight):
                uses[value.number].append(Use(kind, value.path, eqn, position, raw))
        # what inputs choose from a table is no raw input any more
        look_up = name == "gather" and not getattr(first, "data", False)
        return [_mixed(inputs, layer=name in PRODUCTS or look_up)] * len(eqn.outvars)

    for value in read(program, arguments):
        if isinstance(value, _Weight):  # whoever calls the network may use it
            uses[value.number].append(Use(OTHER, value.path))
    return uses


def _mixed(inputs: list[_Value], *, layer: bool = False) -> _Other:
    others = [value for value in inputs if isinstance(value, _Other)]
    touched = len(others) < len(inputs) or any(other.touched for other in others)
    return _Other(any(other.data for other in others), touched or layer)


def _data_factor(name: str, inputs: list[_Value]) -> _Other | None:
    """The data that a weight is multiplied with; in a convolution the weight is the kernel."""
    sides = {"dot_general": [(0, 1), (1, 0)], "conv_general_dilated": [(0, 1)]}
    for data, weight in sides.get(name, []):
        factor = inputs[data]
        if isinstance(inputs[weight], _Weight) and isinstance(factor, _Other) and factor.data:
            return factor
    return None


def _bodies(eqn: JaxprEqn, inputs: list[_Value]) -> Iterator[tuple[ClosedJaxpr, list[_Value]]]:
    """The bodies of scan, while and cond; weights that the loop changes are not followed."""
    name, options = eqn.primitive.name, eqn.params
    if name == "cond":
        yield from ((branch, inputs[1:]) for branch in options["branches"])
        return
    if name == "while":  # the condition has constants of its own
        first, last = options["cond_nconsts"], options["cond_nconsts"] + options["body_nconsts"]
        body, carry = options["body_jaxpr"], len(inputs) - last
    else:
        first, body = 0, options["jaxpr"]
        last, carry = scan_sizes(eqn)
    carried, stacked = [_mixed(inputs)] * carry, inputs[last + carry :]
    several = any(isinstance(one, _Weight) for one in stacked)
    for step in range(options["length"] if several else 1):  # a layer at every step
        slices = [
            one._replace(path=(*one.path, step)) if isinstance(one, _Weight) else one
            for one in stacked
        ]
        yield body, [*inputs[first:last], *carried, *slices]


Tag = tuple[str, int] | None  # ("weight", i), or ("layer", i): the product with weight i


def last_layer(function: Callable[..., PyTree], weights: PyTree, x: PyTree) -> list[int]:
    """Which weights the last product of a network is made of: its factor, and what is added to it.

    Example:
        >>> import jax.numpy as jnp
        >>> from posterax.program.reuse import last_layer
        >>> w = {"b": jnp.ones(3), "c": jnp.ones(1), "v": jnp.ones((3, 1)), "w": jnp.ones((2, 3))}
        >>> def network(w, x):
        ...     return jnp.tanh(x @ w["w"] + w["b"]) @ w["v"] + w["c"]
        >>> last_layer(network, w, jnp.ones((1, 2)))  # c and v
        [1, 2]
    """
    program = jax.make_jaxpr(function)(weights, x)
    # in the order of the program, by the weight of the product; ``LOOP`` for a loop with products
    layers: dict[int | str, set[int]] = {}

    def rule(eqn: JaxprEqn, inputs: list[Tag]) -> list[Tag]:
        name, by_kind = eqn.primitive.name, dict(tag for tag in inputs if tag is not None)
        weight, layer = by_kind.get("weight"), by_kind.get("layer")
        if name in LOOPS and weight is not None and _multiplies(eqn):
            layers.pop(LOOP, None)
            layers[LOOP] = set()
        elif name in PRODUCTS and weight is not None:
            layers.pop(weight, None)  # the last of several uses counts
            layers[weight] = {weight}
            return [("layer", weight)]
        elif name in ("add", "add_any") and layer is not None:
            layers[layer] |= set() if weight is None else {weight}
            return [("layer", layer)]
        elif inputs and (structural(eqn) or name == "broadcast_in_dim"):
            return [inputs[0]]
        return [None] * len(eqn.outvars)

    tags: list[Tag] = [("weight", i) for i in range(len(jax.tree.leaves(weights)))]
    tags += [None] * (len(program.in_avals) - len(tags))
    walk(program, tags, rule, constant=lambda value: None)
    if next(reversed(layers), None) == LOOP:
        raise ValueError(
            "structure='last_layer': the network's last product with a weight lies in a loop, "
            "which may hold several layers; name the weights of the last one with layer="
        )
    return sorted(list(layers.values())[-1]) if layers else []


def _multiplies(loop: JaxprEqn) -> bool:
    return any(eqn.primitive.name in PRODUCTS for eqn in within(loop))

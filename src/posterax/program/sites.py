r"""Where a network multiplies by its weights: what goes in, and what comes out, at every product.

A weight W (inputs × outputs) that is used once, in a product z = a W, meets an example through its
inputs a alone, and the derivative of anything with respect to W is the outer product of a with the
derivative with respect to z. Kronecker factors are made of these two, whatever the network: its
jaxpr tells where the products are, a zero added to z lets it be differentiated.

A convolution is a product too, of the patches of an image with its kernel, at every position.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jex

from .reuse import CALLS, LOOP, PRODUCT, kinds
from .shared import LOOPS, PRODUCTS, bind, called, structural


class Site(NamedTuple):
    """A product with a weight: how its axes are read as (inputs, outputs), and how often."""

    order: tuple[int, ...]  # axes of the weight, those of the inputs first
    inputs: int
    outputs: int
    rows: int  # positions of one example that meet the weight


class Seen(NamedTuple):
    """A weight on its way to its product: which of its axes each axis is (none of length 1)."""

    weight: int
    axes: tuple[int | None, ...]


Visit = Callable[[Seen, Any, list[Any], int], Any]


def find_sites(function: Any, weights: Any, x: Any) -> list[Site | None]:
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
    shapes = [leaf.shape for leaf in jax.tree.leaves(weights)]
    data = len(jax.tree.leaves(x))
    once = [kind == PRODUCT for kind in kinds(program, len(shapes), data)]
    found: list[Site | None] = [None] * len(shapes)

    def visit(seen: Seen, eqn: Any, values: list[Any], position: int) -> Any:
        site = _site(eqn, seen.axes, position, shapes[seen.weight])
        found[seen.weight] = site
        return bind(eqn, values)[0]

    def abstract(*arguments: Any) -> Any:
        return _start(program, arguments, once, visit)

    jax.eval_shape(abstract, *jax.tree.leaves((weights, x)))
    return found


def through_sites(
    function: Any, weights: Any, x: Any, sites: list[Site | None], added: list[Any]
) -> tuple[Any, list[Any]]:
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
    inputs: list[Any] = [None] * len(sites)

    def visit(seen: Seen, eqn: Any, values: list[Any], position: int) -> Any:
        inputs[seen.weight] = _inputs(eqn, values, position)
        made = bind(eqn, values)[0]
        return made + _as_product(eqn, added[seen.weight], made, position)

    wanted = [site is not None for site in sites]
    found = _start(program, jax.tree.leaves((weights, x)), wanted, visit)
    return jax.tree.unflatten(jax.tree.structure(shape), found), inputs


def _start(program: jex.ClosedJaxpr, arguments: Any, wanted: list[bool], visit: Visit) -> list[Any]:
    seen: list[Seen | None] = [
        Seen(i, tuple(range(jnp.ndim(value)))) if want else None
        for i, (value, want) in enumerate(zip(arguments, wanted, strict=False))
    ]
    seen += [None] * (len(arguments) - len(seen))
    found = _run(program, list(zip(arguments, seen, strict=True)), visit)
    return [value for value, _ in found]


def _run(program: jex.ClosedJaxpr, arguments: list[Any], visit: Visit) -> list[Any]:
    """Evaluate a jaxpr on (value, seen) pairs."""
    jaxpr = program.jaxpr
    known: dict[Any, Any] = dict(zip(jaxpr.invars, arguments, strict=True))
    known |= {
        var: (value, None) for var, value in zip(jaxpr.constvars, program.consts, strict=True)
    }

    def read(atom: Any) -> Any:
        return (atom.val, None) if isinstance(atom, jex.Literal) else known[atom]

    for eqn in jaxpr.eqns:
        given = [read(atom) for atom in eqn.invars]
        values, tags = [value for value, _ in given], [tag for _, tag in given]
        name, body = eqn.primitive.name, called(eqn)
        position = next((i for i, tag in enumerate(tags) if tag is not None), None)
        if position is None:
            found: list[Any] = [(value, None) for value in bind(eqn, values)]
        elif name in CALLS and body is not None:
            found = _run(body, given, visit)
        elif name in PRODUCTS:
            found = [(visit(tags[position], eqn, values, position), None)]
        else:
            found = [(value, _moved(eqn, tags[position])) for value in bind(eqn, values)]
        known.update(zip(eqn.outvars, found, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _moved(eqn: Any, seen: Seen) -> Seen | None:
    """A weight after an operation that only rearranges it; ``None`` where it is lost track of."""
    if not structural(eqn):
        return None
    name, before, after = eqn.primitive.name, eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    if name == "transpose":
        return seen._replace(axes=tuple(seen.axes[i] for i in eqn.params["permutation"]))
    if name == "rev":
        return None
    # all that is left keeps the order of entries: axes of length 1 come and go
    long = [axis for axis, size in zip(seen.axes, before, strict=True) if size > 1]
    if [size for size in before if size > 1] != [size for size in after if size > 1]:
        return None
    rest = iter(long)
    return seen._replace(axes=tuple(next(rest) if size > 1 else None for size in after))


def _site(eqn: Any, axes: tuple[int | None, ...], position: int, shape: Any) -> Site | None:
    """The product of an equation, where it is one whose factors we know."""
    out = eqn.outvars[0].aval.shape
    if eqn.primitive.name == "dot_general":
        contracted, batched = (pair[position] for pair in eqn.params["dimension_numbers"])
        if batched:
            return None
        free = [i for i in range(len(axes)) if i not in contracted]
        split = [axes[i] for i in contracted], [axes[i] for i in free]
    else:
        if eqn.params["feature_group_count"] != 1 or eqn.params["batch_group_count"] != 1:
            return None
        made, channels, *space = eqn.params["dimension_numbers"].rhs_spec
        split = [axes[i] for i in (channels, *space)], [axes[made]]
    first, second = ([axis for axis in part if axis is not None] for part in split)
    # axes of length 1 may be anywhere
    second += [axis for axis in range(len(shape)) if axis not in (*first, *second)]
    inputs, outputs = (int(np.prod([shape[a] for a in part])) for part in (first, second))
    return Site((*first, *second), inputs, outputs, int(np.prod(out)) // outputs)


def _inputs(eqn: Any, values: list[Any], position: int) -> jax.Array:
    """What meets the weight, (rows, inputs)."""
    x = values[1 - position]
    if eqn.primitive.name == "dot_general":
        contracted = eqn.params["dimension_numbers"][0][1 - position]
        free = [i for i in range(jnp.ndim(x)) if i not in contracted]
        width = int(np.prod([x.shape[i] for i in contracted]))
        return x.transpose(*free, *contracted).reshape(-1, width)
    numbers = eqn.params["dimension_numbers"]
    kernel = [values[1].shape[i] for i in numbers.rhs_spec[2:]]
    patches = lax.conv_general_dilated_patches(
        x.transpose(numbers.lhs_spec),
        kernel,
        eqn.params["window_strides"],
        eqn.params["padding"],
        lhs_dilation=eqn.params["lhs_dilation"],
        rhs_dilation=eqn.params["rhs_dilation"],
        precision=lax.Precision.HIGHEST,
    )
    return jnp.moveaxis(patches, 1, -1).reshape(-1, patches.shape[1])


def _as_product(eqn: Any, rows: jax.Array, made: jax.Array, position: int) -> jax.Array:
    """(rows, outputs) in the shape of the product."""
    if eqn.primitive.name == "dot_general":
        return (rows if position == 1 else rows.T).reshape(made.shape).astype(made.dtype)
    spec = eqn.params["dimension_numbers"].out_spec
    examples, channels, *space = (made.shape[i] for i in spec)
    moved = jnp.moveaxis(rows.reshape(examples, *space, channels), -1, 1)
    return moved.transpose(np.argsort(spec)).astype(made.dtype)


def last_layer(function: Any, weights: Any, x: Any) -> list[int]:
    """Which weights the last product of a network is made of: its factor, and what is added to it.

    Example:
        >>> import jax.numpy as jnp
        >>> from posterax.program.sites import last_layer
        >>> w = {"b": jnp.ones(3), "c": jnp.ones(1), "v": jnp.ones((3, 1)), "w": jnp.ones((2, 3))}
        >>> def network(w, x):
        ...     return jnp.tanh(x @ w["w"] + w["b"]) @ w["v"] + w["c"]
        >>> last_layer(network, w, jnp.ones((1, 2)))  # c and v
        [1, 2]
    """
    program = jax.make_jaxpr(function)(weights, x)
    layers: dict[Any, set[int]] = {}  # by the weight of the product; a loop with some is ``LOOP``
    tags: list[Any] = [("weight", i) for i in range(len(jax.tree.leaves(weights)))]
    tags += [None] * (len(program.jaxpr.invars) - len(tags))
    _layers(program.jaxpr, tags, layers)
    if next(reversed(layers), None) == LOOP:
        raise ValueError(
            "structure='last_layer': the network's last product with a weight lies in a loop, "
            "which may hold several layers; name the weights of the last one with layer="
        )
    return sorted(list(layers.values())[-1]) if layers else []


def _layers(jaxpr: Any, arguments: list[Any], layers: dict[Any, set[int]]) -> list[Any]:
    """Collect the weights of every product, in the order of the program; tags of the outputs."""
    tags: dict[Any, Any] = dict(zip(jaxpr.invars, arguments, strict=True))

    def read(atom: Any) -> Any:
        return None if isinstance(atom, jex.Literal) else tags.get(atom)

    for eqn in jaxpr.eqns:
        given, name, body = [read(atom) for atom in eqn.invars], eqn.primitive.name, called(eqn)
        by_kind = {tag[0]: tag[1] for tag in given if tag is not None}
        outs: list[Any] = [None] * len(eqn.outvars)
        if body is not None and len(body.jaxpr.invars) == len(given):
            outs = _layers(body.jaxpr, given, layers)
        elif name in LOOPS and "weight" in by_kind and _multiplies(eqn):
            layers.pop(LOOP, None)
            layers[LOOP] = set()
        elif name in PRODUCTS and "weight" in by_kind:
            layer = by_kind["weight"]
            layers.pop(layer, None)  # the last of several uses counts
            layers[layer] = {layer}
            outs = [("layer", layer)]
        elif name in ("add", "add_any") and "layer" in by_kind:
            if "weight" in by_kind:
                layers[by_kind["layer"]].add(by_kind["weight"])
            outs = [("layer", by_kind["layer"])]
        elif given and (structural(eqn) or name == "broadcast_in_dim"):
            outs = [given[0]]
        tags.update(zip(eqn.outvars, outs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _multiplies(eqn: Any) -> bool:
    """Whether there is a product anywhere within an equation."""
    if eqn.primitive.name in PRODUCTS:
        return True
    inner = [p for v in eqn.params.values() for p in (v if isinstance(v, tuple) else (v,))]
    bodies = [p.jaxpr if isinstance(p, jex.ClosedJaxpr) else p for p in inner]
    return any(_multiplies(e) for b in bodies if isinstance(b, jex.Jaxpr) for e in b.eqns)

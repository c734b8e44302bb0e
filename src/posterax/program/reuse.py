"""How a network uses each of its weights: a pass over its jaxpr.

Local reparameterization and Flipout draw noise for the *use* of a weight, so they are right only
for a weight with a single use, as a factor of one matrix product or convolution with something
that depends on the inputs (its rows are then examples). A dispatch rule sees one use at a time;
the program tells how many there are.
"""

from collections import Counter
from typing import Any

import jax
from jax.extend import core as jex

from .shared import LOOPS, PRODUCTS, called, structural

# calls that may be entered with a distribution; a custom derivative is for arrays
CALLS = ("jit", "pjit", "closed_call", "core_call", "remat2", "checkpoint")

PRODUCT, REUSED, LOOP, OTHER, UNUSED = "product", "reused", "loop", "other", "unused"
_DATA = -1  # the tag of what depends on the inputs; weights are tagged 0, 1, …

Tag = int | None
Counts = dict[str, Counter[int]]


def uses(function: Any, weights: Any, x: Any, *rest: Any) -> Any:
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


def single_use(function: Any, weights: Any, x: Any, *rest: Any) -> Any:
    """A tree like ``weights``: whether each is used once, as a factor of one product.

    Example:
        >>> import jax.numpy as jnp
        >>> from posterax.program.reuse import single_use
        >>> w = {"tied": jnp.ones((2, 2)), "last": jnp.ones((2, 1))}
        >>> def network(w, x):
        ...     return jnp.tanh(x @ w["tied"]) @ w["tied"].T @ w["last"]
        >>> single_use(network, w, jnp.ones((3, 2)))
        {'last': True, 'tied': False}
    """
    return jax.tree.map(lambda kind: kind == PRODUCT, uses(function, weights, x, *rest))


def kinds(program: jex.ClosedJaxpr, weights: int, data: int) -> list[str]:
    """The use of each of the first ``weights`` arguments; the next ``data`` are the inputs."""
    tags: list[Tag] = [*range(weights), *[_DATA] * data]
    tags += [None] * (len(program.jaxpr.invars) - len(tags))
    counts: Counts = {PRODUCT: Counter(), LOOP: Counter(), OTHER: Counter()}
    returned = _walk(program.jaxpr, tags, counts)
    counts[OTHER].update(_weights(returned))  # what is returned is seen outside

    def kind(i: int) -> str:
        found = {name: count[i] for name, count in counts.items() if count[i]}
        if sum(found.values()) > 1:
            return REUSED
        return next(iter(found), UNUSED)

    return [kind(i) for i in range(weights)]


def _weights(tags: list[Tag]) -> list[int]:
    return [tag for tag in tags if tag is not None and tag != _DATA]


def _walk(jaxpr: Any, arguments: list[Tag], counts: Counts) -> list[Tag]:
    """Count uses in one jaxpr; returns the tags of its outputs."""
    tags: dict[Any, Tag] = dict(zip(jaxpr.invars, arguments, strict=True))

    def read(atom: Any) -> Tag:
        return None if isinstance(atom, jex.Literal) else tags.get(atom)

    for eqn in jaxpr.eqns:
        seen = [read(atom) for atom in eqn.invars]
        name, body, used = eqn.primitive.name, called(eqn), _weights(seen)
        out: Tag = _DATA if _DATA in seen else None
        outs = [out] * len(eqn.outvars)
        if name in CALLS and body is not None:
            outs = _walk(body.jaxpr, seen, counts)
        elif used and structural(eqn):
            outs = [used[0]]
        elif name in PRODUCTS and _is_factor(name, seen):
            counts[PRODUCT].update(used)
        else:
            counts[LOOP if name in LOOPS else OTHER].update(used)
        tags.update(zip(eqn.outvars, outs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _is_factor(name: str, seen: list[Tag]) -> bool:
    """One weight times data; in a convolution the weight is the kernel, not the image."""
    lhs, rhs = seen[:2]
    if name == "conv_general_dilated" and lhs != _DATA:
        return False
    return _DATA in (lhs, rhs) and len(_weights([lhs, rhs])) == 1

"""Which weights a network multiplies exactly once: a pass over its jaxpr.

Local reparameterization and Flipout draw noise for the *use* of a weight, so they are right only
for a weight with a single use as a factor of one matrix product or convolution. A dispatch rule
sees one use at a time; the program tells how many there are.
"""

from collections import Counter
from typing import Any

import jax
from jax.extend import core as jex

from ..networks.shared import PRODUCTS, STRUCTURAL, called


def single_use(function: Any, weights: Any, *args: Any) -> Any:
    """A tree like ``weights``: whether each is used once, as a factor of one product.

    Args:
        function: the network, ``function(weights, *args)``.
        weights: a tree of arrays (or their shapes).
        args: the other arguments.

    Example:
        >>> import jax.numpy as jnp
        >>> from posterax.infer.reuse import single_use
        >>> w = {"once": jnp.ones((2, 2)), "twice": jnp.ones((2, 2)), "scale": jnp.ones(2)}
        >>> def network(w, x):
        ...     x = x @ w["once"] * w["scale"]
        ...     return x @ w["twice"] @ w["twice"]
        >>> single_use(network, w, jnp.ones((3, 2)))
        {'once': True, 'scale': False, 'twice': False}
    """
    leaves, treedef = jax.tree.flatten(weights)
    closed = jax.make_jaxpr(function)(weights, *args)
    alias = {var: i for i, var in enumerate(closed.jaxpr.invars[: len(leaves)])}
    products: Counter[int] = Counter()
    others: Counter[int] = Counter()
    for i in _walk(closed.jaxpr, alias, products, others):
        if i is not None:  # a weight that is returned is seen outside
            others[i] += 1
    return jax.tree.unflatten(
        treedef, [products[i] == 1 and others[i] == 0 for i in range(len(leaves))]
    )


def _walk(
    jaxpr: Any, alias: dict[Any, int], products: Counter[int], others: Counter[int]
) -> list[int | None]:
    """Count uses in one jaxpr; returns which of its outputs are weights unchanged."""

    def weight(atom: Any) -> int | None:
        return None if isinstance(atom, jex.Literal) else alias.get(atom)

    for eqn in jaxpr.eqns:
        seen = [weight(atom) for atom in eqn.invars]
        used = [i for i in seen if i is not None]
        if not used:
            continue
        name = eqn.primitive.name
        body = called(eqn)
        if name in PRODUCTS and len(used) == 1:
            products[used[0]] += 1
        elif name in STRUCTURAL:
            alias[eqn.outvars[0]] = used[0]
        elif body is not None and len(body.jaxpr.invars) == len(seen):
            inner = body.jaxpr
            below = {v: i for v, i in zip(inner.invars, seen, strict=True) if i is not None}
            for var, i in zip(eqn.outvars, _walk(inner, below, products, others), strict=True):
                if i is not None:
                    alias[var] = i
        else:
            others.update(used)
    return [weight(atom) for atom in jaxpr.outvars]

r"""Products that weight samples share: of weights with an input that no weight has touched.

At prediction many weight samples meet the same inputs. For w = μ ± δ the first products are
x·w = x·μ ± x·δ: x·μ serves all samples, and x·δ serves two. ``products`` computes such products of
a network, whatever it is, and ``outputs`` runs the network with their values put in place.
"""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import PyTree

from .._util.jax_names import JaxprEqn, bind
from .walker import PRODUCTS, structural, walk

DATA, WEIGHT, MIXED = "data", "weight", "mixed"

Function = Callable[[PyTree, PyTree], PyTree]
Tagged = tuple[Any, str]  # a value (``None`` where it is not needed), and what it is made of


def products(function: Function, weights: PyTree, x: PyTree) -> list[jax.Array]:
    """The products of ``function(weights, x)`` of a weight with what depends on x alone.

    Nothing but what they need is computed.

    Example:
        >>> import jax.numpy as jnp
        >>> from posterax.program.shared_products import outputs, products
        >>> def network(w, x):
        ...     return jnp.tanh(x @ w["first"] + w["bias"]) @ w["second"]
        >>> w = {"first": jnp.ones((2, 3)), "bias": jnp.ones(3), "second": jnp.ones((3, 1))}
        >>> x = jnp.ones((5, 2))
        >>> first = products(network, w, x)
        >>> [z.shape for z in first]
        [(5, 3)]
        >>> bool(jnp.allclose(outputs(network, w, x, first), network(w, x)))
        True
    """
    collected: list[jax.Array] = []
    _run(function, weights, x, lambda eqn, values: collected.append(bind(eqn, values)[0]))
    return collected


def outputs(function: Function, weights: PyTree, x: PyTree, given: list[jax.Array]) -> PyTree:
    """``function(weights, x)`` with the products ``given`` instead of computed."""
    rest = iter(given)
    return _run(function, weights, x, lambda eqn, values: next(rest), complete=True)


def _run(
    function: Function,
    weights: PyTree,
    x: PyTree,
    product: Callable[[JaxprEqn, list[Any]], jax.Array | None],
    *,
    complete: bool = False,
) -> PyTree:
    """The function with ``product`` for its products, and (if ``complete``) what follows them."""
    program, shape = jax.make_jaxpr(function, return_shape=True)(weights, x)

    def rule(eqn: JaxprEqn, inputs: list[Tagged]) -> list[Tagged]:
        values, tags = [value for value, _ in inputs], [tag for _, tag in inputs]
        if eqn.primitive.name in PRODUCTS and sorted(tags) == [DATA, WEIGHT]:
            return [(product(eqn, values), MIXED)]
        tag = DATA if all(t == DATA for t in tags) else MIXED
        if tags[:1] == [WEIGHT] and structural(eqn):
            tag = WEIGHT
        if tag == MIXED and not complete:
            return [(None, MIXED)] * len(eqn.outvars)
        return [(value, tag) for value in bind(eqn, values)]

    arguments = [(leaf, WEIGHT) for leaf in jax.tree.leaves(weights)]
    arguments += [(leaf, DATA) for leaf in jax.tree.leaves(x)]
    results = walk(program, arguments, rule, constant=lambda value: (value, DATA))
    return jax.tree.unflatten(jax.tree.structure(shape), [value for value, _ in results])

r"""Products of weights with an input that no weight has touched.

At prediction many weight samples meet the same inputs. For w = μ ± δ the first products are
x·w = x·μ ± x·δ: x·μ serves all samples, and x·δ serves two. ``products`` finds and computes such
products of a network, whatever it is (by a pass over its jaxpr), and ``outputs`` runs the network
with their values put in place.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core as jex

PRODUCTS = ("dot_general", "conv_general_dilated")
# a weight seen through one of these is still that weight (see ``structural``)
STRUCTURAL = (
    *("transpose", "reshape", "squeeze", "rev", "broadcast_in_dim"),
    *("convert_element_type", "copy"),
)
LOOPS = ("scan", "while", "cond")

DATA, WEIGHT, MIXED = range(3)


def products(function: Any, weights: Any, x: Any) -> list[jax.Array]:
    """The products of ``function(weights, x)`` of a weight with what depends on x alone.

    Example:
        >>> import jax.numpy as jnp
        >>> from posterax.program.shared import outputs, products
        >>> def network(w, x):
        ...     return jnp.tanh(x @ w["first"] + w["bias"]) @ w["second"]
        >>> w = {"first": jnp.ones((2, 3)), "bias": jnp.ones(3), "second": jnp.ones((3, 1))}
        >>> x = jnp.ones((5, 2))
        >>> found = products(network, w, x)
        >>> [z.shape for z in found]
        [(5, 3)]
        >>> bool(jnp.allclose(outputs(network, w, x, found), network(w, x)))
        True
    """
    collected: list[jax.Array] = []
    _start(function, weights, x, collected, None)
    return collected


def outputs(function: Any, weights: Any, x: Any, given: list[jax.Array]) -> Any:
    """``function(weights, x)`` with the products ``given`` instead of computed."""
    return _start(function, weights, x, [], iter(given))


def _start(function: Any, weights: Any, x: Any, collected: Any, given: Any) -> Any:
    program, shape = jax.make_jaxpr(function, return_shape=True)(weights, x)
    leaves = jax.tree.leaves((weights, x))
    tags = [WEIGHT] * len(jax.tree.leaves(weights)) + [DATA] * len(jax.tree.leaves(x))
    arguments = list(zip(leaves, tags, strict=True))
    found = _run(program.jaxpr, program.consts, arguments, collected, given)
    return jax.tree.unflatten(jax.tree.structure(shape), [value for value, _ in found])


def _run(
    jaxpr: Any, consts: Any, arguments: list[Any], collected: Any, given: Iterator[Any] | None
) -> list[Any]:
    """Evaluate a jaxpr on (value, tag) pairs.

    Without ``given`` only what the products need is computed, and everything else is ``None``.
    """
    known: dict[Any, Any] = dict(zip(jaxpr.invars, arguments, strict=True))
    known |= {var: (value, DATA) for var, value in zip(jaxpr.constvars, consts, strict=True)}

    def read(atom: Any) -> Any:
        return (atom.val, DATA) if isinstance(atom, jex.Literal) else known[atom]

    for eqn in jaxpr.eqns:
        inputs = [read(atom) for atom in eqn.invars]
        values, tags = [value for value, _ in inputs], [tag for _, tag in inputs]
        name, body = eqn.primitive.name, called(eqn)
        if name in PRODUCTS and sorted(tags) == [DATA, WEIGHT]:
            value = bind(eqn, values)[0] if given is None else next(given)
            collected.append(value)
            known[eqn.outvars[0]] = (value if given is not None else None, MIXED)
            continue
        if body is not None and len(body.jaxpr.invars) == len(inputs):
            found = _run(body.jaxpr, body.consts, inputs, collected, given)
        else:
            tag = DATA if all(t == DATA for t in tags) else MIXED
            if tags[:1] == [WEIGHT] and structural(eqn):
                tag = WEIGHT
            skipped = given is None and tag == MIXED
            outs = [None] * len(eqn.outvars) if skipped else bind(eqn, values)
            found = [(value, tag) for value in outs]
        known.update(zip(eqn.outvars, found, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def structural(eqn: Any) -> bool:
    """Whether an operation only rearranges its argument, every entry in one place.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from posterax.program.shared import structural
        >>> def program(w):
        ...     return w[None], jnp.broadcast_to(w, (3, 2)), jax.lax.rev(w, (0,))
        >>> [structural(eqn) for eqn in jax.make_jaxpr(program)(jnp.ones(2)).jaxpr.eqns]
        [True, False, True]
    """
    if eqn.primitive.name not in STRUCTURAL:
        return False
    before, after = eqn.invars[0].aval, eqn.outvars[0].aval
    # a broadcast that adds axes of length 1 is a reshape; any other repeats entries
    return after.size == before.size and jnp.issubdtype(after.dtype, jnp.floating)


def bind(eqn: Any, values: list[Any]) -> list[Any]:
    """The operation of an equation on other values; always a list of results."""
    bound = eqn.primitive.get_bind_params(eqn.params)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)  # JAX before 0.10
    found = eqn.primitive.bind(*functions, *values, **params)
    return found if eqn.primitive.multiple_results else [found]


def called(eqn: Any) -> jex.ClosedJaxpr | None:
    """The body of a call (jit, custom_jvp, remat, …), where there is exactly one."""
    if eqn.primitive.name in LOOPS:
        return None
    bodies = [v for v in eqn.params.values() if isinstance(v, jex.ClosedJaxpr | jex.Jaxpr)]
    if len(bodies) != 1:
        return None
    body = bodies[0]
    return body if isinstance(body, jex.ClosedJaxpr) else jex.ClosedJaxpr(body, ())

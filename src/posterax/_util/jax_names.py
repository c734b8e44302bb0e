"""The names of JAX that it may move without notice: followed here, and nowhere else.

Other files import them from this one. ``tests/test_private_names.py`` says early when one moves.
"""

from collections.abc import Sequence
from typing import Any, cast

import jax
from jax._src.core import trace_state_clean
from jax._src.xla_bridge import backends_are_initialized as has_started
from jax.core import ShapedArray, Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Primitive, Var
from jax.extend.random import define_prng_impl
from jax.interpreters.partial_eval import dce_jaxpr

__all__ = [
    "ClosedJaxpr", "Jaxpr", "JaxprEqn", "Literal", "Primitive", "ShapedArray", "Tracer", "bind",
    "define_prng_impl", "has_started", "primitive", "scan_sizes", "shaped",
    "trace_state_clean", "used_arguments",
]  # fmt: skip


def primitive(name: str) -> Primitive:
    """An operation of ``jax.lax`` by its name in a program.

    Example:
        >>> from posterax._util.jax_names import primitive
        >>> primitive("transpose")
        transpose
    """
    return getattr(jax.lax, f"{name}_p")


def bind(eqn: JaxprEqn, values: Sequence[Any]) -> list[Any]:
    """The operation of an equation on other values; always a list of results.

    Example:
        >>> import jax
        >>> from posterax._util.jax_names import bind
        >>> (eqn,) = jax.make_jaxpr(lambda x: x + 1.0)(2.0).jaxpr.eqns
        >>> bind(eqn, [4.0, 1.0])
        [Array(5., dtype=float32, weak_type=True)]
    """
    bound = eqn.primitive.get_bind_params(eqn.params)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)  # JAX before 0.10
    results = eqn.primitive.bind(*functions, *values, **params)
    return results if eqn.primitive.multiple_results else [results]


def shaped(value: Var | Literal) -> ShapedArray:
    """The shape and dtype of an input or output of an equation.

    Example:
        >>> import jax
        >>> from posterax._util.jax_names import shaped
        >>> (eqn,) = jax.make_jaxpr(jax.numpy.tanh)(jax.numpy.ones(3)).jaxpr.eqns
        >>> shaped(eqn.outvars[0]).shape
        (3,)
    """
    return cast(ShapedArray, value.aval)


def scan_sizes(eqn: JaxprEqn) -> tuple[int, int]:
    """How many of a scan's inputs are constants, and how many are carried along.

    Example:
        >>> import jax
        >>> from posterax._util.jax_names import scan_sizes
        >>> def program(c, x):
        ...     return jax.lax.scan(lambda s, a: (s + a * c, None), 0.0, x)[0]
        >>> scan_sizes(jax.make_jaxpr(program)(2.0, jax.numpy.ones(3)).jaxpr.eqns[-1])
        (1, 1)
    """
    if "num_consts" in eqn.params:
        return eqn.params["num_consts"], eqn.params["num_carry"]
    # from JAX 0.11 on: a tree of constants, carry and what is scanned over
    consts, carry, _ = eqn.params["ft_in"].update(list(range(len(eqn.invars)))).unpack()
    return len(list(consts)), len(list(carry))


def used_arguments(program: ClosedJaxpr) -> list[bool]:
    """Which of a program's arguments its results depend on.

    Example:
        >>> import jax
        >>> from posterax._util.jax_names import used_arguments
        >>> used_arguments(jax.make_jaxpr(lambda a, b: b + 1)(1.0, 2.0))
        [False, True]
    """
    return dce_jaxpr(program.jaxpr, [True] * len(program.jaxpr.outvars))[1]

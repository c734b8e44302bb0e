"""Compiled functions: Equinox's ``filter_jit``, with programs made fit for the device."""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

import equinox as eqx
import jax

from .._util.jax_names import Tracer, bind, trace_state_clean
from .._util.memory_maps import make_room
from .._util.program_cache import keep_programs
from .layout import rewrite
from .walker import walk

# XLA's default of 256 leaves half of a register unused where a processor has wider ones; others
# take the widest they have
VECTOR_BITS = 512


class Compiled:
    """A compiled function; on a CPU its convolutions are those that XLA runs fast.

    Within another transformation (someone's ``jit``, ``grad`` or ``vmap``) the function is left as
    it was written: derivatives that it defines itself are not lost.
    """

    def __init__(self, function: Callable[..., Any], donate: Any = "none"):
        update_wrapper(self, function)
        self._plain = eqx.filter_jit(function, donate=donate)
        options: Any = {"compiler_options": {"xla_cpu_prefer_vector_width": VECTOR_BITS}}
        self._fast = eqx.filter_jit(_rewritten(function), donate=donate, **options)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._chosen(arguments, named)(*arguments, **named)

    def lower(self, *arguments: Any, **named: Any) -> Any:
        """The program that a call would compile."""
        return self._chosen(arguments, named).lower(*arguments, **named)

    def programs(self) -> int:
        """How many programs there are of it."""
        both: tuple[Any, ...] = (self._plain, self._fast)
        return sum(each._cached._cache_size() for each in both)

    def _chosen(self, *arguments: Any) -> Any:
        keep_programs()
        traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(arguments))
        inside = traced or not trace_state_clean()
        if not inside:
            make_room()
        return self._plain if inside or jax.default_backend() != "cpu" else self._fast


def compiled(function: Callable[..., Any] | None = None, *, donate: Any = "none") -> Any:
    """Compile a function of arrays and other values, as ``eqx.filter_jit`` does.

    Example:
        >>> import jax.numpy as jnp
        >>> from posterax.program.compiled import compiled
        >>> @compiled
        ... def double(x, name):
        ...     return 2 * x, name
        >>> double(jnp.ones(2), "a")
        (Array([2., 2.], dtype=float32), 'a')
    """
    if function is None:
        return lambda function: Compiled(function, donate)
    return Compiled(function, donate)


def _rewritten(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arguments: Any, **named: Any) -> Any:
        arrays, rest = eqx.partition((arguments, named), eqx.is_array)
        others: list[Any] = []

        def inner(arrays: Any) -> Any:
            arguments, named = eqx.combine(arrays, rest)
            results, other = eqx.partition(function(*arguments, **named), eqx.is_array)
            others.append(other)
            return results

        program, shape = jax.make_jaxpr(inner, return_shape=True)(arrays)
        leaves = jax.tree.leaves(arrays)
        results = walk(rewrite(program), leaves, bind, constant=lambda v: v, enter=_never)
        return eqx.combine(jax.tree.unflatten(jax.tree.structure(shape), results), others[-1])

    return update_wrapper(run, function)


def _never(eqn: Any, values: Any) -> bool:
    return False

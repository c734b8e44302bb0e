"""Compiled functions: Equinox's ``filter_jit``, with programs made fit for the device."""

import re
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

Options = dict[str, Any]

# XLA's default of 256 leaves half of a register unused where a processor has wider ones; others
# take the widest they have
ON_CPU: Options = {"xla_cpu_prefer_vector_width": 512}

# On a GPU, for programs of many small kernels: they are recorded and launched as one graph, loops
# with all of their turns, so that the host is not asked in between; and what does not depend on one
# another runs side by side. Each call records anew, which took some 0.1 s for sixteen steps of
# ResNet-18: large kernels gain less than that
IN_GRAPH: Options = {
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
    "xla_gpu_enable_command_buffer": (
        "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE"
    ),
    "xla_gpu_command_buffer_unroll_loops": True,
}

_UNKNOWN = re.compile("No such compile option|While setting option")


class Compiled:
    """A compiled function; on a CPU its convolutions are those that XLA runs fast.

    Within another transformation (someone's ``jit``, ``grad`` or ``vmap``) the function is left as
    it was written: derivatives that it defines itself are not lost.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        donate: Any = "none",
        in_graph: Callable[..., bool] | None = None,
    ):
        update_wrapper(self, function)
        self._function, self._donate, self._in_graph = function, donate, in_graph
        self._programs: dict[str, Any] = {}
        self._options = {"plain": {}, "cpu": ON_CPU, "graph": IN_GRAPH}

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        kind = self._kind(arguments, named)
        try:
            return self._program(kind)(*arguments, **named)
        except jax.errors.JaxRuntimeError as error:
            # nothing has run: another XLA has other names, and is fast enough without
            if not self._options[kind] or not _UNKNOWN.search(str(error)):
                raise
        self._options[kind] = {}
        del self._programs[kind]
        return self._program(kind)(*arguments, **named)

    def lower(self, *arguments: Any, **named: Any) -> Any:
        """The program that a call would compile."""
        return self._program(self._kind(arguments, named)).lower(*arguments, **named)

    def programs(self) -> int:
        """How many programs there are of it."""
        return sum(each._cached._cache_size() for each in self._programs.values())

    def _program(self, kind: str) -> Any:
        if kind not in self._programs:
            function = _rewritten(self._function) if kind == "cpu" else self._function
            options: Any = self._options[kind]
            options = {"compiler_options": options} if options else {}
            self._programs[kind] = eqx.filter_jit(function, donate=self._donate, **options)
        return self._programs[kind]

    def _kind(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> str:
        keep_programs()
        traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((arguments, named)))
        if traced or not trace_state_clean():
            return "plain"
        make_room()
        if jax.default_backend() == "cpu":
            return "cpu"
        graph = self._in_graph is not None and self._in_graph(*arguments, **named)
        return "graph" if graph else "plain"


def compiled(
    function: Callable[..., Any] | None = None,
    *,
    donate: Any = "none",
    in_graph: Callable[..., bool] | None = None,
) -> Any:
    """Compile a function of arrays and other values, as ``eqx.filter_jit`` does.

    Args:
        function: what is compiled.
        donate: whose memory results may take, as of ``eqx.filter_jit``.
        in_graph: of the arguments, whether a GPU gets the program as one graph of small kernels.

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
        return lambda function: Compiled(function, donate, in_graph)
    return Compiled(function, donate, in_graph)


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

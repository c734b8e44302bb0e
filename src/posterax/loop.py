"""The compiled part of ``fit``: many steps in one program, the host touched only in between."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from ._tree import is_key, tree_bytes
from .data import Data, Stack
from .infer.base import Draw, Info, Phase

MOST_STEPS = 2048  # per chunk: the size of the history buffer
DRAW_BYTES = 64 * 2**20  # per chunk: the size of the draws buffer


class Chunk(NamedTuple):
    """What a chunk of steps gives back."""

    state: Any
    terms: dict[str, jax.Array]  # (capacity,) each; the first ``taken`` are filled
    draws: Draw | None  # (capacity, chain, …)
    taken: jax.Array
    finite: jax.Array
    done: jax.Array


def capacity(info: Info, thin: int) -> tuple[int, int]:
    """How many steps fit into the buffers of a chunk: of history, and of draws."""
    if info.draw is None:
        return MOST_STEPS, 0
    most = max(1, min(MOST_STEPS, DRAW_BYTES // max(tree_bytes(info.draw), 1)))
    return min(MOST_STEPS, most * thin), most


@eqx.filter_jit
def start_phase(phase: Phase, previous: Any, data: Data | None, key: jax.Array) -> Any:
    """The phase's first state, in types that the loop keeps: weak ones would compile again."""
    return jax.tree.map(_strong, phase.init(previous, data, key))


def _strong(a: jax.Array) -> jax.Array:
    return a if is_key(a) else jax.lax.convert_element_type(a, jnp.asarray(a).dtype)


@eqx.filter_jit
def _first_info(phase: Phase, state: Any, data: Data | Stack, key: jax.Array) -> Info:
    return phase.step(state, _batch(phase, data, jnp.zeros((), jnp.int32), key), key)[1]


def abstract_info(phase: Phase, state: Any, data: Data | Stack, key: jax.Array) -> Info:
    """Shapes of what a step reports, without running one (and, under jit, traced only once)."""
    return eqx.filter_eval_shape(_first_info, phase, state, data, key)


def make_buffers(info: Info, rows: int, draw_rows: int) -> tuple[Any, Any]:
    """Room for the history and the draws of a chunk."""
    terms = {name: jnp.zeros((rows,), a.dtype) for name, a in info.terms.items()}
    return terms, jax.tree.map(lambda a: jnp.zeros((draw_rows, *a.shape), a.dtype), info.draw)


def _batch(phase: Phase, data: Data | Stack, step: jax.Array, key: jax.Array) -> Any:
    if phase.full_batch and isinstance(data, Data):
        return data.everything()
    return data.batch(step, phase.plan.batch_size, phase.plan.batches, key)


# State and buffers are donated: they are written in place. Everything else comes first.
@eqx.filter_jit(donate="all-except-first")
def run_chunk(fixed: tuple[Any, ...], state: Any, terms: Any, draws: Any) -> Chunk:
    """Steps ``start … stop−1`` of a phase, fewer when it is done or a term is not finite.

    The number of steps is an argument, not a constant: one compilation serves every chunk.
    Nothing is kept of the state before a step: choosing between the two would double the memory
    traffic of an update. ``fit`` finds the last finite state again by repeating the steps to it.
    """
    phase, data, key, start, stop, thin, block = fixed
    order_key, step_key = jax.random.split(key)
    draw_rows = len(jax.tree.leaves(draws)[0]) if draws is not None else 0

    def step(carry: Any, _: Any) -> tuple[Any, None]:
        state, terms, draws, t, bad, _done = carry
        state, info = phase.step(
            state, _batch(phase, data, t, order_key), jax.random.fold_in(step_key, t)
        )
        sound = jax.tree.reduce(
            jnp.logical_and, jax.tree.map(lambda a: jnp.all(jnp.isfinite(a)), info.terms)
        )
        put = lambda buffer, value, at: buffer.at[at].set(value, mode="drop")  # noqa: E731
        terms = jax.tree.map(lambda b, v: put(b, v, t - start), terms, info.terms)
        if draws is not None:
            kept = sound & ((t + 1) % thin == 0)
            at = jnp.where(kept, (t + 1) // thin - 1 - start // thin, draw_rows)
            draws = jax.tree.map(lambda b, v: put(b, v, at), draws, info.draw)
        bad = jnp.where((bad < 0) & ~sound, t, bad)
        return (state, terms, draws, t + 1, bad, phase.done(state)), None

    def goes_on(carry: Any, ahead: int) -> jax.Array:
        return (carry[3] + ahead <= stop) & (carry[4] < 0) & ~carry[5]

    carry = (state, terms, draws, start, jnp.full((), -1, jnp.int32), jnp.zeros((), bool))
    if block > 1:
        # a device that must ask the host whether to go on is asked once a block
        carry = jax.lax.while_loop(
            lambda c: goes_on(c, block),
            lambda c: jax.lax.scan(step, c, None, length=block)[0],
            carry,
        )
    state, terms, draws, t, bad, done = jax.lax.while_loop(
        lambda c: goes_on(c, 1), lambda c: step(c, None)[0], carry
    )
    return Chunk(state, terms, draws, jnp.where(bad < 0, t, bad) - start, bad < 0, done)


def block_length(phase: Phase) -> int:
    """Steps between two looks at the loop's condition: free on a CPU, a wait on a GPU."""
    return 1 if jax.default_backend() == "cpu" or phase.full_batch else 32

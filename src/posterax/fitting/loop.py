"""The compiled part of ``fit``: many steps in one program, the host touched only in between."""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .._util.keys import two_keys
from .._util.tree import is_key, tree_bytes
from ..data import Batch, Data, Stack
from ..infer.base import Draw, History, Info, Phase, Start
from ..networks.base import footprint
from ..program.compiled import compiled

MOST_STEPS = 2048  # per chunk: the size of the history buffer
DRAW_BYTES = 64 * 2**20  # per chunk: the size of the draws buffer
SMALL_STEP = 2**30  # multiplications of a forward pass: some tens of microseconds on a GPU
AUGMENT = 2**31 - 1  # number of the augmentation's key among those of a step
PERIOD = 16  # steps between two reports, and between two calls of a phase's ``between``


class Buffers(NamedTuple):
    """Room for what a chunk of steps gives back; written in place, chunk after chunk."""

    terms: dict[str, jax.Array]  # one row a step
    reports: dict[str, jax.Array]  # one row for every step that is a multiple of PERIOD
    draws: Draw | None  # (row, chain, …), one row for each that is kept


class Chunk(NamedTuple):
    """What a chunk of steps gives back."""

    state: Any
    buffers: Buffers
    taken: jax.Array
    done: jax.Array


def capacity(info: Info) -> tuple[int, int]:
    """How many steps, and how many draws, fit into the buffers of a chunk."""
    if info.draw is None:
        return MOST_STEPS, 0
    return MOST_STEPS, max(1, min(MOST_STEPS, DRAW_BYTES // max(tree_bytes(info.draw), 1)))


@jax.jit
def phase_keys(key: jax.Array, phase: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The keys of a phase's start and of its steps."""
    return two_keys(jax.random.fold_in(key, phase))


@compiled
def own(state: Any) -> Any:
    """A copy in memory of its own, in one program."""
    return jax.tree.map(jnp.copy, state)


@compiled
def first_state(phase: Phase, start: Start, data: Data | None, key: jax.Array) -> Any:
    """The phase's first state, in types that the loop keeps: weak ones would compile again."""
    return _over_devices(phase, jax.tree.map(_strong, phase.init(start, data, key)))


@compiled
def hand_over(phase: Phase, following: Phase, state: Any, data: Data | None, key: jax.Array) -> Any:
    """The next phase's first state, from this one's last."""
    return first_state(following, phase.hand_over(state), data, key)


def _over_devices(phase: Phase, state: Any) -> Any:
    """Lay the phase's leading axis over as many devices as divide it; one changes nothing."""
    if phase.axis is None:
        return state
    size, devices = getattr(phase, phase.axis), jax.devices()
    share = max(k for k in range(1, len(devices) + 1) if size % k == 0)
    if share == 1:
        return state
    spread = NamedSharding(Mesh(np.asarray(devices[:share]), ("axis",)), PartitionSpec("axis"))

    def lay(a: jax.Array) -> jax.Array:
        leads = not is_key(a) and a.shape[:1] == (size,)
        return jax.lax.with_sharding_constraint(a, spread) if leads else a

    return jax.tree.map(lay, state)


def _strong(a: jax.Array) -> jax.Array:
    return a if is_key(a) else jax.lax.convert_element_type(a, jnp.asarray(a).dtype)


# within a program they are calls, which are traced once for all programs that hold them
@eqx.filter_jit
def _step(phase: Phase, state: Any, batch: Batch, key: jax.Array) -> tuple[Any, Info]:
    return phase.step(state, batch, key)


@eqx.filter_jit
def _report(phase: Phase, state: Any, key: jax.Array) -> dict[str, jax.Array]:
    return phase.report(state, key)


@eqx.filter_jit
def _between(phase: Phase, state: Any) -> Any:
    return phase.between(state)


def _first_info(phase: Phase, state: Any, data: Data | Stack, key: jax.Array) -> Any:
    batch = _batch(phase, data, _index(phase, data, jnp.zeros((), jnp.int32), key), key)
    return _step(phase, state, batch, key)[1], _report(phase, state, key)


def abstract_info(
    phase: Phase, state: Any, data: Data | Stack, key: jax.Array
) -> tuple[Info, dict[str, Any]]:
    """Shapes of what a step tells, without running one."""
    own, static = eqx.partition(phase, eqx.is_array)  # shapes in a plan stay what they are
    given, rest = eqx.partition((state, data, key), _has_shape)

    def first(own: Phase, given: Any) -> Any:
        return _first_info(eqx.combine(own, static), *eqx.combine(given, rest))

    return jax.eval_shape(first, own, given)


def _has_shape(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def make_buffers(shapes: tuple[Info, dict[str, Any]], rows: int, draw_rows: int) -> Buffers:
    """Room for the history and the draws of a chunk."""
    info, report = shapes
    # from the host: zeros made on the device are a program for each shape
    column = lambda n: lambda a: jax.device_put(np.zeros((n, *a.shape), a.dtype))  # noqa: E731
    return Buffers(
        jax.tree.map(column(rows), info.terms),
        jax.tree.map(column(rows // PERIOD + 1), report),
        jax.tree.map(column(draw_rows), info.draw),
    )


def _index(phase: Phase, data: Data | Stack, step: jax.Array, key: jax.Array) -> Any:
    """Which rows a step sees; ``None`` for all."""
    if phase.plan.all_data and isinstance(data, Data):
        return None
    return data.place(step, phase.plan.batch_size, phase.plan.batches, key)


def _batch(phase: Phase, data: Data | Stack, index: Any, key: jax.Array) -> Batch:
    if index is None:
        assert isinstance(data, Data)
        return data.everything()
    batch = data.batch(index)
    if data.augment is None:
        return batch
    # apart from every key that a step makes of its own
    x = data.augment(jax.random.fold_in(key, AUGMENT), batch.x)
    return dataclasses.replace(batch, x=x)


def _put(buffers: Any, values: Any, at: jax.Array) -> Any:
    return jax.tree.map(lambda b, v: b.at[at].set(v, mode="drop"), buffers, values)


def _in_graph(fixed: tuple[Any, ...], state: Any, buffers: Buffers) -> bool:
    """Whether steps are so small that launching their kernels is what takes time."""
    phase, block = fixed[0], fixed[-1]
    products = footprint(phase.model.network, phase.plan.inputs).products
    return block > 1 and products is not None and products * phase.plan.members <= SMALL_STEP


# State and buffers are donated: they are written in place. Everything else comes first.
@compiled(donate="all-except-first", in_graph=_in_graph)
def run_chunk(fixed: tuple[Any, ...], state: Any, buffers: Buffers) -> Chunk:
    """Steps ``start … stop−1`` of a phase, fewer when it is done.

    The number of steps is an argument, not a constant: one compilation serves every chunk.
    Nothing is kept of the state before a step: choosing between the two would double the memory
    traffic of an update. ``fit`` finds the last finite state again by repeating the steps to it.
    """
    phase, data, key, start, stop, thin, block = fixed
    order_key, step_key = jax.random.split(key)
    rows = len(jax.tree.leaves(buffers.terms)[0])
    draw_rows = len(jax.tree.leaves(buffers.draws)[0]) if buffers.draws is not None else 0

    def inputs(t: jax.Array) -> Any:
        return _index(phase, data, t, order_key), jax.random.fold_in(step_key, t)

    def report(state: Any, reports: Any, t: jax.Array) -> Any:
        row = t // PERIOD - (start + PERIOD - 1) // PERIOD
        told = _report(phase, state, jax.random.fold_in(step_key, t))
        return _put(reports, told, jnp.where(t < start, rows, row))

    def step(carry: Any, given: Any) -> tuple[Any, None]:
        (state, (terms, reports, draws), t), (index, key) = carry, given
        new, info = _step(phase, state, _batch(phase, data, index, key), key)
        live = (start <= t) & (t < stop)
        terms = _put(terms, info.terms, jnp.where(live, t - start, rows))
        if draws is not None:
            before, now = phase.retained(t, thin), phase.retained(t + 1, thin)
            at = jnp.where(live & (now > before), before - phase.retained(start, thin), draw_rows)
            draws = _put(draws, info.draw, at)
        if block > 1:  # fused with the update, which reads the old values anyway
            new = jax.tree.map(lambda a, b: jnp.where(live, a, b), new, state)
        return (new, Buffers(terms, reports, draws), t + 1), None

    def one(carry: Any) -> Any:
        state, (terms, reports, draws), t = carry
        if reports:
            reports = jax.lax.cond(
                t % PERIOD == 0, lambda: report(state, reports, t), lambda: reports
            )
        (state, buffers, t), _ = step((state, Buffers(terms, reports, draws), t), inputs(t))
        state = jax.lax.cond(t % PERIOD == 0, lambda: _between(phase, state), lambda: state)
        return state, buffers, t

    def many(carry: Any) -> Any:
        # what does not depend on the state is computed for all steps at once: fewer, larger
        # kernels. Only the step's number is counted along: read from an array, it would be a copy
        # from another address in each step, and the step's graph of kernels would be made anew
        state, (terms, reports, draws), t = carry
        reports = report(state, reports, t) if reports else reports
        given = jax.vmap(inputs)(t + jnp.arange(block, dtype=jnp.int32))
        (state, buffers, t), _ = jax.lax.scan(
            step, (state, Buffers(terms, reports, draws), t), given
        )
        after = _between(phase, state)
        return jax.tree.map(lambda a, b: jnp.where(t <= stop, a, b), after, state), buffers, t

    if block > 1:
        # a device that must ask the host whether to go on is asked once a block; what a block has
        # beyond the chunk leaves no trace
        carry = jax.lax.while_loop(
            lambda c: c[2] < stop, many, (state, buffers, start - start % block)
        )
    else:
        carry = jax.lax.while_loop(
            lambda c: (c[2] < stop) & ((c[2] == start) | ~phase.done(c[0])), one,
            (state, buffers, start),
        )  # fmt: skip
    state, buffers, t = carry
    return Chunk(state, buffers, jnp.minimum(t, stop) - start, phase.done(state))


def block_length(phase: Phase) -> int:
    """Steps between two looks at the loop's condition: free on a CPU, a wait on a GPU.

    Steps of chains take long by themselves, and a phase that ends itself must not go beyond.
    """
    alone = phase.plan.all_data and phase.retained(np.zeros((), np.int32), 1) is not None
    ends = type(phase).done is not Phase.done
    return 1 if jax.default_backend() == "cpu" or alone or ends else PERIOD


def terms_of(buffers: Buffers, taken: int) -> History:
    """The terms of a chunk, a value for each step."""
    return {name: np.asarray(values)[:taken] for name, values in buffers.terms.items()}


def reports_of(
    buffers: Buffers, start: int, taken: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The reports of a chunk: the steps they are of, and their values."""
    first = -(-start // PERIOD) * PERIOD
    steps = np.arange(first, start + taken, PERIOD)
    return {n: (steps, np.asarray(values)[: len(steps)]) for n, values in buffers.reports.items()}

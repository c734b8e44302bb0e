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
LARGE_STATE = 16  # times the weights: more than a step passes over
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


def rows_of(buffer: Any) -> int:
    """How many there are; what is put behind the last is dropped."""
    return max((len(column) for column in jax.tree.leaves(buffer)), default=0)


class Steps(NamedTuple):
    """Steps ``start … stop−1`` of a phase, as parts of one program."""

    phase: Phase
    data: Data | Stack
    order_key: jax.Array
    step_key: jax.Array
    start: jax.Array
    stop: jax.Array
    thin: int

    def given(self, first: jax.Array) -> Any:
        """What steps take that does not depend on the state, for all of a period at once.

        Only the step's number is counted along: read from an array, it would be a copy from another
        address in each step, and a GPU's graph of kernels would be made anew.
        """

        def one(t: jax.Array) -> Any:
            index = _index(self.phase, self.data, t, self.order_key)
            return index, jax.random.fold_in(self.step_key, t)

        return jax.vmap(one)(first + jnp.arange(PERIOD, dtype=jnp.int32))

    def step(self, carry: Any, given: Any, live: Any = True) -> Any:
        """One step, and what it tells; where it is not ``live``, it tells nothing."""
        (state, (terms, reports, draws), t), (index, key) = carry, given
        new, info = _step(self.phase, state, _batch(self.phase, self.data, index, key), key)
        terms = _put(terms, info.terms, jnp.where(live, t - self.start, rows_of(terms)))
        if draws is not None:
            count = lambda t: self.phase.retained(t, self.thin)  # noqa: E731
            kept = live & (count(t + 1) > count(t))
            at = jnp.where(kept, count(t) - count(self.start), rows_of(draws))
            draws = _put(draws, info.draw, at)
        return new, Buffers(terms, reports, draws), t + 1

    def report(self, state: Any, buffers: Buffers, t: jax.Array) -> Buffers:
        """With the report before step t, a multiple of the period, if the chunk has that step."""
        if not buffers.reports:
            return buffers
        row = t // PERIOD - (self.start + PERIOD - 1) // PERIOD
        told = _report(self.phase, state, jax.random.fold_in(self.step_key, t))
        row = jnp.where(t < self.start, rows_of(buffers.reports), row)
        reports = _put(buffers.reports, told, row)
        return buffers._replace(reports=reports)

    def one_by_one(self, state: Any, buffers: Buffers) -> Any:
        """As many steps as there are, and no decision within them that could wait for their end.

        A period begins with its steps. Of the first one there are none where its report is still to
        be made: before the steps, which write over what it reads, it would need a copy of that.
        """

        def running(carry: Any) -> jax.Array:
            return (carry[2] == self.start) | ~self.phase.done(carry[0])

        def period(carry: Any) -> Any:
            state, buffers, t, fresh = carry
            first = t - t % PERIOD
            given = self.given(first)
            end = jnp.where(fresh & (t == first), t, first + PERIOD)
            end = jnp.minimum(end, self.stop)
            state, buffers, t = jax.lax.while_loop(
                lambda c: (c[2] < end) & running(c),
                lambda c: self.step(c, jax.tree.map(lambda a: a[c[2] - first], given)),
                (state, buffers, t),
            )
            edge = t % PERIOD == 0
            state = jax.lax.cond(
                edge & (t > self.start), lambda: _between(self.phase, state), lambda: state
            )
            buffers = jax.lax.cond(
                edge & (t < self.stop), lambda: self.report(state, buffers, t), lambda: buffers
            )
            return state, buffers, t, jnp.zeros((), bool)

        return jax.lax.while_loop(
            lambda c: (c[2] < self.stop) & running(c),
            period, (state, buffers, self.start, jnp.ones((), bool)),
        )[:3]  # fmt: skip

    def in_periods(self, state: Any, buffers: Buffers) -> Any:
        """Whole periods, for a device that would have to ask the host after each step.

        What a period has beyond the chunk leaves no trace: a step's update reads the old values in
        any case, and chooses.
        """

        def masked(carry: Any, given: Any) -> tuple[Any, None]:
            live = (self.start <= carry[2]) & (carry[2] < self.stop)
            new, buffers, t = self.step(carry, given, live)
            return (_where(live, new, carry[0]), buffers, t), None

        def period(carry: Any) -> Any:
            state, buffers, t = carry
            carry = state, self.report(state, buffers, t), t
            state, buffers, t = jax.lax.scan(masked, carry, self.given(t))[0]
            return _where(t <= self.stop, _between(self.phase, state), state), buffers, t

        begin = self.start - self.start % PERIOD
        state, buffers, t = jax.lax.while_loop(
            lambda c: c[2] < self.stop, period, (state, buffers, begin)
        )
        return state, buffers, jnp.minimum(t, self.stop)


def _where(holds: jax.Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(holds, a, b), new, old)


# State and buffers are donated: they are written in place. Everything else comes first.
@compiled(donate="all-except-first", in_graph=lambda fixed, *_: fixed[-1] > 1)
def run_chunk(fixed: tuple[Any, ...], state: Any, buffers: Buffers) -> Chunk:
    """Steps ``start … stop−1`` of a phase, fewer when it is done.

    The number of steps is an argument, not a constant: one compilation serves every chunk.
    Nothing is kept of the state before a step that is not finite: ``fit`` finds the last finite
    state again by repeating the steps to it.
    """
    phase, data, key, start, stop, thin, block = fixed
    order_key, step_key = jax.random.split(key)
    steps = Steps(phase, data, order_key, step_key, start, stop, thin)
    run = steps.one_by_one if block == 1 else steps.in_periods
    state, buffers, t = run(state, buffers)
    return Chunk(state, buffers, t - start, phase.done(state))


def block_length(phase: Phase, state: Any) -> int:
    """A period where a GPU runs whole ones, each as one graph of kernels; else 1.

    That is for steps so small that launching their kernels is what takes time, on one device. What
    a period has too many of them costs nothing, as long as a step passes over the whole state in
    any case. A phase that ends itself must not go beyond; chains have long steps of their own.
    """
    if jax.default_backend() == "cpu" or phase.plan.all_data or type(phase).done is not Phase.done:
        return 1
    if phase.axis is not None and jax.device_count() > 1:
        return 1
    members = getattr(phase, "members", 1)
    if tree_bytes(state) > LARGE_STATE * members * tree_bytes(phase.model.parameters):
        return 1
    inputs = phase.model.likelihood.split(phase.plan.inputs)[0]
    products = footprint(phase.model.network, inputs).products
    return PERIOD if products is not None and members * products <= SMALL_STEP else 1


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

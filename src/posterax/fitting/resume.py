"""Taking up an earlier fit: a posterior of this session, or a checkpoint."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .._util.checks import check_steps
from .._util.tree import same_structure, shapes_of
from ..files.container import pack
from ..posteriors import Posterior
from . import loop
from .checkpoint import Checkpoint, Checkpoints, Part
from .identity import differences, identity, in_session, target
from .position import Position, restore

if TYPE_CHECKING:
    from .run import Run


@contextmanager
def checkpointed(run: "Run", where: Checkpoint | None) -> Iterator[None]:
    """Go on from what a directory holds, and keep other fits out of it meanwhile."""
    if where is None:
        yield
        return
    run.checkpoints = Checkpoints(where.directory, identity(run))
    run.save_every = where.every
    run.checkpoints.acquire()
    try:
        _take_up(run, run.checkpoints)
        yield
    finally:
        run.checkpoints.release()


def _take_up(run: "Run", checkpoints: Checkpoints) -> None:
    """Go on from the latest state, where there is one."""
    stored = checkpoints.load()
    if stored is None:
        kept = run.at.draws
        if kept:  # those of the posterior that is resumed
            arrays = pack(kept.joined(), "draws")
            checkpoints.add_draws(Part(arrays, kept.stride, kept.offered))
        return

    def draw_template(phase: int) -> PyTree:
        window, state = run.window(0, 1), state_template(run, phase)
        return loop.abstract_info(run.phases[phase], state, window, run.key)[0].draw

    run.at = restore(
        stored, checkpoints.path, lambda phase: state_template(run, phase), draw_template,
        run.draw_bytes,
    )  # fmt: skip
    if run.until is not None:
        run.until.take_up(run)


def state_template(run: "Run", phase: int) -> PyTree:
    """Shapes of a phase's state: what its predecessors hand over, without computing it."""
    if phase >= len(run.phases):
        raise IndexError(f"phase {phase} of {len(run.phases)}")

    def first(start: Any, data: Any, key: jax.Array) -> PyTree:
        state = None
        for i, one in enumerate(run.phases[: phase + 1]):
            start = start if i == 0 else run.phases[i - 1].hand_over(state)
            state = one.init(start, data, key)
        return state

    return eqx.filter_eval_shape(first, run.start, run.ready.data, run.key)


def from_posterior(run: "Run", posterior: Any) -> None:
    """Take up a finished fit of this session for more steps."""
    if not isinstance(posterior, Posterior):
        raise TypeError(f"resume must be a posterior, got {type(posterior).__name__}")
    final = getattr(posterior.record, "final", None)
    if not isinstance(final, Position):
        raise ValueError(
            "resume: this posterior does not hold its optimiser's state (it was loaded from "
            "a file); pass it as init=, or fit with checkpoint="
        )
    _refuse_other(run, posterior, final)
    at, last = run.at, final.phase == len(run.phases) - 1
    at.phase, at.step, at.state = final.phase, final.step, final.state
    back = None if run.phases[final.phase].lengthens else final.earlier
    if back is not None:  # more steps of an earlier phase, and then again what follows it
        at.phase, at.step, at.state = back
    at.taken = final.taken[: at.phase]
    at.state = jax.device_put(at.state)
    terms, reports = final.history()
    at.record(terms)
    at.report(reports)
    at.draws = final.draws.continued(run.draw_bytes)
    # a training that Ctrl-C ended has phases after it, of which no step was taken
    begun = back is not None or last
    steps, before = (jnp.asarray(n, jnp.int32) for n in (at.step, at.step if begun else 0))
    plan = run.ready.plan
    check_steps(int(plan.steps) + at.step, f"resume: {int(plan.steps)} more steps after {at.step}")
    plan = dataclasses.replace(plan, steps=plan.steps + steps, before=before)
    run.phases = run.method.phases(run.ready.model, plan)
    run.ready = run.ready._replace(plan=plan, phases=run.phases)
    at.stopped = bool(run.phases[at.phase].done(at.state))  # nothing more to do


def _refuse_other(run: "Run", posterior: Posterior, final: Position) -> None:
    """Refuse a posterior of another model or method, and draws of another posterior."""
    template = state_template(run, final.phase)
    same = posterior.record.method == type(run.method).__name__
    same = same and same_structure(template, final.state)
    if not same or shapes_of(template) != shapes_of(final.state):
        raise ValueError(
            f"resume: this posterior is of another model or method ({posterior.record.method});"
            " continue with the same ones, or pass it as init="
        )
    if final.identity is None:
        return
    other = differences(final.identity, target(run, in_session))
    if other:
        names = dict.fromkeys(name.partition(".")[0] for name in other)
        raise ValueError(
            f"resume: these draws are for another {' and '.join(names)}, and more of them "
            "would be a mixture of two posteriors; pass it as init="
        )

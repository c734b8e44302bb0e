"""How a fit ends: with a posterior, or with an error that carries what there is."""

import warnings
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.tree import to_host
from ..diagnostics.course import SHORTEST
from ..diagnostics.diagnosis import diagnose, warn_of
from ..diagnostics.fitted import is_variational, look
from ..errors import ConvergenceWarning, NonFiniteError, StuckError
from ..files.container import circumstances
from ..infer.base import Phase
from ..infer.describe import describe_method
from ..posteriors import Posterior, Record
from . import loop
from .identity import in_session, target
from .position import all_finite

SAMPLES = 2, 100  # draws of q for the bound at the end: a tenth of the epochs, within these
CHEAP = 16  # weights and predictions of chains that are looked at when a fit ends
ENDED = 2**30  # a stream of random numbers that no phase uses

if TYPE_CHECKING:
    from .run import Run, Snapshot


def finish(run: "Run", phase: Phase, complete: bool) -> Posterior:
    """The posterior of a run as far as it came, with the record of how it came about."""
    at = run.at
    run.save()
    draws = jax.tree.map(jnp.asarray, at.draws.joined()) if at.draws else None
    if run.retained(phase, 1) is not None:
        if draws is None:
            raise KeyboardInterrupt(f"stopped while {phase.title}, before the first draw")
        at.identity = target(run, in_session)
    posterior = phase.finish(at.state, draws)
    terms, reports = at.history()
    at.state = to_host(at.state)
    settings = {
        "method": repr(run.method),
        "method_settings": describe_method(run.method),
        "steps": at.step,
        **_epochs(run),
        "batch_size": run.ready.batch_size,
        "examples": float(run.ready.plan.total),
        "key": np.asarray(jax.random.key_data(run.key)).tolist(),
        "thin": run.thin,
        "fitted": circumstances(),
        **run.ready.told,
    }
    if run.until is not None and run.until.levels:
        settings["levels"] = [list(level) for level in run.until.levels]
    name = type(run.method).__name__
    record = Record(name, settings, terms, at, interrupted=not complete, reports=reports)
    posterior = with_record(posterior, record)
    return posterior if not complete else judged(run, posterior)


def judged(run: "Run", posterior: Posterior) -> Posterior:
    """The same posterior with what was measured at its end in its record; warns of what is wrong.

    Fits of fewer than 100 steps, and those of streams, are judged by their steps alone.
    """
    try:
        _measure(run, posterior)
        words = _wrong(posterior, run.ready.data)
    except Exception as error:  # whatever it is, a long fit must not be lost by a look at it
        words = f"The posterior could not be judged ({type(error).__name__}: {error})."
    if words is not None:
        more = " posterior.diagnose() has the numbers."
        warnings.warn(words + more, ConvergenceWarning, stacklevel=5)  # where px.fit is called
    return posterior


def _measure(run: "Run", posterior: Posterior) -> None:
    """Write the bound and the measures of a variational posterior into its record."""
    settings, data = posterior.record.settings, run.ready.data
    if not is_variational(posterior) or data is None or run.at.step < SHORTEST:
        return
    samples = int(np.clip(0.1 * settings.get("epochs", 0), *SAMPLES))
    found = look(posterior, data, samples=samples, key=jax.random.fold_in(run.key, ENDED))
    assert found.bound is not None
    settings["bound"], settings["measures"] = found.bound.plain(), found.measures


def _wrong(posterior: Posterior, data: Any) -> str | None:
    """What is wrong in words. Chains are judged by a few predictions, since weights mislead."""
    x = None
    if getattr(posterior, "chained", False):
        if data is None:
            return None
        rows = np.unique(np.linspace(0, int(data.count) - 1, CHEAP).round().astype(int))
        x = jax.tree.map(lambda a: np.asarray(a)[rows], data.x)
    try:
        return warn_of(diagnose(posterior, x, most=CHEAP))
    except ValueError:  # too few draws to judge chains by
        return None


def _epochs(run: "Run") -> dict[str, float]:
    """How long a method that counts in epochs has learned; of several phases, as was asked."""
    if run.method.needs.counts != "epochs":
        return {}
    plan = run.ready.plan
    steps = run.at.step if len(run.phases) == 1 else int(plan.steps) + int(plan.before)
    return {"epochs": steps / int(plan.batches)}


def with_record(posterior: Posterior, record: Record) -> Posterior:
    """The same posterior with another record."""
    return eqx.tree_at(lambda p: p.record, posterior, record, is_leaf=lambda n: n is None)


def cut_short(run: "Run", phase: Phase) -> Posterior:
    """What there is where Ctrl-C ends a phase that others would follow."""
    if phase.finishes != "to stop":
        run.save()
        raise KeyboardInterrupt(f"stopped while {phase.title}, before the first draw")
    posterior = finish(run, phase, complete=False)
    name = type(run.method).__name__
    warnings.warn(
        f"stopped while {phase.title}: this is a {type(posterior).__name__}, the network so "
        f"far without the spread that px.{name} gives it. resume=posterior trains on; "
        "init=posterior, with px.Laplace(train=False) or px.SWAG(collect=1), gives a spread "
        "around it",
        UserWarning, stacklevel=4,
    )  # fmt: skip
    return posterior


def refuse_stuck(run: "Run", phase: Phase, last: bool) -> None:
    """Raise where a complete phase was for nothing; what there is stays in the checkpoint."""
    prefix = run.prefix(phase)
    history = {
        name.removeprefix(prefix): np.concatenate(parts)
        for name, parts in run.at.terms.items()
        if name.startswith(prefix) and "/" not in name.removeprefix(prefix)
    }
    why = phase.explain(run.at.state, history)
    if why is None:
        return
    run.save()
    with_draws = last and bool(run.at.draws)
    posterior = _quietly(run, phase, complete=True) if with_draws else None
    raise StuckError(
        f"{phase.title}: {why}."
        + (" The draws are in this error's .posterior." if with_draws else "")
        + _saved(run),
        posterior,
    )


def not_finite(
    run: "Run", phase: Phase, bad: str, safe: "Snapshot | None", buffers: loop.Buffers
) -> None:
    """Go back to the last finite state, by the same steps again, and say what happened."""
    at = run.at
    step, first = at.step + 1, safe.step if safe else 0
    why = None
    # the objective fails a step after the gradient did, when only that was not finite
    for back in (at.step, at.step - 1, first):
        buffers = _replay(run, phase, safe, max(back, first), buffers)
        why = why or phase.explain(at.state, {}, bad)
        if all_finite(at.state):
            break
    run.save()
    last = phase is run.phases[-1]
    usable = last and (bool(at.draws) or run.retained(phase, 1) is None)
    posterior = _quietly(run, phase, complete=False) if usable else None
    raise NonFiniteError(
        f"step {step} of {phase.title}: {bad} is not finite. {why}."
        + (f" The posterior of step {at.step} is in this error's .posterior." if usable else "")
        + _saved(run),
        step, bad, posterior,
    )  # fmt: skip


def _replay(
    run: "Run", phase: Phase, safe: "Snapshot | None", stop: int, buffers: loop.Buffers
) -> Any:
    """From the snapshot (or the phase's first state) to the state before step ``stop``."""
    at = run.at
    if safe is None:
        at.state, at.step = run.first_state(phase), 0
    else:
        at.state, at.step = jax.device_put(safe.state), safe.step
    rows = loop.rows_of(buffers.terms) or loop.MOST_STEPS
    at.state = loop.own(at.state)
    while at.step < stop:
        chunk = run.chunk(phase, at.step, min(at.step + rows, stop), buffers)
        at.state, buffers = chunk.state, chunk.buffers
        at.step += int(chunk.taken)
    return buffers


def _quietly(run: "Run", phase: Phase, complete: bool) -> Posterior:
    """The posterior without its warnings: an error says it all."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return finish(run, phase, complete)


def _saved(run: "Run") -> str:
    return f" The state is in {run.checkpoints.directory}." if run.checkpoints else ""

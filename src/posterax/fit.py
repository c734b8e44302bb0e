"""``fit``: the only loop. Every method gets progress, checkpoints, resuming and Ctrl-C from it."""

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from . import checkpoint as cp
from . import loop
from ._checks import above_zero, whole
from ._keys import KeyLike, as_key
from ._memory import explain_out_of_memory, refuse_beyond_memory
from ._tree import same_structure, to_host, tree_bytes
from .callbacks import Event, StopFit
from .data import check_finite
from .data import unpack as unpack_data
from .infer.base import Draw, Method, Phase
from .model import Model
from .posteriors import Posterior, Record
from .prepare import Prepared, make_start, prepare
from .progress import Bar

CHUNK_SECONDS = 0.25  # between two looks at the outside
SNAPSHOT_SECONDS = 5.0  # between two copies of the state kept against non-finite numbers
STREAM_BATCHES = 16  # host batches that travel to the device together


class NonFiniteError(FloatingPointError):
    """A term of the objective turned NaN or infinite; ``posterior`` is the last finite state."""

    def __init__(self, message: str, step: int, term: str, posterior: Posterior | None):
        super().__init__(message)
        self.step, self.term, self.posterior = step, term, posterior


class Validation(NamedTuple):
    """Data to watch the fit with, and when to stop it.

    Args:
        x: inputs.
        y: targets.
        every: epochs between two looks.
        patience: looks without improvement after which the fit stops and returns its best
            state; ``None`` only watches.
        samples: posterior draws per look.
    """

    x: Any
    y: Any
    every: float = 1.0
    patience: int | None = None
    samples: int = 16


class Checkpoint(NamedTuple):
    """Where and how often a fit is saved.

    Args:
        directory: where; made when missing.
        every: seconds between two savings.
    """

    directory: str | Path
    every: float = 15.0


class Position:
    """Where a fit is: all that a checkpoint holds."""

    def __init__(self) -> None:
        self.phase = 0
        self.step = 0
        self.state: Any = None
        self.history: dict[str, list[np.ndarray]] = {}
        self.draws: list[Draw] = []
        self.best: Any = None
        self.best_nll = float("inf")
        self.waited = 0
        self.stopped = False

    def record(self, terms: dict[str, np.ndarray]) -> None:
        """Append to the history."""
        for name, values in terms.items():
            self.history.setdefault(name, []).append(values)


def fit(
    model: Model,
    data: Any,
    method: Method,
    *,
    epochs: float | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    key: KeyLike = 0,
    init: Any = None,
    resume: Posterior | None = None,
    progress: bool | None = None,
    checkpoint: str | Path | Checkpoint | None = None,
    callbacks: Iterable[Callable[[Event], Any]] = (),
    validation: Validation | tuple[Any, Any] | None = None,
    thin: int = 1,
) -> Posterior:
    """Infer the posterior of a model's parameters.

    Args:
        model: network + prior + likelihood.
        data: ``(x, y)`` or ``(x, y, weight)``, or a re-iterable source of such batches.
        method: an inference method, for instance ``px.BayesByBackprop()``.
        epochs: passes over the data, for methods that optimise (default 100).
        steps: steps of optimisation, or draws retained per chain (default 1000).
        batch_size: examples per step (default 128, or all where the method needs all).
        key: an int or a JAX key; the same key gives the same posterior.
        init: where to start: an earlier posterior, a trained network, or parameters.
        resume: a posterior to continue for more epochs or steps, optimiser state and all.
        progress: show a bar (default: where someone is watching).
        checkpoint: a directory (or ``px.Checkpoint(directory, every=…)``); the same call resumes
            from it after any interruption.
        callbacks: functions of an ``Event``, called between chunks of steps.
        validation: held-out ``(x, y)`` to watch, or a ``px.Validation`` to stop early with.
        thin: keep every ``thin``-th draw.

    Returns:
        A posterior. Ctrl-C ends the fit and returns what there is.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(0, 1, 50)[:, None].astype("float32")
        >>> model = px.Model(
        ...     px.networks.MLP(1, 1, (8,), key=0),
        ...     px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1),
        ... )
        >>> posterior = px.fit(model, (x, x), px.MaximumAPosteriori(1e-2), epochs=20, key=0)
        >>> len(posterior.history["nll"])
        20
    """
    thin = whole("thin", thin)
    ready = prepare(model, data, method, epochs, steps, batch_size)
    watch = _check_validation(validation, ready.model)
    key = as_key(key)
    run = _Run(ready, method, key, thin, watch, list(callbacks), init)
    if resume is not None:
        run.continue_from(resume)
    if checkpoint is not None:
        run.keep(checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint))
    with Bar(progress) as bar, _interruptible() as interrupted:
        return run.all_phases(bar, interrupted)


class _Run:
    """One call of ``fit``."""

    def __init__(
        self,
        ready: Prepared,
        method: Method,
        key: jax.Array,
        thin: int,
        watch: Validation | None,
        callbacks: list[Callable[[Event], Any]],
        init: Any,
    ):
        self.ready, self.method, self.key, self.thin = ready, method, key, thin
        self.watch, self.callbacks = watch, callbacks
        self.start = make_start(init, ready.model)
        self.at = Position()
        self.phases = method.phases(ready.model, ready.plan)
        self.checkpoints: cp.Checkpoints | None = None
        self.saved, self.save_every = time.monotonic(), float("inf")
        if watch is not None and any(phase.keeps_draws for phase in self.phases):
            raise ValueError(
                f"validation is for methods that optimise; {type(method).__name__} keeps draws: "
                "score its posterior with posterior.predict(x).log_prob(y)"
            )
        for phase in self.phases:
            if phase.keeps_draws:
                self._check_draws(phase)

    def _check_draws(self, phase: Phase) -> None:
        """Refuse, before a long warm-up, draws that are none or more than memory holds."""
        steps, chains = phase.length(), getattr(phase, "chains", 1)
        kept = steps // self.thin
        if kept == 0:
            raise ValueError(f"thin={self.thin} keeps none of {steps} steps")
        size = kept * chains * tree_bytes(self.ready.model.parameters)
        refuse_beyond_memory(f"keeping {kept} draws of {chains} chains", size)

    # -- where to begin

    def continue_from(self, posterior: Posterior) -> None:
        """Take up a finished fit of this session for more steps."""
        if not isinstance(posterior, Posterior):
            raise TypeError(f"resume must be a posterior, got {type(posterior).__name__}")
        final = getattr(posterior.record, "final", None)
        if not isinstance(final, Position):
            raise ValueError(
                "resume: this posterior does not hold its optimiser's state (it was loaded from "
                "a file); pass it as init=, or fit with checkpoint="
            )
        template = self._template(final.phase)
        if not same_structure(template, final.state) or _shapes(template) != _shapes(final.state):
            raise ValueError(
                f"resume: this posterior is of another model or method ({posterior.record.method});"
                " continue with the same ones, or pass it as init="
            )
        at = self.at
        at.phase, at.step, at.state = final.phase, final.step, jax.device_put(final.state)
        at.history = {name: list(parts) for name, parts in final.history.items()}
        at.draws = list(final.draws)
        more = self.ready.plan.steps
        plan = self.ready.plan
        plan = type(plan)(plan.total, plan.batches, more + at.step, plan.batch_size, plan.targets)
        self.ready = self.ready._replace(plan=plan)
        self.phases = self.method.phases(self.ready.model, plan)

    def keep(self, where: Checkpoint) -> None:
        """Use a checkpoint directory, and go on from what it holds."""
        rows = self.ready.data
        identity = {
            "model": self.ready.model.fingerprint(),
            "prior": cp.settings_fingerprint(self.ready.model.prior),
            "likelihood": cp.settings_fingerprint(self.ready.model.likelihood),
            "method": repr(self.method),
            "key": np.asarray(jax.random.key_data(self.key)).tolist(),
            "data": cp.data_fingerprint(rows) if rows is not None else "stream",
            "batch_size": self.ready.plan.batch_size,
            "thin": self.thin,
        }
        self.checkpoints = cp.Checkpoints(where.directory, identity)
        self.save_every = where.every
        found = self.checkpoints.load()
        if found is None:
            return
        arrays, header, parts = found
        at, path = self.at, self.checkpoints.path
        try:
            at.phase, at.step = int(header["phase"]), int(header["step"])
            at.best_nll, at.waited = float(header["best_nll"]), int(header["waited"])
            at.stopped = bool(header["stopped"])
            if not 0 <= at.phase < len(self.phases) or at.step < 0:
                raise IndexError(f"phase {at.phase}, step {at.step}")
            template = self._template(at.phase)
            at.state = cp.unpack(template, arrays, "state", path)
            if header["best"]:
                at.best = cp.unpack(template, arrays, "best", path)
            names = [n.removeprefix("history/") for n in arrays if n.startswith("history/")]
            at.history = {name: [arrays[f"history/{name}"]] for name in names}
            if parts:
                draw = self._draw_template(at.phase)
                at.draws = [_unpack_draws(draw, part, path) for part in parts]
        except cp.CheckpointError:
            raise
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise cp.CheckpointError(f"{path}: incomplete ({error!r})") from error

    def _template(self, phase: int) -> Any:
        """Shapes of a phase's state: what its predecessors hand on, without computing it."""
        previous: Any = self.start
        for one in self.phases[: phase + 1]:
            previous = eqx.filter_eval_shape(
                lambda p, previous, data, key: p.init(previous, data, key),
                one, previous, self.ready.data, self.key,
            )  # fmt: skip
        return previous

    def _draw_template(self, phase: int) -> Any:
        window = self._window(0, 1)
        state = self._template(phase)
        return loop.abstract_info(self.phases[phase], state, window, self.key).draw

    # -- the loop

    def all_phases(self, bar: Bar, interrupted: Callable[[], bool]) -> Posterior:
        """Every phase in order, then the posterior."""
        at = self.at
        while True:
            phase = self.phases[at.phase]
            phase_key = jax.random.fold_in(self.key, at.phase)
            init_key, run_key = jax.random.split(phase_key)
            if at.state is None:
                previous = self.start
                with self._explain(phase):
                    at.state = loop.start_phase(phase, previous, self.ready.data, init_key)
            last = at.phase == len(self.phases) - 1
            whole = self._steps(phase, run_key, bar, interrupted, last)
            if last:
                return self._finish(phase)
            if not whole:
                self._save()
                raise KeyboardInterrupt(f"stopped while {phase.title}, before the first draw")
            at.phase, at.step = at.phase + 1, 0
            following = self.phases[at.phase]
            init_key, _ = jax.random.split(jax.random.fold_in(self.key, at.phase))
            at.state = loop.start_phase(following, at.state, self.ready.data, init_key)
            self._save()

    def _steps(
        self, phase: Phase, key: jax.Array, bar: Bar, interrupted: Callable[[], bool], last: bool
    ) -> bool:
        """Run one phase; ``False`` when it was interrupted."""
        at, total = self.at, phase.length()
        prefix = "" if last else f"{phase.title}/"
        bar.phase(phase.title, total, at.step)
        if at.step >= total or at.stopped:
            return True
        # what is donated must belong to nobody else
        at.state = jax.tree.map(lambda a: jnp.array(a, copy=True), at.state)
        info = self._reported(phase, key)
        rows, draw_rows = loop.capacity(info, self.thin)
        buffers = loop.make_buffers(info, rows, draw_rows)
        looks = self._looks(total)
        safe, safe_time, length = None, time.monotonic(), 1
        while at.step < total and not at.stopped:
            look = next((s for s in looks if s > at.step), total)
            stop = min(at.step + min(length, rows), look, total)
            if draw_rows:
                stop = min(stop, (at.step // self.thin + draw_rows) * self.thin)
            began = time.monotonic()
            chunk = self._chunk(phase, key, at.step, stop, buffers)
            buffers = chunk.terms, chunk.draws
            taken, finite, done = int(chunk.taken), bool(chunk.finite), bool(chunk.done)
            seconds = time.monotonic() - began
            terms = {k: np.asarray(v)[: taken + (not finite)] for k, v in chunk.terms.items()}
            at.state, before = chunk.state, at.step
            at.step += taken
            if not finite:
                self._not_finite(phase, terms, safe, key)
            self._collect(prefix, terms, chunk.draws, before)
            if at.step in looks:
                self._look(phase, prefix)
            at.stopped = at.stopped or done
            bar.update(at.step, self._shown(prefix, terms))
            now = time.monotonic()
            if now - safe_time > SNAPSHOT_SECONDS:
                safe, safe_time = (to_host(at.state), at.step), now
            if now - self.saved > self.save_every:
                self._save()
            try:
                event = Event(phase.title, at.step, total, terms)
                for callback in self.callbacks:
                    callback(event)
            except StopFit:
                at.stopped = True
            if interrupted():
                self._save()
                return at.step >= total
            # the first chunk compiles, so it says nothing about speed
            length = 8 if before == 0 else max(1, min(rows, _next_length(taken, seconds)))
        if last and self.watch is not None and self.watch.patience is not None:
            at.state = at.state if at.best is None else jax.device_put(at.best)
        return True

    def _chunk(
        self, phase: Phase, key: jax.Array, start: int, stop: int, buffers: tuple[Any, Any]
    ) -> loop.Chunk:
        window = self._window(start, stop)
        if self.ready.stream is not None:
            stop = min(stop, start + STREAM_BATCHES)
        fixed = (
            phase, window, key, jnp.asarray(start, jnp.int32), jnp.asarray(stop, jnp.int32),
            self.thin, loop.block_length(phase),
        )  # fmt: skip
        with self._explain(phase):
            chunk = loop.run_chunk(fixed, self.at.state, *buffers)
            chunk.taken.block_until_ready()
        return chunk

    def _window(self, start: int, stop: int) -> Any:
        """The data of a chunk: all of it, or the next batches of a stream."""
        stream = self.ready.stream
        if stream is None:
            return self.ready.data
        dtype = jax.tree.leaves(self.ready.model.parameters)[0].dtype
        stop = min(stop, start + STREAM_BATCHES)
        return stream.window(start, stop, STREAM_BATCHES, self.ready.plan.targets.inner, dtype)

    def _reported(self, phase: Phase, key: jax.Array) -> Any:
        """What a step will report, by shape; draws that cannot be held are refused here."""
        window = self._window(self.at.step, self.at.step + 1)
        info = loop.abstract_info(phase, self.at.state, window, key)
        if info.draw is not None:
            kept = phase.length() // self.thin
            chains = jax.tree.leaves(info.draw)[0].shape[0]
            refuse_beyond_memory(
                f"keeping {kept} draws of {chains} chains", kept * tree_bytes(info.draw)
            )
        return info

    def _collect(self, prefix: str, terms: Any, draws: Draw | None, before: int) -> None:
        at = self.at
        at.record({prefix + name: values for name, values in terms.items()})
        count = at.step // self.thin - before // self.thin
        if draws is not None and count:
            # buffers are (draw, chain, …); posteriors have (chain, draw, …)
            part = jax.tree.map(lambda a: np.swapaxes(np.asarray(a)[:count], 0, 1), draws)
            at.draws.append(part)
            if self.checkpoints is not None:
                self.checkpoints.add_draws(cp.pack(part, "draws"))

    def _explain(self, phase: Phase) -> Any:
        size = tree_bytes(self.at.state if self.at.state is not None else self.ready.model)
        return explain_out_of_memory(f"{phase.title} with a state of {size:,} bytes", 3 * size)

    # -- validation

    def _looks(self, total: int) -> list[int]:
        if self.watch is None:
            return []
        every = max(1, round(self.watch.every * int(self.ready.plan.batches)))
        return [*range(every, total, every), total]

    def _look(self, phase: Phase, prefix: str) -> None:
        """Validation NLL at this point; keeps the best state and counts the looks without one."""
        assert self.watch is not None
        at = self.at
        posterior = phase.finish(at.state, None)
        predictive = posterior.predict(self.watch.x, samples=self.watch.samples, key=self.key)
        nll = -float(np.mean(predictive.log_prob(self.watch.y)))
        at.record(
            {
                f"{prefix}validation_nll": np.array([nll]),
                f"{prefix}validation_step": np.array([at.step]),
            }
        )
        if nll < at.best_nll:
            at.best_nll, at.waited = nll, 0
            if self.watch.patience is not None:
                at.best = to_host(at.state)
        else:
            at.waited += 1
        at.stopped = self.watch.patience is not None and at.waited >= self.watch.patience

    def _shown(self, prefix: str, terms: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        watched = self.at.history.get(f"{prefix}validation_nll")
        return terms if watched is None else terms | {"validation": watched[-1]}

    # -- endings

    def _not_finite(self, phase: Phase, terms: Any, safe: Any, key: jax.Array) -> None:
        at = self.at
        bad = [name for name, values in terms.items() if not np.all(np.isfinite(values))]
        step = at.step + 1
        why = phase.blame(at.state, bad[0])
        at.record({name: values[:-1] for name, values in terms.items()})
        if not _all_finite(at.state):
            # the gradient went wrong a step before the objective did: fall back
            if safe is not None and _all_finite(safe[0]):
                at.state, at.step = safe
            elif at.phase == 0:
                init_key = jax.random.split(jax.random.fold_in(self.key, 0))[0]
                at.state = loop.start_phase(phase, self.start, self.ready.data, init_key)
                at.step = 0
        self._save()
        last = at.phase == len(self.phases) - 1
        kept = last and (bool(at.draws) or not phase.keeps_draws)
        posterior = self._finish(phase) if kept else None
        raise NonFiniteError(
            f"step {step} of {phase.title}: {bad[0]} is not finite. {why}."
            + (f" The posterior of step {at.step} is in this error's .posterior." if kept else "")
            + (f" The state is in {self.checkpoints.directory}." if self.checkpoints else ""),
            step, bad[0], posterior,
        )  # fmt: skip

    def _save(self) -> None:
        self.saved = time.monotonic()
        if self.checkpoints is None:
            return
        at = self.at
        arrays = cp.pack(at.state, "state")
        if at.best is not None:
            arrays |= cp.pack(at.best, "best")
        at.history = {name: [np.concatenate(parts)] for name, parts in at.history.items()}
        arrays |= {f"history/{name}": parts[0] for name, parts in at.history.items()}
        header = {
            "phase": at.phase, "step": at.step, "best_nll": at.best_nll, "waited": at.waited,
            "stopped": at.stopped, "best": at.best is not None,
        }  # fmt: skip
        self.checkpoints.save(arrays, header)

    def _finish(self, phase: Phase) -> Posterior:
        at = self.at
        self._save()
        draws = None
        if at.draws:
            draws = jax.tree.map(
                lambda *parts: jnp.asarray(np.concatenate(parts, axis=1)), *at.draws
            )
        if phase.keeps_draws and draws is None:
            raise KeyboardInterrupt(f"stopped while {phase.title}, before the first draw")
        posterior = phase.finish(at.state, draws)
        history = {name: np.concatenate(parts) for name, parts in at.history.items()}
        at.state = to_host(at.state)
        settings = {
            "method": repr(self.method),
            "steps": at.step,
            "batch_size": self.ready.plan.batch_size,
            "examples": float(self.ready.plan.total),
            "thin": self.thin,
        }
        record = Record(type(self.method).__name__, settings, history, at)
        return with_record(posterior, record)


def with_record(posterior: Posterior, record: Record) -> Posterior:
    """The same posterior with another record."""
    return eqx.tree_at(lambda p: p.record, posterior, record, is_leaf=lambda n: n is None)


def _shapes(tree: Any) -> list[tuple[int, ...]]:
    return [tuple(leaf.shape) for leaf in jax.tree.leaves(tree)]


def _unpack_draws(template: Any, part: dict[str, np.ndarray], path: Path) -> Draw:
    count = min(array.shape[1] for array in part.values())
    sized = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct((a.shape[0], count, *a.shape[1:]), a.dtype), template
    )
    return jax.tree.map(np.asarray, cp.unpack(sized, part, "draws", path))


def _next_length(taken: int, seconds: float) -> int:
    """Steps for the next chunk, so that it takes about ``CHUNK_SECONDS``; at most four-fold."""
    wanted = int(CHUNK_SECONDS * taken / max(seconds, 1e-6))
    return max(1, min(wanted, 4 * taken))


def _all_finite(tree: Any) -> bool:
    return all(
        bool(np.all(np.isfinite(np.asarray(a))))
        for a in jax.tree.leaves(tree)
        if hasattr(a, "dtype") and jnp.issubdtype(a.dtype, jnp.inexact)
    )


def _check_validation(validation: Any, model: Model) -> Validation | None:
    if validation is None or isinstance(validation, Validation):
        watch = validation
    elif isinstance(validation, tuple | list) and len(validation) == 2:
        watch = Validation(*validation)
    else:
        raise TypeError(
            f"validation must be (x, y) or px.Validation(x, y, …), got {type(validation).__name__}"
        )
    if watch is not None:
        x, y, _ = unpack_data((watch.x, watch.y), "validation")
        check_finite("validation x", x)
        check_finite("validation y", y)
        model.check(x, y)
        above_zero("validation every", watch.every)
        whole("validation samples", watch.samples)
        if watch.patience is not None:
            whole("validation patience", watch.patience)
        watch = watch._replace(x=x, y=y)
    return watch


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Ctrl-C asks the fit to stop at the end of the chunk; a second one stops at once."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set
        return

    def handler(signum: int, frame: Any) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    before = signal.signal(signal.SIGINT, handler)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)

"""One call of ``fit``: the loop over phases and chunks of steps, and what happens between them."""

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from .._util.memory import explain_out_of_memory, refuse_beyond_memory
from .._util.progress import Bar
from .._util.tree import dtype_of, to_host, tree_bytes
from ..files.container import pack
from ..infer.base import Draw, History, Method, Phase
from ..posteriors import Posterior
from ..posteriors.record import one_a_step
from . import endings, loop
from .bounds import Until, bound_steps, look_at_bound
from .callbacks import Event, StopFit
from .checkpoint import Checkpoints, Part
from .position import Position
from .prepare import Prepared
from .start import make_start
from .validation import Validation, look, validation_steps

CHUNK_SECONDS = 0.25  # between two looks at the outside
LONG_CHUNK, FEW_STEPS = 2.0, 8  # and where steps are long: each call has memory to ask for
SNAPSHOT_SECONDS = 5.0  # between two copies of the state against non-finite numbers
MANY_ROWS, LONG_SECONDS = 10_000, 600.0  # from here on the cost of steps over all data is said
STREAM_BATCHES = 16  # host batches that travel to the device together
WAITING_BYTES = 64 * 2**20  # of draws that are to be in the checkpoint
FOREVER = 2**31 - 1  # steps of a phase that runs until it is done


class Snapshot(NamedTuple):
    """A finite state on the host, and the step it is of."""

    state: PyTree
    step: int


class Run:
    """One call of ``fit``: what it was asked for, and where it is."""

    def __init__(
        self,
        ready: Prepared,
        method: Method,
        key: jax.Array,
        thin: int,
        watch: Validation | None,
        callbacks: list[Callable[[Event], Any]],
        init: Any,
        draw_bytes: int | None = None,
        until: Until | None = None,
    ):
        self.ready, self.method, self.key, self.thin = ready, method, key, thin
        self.draw_bytes = draw_bytes
        self.watch, self.callbacks = watch, callbacks
        self.warned = self.told_to_stop = False
        self.until, self.pace = until, 0.0  # seconds a step
        name, needs = type(method).__name__, method.needs
        if init is not None and needs.no_start is not None:
            raise ValueError(f"init: {name} {needs.no_start}")
        self.start = make_start(init, ready.model)
        self.at = Position(draw_bytes)
        self.phases = ready.phases
        self.checkpoints: Checkpoints | None = None
        self.saved, self.save_every = time.monotonic(), float("inf")
        sampled = any(self.retained(phase, 1) is not None for phase in self.phases)
        if watch is not None and (sampled or needs.counts == "nothing"):
            why = "keeps draws" if sampled else "has its answer only at the end"
            raise ValueError(
                f"validation is for methods that optimise; {name} {why}: "
                "score its posterior with posterior.predict(x).log_prob(y)"
            )
        for phase in self.phases:
            self._check_draws(phase)

    # -- draws

    def retained(self, phase: Phase, steps: int) -> int | None:
        """How many of the first steps leave a draw; ``None`` where a phase leaves none."""
        count = phase.retained(steps, self.thin)
        return None if count is None else int(count)

    def _check_draws(self, phase: Phase) -> None:
        """Refuse, before a long warm-up, draws that are none or more than memory holds."""
        steps, chains = phase.length() or FOREVER, getattr(phase, "chains", 1)
        count = self.retained(phase, steps)
        if count is None:
            return
        if count == 0:
            raise ValueError(f"thin={self.thin} keeps none of {steps} steps")
        self._refuse_draws(count, chains, count * chains * tree_bytes(self.ready.model.parameters))

    def _refuse_draws(self, count: int, chains: int, size: int) -> None:
        size = size if self.draw_bytes is None else min(size, 2 * self.draw_bytes)
        what = f"keeping {count} draws of {chains} chains (see thin= and draw_bytes=)"
        refuse_beyond_memory(what, size)

    # -- phases

    def all_phases(self, bar: Bar, interrupted: Callable[[], bool]) -> Posterior:
        """Every phase in order, then the posterior."""
        while True:
            at = self.at
            if at.state is None:
                at.state = self.first_state(self.phases[0])
            phase, last = self.phases[at.phase], at.phase == len(self.phases) - 1
            complete = self._steps(phase, bar, interrupted)
            if complete and self._longer(phase, interrupted):
                self.save()
                continue
            if complete and not self.told_to_stop:
                endings.refuse_stuck(self, phase, last)
            if last:
                return endings.finish(self, phase, complete)
            if not complete:
                return endings.cut_short(self, phase)
            if self.told_to_stop and phase.finishes != "to stop":
                self.save()
                raise StopFit(f"stopped while {phase.title}, before there is a posterior")
            self.told_to_stop = False
            following = self.phases[at.phase + 1]
            at.next_phase(phase, following)
            init_key, _ = self._keys()
            at.state = loop.hand_over(phase, following, at.state, self.ready.data, init_key)
            self.save()

    def _longer(self, phase: Phase, interrupted: Callable[[], bool]) -> bool:
        """Whether a fit without a given length has been made longer."""
        if self.until is None or self.at.stopped or self.told_to_stop or interrupted():
            return False
        return self.until.longer(self, phase)

    def _keys(self) -> tuple[jax.Array, jax.Array]:
        """The keys of a phase's start and of its steps."""
        return loop.phase_keys(self.key, np.uint32(self.at.phase))

    def first_state(self, phase: Phase) -> PyTree:
        """The state before the very first step."""
        init_key, _ = self._keys()
        with self._explain_memory(phase):
            return loop.first_state(phase, self.start, self.ready.data, init_key)

    def prefix(self, phase: Phase) -> str:
        """What names of the history begin with: nothing, in the last phase."""
        return "" if phase is self.phases[-1] else f"{phase.title}/"

    # -- steps

    def _steps(self, phase: Phase, bar: Bar, interrupted: Callable[[], bool]) -> bool:
        """Run one phase; ``False`` when it was interrupted."""
        at, total = self.at, phase.length()
        bar.phase(phase.title, total, at.step)
        total = FOREVER if total is None else total
        last = phase is self.phases[-1]
        if at.step >= total or at.stopped:
            return True
        if at.step == 0 and not last and bool(phase.done(at.state)):  # nothing to do from here
            return True
        buffers, rows, draw_rows = self._buffers(phase)
        # what is donated must belong to nobody else
        at.state, buffers = loop.own((at.state, buffers))
        watched, bounds = (steps(self, phase, total) for steps in (validation_steps, bound_steps))
        looks = sorted({*watched, *bounds})
        # the very first state can be made again; any other is copied to the host
        fresh = at.phase == 0 and at.step == 0
        safe = None if fresh else Snapshot(to_host(at.state), at.step)
        safe_time, length = time.monotonic(), 1
        while at.step < total and not (at.stopped or self.told_to_stop):
            next_look = next((s for s in looks if s > at.step), total)
            stop = self._chunk_end(phase, length, rows, draw_rows, next_look, total)
            began = time.monotonic()
            chunk = self.chunk(phase, at.step, stop, buffers)
            buffers, at.state = chunk.buffers, chunk.state
            taken, done = int(chunk.taken), bool(chunk.done)
            seconds = time.monotonic() - began
            before = at.step
            if before:  # the first chunk compiles, so it says nothing about speed
                self.pace = seconds / taken
            terms, new = self._record(phase, chunk, safe)
            if at.step in bounds:
                look_at_bound(self, phase)
            if at.step in watched:
                look(self, phase)
            if self.until is not None:
                self.until.keep(at, total)
            at.stopped = at.stopped or done
            bar.update(at.step, self._shown(phase, terms))
            now = time.monotonic()
            if now - safe_time > SNAPSHOT_SECONDS:
                safe, safe_time = Snapshot(to_host(at.state), at.step), now
            end = at.step if done else total
            event = Event(
                phase.title, at.step, end, terms, self._news(phase, new), at.phase,
                self.pace if before else None,
            )  # fmt: skip
            self._tell(event, phase)
            if self._is_time_to_save(now):  # after callbacks: what they wrote is of no later step
                self.save()
            if interrupted():
                self.save()
                return at.step >= total
            length = 8
            if before:
                length = max(1, min(rows, _next_length(taken, seconds)))
                self._warn_of_cost(phase, seconds / taken, total)
        if self.watch is not None and self.watch.patience is not None:
            at.state = at.state if at.best is None else jax.device_put(at.best)
        return True

    def _buffers(self, phase: Phase) -> tuple[loop.Buffers, int, int]:
        """Room for a chunk's history and draws, how many steps and how many draws it holds."""
        window = self.window(self.at.step, self.at.step + 1)
        shapes = loop.abstract_info(phase, self.at.state, window, self._keys()[1])
        draw = shapes[0].draw
        if draw is not None:  # by their shapes, which the chains' count may not have told
            count = self.retained(phase, phase.length() or FOREVER) or 0
            chains = jax.tree.leaves(draw)[0].shape[0]
            self._refuse_draws(count, chains, count * tree_bytes(draw))
        rows, draw_rows = loop.capacity(shapes[0])
        return loop.make_buffers(shapes, rows, draw_rows), rows, draw_rows

    def _chunk_end(
        self, phase: Phase, length: int, rows: int, draw_rows: int, next_look: int, total: int
    ) -> int:
        """The step at which the next chunk stops, so that buffers hold all that it gives."""
        now = self.at.step
        stop = min(now + min(length, rows), next_look, total)
        if draw_rows:
            counts = np.asarray(phase.retained(np.arange(now, stop + 1), self.thin))
            stop = now + int(np.searchsorted(counts, counts[0] + draw_rows, "right")) - 1
        if stop - now > loop.PERIOD and stop not in (next_look, total):
            stop -= stop % loop.PERIOD  # whole blocks, for a device that runs in blocks
        return stop

    def chunk(self, phase: Phase, start: int, stop: int, buffers: loop.Buffers) -> loop.Chunk:
        """Steps ``start … stop−1``, fewer where a stream or the phase ends before."""
        if self.ready.stream is not None:  # to where a period ends
            stop = min(stop, start - start % loop.PERIOD + STREAM_BATCHES)
        window = self.window(start, stop)
        fixed = (
            phase, window, self._keys()[1], *jax.device_put((np.int32(start), np.int32(stop))),
            self.thin, loop.block_length(phase, self.at.state),
        )  # fmt: skip
        with self._explain_memory(phase):
            chunk = loop.run_chunk(fixed, self.at.state, buffers)
            chunk.taken.block_until_ready()
        return chunk

    def window(self, start: int, stop: int) -> Any:
        """The data of a chunk: all of it, or the next batches of a stream."""
        stream = self.ready.stream
        if stream is None:
            return self.ready.data
        dtype = dtype_of(self.ready.model.parameters)
        stop, inner = min(stop, start + STREAM_BATCHES), self.ready.plan.targets.inner
        return stream.window(start, stop, STREAM_BATCHES, inner, dtype, self.ready.augment)

    # -- between chunks

    def _record(
        self, phase: Phase, chunk: loop.Chunk, safe: Snapshot | None
    ) -> tuple[History, Draw | None]:
        """Add what a chunk gave to history and draws: its terms a step, and its draws."""
        at, prefix, taken = self.at, self.prefix(phase), int(chunk.taken)
        start = at.step
        terms = loop.terms_of(chunk.buffers, taken)
        reports = loop.reports_of(chunk.buffers, start, taken)
        sound, bad = _sound_steps(terms, reports, start, taken)
        at.step = start + sound
        at.record({prefix + name: values[:sound] for name, values in terms.items()})
        at.report(
            {
                prefix + name: (steps[steps < at.step], values[steps < at.step])
                for name, (steps, values) in reports.items()
            }
        )
        if bad is not None:
            endings.not_finite(self, phase, bad, safe, chunk.buffers)
        draws = self._add_draws(phase, chunk.buffers.draws, start)
        dense = {
            name: one_a_step(at.reports[prefix + name].joined(), start, at.step) for name in reports
        }
        return terms | dense, draws

    def _add_draws(self, phase: Phase, draws: Draw | None, before: int) -> Draw | None:
        """The draws since step ``before``, (chain, draw, …), put to the others."""
        at = self.at
        if draws is None:
            return None
        count = (self.retained(phase, at.step) or 0) - (self.retained(phase, before) or 0)
        if not count:
            return None
        # buffers are (draw, chain, …); posteriors have (chain, draw, …)
        part = jax.tree.map(lambda a: np.swapaxes(np.asarray(a)[:count], 0, 1), draws)
        at.draws.add(part)
        if self.checkpoints is not None:
            self.checkpoints.add_draws(Part(pack(part, "draws")))
        return part

    def _news(self, phase: Phase, new: Draw | None) -> Callable[[], Posterior] | None:
        """Makes the posterior of a chunk's draws, for callbacks that want it."""
        if new is None:
            return None

        def posterior() -> Posterior:
            with warnings.catch_warnings():  # of all draws, not of each few
                warnings.simplefilter("ignore")
                return phase.finish(self.at.state, new)

        return posterior

    def _tell(self, event: Event, phase: Phase) -> None:
        """Call the callbacks; one of them may end the fit."""
        try:
            for callback in self.callbacks:
                callback(event)
        except StopFit:
            # a training that was ended so hands on to phases that end by themselves; the callback
            # would say the same again, and leave them without a spread or most of the data
            if not self._ended_early():
                self.told_to_stop = True
                # a warm-up that was cut short is not over: the same call goes on with it
                self.at.stopped = phase is self.phases[-1] or phase.finishes == "to stop"

    def _ended_early(self) -> bool:
        """Whether a training before this phase was cut short; as a checkpoint knows it too."""
        before = zip(self.phases, self.at.taken, strict=False)
        return any(
            phase.finishes == "to stop" and taken < (phase.length() or 0) for phase, taken in before
        )

    def _shown(self, phase: Phase, terms: History) -> History:
        """What the progress bar shows."""
        prefix, history = self.prefix(phase), self.at.terms
        watched = history.get(f"{prefix}validation_nll")
        shown = terms if watched is None else terms | {"validation": watched[-1]}
        if f"{prefix}elbo" in self.at.reports:
            shown = {"elbo": self.at.reports[f"{prefix}elbo"].values[-1]} | shown
        if "divergences" in terms:  # all of them: a mean of the last few says nothing
            total = sum(part.sum() for part in history[f"{prefix}divergences"])
            shown = shown | {"divergences": np.array([total])}
        return shown

    def _warn_of_cost(self, phase: Phase, seconds: float, total: int) -> None:
        """Say once where steps over all data will take long, and what takes minibatches."""
        left = (total - self.at.step) * seconds
        rows = 0 if self.ready.data is None else int(self.ready.data.count)
        if self.warned or not phase.plan.all_data or rows < MANY_ROWS or left < LONG_SECONDS:
            return
        self.warned = True
        name = type(self.method).__name__
        warnings.warn(
            f"{name} goes over all {rows:,} examples, at {seconds:.2g} s a step, and has about "
            f"{left / 60:.0f} minutes of {phase.title} before it. px.SGHMC and px.SGLD sample with "
            "minibatches, px.BayesByBackprop approximates with them; Ctrl-C keeps what there is",
            UserWarning, stacklevel=2,
        )  # fmt: skip

    def _explain_memory(self, phase: Phase) -> Any:
        size = tree_bytes(self.at.state if self.at.state is not None else self.ready.model)
        return explain_out_of_memory(f"{phase.title} with a state of {size:,} bytes", 3 * size)

    def _is_time_to_save(self, now: float) -> bool:
        """After so many seconds, or where draws wait that memory was not asked for."""
        if self.checkpoints is None:
            return False
        many = self.checkpoints.waiting_bytes > WAITING_BYTES
        return now - self.saved > (min(self.save_every, 1.0) if many else self.save_every)

    def save(self) -> None:
        """Write the checkpoint, where there is to be one; a disk that refuses ends no fit."""
        self.saved = time.monotonic()
        if self.checkpoints is None:
            return
        try:
            self.checkpoints.save(*self.at.packed())
        except OSError as error:
            there = self.checkpoints.path.exists()
            kept = "what it held before is whole" if there else "nothing is kept yet"
            warnings.warn(
                f"checkpoint: {self.checkpoints.path} could not be written "
                f"({error.strerror or error}), {kept}; the fit goes on and tries again",
                UserWarning, stacklevel=2,
            )  # fmt: skip


def _sound_steps(
    terms: History, reports: dict[str, tuple[np.ndarray, np.ndarray]], start: int, taken: int
) -> tuple[int, str | None]:
    """How many steps of a chunk come before the first number that is not finite; and its name."""
    first = {
        name: int(bad[0])
        for name, values in terms.items()
        if len(bad := np.flatnonzero(~np.isfinite(values)))
    }
    first |= {
        name: int(steps[bad[0]]) - start
        for name, (steps, values) in reports.items()
        if len(bad := np.flatnonzero(~np.isfinite(values)))
    }
    if not first:
        return taken, None
    name = min(first, key=lambda name: first[name])
    return first[name], name


def _next_length(taken: int, seconds: float) -> int:
    """Steps for the next chunk, so that it takes about ``CHUNK_SECONDS``; at most four-fold."""
    pace = taken / max(seconds, 1e-6)
    wanted = max(int(CHUNK_SECONDS * pace), min(FEW_STEPS, int(LONG_CHUNK * pace)))
    return max(1, min(wanted, 4 * taken))

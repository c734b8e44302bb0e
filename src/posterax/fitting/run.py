"""One call of ``fit``: the loop over chunks, and what happens between them."""

import dataclasses
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.fingerprint import data_fingerprint, optimizer_fingerprint, settings_fingerprint
from .._util.memory import refuse_beyond_memory
from .._util.tree import named_leaves, same_structure, to_host, tree_bytes
from ..files.container import pack
from ..infer.base import Draw, Method, Phase
from ..networks.parts import numbers_fingerprint
from ..posteriors import Posterior
from ..priors import ByPart
from . import loop
from .callbacks import Event, StopFit
from .checkpoint import Checkpoints
from .endings import Endings
from .position import Position, restore
from .prepare import Prepared, make_start
from .progress import Bar
from .validation import Validation

CHUNK_SECONDS = 0.25  # between two looks at the outside
SNAPSHOT_SECONDS = 5.0  # between two copies of the state kept against non-finite numbers
MANY_ROWS, LONG_SECONDS = 10_000, 600.0  # from here on the cost of full batches is said
STREAM_BATCHES = 16  # host batches that travel to the device together


class Run(Endings):
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
        draw_bytes: int | None = None,
    ):
        self.ready, self.method, self.key, self.thin = ready, method, key, thin
        self.draw_bytes = draw_bytes
        self.watch, self.callbacks = watch, callbacks
        self.warned = self.told_to_stop = False
        if init is not None and not method.takes_start:
            raise ValueError(f"init: {type(method).__name__} {method.instead_of_init}")
        self.start = make_start(init, ready.model)
        self.at = Position(draw_bytes)
        self.phases = method.phases(ready.model, ready.plan)
        self.checkpoints: Checkpoints | None = None
        self.saved, self.save_every = time.monotonic(), float("inf")
        sampled = any(phase.keeps_draws for phase in self.phases)
        if watch is not None and (sampled or method.counts == "nothing"):
            why = "keeps draws" if sampled else "has its answer only at the end"
            raise ValueError(
                f"validation is for methods that optimise; {type(method).__name__} {why}: "
                "score its posterior with posterior.predict(x).log_prob(y)"
            )
        for phase in self.phases:
            if phase.keeps_draws:
                self._check_draws(phase)

    def _check_draws(self, phase: Phase) -> None:
        """Refuse, before a long warm-up, draws that are none or more than memory holds."""
        steps, chains = phase.length(), getattr(phase, "chains", 1)
        kept = int(phase.kept(steps, self.thin))
        if kept == 0:
            raise ValueError(f"thin={self.thin} keeps none of {steps} steps")
        size = kept * chains * tree_bytes(self.ready.model.parameters)
        self._refuse_draws(kept, chains, size)

    def _refuse_draws(self, kept: int, chains: int, size: int) -> None:
        size = size if self.draw_bytes is None else min(size, 2 * self.draw_bytes)
        what = f"keeping {kept} draws of {chains} chains (see thin= and draw_bytes=)"
        refuse_beyond_memory(what, size)

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
        same = posterior.record.method == type(self.method).__name__
        same = same and same_structure(template, final.state)
        if not same or _shapes(template) != _shapes(final.state):
            raise ValueError(
                f"resume: this posterior is of another model or method ({posterior.record.method});"
                " continue with the same ones, or pass it as init="
            )
        self._refuse_mixed(final)
        at = self.at
        at.phase, at.step, at.state = final.phase, final.step, final.state
        earlier = self.phases[final.phase].reopened(final.state)
        if earlier is not None:
            at.phase, at.step, at.state = final.phase - 1, final.taken[-1], earlier
        at.taken = final.taken[: at.phase]
        at.state = jax.device_put(at.state)
        at.history = {name: list(parts) for name, parts in final.history.items()}
        at.draws = final.draws.continued(self.draw_bytes)
        plan = self.ready.plan
        # a training that Ctrl-C ended has phases after it, of which no step was taken
        begun = earlier is not None or at.phase == len(self.phases) - 1
        steps, before = (jnp.asarray(n, jnp.int32) for n in (at.step, at.step if begun else 0))
        plan = dataclasses.replace(plan, steps=plan.steps + steps, before=before)
        self.ready = self.ready._replace(plan=plan)
        self.phases = self.method.phases(self.ready.model, plan)
        at.stopped = bool(self.phases[at.phase].done(at.state))  # nothing more to do

    def _refuse_mixed(self, final: Position) -> None:
        """Draws of two posteriors are draws of neither."""
        if final.identity is None:
            return
        mine, target = self._identity(), ("where", "fixed weights", "prior", "likelihood", "data")
        other = [name for name in target if mine[name] != final.identity[name]]
        if other:
            raise ValueError(
                f"resume: these draws are for another {' and '.join(other)}, and more of them "
                "would be a mixture of two posteriors; pass it as init="
            )

    def _identity(self) -> dict[str, Any]:
        """What the result of this fit depends on, by fingerprints."""
        rows, model = self.ready.data, self.ready.model
        names, rest = model.chosen()
        bayesian = list(named_leaves(model.bayesian(model.parameters)))
        # a prior around the network's own weights
        centres = [a for a in jax.tree.leaves(model.priors.network) if isinstance(a, jax.Array)]
        around = centres if isinstance(model.prior, ByPart) else []
        return {
            "model": model.network.fingerprint(widths=True),
            "where": None if rest == "none" else [rest, bayesian, names],
            "fixed weights": numbers_fingerprint((model.network.frozen(), around)),
            "prior": settings_fingerprint(self.ready.model.prior),
            "likelihood": settings_fingerprint(self.ready.model.likelihood),
            "method": self.method.identity(),
            "optimizer": optimizer_fingerprint(getattr(self.method, "optimizer", None)),
            "key": np.asarray(jax.random.key_data(self.key)).tolist(),
            "data": "stream" if rows is None else data_fingerprint(rows),
            "examples": float(self.ready.plan.total),
            "batch_size": self.ready.plan.batch_size,
            "augment": self.ready.augment and settings_fingerprint(self.ready.augment),
            "thin": self.thin,
        }

    def keep(self, directory: str | Path, every: float) -> None:
        """Use a checkpoint directory, and go on from what it holds."""
        self.checkpoints = Checkpoints(directory, self._identity())
        self.save_every = every
        found = self.checkpoints.load()
        if found is None:
            if self.at.draws:  # those of the posterior that is resumed
                self.checkpoints.add_draws(pack(self.at.draws.joined(), "draws"))
            return
        self.at = restore(
            found, self.checkpoints.path, self._template, self._draw_template, self.draw_bytes
        )

    def _template(self, phase: int) -> Any:
        """Shapes of a phase's state: what its predecessors hand on, without computing it."""
        previous: Any = self.start
        if phase >= len(self.phases):
            raise IndexError(f"phase {phase} of {len(self.phases)}")
        for one in self.phases[: phase + 1]:
            previous = eqx.filter_eval_shape(
                lambda p, previous, data, key: p.init(previous, data, key),
                one, previous, self.ready.data, self.key,
            )  # fmt: skip
        return previous

    def _draw_template(self, phase: int) -> Any:
        window = self._window(0, 1)
        state = self._template(phase)
        return loop.abstract_info(self.phases[phase], state, window, self.key)[0].draw

    # -- the loop

    def all_phases(self, bar: Bar, interrupted: Callable[[], bool]) -> Posterior:
        """Every phase in order, then the posterior."""
        at = self.at
        while True:
            phase = self.phases[at.phase]
            _, run_key = jax.random.split(jax.random.fold_in(self.key, at.phase))
            if at.state is None:
                at.state = self._first_state(phase)
            last = at.phase == len(self.phases) - 1
            whole = self._steps(phase, run_key, bar, interrupted, last)
            if whole and not self.told_to_stop:
                self._refuse_trouble(phase, last)
            if last:
                return self._finish(phase, whole)
            if not whole:
                return self._cut_short(phase)
            if self.told_to_stop and not phase.stands_alone:
                self._save()
                raise StopFit(f"stopped while {phase.title}, before there is a posterior")
            self.told_to_stop = False
            at.next_phase()
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
        if at.step == 0 and not last and bool(phase.done(at.state)):  # nothing to do from here
            return True
        # what is donated must belong to nobody else
        at.state = jax.tree.map(lambda a: jnp.array(a, copy=True), at.state)
        told = self._told(phase, key)
        rows, draw_rows = loop.capacity(told[0])
        buffers = loop.make_buffers(told, rows, draw_rows)
        looks = self._looks(total) if phase.validated else []
        # the very first state can be made again; any other is kept on the host
        fresh = at.phase == 0 and at.step == 0
        safe = None if fresh else (to_host(at.state), at.step)
        safe_time, length = time.monotonic(), 1
        while at.step < total and not at.stopped:
            look = next((s for s in looks if s > at.step), total)
            stop = min(at.step + min(length, rows), look, total)
            stop = self._within(phase, stop, draw_rows)
            if stop - at.step > loop.PERIOD and stop not in (look, total):
                stop -= stop % loop.PERIOD  # whole blocks, for a device that runs in blocks
            began = time.monotonic()
            chunk = self._chunk(phase, key, at.step, stop, buffers)
            buffers, at.state = chunk.buffers, chunk.state
            taken, done = int(chunk.taken), bool(chunk.done)
            seconds = time.monotonic() - began
            terms, sound = self._terms(chunk, prefix)
            before, at.step = at.step, at.step + sound
            if sound < taken:
                self._not_finite(phase, key, prefix, terms, safe, buffers)
            new = self._collect(phase, prefix, terms, buffers.draws, before)
            if at.step in looks:
                self._look(phase, prefix)
            at.stopped = at.stopped or done
            bar.update(at.step, self._shown(prefix, terms))
            now = time.monotonic()
            if now - safe_time > SNAPSHOT_SECONDS:
                safe, safe_time = (to_host(at.state), at.step), now
            if now - self.saved > self.save_every:
                self._save()
            end = at.step if done else total
            self._tell(Event(phase.title, at.step, end, terms, self._news(phase, new)))
            if interrupted():
                self._save()
                return at.step >= total
            length = 8  # the first chunk compiles, so it says nothing about speed
            if before:
                length = max(1, min(rows, _next_length(taken, seconds)))
                self._warn_of_cost(phase, seconds / taken, total)
        if self.watch is not None and self.watch.patience is not None:
            at.state = at.state if at.best is None else jax.device_put(at.best)
        return True

    def _within(self, phase: Phase, stop: int, draw_rows: int) -> int:
        """The last step before ``stop`` up to which the buffer holds all draws."""
        if not draw_rows:
            return stop
        kept = np.asarray(phase.kept(np.arange(self.at.step, stop + 1), self.thin))
        return self.at.step + int(np.searchsorted(kept, kept[0] + draw_rows, "right")) - 1

    def _tell(self, event: Event) -> None:
        """Call the callbacks; one of them may end the fit."""
        try:
            for callback in self.callbacks:
                callback(event)
        except StopFit:
            # a training that was ended so hands on to phases that end by themselves; the callback
            # would say the same again, and leave them without a spread or most of the data
            if not self._ended_early():
                self.at.stopped = self.told_to_stop = True

    def _ended_early(self) -> bool:
        """Whether a training before this phase was not whole; as a checkpoint knows it too."""
        before = zip(self.phases, self.at.taken, strict=False)
        return any(phase.stands_alone and taken < phase.length() for phase, taken in before)

    def _chunk(
        self, phase: Phase, key: jax.Array, start: int, stop: int, buffers: loop.Buffers
    ) -> loop.Chunk:
        window = self._window(start, stop)
        if self.ready.stream is not None:
            stop = min(stop, start + STREAM_BATCHES)
        fixed = (
            phase, window, key, jnp.asarray(start, jnp.int32), jnp.asarray(stop, jnp.int32),
            self.thin, loop.block_length(phase),
        )  # fmt: skip
        with self._explain(phase):
            chunk = loop.run_chunk(fixed, self.at.state, buffers)
            chunk.taken.block_until_ready()
        return chunk

    def _window(self, start: int, stop: int) -> Any:
        """The data of a chunk: all of it, or the next batches of a stream."""
        stream = self.ready.stream
        if stream is None:
            return self.ready.data
        dtype = jax.tree.leaves(self.ready.model.parameters)[0].dtype
        stop, inner = min(stop, start + STREAM_BATCHES), self.ready.plan.targets.inner
        return stream.window(start, stop, STREAM_BATCHES, inner, dtype, self.ready.augment)

    def _terms(self, chunk: loop.Chunk, prefix: str) -> tuple[dict[str, np.ndarray], int]:
        """The history of a chunk up to the first row that is not finite, and how many are."""
        at, taken = self.at, int(chunk.taken)
        last = {
            name: at.history[prefix + name][-1][-1]
            for name in chunk.buffers.reports
            if prefix + name in at.history
        }
        terms = loop.history(chunk.buffers, at.step, taken, last)
        bad = np.flatnonzero(~np.all([np.isfinite(column) for column in terms.values()], axis=0))
        sound = int(bad[0]) if len(bad) else taken
        return {name: column[: sound + 1] for name, column in terms.items()}, sound

    def _told(self, phase: Phase, key: jax.Array) -> Any:
        """What a step will tell, by shape; draws that cannot be held are refused here."""
        window = self._window(self.at.step, self.at.step + 1)
        told = loop.abstract_info(phase, self.at.state, window, key)
        draw = told[0].draw
        if draw is not None:
            kept = int(phase.kept(phase.length(), self.thin))
            chains = jax.tree.leaves(draw)[0].shape[0]
            self._refuse_draws(kept, chains, kept * tree_bytes(draw))
        return told

    def _collect(
        self, phase: Phase, prefix: str, terms: Any, draws: Draw | None, before: int
    ) -> Draw | None:
        """Add to history and draws what a chunk gave; returns its draws, (chain, draw, …)."""
        at = self.at
        at.record({prefix + name: values for name, values in terms.items()})
        count = 0
        if draws is not None:
            count = int(phase.kept(at.step, self.thin) - phase.kept(before, self.thin))
        if not count:
            return None
        # buffers are (draw, chain, …); posteriors have (chain, draw, …)
        part = jax.tree.map(lambda a: np.swapaxes(np.asarray(a)[:count], 0, 1), draws)
        at.draws.add(part)
        if self.checkpoints is not None:
            self.checkpoints.add_draws(pack(part, "draws"))
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

    def _warn_of_cost(self, phase: Phase, seconds: float, total: int) -> None:
        """Say once where steps over all data will take long, and what takes minibatches."""
        left = (total - self.at.step) * seconds
        rows = 0 if self.ready.data is None else int(self.ready.data.count)
        if self.warned or not phase.full_batch or rows < MANY_ROWS or left < LONG_SECONDS:
            return
        self.warned = True
        name = type(self.method).__name__
        warnings.warn(
            f"{name} goes over all {rows:,} examples, at {seconds:.2g} s a step, and has about "
            f"{left / 60:.0f} minutes of {phase.title} before it. px.SGHMC and px.SGLD sample with "
            "minibatches, px.BayesByBackprop approximates with them; Ctrl-C keeps what there is",
            UserWarning, stacklevel=2,
        )  # fmt: skip

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
        nll = -float(np.average(predictive.log_prob(self.watch.y), weights=self.watch.weight))
        found = {"nll": nll, "step": at.step}
        at.record({f"{prefix}validation_{name}": np.array([v]) for name, v in found.items()})
        patience = self.watch.patience if phase.improves else None
        if nll < at.best_nll:
            at.best_nll, at.waited = nll, 0
            if patience is not None:
                at.best = to_host(at.state)
        else:
            at.waited += 1
        at.stopped = patience is not None and at.waited >= patience

    def _shown(self, prefix: str, terms: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        watched = self.at.history.get(f"{prefix}validation_nll")
        shown = terms if watched is None else terms | {"validation": watched[-1]}
        if "divergences" in terms:  # all of them: a mean of the last few says nothing
            parts = self.at.history[f"{prefix}divergences"]
            shown = shown | {"divergences": np.array([sum(part.sum() for part in parts)])}
        return shown


def _shapes(tree: Any) -> list[tuple[int, ...]]:
    return [tuple(leaf.shape) for leaf in jax.tree.leaves(tree)]


def _next_length(taken: int, seconds: float) -> int:
    """Steps for the next chunk, so that it takes about ``CHUNK_SECONDS``; at most four-fold."""
    wanted = int(CHUNK_SECONDS * taken / max(seconds, 1e-6))
    return max(1, min(wanted, 4 * taken))

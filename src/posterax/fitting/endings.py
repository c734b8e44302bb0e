"""How a fit ends: with a posterior, or with an error that carries what there is."""

import time
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.memory import explain_out_of_memory
from .._util.tree import to_host, tree_bytes
from ..errors import NonFiniteError, StuckError
from ..files.container import circumstances
from ..infer.base import Method, Phase, Start
from ..posteriors import Posterior, Record
from . import loop
from .checkpoint import Checkpoints
from .position import Position, all_finite
from .prepare import Prepared


class Endings:
    """The part of a run that ends it; ``Run`` is the rest."""

    ready: Prepared
    method: Method
    key: jax.Array
    thin: int
    start: Start
    at: Position
    phases: list[Phase]
    checkpoints: Checkpoints | None
    saved: float

    def _chunk(self, phase: Phase, key: jax.Array, start: int, stop: int, buffers: Any) -> Any:
        raise NotImplementedError

    def _identity(self) -> dict[str, Any]:
        raise NotImplementedError

    def _explain(self, phase: Phase) -> Any:
        size = tree_bytes(self.at.state if self.at.state is not None else self.ready.model)
        return explain_out_of_memory(f"{phase.title} with a state of {size:,} bytes", 3 * size)

    def _refuse_trouble(self, phase: Phase, last: bool) -> None:
        """Raise where a whole phase was for nothing; what there is stays in the checkpoint."""
        prefix = "" if last else f"{phase.title}/"
        terms = {
            name.removeprefix(prefix): np.concatenate(parts)
            for name, parts in self.at.history.items()
            if name.startswith(prefix) and "/" not in name.removeprefix(prefix)
        }
        why = phase.trouble(terms)
        if why is None:
            return
        self._save()
        kept = last and bool(self.at.draws)
        with warnings.catch_warnings():  # the error says it all
            warnings.simplefilter("ignore")
            posterior = self._finish(phase, whole=True) if kept else None
        raise StuckError(
            f"{phase.title}: {why}."
            + (" The draws are in this error's .posterior." if kept else "")
            + (f" The state is in {self.checkpoints.directory}." if self.checkpoints else ""),
            posterior,
        )

    def _not_finite(
        self, phase: Phase, key: jax.Array, prefix: str, terms: Any, safe: Any, buffers: Any
    ) -> None:
        """Go back to the last finite state, by the same steps again, and say what happened."""
        at = self.at
        bad = next(name for name, values in terms.items() if not np.isfinite(values[-1]))
        at.record({prefix + name: values[:-1] for name, values in terms.items()})
        step = at.step + 1
        why = None
        # the objective fails a step after the gradient did, when only that was not finite
        for back in (at.step, at.step - 1, safe[1] if safe else 0):
            buffers = self._replay(phase, key, safe, max(back, safe[1] if safe else 0), buffers)
            why = why or phase.blame(at.state, bad)
            if all_finite(at.state):
                break
        self._save()
        last = at.phase == len(self.phases) - 1
        kept = last and (bool(at.draws) or not phase.keeps_draws)
        with warnings.catch_warnings():  # the error says it all
            warnings.simplefilter("ignore")
            posterior = self._finish(phase, whole=False) if kept else None
        raise NonFiniteError(
            f"step {step} of {phase.title}: {bad} is not finite. {why}."
            + (f" The posterior of step {at.step} is in this error's .posterior." if kept else "")
            + (f" The state is in {self.checkpoints.directory}." if self.checkpoints else ""),
            step, bad, posterior,
        )  # fmt: skip

    def _replay(self, phase: Phase, key: jax.Array, safe: Any, stop: int, buffers: Any) -> Any:
        """From the kept state (or the phase's first) to the state before step ``stop``."""
        at = self.at
        if safe is None:
            at.state, at.step = self._first_state(phase), 0
        else:
            at.state, at.step = jax.device_put(safe[0]), safe[1]
        rows = len(jax.tree.leaves(buffers.terms)[0])
        at.state = jax.tree.map(lambda a: jnp.array(a, copy=True), at.state)
        while at.step < stop:
            chunk = self._chunk(phase, key, at.step, min(at.step + rows, stop), buffers)
            at.state, buffers = chunk.state, chunk.buffers
            at.step += int(chunk.taken)
        return buffers

    def _first_state(self, phase: Phase) -> Any:
        init_key, _ = jax.random.split(jax.random.fold_in(self.key, self.at.phase))
        with self._explain(phase):
            return loop.start_phase(phase, self.start, self.ready.data, init_key)

    def _save(self) -> None:
        self.saved = time.monotonic()
        if self.checkpoints is None:
            return
        self.checkpoints.save(*self.at.packed())

    def _cut_short(self, phase: Phase) -> Posterior:
        """What there is where Ctrl-C ends a phase that others would follow."""
        if not phase.stands_alone:
            self._save()
            raise KeyboardInterrupt(f"stopped while {phase.title}, before the first draw")
        posterior = self._finish(phase, whole=False)
        name = type(self.method).__name__
        warnings.warn(
            f"stopped while {phase.title}: this is a {type(posterior).__name__}, the network so "
            f"far without the spread that px.{name} gives it. resume=posterior trains on; "
            "init=posterior, with px.Laplace(train=False) or px.SWAG(collect=1), gives a spread "
            "around it",
            UserWarning, stacklevel=4,
        )  # fmt: skip
        return posterior

    def _finish(self, phase: Phase, whole: bool) -> Posterior:
        at = self.at
        self._save()
        draws = None
        if at.draws:
            draws = jax.tree.map(jnp.asarray, at.draws.joined())
        if phase.keeps_draws:
            if draws is None:
                raise KeyboardInterrupt(f"stopped while {phase.title}, before the first draw")
            at.identity = self._identity()
        posterior = phase.finish(at.state, draws)
        history = {name: np.concatenate(parts) for name, parts in at.history.items()}
        at.state = to_host(at.state)
        settings = {
            "method": repr(self.method),
            "steps": at.step,
            **self._epochs(),
            "batch_size": self.ready.batch_size,
            "examples": float(self.ready.plan.total),
            "key": np.asarray(jax.random.key_data(self.key)).tolist(),
            "thin": self.thin,
            "fitted": circumstances(),
        }
        record = Record(type(self.method).__name__, settings, history, at, interrupted=not whole)
        return with_record(posterior, record)

    def _epochs(self) -> dict[str, float]:
        """How long a method that counts in epochs has learned; of several phases, as was asked."""
        if self.method.counts != "epochs":
            return {}
        plan = self.ready.plan
        steps = self.at.step if len(self.phases) == 1 else int(plan.steps) + int(plan.before)
        return {"epochs": steps / int(plan.batches)}


def with_record(posterior: Posterior, record: Record) -> Posterior:
    """The same posterior with another record."""
    return eqx.tree_at(lambda p: p.record, posterior, record, is_leaf=lambda n: n is None)

"""The ELBO on all rows along a fit, and a fit that goes on until it has settled.

A fit whose rate is held for half of its T steps and then falls to zero is, up to T/2, the first
part of every longer one. So a fit without a given length is made of such fits, each twice as long
as the one before and begun where that one's rate was about to fall; it ends where twice the steps
gained next to nothing, two times in a row: units of a network may wake late, and a single level
stretch proves nothing. The last of them is what ``steps=T`` gives, to the bit.
"""

import dataclasses
import time
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..diagnostics.bound import Bound, bound, mean_bound
from ..diagnostics.course import SHORTEST
from ..diagnostics.measures import constant_nll, few_rows
from ..infer.base import Phase
from .position import Position

if TYPE_CHECKING:
    from .run import Run

SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1)  # of the steps, after which the ELBO is evaluated
LOOK = 2**30 + 1  # a stream of random numbers that no phase uses
DRAWS = ((2_048, 16), (16_384, 8), (131_072, 4))  # of a look, by the number of rows
TIMES = 8  # as many draws, to compare two fits
FIRST, PASSES = 1000, 4  # steps and passes over the data of the first of the fits, at least
# correlated columns take long, and the ELBO hardly sees it: where steps are cheap, there are more
SMALL, FIRST_OF_SMALL = 2000, 4000
MOST = 2**18  # steps: here it ends, settled or not, and the diagnosis says which
PER_ROW, SHARE = 0.02, 0.005  # nats a row, and of what was learned, that twice the steps may gain
IN_A_ROW = 2  # doublings that may gain no more


def bound_steps(run: "Run", phase: Phase, total: int) -> list[int]:
    """The steps of a phase after which the ELBO is evaluated on all rows."""
    last = phase is run.phases[-1]
    if not (run.method.needs.bound and last) or run.ready.data is None or total < SHORTEST:
        return []
    return sorted({max(1, round(share * total)) for share in SHARES})


def look_at_bound(run: "Run", phase: Phase) -> None:
    """Put the ELBO of this step into the history; the same random numbers serve every look."""
    found = _bound(run, phase)
    step = np.array([run.at.step - 1])
    parts = {"elbo": found.value, "all_nll": found.nll, "predictive_nll": found.predictive_nll}
    run.at.report({name: (step, np.array([value])) for name, value in parts.items()})


def _bound(run: "Run", phase: Phase, times: int = 1) -> Bound:
    """The ELBO of this step, by a few draws or so many times as many."""
    data = run.ready.data
    assert data is not None
    posterior, key = phase.finish(run.at.state, None), jax.random.fold_in(run.key, LOOK)
    samples = times * next((draws for rows, draws in DRAWS if data.count <= rows), 2)
    members = [posterior.member(i) for i in range(posterior.members)]
    if not members:
        return bound(posterior, data, samples=samples, key=key)
    keys = jax.random.split(key, len(members))  # with the same noise all would err alike
    each = zip(members, keys, strict=True)
    return mean_bound([bound(member, data, samples=samples, key=own) for member, own in each])


class Level(NamedTuple):
    """The objective that a fit of so many steps reached, in nats over all rows, and its error."""

    steps: int
    value: float
    error: float


class Until:
    """Makes a fit longer until its objective has settled, or the time is over."""

    def __init__(self, seconds: float | None = None):
        self.began, self.seconds = time.monotonic(), seconds
        self.levels: list[Level] = []
        self.half: Position | None = None
        self.constant: float | None = None  # NLL a row of a constant prediction

    def keep(self, at: Position, total: int) -> None:
        """Keep where the rate is about to fall: a longer fit begins there."""
        if at.step == total // 2:
            self.half = at.copied()

    def longer(self, run: "Run", phase: Phase) -> bool:
        """Whether the fit is to be longer; then it is already back where its rate was held."""
        self.levels.append(self._level(run, phase))
        steps = self._next(run, int(phase.plan.steps))
        if steps is None or self._settled(run, phase):
            return False
        run.at = self.half if self.half is not None else Position(run.draw_bytes)
        self.half = None
        self.plan(run, steps)
        if run.at.state is None:  # a checkpoint of the second half: from the start again
            run.at.state = run.first_state(run.phases[0])
        return True

    def plan(self, run: "Run", steps: int) -> None:
        """Give a run so many steps; what it saves says so."""
        plan = dataclasses.replace(run.ready.plan, steps=jnp.asarray(steps, jnp.int32))
        run.phases = run.method.phases(run.ready.model, plan)
        run.ready = run.ready._replace(plan=plan, phases=run.phases)
        run.at.until = {"steps": steps, "levels": [list(level) for level in self.levels]}
        # looks that a fit of this length does not have
        run.at.forget("elbo", "all_nll", "predictive_nll", before=round(SHARES[0] * steps) - 1)

    def take_up(self, run: "Run") -> None:
        """Go on with what a checkpoint holds."""
        if run.at.until is not None:
            self.levels = [Level(*level) for level in run.at.until["levels"]]
            self.plan(run, int(run.at.until["steps"]))

    def _level(self, run: "Run", phase: Phase) -> Level:
        found, inside = _bound(run, phase, TIMES), getattr(run.method, "inside", run.method)
        t = float(getattr(inside, "temperature", 1.0))
        # −N · nll − T · KL, of which the ELBO has T = 1
        return Level(run.at.step, found.value + (1 - t) * found.kl, found.error)

    def _settled(self, run: "Run", phase: Phase) -> bool:
        if len(self.levels) <= IN_A_ROW:
            return False
        rows, data = float(run.ready.plan.total), run.ready.data
        if self.constant is None:
            assert data is not None
            posterior = phase.finish(run.at.state, None)
            self.constant = constant_nll(posterior, *few_rows(data))
        learned = self.levels[-1].value + rows * self.constant
        allowed = min(PER_ROW * rows, SHARE * learned) if learned > 0 else PER_ROW * rows
        return all(
            level.value - before.value <= max(allowed, np.hypot(level.error, before.error))
            for before, level in pairwise(self.levels[-IN_A_ROW - 1 :])
        )

    def _next(self, run: "Run", total: int) -> int | None:
        """The steps of the next fit, fewer than twice as many where time asks for it, or none."""
        steps = 2 * total
        if self.seconds is not None:
            left = self.seconds - (time.monotonic() - self.began)
            steps = min(steps, (int(left / max(run.pace, 1e-9)) + total // 2) // 2 * 2)
        return steps if 1.2 * total <= steps <= MOST else None


def first_steps(batches: int, weights: int) -> int:
    """How long the first of the fits is."""
    least = FIRST_OF_SMALL if weights <= SMALL else FIRST
    return max(least, PASSES * batches) // 16 * 16

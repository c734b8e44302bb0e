"""A limit of time: how much of it each fit gets, and fewer steps where it is short.

A learning rate that falls over a fit has to know its length, so a fit that would take too long is
not cut off: the first steps tell their pace, and it begins again with as many as there is time for.
"""

import dataclasses
import time
import warnings
from collections.abc import Callable
from typing import Any

from .._util.checks import above_zero
from ..fitting.callbacks import Event, StopFit
from ..infer.base import Method
from ..posteriors import Posterior

PROBE = 0.05  # of the time, after which the pace is known
RESERVE = 0.9  # of the time left is for steps, the rest for what follows them
LEAST = 20  # steps, and steps of a warm-up, however short the time
WARM_UP = ("ensemble_steps", "warmup")  # settings of samplers: steps before the first draw
PLANS = 3  # attempts at most, the first as it was asked for
SHORT = "time_limit="  # how the sentence begins that says what time was too short for
WHOLE = "goes through everything once, however long that takes; Ctrl-C stops it"
Options = dict[str, Any]  # of ``px.fit``


class Clock:
    """The time of one call, and the parts of it that go to single fits.

    Args:
        limit: seconds, from now on.

    Example:
        >>> from posterax.tables.timing import Clock
        >>> clock = Clock(10.0)
        >>> 2.9 < clock.seconds(0.3) <= 3.0, 6.9 < clock.seconds(0.7) <= 10.0
        (True, True)
    """

    def __init__(self, limit: float):
        try:
            self.limit = above_zero("time_limit", limit)
        except ValueError:
            raise ValueError(
                "time_limit must be a finite number of seconds above 0, or None for no limit, got "
                f"{limit!r}"
            ) from None
        self.began, self.used = time.monotonic(), 0.0
        self.counts: dict[str, tuple[int, int]] = {}  # of steps and draws, those taken and all

    @property
    def left(self) -> float:
        """Seconds until the limit; below 0 after it."""
        return self.limit - (time.monotonic() - self.began)

    def seconds(self, part: float) -> float:
        """For the next fit, which has this part of all the time: as much of what is left.

        It is half of its part at least, also where compilation took more than there was.
        """
        share = part / max(1 - self.used, part)
        self.used += part
        return max(share * self.left, part * self.limit / 2)

    def count(self, what: str, taken: int, asked: int) -> None:
        """Add the steps or draws of a fit."""
        before = self.counts.get(what, (0, 0))
        self.counts[what] = before[0] + taken, before[1] + asked

    def tell(self) -> None:
        """Say what the time was too short for."""
        cut = [f"{t:,} of {a:,} {what}" for what, (t, a) in self.counts.items() if t < a]
        if cut:
            warnings.warn(
                f"time_limit={self.limit:.3g} was enough for {' and '.join(cut)}: the fit may not "
                "have settled; give more time",
                stacklevel=4,  # where an estimator's fit is called
            )


class TooSlow(Exception):
    """Raised by ``Pace``: what share of a phase of so many steps there is time for."""

    def __init__(self, share: float, total: int):
        super().__init__(share, total)
        self.share, self.total = share, total


class Pace:
    """A callback that measures the pace of steps, and ends a fit in time.

    Args:
        end: when the fit is to end, by ``time.monotonic()``.
        method: what is fitted.
        steps: that the fit was planned with; ``None`` where it is made longer as it goes.
        plans: whether ``TooSlow`` is raised where a shorter fit would end in time.
    """

    def __init__(self, end: float, method: Method, steps: int | None, *, plans: bool):
        self.end, self.given, self.steps, self.plans = end, end - time.monotonic(), steps, plans
        self.samples, self.warms = method.needs.no_points is not None, bool(warm_up(method))
        self.phase, self.first, self.began = -1, 0, 0.0
        self.drawn, self.looked = False, False
        self.missed, self.total = 0, 0  # steps that were not taken, of how many
        self.spare, self.last = self.given, (0.0, 0)  # time that compilation may add; news before

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        self.drawn = self.drawn or event.make is not None
        if event.number != self.phase:  # the first steps of a phase compile
            if self.phase < 0:
                self.end = max(self.end, now + self.given / 2)
            self.phase, self.first, self.began = event.number, event.step, now
            self.looked, self.last = False, (now, event.step)
            return
        self._excuse(event, now)
        # no posterior before a draw; after the training of a network a pass that must be whole
        stops = self.drawn if self.samples else event.number == 0
        if now >= self.end and stops and event.step < event.total:
            self.missed, self.total = event.total - event.step, event.total
            raise StopFit
        to_plan = self.plans and not (self.looked or self.drawn)
        if to_plan and (self.warms or event.number == 0):
            self._look(event, now)

    def _excuse(self, event: Event, now: float) -> None:
        """What was compiled between steps, for a first look at held-out rows, is no slow step."""
        before, step = self.last
        self.last = now, event.step
        if event.pace is not None:
            apart = now - before - event.pace * (event.step - step)
            more = min(max(apart, 0.0), self.spare)
            self.end, self.spare, self.began = self.end + more, self.spare - more, self.began + more

    def _look(self, event: Event, now: float) -> None:
        """Once the pace is known: does what is left of this phase fit into its time?"""
        passed, steps = now - self.began, event.step - self.first
        if passed < PROBE * (self.end - self.began):
            return
        self.looked = True
        # a warm-up has half of the time; a training before other phases, its share of the steps
        share = 0.5 if self.warms else min(1.0, event.total / (self.steps or event.total))
        left = self.began + share * (self.end - self.began) - now
        pace = event.pace or passed / steps
        if pace * (event.total - event.step) > left:
            raise TooSlow(max(0.0, RESERVE * left / (pace * event.total)), event.total)


def fit_in_time(
    clock: Clock, part: float, method: Method, options: Options, fit: Callable[..., Posterior]
) -> Posterior:
    """One fit in a part of the time, with fewer steps where that is too short.

    Args:
        clock: of the whole call; it counts the steps.
        part: of the whole time, for this fit.
        method: how to fit.
        options: of ``px.fit``, with ``steps``, or with ``epochs="auto"``.
        fit: takes a method and options.
    """
    seconds, first, warm = clock.seconds(part), options["steps"], warm_up(method)
    if method.needs.counts == "nothing":
        name = type(method).__name__
        warnings.warn(f"time_limit={clock.limit:.3g} does not end {name}: it {WHOLE}", stacklevel=2)
        return fit(method, options)
    end = time.monotonic() + seconds
    if options["epochs"] == "auto":
        options = options | {"time_limit": seconds}
    for attempt in range(PLANS):
        pace = Pace(end, method, options["steps"], plans=attempt < PLANS - 1)
        try:
            posterior = fit(method, options | {"callbacks": [pace]})
            break
        except TooSlow as slow:
            end, first = pace.end, first or slow.total
            method, options = shorter(method, options, slow.share, slow.total)
        except StopFit:  # a phase that gives no posterior: the shortest is soon over
            method, options = shorter(method, options, 0.0, first or LEAST)
            posterior, pace.missed = fit(method, options), 0
            break
    samples = method.needs.counts == "steps" and pace.samples
    for name, steps in warm_up(method).items():
        clock.count("steps of warm-up", steps, warm[name])
    asked = options["steps"] or pace.total
    if asked:
        what = "draws of each chain" if samples else "steps"
        clock.count(what, asked - pace.missed, first or asked)
    return posterior


def warm_up(method: Method) -> dict[str, int]:
    """The settings of a sampler that count steps before its first draw."""
    given = {name: getattr(method, name, 0) for name in WARM_UP}
    return {name: int(steps) for name, steps in given.items() if steps}


def shorter(method: Method, options: Options, share: float, total: int) -> tuple[Method, Options]:
    """A share of the warm-up, of a sampler that has one; of the steps, for all others.

    Example:
        >>> import posterax as px
        >>> from posterax.tables.timing import shorter
        >>> method, options = px.MaximumAPosteriori(), {"epochs": None, "steps": 1000}
        >>> shorter(method, options, 0.3, 1000)[1]["steps"]
        300
        >>> shorter(px.NUTS(warmup=500), options, 0.2, 500)[0].warmup
        100
    """
    if warm := warm_up(method):
        few: Any = {name: min(n, max(LEAST, int(share * n))) for name, n in warm.items()}
        return dataclasses.replace(method, **few), options
    steps = options["steps"] or total
    # what cycles, and what a spread needs, where a method has them
    cycles, every = getattr(method, "cycles", 1), getattr(method, "every", None) or 1
    least = max(LEAST, 4 * cycles, int(4 * every / getattr(method, "collect", 1.0)))
    kept = {name: value for name, value in options.items() if name != "time_limit"}
    return method, kept | {"epochs": None, "steps": min(steps, max(least, int(share * steps)))}

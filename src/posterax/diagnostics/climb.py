"""Whether an ELBO has reached its top: its gain from doubling to doubling of the steps."""

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..posteriors.record import Record
from .course import SHORTEST, course_of, standard_error

PER_ROW, SHARE = 0.1, 0.02  # nats a row, and of what was learned: what may be left to gain
FLOOR = 0.005, 2.0  # nats a row and nats that nobody misses
SLOW = 0.8  # gains that fall more slowly from doubling to doubling have no end in sight
QUARTER = math.log2(1.375)  # doublings from T/2 to 3T/4, where the rate falls to its half
ANNEALED = math.log2(1.5)  # doublings in the second half, whose rate falls to zero: half its steps
FAR = 100  # times the steps taken, beyond which a number of steps is no advice


class Climb(NamedTuple):
    """How an ELBO ended. All in nats over all rows."""

    state: Literal["level", "rising", "short", "unknown"]
    last: float = math.nan  # gain over the last doubling of the steps
    to_go: float = math.nan  # what is still to gain, by extrapolation
    tolerance: float = math.nan
    steps: int | None = None  # that would be enough; None beyond what can be told


class Path(NamedTuple):
    """The ELBO at some steps, the error of a difference of two, and where it began."""

    steps: np.ndarray
    values: np.ndarray
    error: float
    start: float  # the ELBO of the first step, NaN where it is not known


def path_of(record: Record, error: float = 0.0) -> Path | None:
    """The ELBO along a fit, by the objective of its steps; or as it was evaluated on the way.

    While the rate is held the ELBO fluctuates from step to step, and a mean over all steps since
    the last doubling tells more of its course than the value at one of them.
    """
    course, rows = course_of(record), float(record.settings.get("examples") or 1)
    goal = np.zeros(0)
    if course is not None and course.kl is not None:
        goal = course.nll + float(np.mean(course.weights or (1.0,))) * course.kl
    total = len(goal)
    if total < SHORTEST or not np.isfinite(goal).all():
        if "elbo" not in record.reports:
            return None
        steps, values = record.reports["elbo"]
        return Path(np.asarray(steps), np.asarray(values, np.float64), error, math.nan)
    windows = [(share / 2, share) for share in (1 / 16, 1 / 8, 1 / 4, 1 / 2)]
    windows += [(11 / 16, 13 / 16), (15 / 16, 1)]  # about 3T/4, and the end
    parts = [goal[int(low * total) : max(int(high * total), 1)] for low, high in windows]
    noise = max(standard_error(part) for part in parts[-3:])
    values = np.array([-rows * part.mean() for part in parts])
    ends = np.array([share * total for share in (1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1)])
    return Path(ends, values, math.sqrt(2) * rows * noise, -rows * float(goal[0]))


def by_doublings(levels: list[list[float]], rows: float) -> Climb:
    """How an ELBO ended that fits of T, 2T, 4T … steps reached: (steps, value, error) of each."""
    (_, before, _), (steps, end, error) = levels[-2:]
    last, earlier = end - before, (before - levels[-3][1] if len(levels) > 2 else math.nan)
    noise = math.hypot(error, levels[-2][2])
    tolerance = max(PER_ROW * rows / 2, 2 * noise, FLOOR[0] * rows + FLOOR[1])
    ratio = last / earlier if earlier > 0 else 0.5
    slowed = min(max(ratio, 0.0), SLOW)
    to_go = max(last, 0.0) * slowed / (1 - slowed)
    if max(last, to_go) <= tolerance:
        return Climb("level", last, to_go, tolerance)
    more = 2 ** (1 + math.log(tolerance / max(to_go, tolerance)) / math.log(max(slowed, 0.1)))
    enough = None if ratio >= SLOW or more > FAR else int(steps * more)
    return Climb("rising", last, to_go, tolerance, enough)


def climb(
    steps: ArrayLike,
    values: ArrayLike,
    *,
    rows: float,
    error: float = 0.0,
    start: float = math.nan,
) -> Climb:
    r"""Judge an ELBO by its values at a few steps, the last at the end T.

    With Δ₁ = E(T/4) − E(T/8) and Δ₂ = E(T/2) − E(T/4), both of the held learning rate, and the
    ratio r = Δ₂ / Δ₁, doublings that go on so would gain Δ₂ r / (1 − r) more from T/2 on; the
    second half, whose rate falls to zero, has the length of a quarter. Where the ELBO rises less
    from T/2 to 3T/4, r and the next gain are what this tells: a falling rate alone would make it
    rise, not settle.

    Args:
        steps: numbers of steps taken.
        values: the ELBO there, in nats over all rows.
        rows: how many rows.
        error: the standard error of a difference of two values.
        start: the ELBO of having learned nothing, where it is known.

    Example:
        >>> from posterax.diagnostics.climb import climb
        >>> steps = [500, 1000, 2000, 4000, 6000, 8000]
        >>> climb(steps, [-900, -500, -480, -478, -477, -477], rows=100).state
        'level'
        >>> found = climb(steps, [-900, -800, -600, -420, -380, -360], rows=100)
        >>> found.state, found.last
        ('rising', 60.0)
    """
    at, elbo = np.asarray(steps, np.float64), np.asarray(values, np.float64)
    total = at[-1]
    if total < SHORTEST or len(at) < 3 or not np.isfinite(elbo).all():
        return Climb("short" if total < SHORTEST else "unknown")
    eighth, quarter, half, later, end = (
        float(np.interp(np.log(total * share), np.log(np.maximum(at, 1)), elbo))
        for share in (1 / 8, 1 / 4, 1 / 2, 3 / 4, 1)
    )
    gain = end - (elbo[0] if math.isnan(start) else start)
    allowed = min(PER_ROW * rows, SHARE * max(gain, 0.0))
    tolerance = max(allowed, 3 * error, FLOOR[0] * rows + FLOOR[1])
    before, last, then = quarter - eighth, half - quarter, (later - half) / QUARTER
    if min(last, then) <= 2 * error:  # no gain beyond what chance gives
        return Climb("level", end - half, 0.0, tolerance)
    ratio = min(last / before if before > 0 else math.inf, then / last)
    slowed = min(ratio, SLOW)
    # what the next doubling would gain from the end on, and with it all that follow
    to_go = min(last * slowed, then) * slowed**ANNEALED / (1 - slowed)
    shown = end - half if end > half else last
    if to_go <= tolerance:
        return Climb("level", shown, to_go, tolerance)
    more = 2 ** (math.log(tolerance / to_go) / math.log(slowed))
    enough = None if ratio >= SLOW or more > FAR else int(total * more)
    return Climb("rising", shown, to_go, tolerance, enough)

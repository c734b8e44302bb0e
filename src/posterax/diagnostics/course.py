"""Whether a training has come to rest, by what it makes small: NLL + T · KL, in nats a row."""

import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

SHORTEST = 100  # steps: of fewer, tenths are too few to compare
FALLING, RISING = 0.1, 0.02  # over the last tenth of the steps
FELL = 0.2  # over the second half, in which the rate falls: level at the end alone proves nothing
State = Literal["level", "falling", "rising", "short", "not finite"]


class Rest(NamedTuple):
    """How a training ended."""

    state: State
    last: float  # change of the objective from the last tenth but one to the last
    half: float  # and from the sixth tenth
    step: int = 0  # the first that is not finite

    @property
    def words(self) -> str:
        """As a part of a sentence."""
        if self.state == "not finite":
            return f"not finite from step {self.step:,}"
        if self.state == "short":
            return "too short to tell"
        if self.state == "level":
            return "level at its end"
        part, change = "the last tenth", self.last
        if self.state == "falling" and -self.last <= FALLING:
            part, change = "the second half", self.half
        return f"still {self.state}, by {abs(change):.2g} over {part}"


def rest(nll: Any, kl: Any = None, temperature: float = 1.0) -> Rest:
    """Judge the course of NLL + T · KL.

    Falling: by more than 0.1 nats a row over the last tenth of the steps, or 0.2 over their second
    half; rising: by more than 0.02 over the last tenth; all beyond three standard errors. Where the
    learning rate falls to zero every run ends level, so that level is no proof of convergence.

    Args:
        nll: of each step.
        kl: of each step, divided by the number of rows; ``None`` without one.
        temperature: weight of the KL.

    Example:
        >>> import numpy as np
        >>> from posterax.diagnostics.course import rest
        >>> step = np.arange(1000)
        >>> rest(np.exp(-step / 50)).words, rest(np.linspace(9, 1, 100)).words
        ('level at its end', 'still falling, by 0.81 over the last tenth')
        >>> rest(np.ones(1000), 20 - 2 * np.sin(np.pi * step / 2000), temperature=0.7).words
        'still falling, by 0.33 over the second half'
    """
    nll = np.asarray(nll, np.float64)
    goal = nll if kl is None else nll + temperature * fresh(kl)
    if not np.isfinite(goal).all():
        return Rest("not finite", np.nan, np.nan, int(np.argmin(np.isfinite(goal))) + 1)
    tenth = len(goal) // 10
    if len(goal) < SHORTEST:
        return Rest("short", np.nan, np.nan)
    end, before = goal[-tenth:], goal[-2 * tenth : -tenth]
    middle = goal[-5 * tenth : -4 * tenth]
    last, half = (float(end.mean() - part.mean()) for part in (before, middle))
    sure_last, sure_half = (3 * np.hypot(_error(end), _error(p)) for p in (before, middle))
    state: State = "level"
    if last > max(RISING, sure_last):
        state = "rising"
    elif -last > max(FALLING, sure_last) or -half > max(FELL, sure_half):
        state = "falling"
    return Rest(state, last, half)


def fresh(kl: Any) -> np.ndarray:
    """A KL that is computed anew every few steps only, drawn as straight lines between those.

    Example:
        >>> from posterax.diagnostics.course import fresh
        >>> fresh([4.0, 4.0, 2.0, 2.0, 1.0]).tolist()
        [4.0, 3.0, 2.0, 1.5, 1.0]
    """
    kl = np.asarray(kl, np.float64)
    new = np.flatnonzero(np.r_[True, kl[1:] != kl[:-1]])
    return np.interp(np.arange(len(kl)), new, kl[new])


def every(kl: Any) -> int:
    """How many steps lie between new values of a KL; 1 where each step has its own."""
    kl = np.asarray(kl, np.float64)
    new = np.flatnonzero(kl[1:] != kl[:-1])
    return int(np.median(np.diff(new))) if len(new) > 2 else 1


def temperatures(method: Any) -> Sequence[float]:
    """Weights of the KL as a method is written: one, or one for each member of an ensemble.

    Example:
        >>> from posterax.diagnostics.course import temperatures
        >>> temperatures("BayesByBackprop()"), temperatures("BayesByBackprop(temperature=0.5)")
        ([1.0], [0.5])
        >>> temperatures("DeepEnsemble(inside=BayesByBackprop(), temperatures=(0.7, 0.1))")
        [0.7, 0.1]
    """
    text = str(method)
    several = re.search(r"temperatures=[(\[]([^)\]]*)[)\]]", text)
    if several:
        return [float(part) for part in several[1].split(",") if part.strip()] or [1.0]
    one = re.search(r"\btemperature=([\d.e+-]+)", text)
    return [float(one[1]) if one else 1.0]


def _error(values: np.ndarray) -> float:
    """The standard error of a mean, by blocks, since neighbours are alike, around their trend."""
    blocks = np.array([b.mean() for b in np.array_split(values, min(10, len(values)))])
    slope = np.polyfit(np.arange(len(blocks)), blocks, 1) if len(blocks) > 2 else (0.0, 0.0)
    return float(np.std(blocks - np.polyval(slope, np.arange(len(blocks)))) / np.sqrt(len(blocks)))

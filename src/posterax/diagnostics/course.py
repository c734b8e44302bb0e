"""Whether a training has converged, by its objective: NLL + T · KL, in nats a row."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

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


class Course(NamedTuple):
    """NLL and KL of a training, in nats a row, and how much the KL weighs in its objective."""

    nll: np.ndarray
    kl: np.ndarray | None = None
    weights: tuple[float, ...] = (1.0,)  # one, one for each member, or none if unknown

    @property
    def objective(self) -> str:
        """What training minimises."""
        if self.kl is None:
            return "the NLL"
        if not self.weights:
            return "NLL + T · KL"
        low, high = (f"{end(self.weights):.3g}" for end in (min, max))
        if low == high:
            return "NLL + KL" if low == "1" else f"NLL + {low} · KL"
        return f"NLL + T · KL, with T from {low} to {high} for its members"

    def rest(self) -> Rest:
        """How it ended. An ensemble's terms are means over members, and so is their weight."""
        if self.kl is None or not self.weights:
            return rest(self.nll)
        return rest(self.nll, self.kl, float(np.mean(self.weights)))


def course_of(history: Mapping[str, ArrayLike], settings: Mapping[str, Any]) -> Course | None:
    """The longest training in a history, by the settings of its record; ``None`` without one."""
    terms = {name: np.asarray(values, np.float64) for name, values in history.items()}
    phases = [
        name.removesuffix("nll")
        for name, values in terms.items()
        if name.rpartition("/")[2] == "nll" and values.ndim == 1 and len(values) > 1
    ]
    if not phases:
        return None
    phase = max(phases, key=lambda phase: len(terms[phase + "nll"]))
    nll, kl = terms[phase + "nll"], terms.get(phase + "kl")
    if kl is None or kl.shape != nll.shape:
        return Course(nll)
    return Course(nll, kl, temperatures(settings))


def rest(nll: ArrayLike, kl: ArrayLike | None = None, temperature: float = 1.0) -> Rest:
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


def fresh(kl: ArrayLike) -> np.ndarray:
    """A KL that is computed anew every few steps only, drawn as straight lines between those.

    Example:
        >>> from posterax.diagnostics.course import fresh
        >>> fresh([4.0, 4.0, 2.0, 2.0, 1.0]).tolist()
        [4.0, 3.0, 2.0, 1.5, 1.0]
    """
    kl = np.asarray(kl, np.float64)
    new = np.flatnonzero(np.r_[True, kl[1:] != kl[:-1]])
    return np.interp(np.arange(len(kl)), new, kl[new])


def every(kl: ArrayLike) -> int:
    """How many steps lie between new values of a KL; 1 where each step has its own."""
    kl = np.asarray(kl, np.float64)
    new = np.flatnonzero(kl[1:] != kl[:-1])
    return int(np.median(np.diff(new))) if len(new) > 2 else 1


def temperatures(settings: Mapping[str, Any]) -> tuple[float, ...]:
    """Weights of the KL by a record's settings: one, or one for each member of an ensemble.

    None where the settings do not say, as in files of before ``method_settings``.

    Example:
        >>> from posterax.diagnostics.course import temperatures
        >>> temperatures({"method_settings": {"name": "IVON", "arguments": {"temperature": 0.5}}})
        (0.5,)
        >>> temperatures({"method": "BayesByBackprop(temperature=0.5)"})
        ()
    """
    described = settings.get("method_settings")
    if not described:
        return ()
    arguments = described["arguments"]
    if isinstance(arguments.get("temperatures"), list):
        return tuple(map(float, arguments["temperatures"]))
    if isinstance(arguments.get("inside"), dict):
        arguments = arguments["inside"]["arguments"]
    return (float(arguments.get("temperature", 1.0)),)


def _error(values: np.ndarray) -> float:
    """The standard error of a mean, by blocks, since neighbours are alike, around their trend."""
    blocks = np.array([b.mean() for b in np.array_split(values, min(10, len(values)))])
    slope = np.polyfit(np.arange(len(blocks)), blocks, 1) if len(blocks) > 2 else (0.0, 0.0)
    return float(np.std(blocks - np.polyval(slope, np.arange(len(blocks)))) / np.sqrt(len(blocks)))

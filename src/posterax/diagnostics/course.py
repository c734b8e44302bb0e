"""Whether a training has converged, by its objective: NLL + T · KL, in nats a row."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..posteriors.record import Record

SHORTEST = 100  # steps: of fewer, tenths are too few to compare
FALLING, RISING = 0.1, 0.02  # over the last tenth of the steps
FELL = 0.2  # over the second half, in which the rate falls: level at the end alone proves nothing
ENDED = {
    "level": "level at its end",
    "short": "too short to tell",
    "not finite": "not finite from step {:,}",
}


class Rest(NamedTuple):
    """How a training ended."""

    state: Literal["level", "falling", "rising", "short", "not finite"]
    last: float  # change of the objective from the last tenth but one to the last
    half: float  # and from the sixth tenth
    step: int = 0  # the first that is not finite

    @property
    def words(self) -> str:
        """As a part of a sentence."""
        if self.state in ENDED:
            return ENDED[self.state].format(self.step)
        part, change = "the last tenth", self.last
        if self.state == "falling" and -self.last <= FALLING:
            part, change = "the second half", self.half
        return f"still {self.state}, by {abs(change):.2g} over {part}"


class Course(NamedTuple):
    """NLL and KL of a training, in nats a row, and how much the KL weighs in its objective."""

    nll: np.ndarray
    kl: np.ndarray | None = None
    weights: tuple[float, ...] = (1.0,)  # one, one for each member, or none if unknown
    every: int = 1  # steps between two values of the KL; between them it is a straight line

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


def course_of(record: Record) -> Course | None:
    """The longest training of a record; ``None`` without one."""
    trainings = {
        name: np.asarray(values, np.float64)
        for name, values in record.terms.items()
        if name.rpartition("/")[2] == "nll" and np.ndim(values) == 1 and len(values) > 1
    }
    if not trainings:
        return None
    name = max(trainings, key=lambda name: len(trainings[name]))
    nll, kl = trainings[name], name.removesuffix("nll") + "kl"
    if kl in record.reports:
        steps, values = record.reports[kl]
    elif kl in record.terms and record.terms[kl].shape == nll.shape:
        # files without reports repeat a value until the next: new ones are those that differ
        values = record.terms[kl]
        steps = np.flatnonzero(np.r_[True, values[1:] != values[:-1]])
        values = values[steps]
    else:
        return Course(nll)
    every = int(np.median(np.diff(steps))) if len(steps) > 3 else 1
    line = np.interp(np.arange(len(nll)), steps, np.asarray(values, np.float64))
    return Course(nll, line, temperatures(record.settings), every)


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
    goal = nll if kl is None else nll + temperature * np.asarray(kl, np.float64)
    if not np.isfinite(goal).all():
        return Rest("not finite", np.nan, np.nan, int(np.argmin(np.isfinite(goal))) + 1)
    if len(goal) < SHORTEST:
        return Rest("short", np.nan, np.nan)
    tenth = len(goal) // 10
    middle, before, end = (goal[len(goal) - k * tenth :][:tenth] for k in (5, 2, 1))
    last, half = (float(end.mean() - part.mean()) for part in (before, middle))
    sure_last, sure_half = (
        3 * np.hypot(standard_error(end), standard_error(p)) for p in (before, middle)
    )
    if last > max(RISING, sure_last):
        return Rest("rising", last, half)
    falls = -last > max(FALLING, sure_last) or -half > max(FELL, sure_half)
    return Rest("falling" if falls else "level", last, half)


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


def standard_error(values: np.ndarray) -> float:
    """The standard error of a mean, by blocks, since neighbours are alike, around their trend."""
    blocks = np.array([b.mean() for b in np.array_split(values, min(10, len(values)))])
    slope = np.polyfit(np.arange(len(blocks)), blocks, 1) if len(blocks) > 2 else (0.0, 0.0)
    return float(np.std(blocks - np.polyval(slope, np.arange(len(blocks)))) / np.sqrt(len(blocks)))

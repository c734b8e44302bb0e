"""Whether a fit came to its end: findings about the course of a training, or about chains."""

from typing import Any

import numpy as np

from ..diagnostics.course import Course, course_of
from ..diagnostics.diagnosis import Diagnosis, diagnose, of_draws
from ..diagnostics.verdict import findings
from ..posteriors import Draws, Posterior
from .page import Finding, Level
from .words import fixed

LOOKED_AT = 50  # rows at which chains are compared
MUCH = 0.1  # nats a row that a training may not get worse by over its last tenth
SECTION = "diagnostics"


def settled(posterior: Posterior, predictive: Any) -> list[Finding]:
    """Everything that a posterior's own record says of its fit.

    ``predictive`` is of rows at which chains are compared by their predictions.
    """
    record = posterior.record
    found = []
    if record is not None and record.interrupted:
        found.append(_interrupted())
    found += chains(posterior, predictive)[0]
    course = None if record is None else course_of(record)
    return found if course is None else [*found, training(course)]


def _interrupted() -> Finding:
    again = "The fit was stopped before its end, by Ctrl-C: fit again to let it finish."
    return Finding("care", "The fit was stopped before its end.", SECTION, again)


def training(course: Course) -> Finding:
    """How a training ended."""
    steps, ended = len(course.nll), course.rest()
    what = f"Its objective is {course.objective}, in nats a row."
    if ended.state == "not finite":
        return Finding(
            "bad",
            "The training met numbers that are not finite: lower the learning rate.", SECTION,
            f"The training's numbers are not finite from step {ended.step:,} of {steps:,} on.",
        )  # fmt: skip
    if ended.state == "short":
        return Finding(
            "care",
            f"The training had {steps:,} steps: too few to tell if it converged.", SECTION,
            f"{steps:,} steps are too few to tell whether the training has converged.",
        )  # fmt: skip
    if ended.state == "rising":
        return Finding(
            "bad" if ended.last > MUCH else "care",
            "The training was getting worse when it ended: lower the learning rate.", SECTION,
            f"The training was {ended.words}. {what} Lower the learning rate.",
        )  # fmt: skip
    if ended.state == "falling":
        return Finding(
            "care",
            "The training had not converged when it ended: more steps may help.", SECTION,
            f"The training was {ended.words}. {what} More steps may help (steps=, epochs=).",
        )  # fmt: skip
    level = "The training was level at its end, and every number of it is finite."
    return Finding(
        "good",
        level, SECTION,
        f"{level} {what} Over the last tenth of the steps it changed by "
        f"{fixed(ended.last, 3)}, since the middle by {fixed(ended.half, 3)}. That is no proof "
        "of convergence: a learning rate that falls to zero makes every run end level. Whether "
        "a longer one predicts better, only its scores tell.",
    )  # fmt: skip


def chains(posterior: Posterior, predictive: Any) -> tuple[list[Finding], Diagnosis | None]:
    """How far chains, or weighted draws, agree; nothing of what has none."""
    if not isinstance(posterior, Draws) or not of_draws(posterior):
        return [], None  # an ensemble's members are draws without chains
    rows = len(predictive.mean)
    some = np.unique(np.linspace(0, rows - 1, LOOKED_AT).round().astype(int))
    try:
        diagnosis = diagnose(posterior, predictive.at(some)._x, most=200)
    except ValueError as error:  # too few draws
        short = "The chains are too short to tell whether they agree."
        return [Finding("care", short, SECTION, f"{error}.")], None
    serious = [f for f in findings(diagnosis) if f.serious]
    if not serious:
        trusted = "Its draws can be trusted: see the diagnostics."
        return [Finding("good", trusted, SECTION, diagnosis.verdict)], diagnosis
    space = diagnosis.predictions
    apart = space is not None and (space.worst is None or space.rhat[space.worst] > 1.1)
    level: Level = "bad" if apart else "care"
    return [Finding(level, serious[0].text, SECTION, diagnosis.verdict)], diagnosis

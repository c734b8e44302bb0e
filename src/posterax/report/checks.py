"""Whether the fit itself went well: the course of training, or the agreement of chains."""

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import plot
from ..diagnostics.course import Course, course_of, every, fresh
from ..diagnostics.diagnosis import Diagnosis, diagnose
from ..diagnostics.verdict import findings
from ..posteriors import Draws
from .page import Section, Table
from .pictures import draw
from .subject import Subject
from .words import MISSING, fixed, percent, show

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOOKED_AT = 50  # rows at which chains are compared
MUCH = 0.1  # nats a row that a training may not get worse by over its last tenth


def section(subject: Subject) -> Section:
    """A plain-language verdict, with the picture or the table behind it."""
    part = Section("diagnostics", "Diagnostics: did the fit go well?")
    posterior = subject.posterior
    record = posterior.record
    if record is not None and record.interrupted:
        part.find("care", "The fit was stopped before its end.")
        part.say("The fit was stopped before its end, by Ctrl-C: fit again to let it finish.")
    told = _chains(subject, part) if isinstance(posterior, Draws) else False
    course = course_of(posterior.history, {} if record is None else record.settings)
    if course is not None:
        _training(subject, part, course)
    elif not told:
        part.say(
            "This posterior keeps no history of its training and has no chains to compare: judge "
            "it by its scores and its calibration above."
        )
    return part


def _training(subject: Subject, part: Section, course: Course) -> None:
    steps = len(course.nll)
    ended = course.rest()
    if ended.state == "not finite":
        part.say(f"The training's numbers are not finite from step {ended.step:,} of {steps:,} on.")
        part.find("bad", "The training met numbers that are not finite: lower the learning rate.")
        return
    what = f"Its objective is {course.objective}, in nats a row."
    if ended.state == "short":
        part.say(f"{steps:,} steps are too few to tell whether the training has converged.")
        part.find("care", f"The training had {steps:,} steps: too few to tell if it converged.")
    elif ended.state == "rising":
        part.say(f"The training was {ended.words}. {what} Lower the learning rate.")
        part.find(
            "bad" if ended.last > MUCH else "care",
            "The training was getting worse when it ended: lower the learning rate.",
        )
    elif ended.state == "falling":
        part.say(f"The training was {ended.words}. {what} More steps may help (steps=, epochs=).")
        part.find("care", "The training had not converged when it ended: more steps may help.")
    else:
        part.say(
            f"The training was level at its end, and every number of it is finite. {what} Over the "
            f"last tenth of the steps it changed by {fixed(ended.last, 3)}, since the middle by "
            f"{fixed(ended.half, 3)}. That is no proof of convergence: a learning rate that falls "
            "to zero makes every run end level. Whether a longer one predicts better, only its "
            "scores tell."
        )
        part.find("good", "The training was level at its end, and every number of it is finite.")
    part.show(
        draw(
            "training", "Course of the training", _caption(subject, course),
            lambda axes: _ticks(plot.training(axes, subject.posterior)), height=3.4,
        ),
        _course_table(subject, course, max(steps // 10, 1)),
    )  # fmt: skip


def _caption(subject: Subject, course: Course) -> str:
    made = f"in nats a row. Training minimises {course.objective}."
    text = f"NLL by step, {made}"
    if course.kl is not None:
        text = f"NLL and KL by step, {made}"
        if (between := every(course.kl)) > 1:
            text += f" The KL is computed anew every {between} steps."
        if len(course.weights) > 1:
            text += f" Lines are means over {len(course.weights)} members."
    return f"{text} Bold lines are moving averages.{_second_part(subject)}"


def _course_table(subject: Subject, course: Course, tenth: int) -> Table:
    record = subject.posterior.record
    batch = record.settings.get("batch_size") if record is not None else None
    rows: list[list[Any]] = [["Steps", f"{len(course.nll):,}"]]
    if batch:
        rows.append(["Rows a step", f"{int(batch):,}"])
    rows += [
        ["NLL, first tenth", fixed(course.nll[:tenth].mean(), 3)],
        ["NLL, last tenth", fixed(course.nll[-tenth:].mean(), 3)],
    ]
    if course.kl is not None:
        rows += [
            ["KL, first tenth", fixed(fresh(course.kl)[:tenth].mean(), 3)],
            ["KL, last tenth", fixed(fresh(course.kl)[-tenth:].mean(), 3)],
        ]
    caption = "Averages, in nats a row of the standardised targets"
    caption = "Averages, in nats a row" if subject.classifies else caption
    return Table(["Quantity", "Value"], rows, caption, frozenset({1}))


def _ticks(axes: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _second_part(subject: Subject) -> str:
    if not np.any(np.asarray(getattr(subject.fitted, "spread_", 1.0)) != 1):
        return ""
    return (
        " The jump is where the fit, having set the width of its intervals by rows it held back, "
        "went on with all of them."
    )


# -- chains and weighted draws


def _chains(subject: Subject, part: Section) -> bool:
    rows = np.unique(np.linspace(0, len(subject.y) - 1, LOOKED_AT).round().astype(int))
    x = subject.predictive.at(rows)._x
    try:
        diagnosis = diagnose(subject.posterior, x, most=200)
    except ValueError as error:  # an ensemble's members are draws without chains
        if "say nothing about mixing" in str(error):
            part.say(f"{error}.")
            part.find("care", "The chains are too short to tell whether they agree.")
            return True
        return False
    part.say(diagnosis.verdict)
    serious = [f for f in findings(diagnosis) if f.serious]
    if serious:
        worst = diagnosis.predictions is not None and _far_apart(diagnosis)
        part.find("bad" if worst else "care", serious[0].text)
    else:
        part.find("good", "Its draws can be trusted: see the diagnostics.")
    part.blocks.append(_numbers(diagnosis))
    return True


def _far_apart(diagnosis: Diagnosis) -> bool:
    space = diagnosis.predictions
    return space is None or space.worst is None or bool(space.rhat[space.worst] > 1.1)


def _numbers(d: Diagnosis) -> Table:
    rows: list[list[Any]] = [["Chains × draws", f"{d.chains} × {d.draws:,}", ""]]
    for name, space in (("predictions", d.predictions), ("weights", d.weights)):
        if space is None:
            continue
        told = space.to_dict()
        aim = "at most 1.01" if name == "predictions" else "may be larger: units change places"
        rows.append([f"R-hat of {name}, largest", _number(told["rhat_max"]), aim])
        rows.append(
            [f"Effective draws of {name}, least", show(told["ess_bulk_min"]), "100 a chain or more"]
        )
    if d.ess is not None:
        rows.append(["Effective draws", show(d.ess), "100 or more"])
        rows.append(["k-hat", fixed(d.k_hat, 2), "at most 0.7"])
    if d.divergences is not None:
        share = percent(d.divergences / (d.chains * d.draws), 2)
        rows.append(["Divergences", f"{d.divergences:,} ({share})", "none, or next to none"])
    if d.acceptance is not None:
        rows.append(["Acceptance", fixed(d.acceptance, 2), ""])
    if d.energy is not None:
        rows.append(["E-BFMI, least", fixed(float(np.min(d.energy)), 2), "0.3 or more"])
    return Table(["Quantity", "Value", "Aim"], rows, "Diagnostics of the draws", frozenset({1}))


def _number(value: float | None) -> str:
    return MISSING if value is None else fixed(value, 3)

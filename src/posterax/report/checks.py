"""The fit itself: whether it went well, and how many of its weights could go.

Of training its course is shown, of chains how far they agree; of weights their signal-to-noise, and
the error when the weakest are removed.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from .. import plot
from ..diagnostics.course import Course, course_of
from ..diagnostics.diagnosis import Diagnosis
from ..plot.style import MEAN
from ..pruning.families import check_family, silenced
from ..pruning.ranking import SIGNAL_TO_NOISE, Ranking, scores
from .page import Finding, Picture, Section, Table
from .pictures import FAINT, LINE, draw, label
from .settled import chains
from .subject import Subject, sample_rows
from .words import cut, fixed, many, percent, show

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FRACTIONS = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98)  # of weights removed
PRUNED_ROWS = 500  # to measure by
TOLERANCE = 0.02  # nats a row


def section(subject: Subject, findings: Sequence[Finding]) -> Section:
    """A plain-language verdict, with the picture or the table behind it."""
    part = Section("diagnostics", "Diagnostics: did the fit go well?")
    part.tell(findings)
    _, diagnosis = chains(subject.posterior, subject.outcome.predictive)
    if diagnosis is not None:
        part.blocks.append(_numbers(diagnosis))
    record = subject.posterior.record
    course = None if record is None else course_of(record)
    if course is not None and course.rest().state != "not finite":
        part.show(_picture(subject, course), _course_table(subject, course))
    if not part.blocks:
        part.say(
            "This posterior keeps no history of its training and has no chains to compare: judge "
            "it by its scores and its calibration above."
        )
    return part


def _picture(subject: Subject, course: Course) -> Picture:
    def onto(axes: "Axes") -> None:
        from matplotlib.ticker import MaxNLocator, StrMethodFormatter

        plot.training(axes, subject.posterior)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))

    lines, more, jump = "NLL", "", ""
    if course.kl is not None:
        lines = "NLL and KL"
        if course.every > 1:
            more = f" The KL is computed anew every {course.every} steps."
        if len(course.weights) > 1:
            more += f" Lines are means over {len(course.weights)} members."
    if np.any(np.asarray(getattr(subject.fitted, "spread_", 1.0)) != 1):
        jump = (
            " The jump is where the fit, having set the width of its intervals by rows it held "
            "back, went on with all of them."
        )
    objective = course.objective
    return draw("fit.training", onto, lines=lines, objective=objective, more=more, jump=jump)


def _course_table(subject: Subject, course: Course) -> Table:
    rows = [["Steps", f"{len(course.nll):,}"]]
    if batch := subject.settings.get("batch_size"):
        rows.append(["Rows a step", f"{int(batch):,}"])
    tenth = max(len(course.nll) // 10, 1)
    for name, values in (("NLL", course.nll), ("KL", course.kl)):
        if values is not None:
            rows.append([f"{name}, first tenth", fixed(values[:tenth].mean(), 3)])
            rows.append([f"{name}, last tenth", fixed(values[-tenth:].mean(), 3)])
    caption = "Averages, in nats a row" + " of the standardised targets" * (not subject.classifies)
    return Table(["Quantity", "Value"], rows, caption, frozenset({1}))


def _numbers(d: Diagnosis) -> Table:
    rows = [["Chains × draws", f"{d.chains} × {d.draws:,}", ""]]
    for name, space, aim in (
        ("predictions", d.predictions, "at most 1.01"),
        ("weights", d.weights, "may be larger: units change places"),
    ):
        if space is not None:
            values = space.to_dict()
            rows.append([f"R-hat of {name}, largest", fixed(values["rhat_max"], 3), aim])
            least = show(values["ess_bulk_min"])
            rows.append([f"Effective draws of {name}, least", least, "100 a chain or more"])
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


# -- pruning


def pruning(subject: Subject) -> Section:
    """The spread of signal-to-noise ratios, and what removing the lowest costs."""
    part = Section("pruning", "Pruning: how much of the network is needed?")
    posterior = subject.posterior
    try:
        check_family(posterior)
        ranking = Ranking(posterior, scores(posterior, SIGNAL_TO_NOISE, None), "global")
    except (ValueError, TypeError) as error:
        reason = str(error).partition(": ")[2].partition(": fit with")[0].partition(";")[0]
        part.say(f"Not for this posterior: {cut(reason, 200)}.")
        return part
    errors, nll = _curve(subject, ranking)
    fine = nll <= nll[0] + TOLERANCE
    most = FRACTIONS[int(np.argmin([*fine, False])) - 1]  # the largest up to which all are fine
    total = ranking.total
    if most > 0:
        place = "posterior" if subject.fitted is posterior else "model.posterior_"
        words = (
            f"{percent(most)} of the {many(total, 'weight')} can be removed, the lowest signal "
            f"|μ|\u00a0/\u00a0σ first, before the NLL grows by more than {TOLERANCE} nats a row: "
            f"px.prune({place}, {most:g}) does it."
        )
    else:
        words = (
            f"Removing a quarter of the {many(total, 'weight')} costs more than {TOLERANCE} nats a "
            "row already: this network has little to spare."
        )
    if not subject.held_out:
        words += " Measured on the training rows, so take it as a hint."
    part.say(words)
    part.show(_ratios(subject), _error_picture(subject, errors))
    name, write = ("Error", partial(percent, digits=1)) if subject.classifies else ("RMSE", show)
    rows = [
        [percent(f), f"{round((1 - f) * total):,}", fixed(n, 3), write(e)]
        for f, e, n in zip(FRACTIONS, errors, nll, strict=True)
    ]
    heads, caption = ["Removed", "Weights left", "NLL", name], f"Pruning, on {subject.where}"
    part.blocks.append(Table(heads, rows, caption, frozenset(range(4)), "Show the numbers"))
    return part


def _curve(subject: Subject, ranking: Ranking) -> tuple[np.ndarray, np.ndarray]:
    """The error and the NLL at each fraction."""
    rows = sample_rows(len(subject.y), PRUNED_ROWS)
    y = subject.y[rows]
    errors, nll = [], []
    for fraction in FRACTIONS:
        masks = ranking.masks(fraction) if fraction else {}
        predictive = subject.again(silenced(subject.posterior, masks), rows)
        mean = np.asarray(predictive.mean, np.float64)
        if subject.classifies:
            errors.append(np.mean(mean.argmax(-1) != y))
        else:
            errors.append(np.sqrt(np.mean(np.square(subject._first(mean) - subject.true[rows]))))
        nll.append(-np.mean(predictive.log_prob(y)))
    return np.array(errors), np.array(nll)


def _ratios(subject: Subject) -> Picture | None:
    try:
        return draw("fit.ratios", lambda axes: plot.signal_to_noise(axes, subject.posterior))
    except ValueError:  # a point has no deviation, and weights whose means are all 0 no ratio
        return None


def _error_picture(subject: Subject, errors: np.ndarray) -> Picture:
    score = "error" if subject.classifies else "RMSE"
    heights = 100 * errors if subject.classifies else errors

    def onto(axes: "Axes") -> None:
        axes.axhline(heights[0], color=MEAN, linestyle=":", linewidth=1.1, label="all weights")
        axes.plot(100 * np.array(FRACTIONS), heights, **LINE, label="pruned")
        axes.set_ylim(bottom=0)
        label(axes, "weights removed (%)", "error (%)" if subject.classifies else score)
        axes.grid(color=FAINT, linewidth=0.5)

    return draw("fit.pruned", onto, score=score, where=subject.where)

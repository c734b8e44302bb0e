"""How many weights could go: signal-to-noise, and the error when the weakest are removed."""

from typing import TYPE_CHECKING

import numpy as np

from .. import plot
from ..plot.style import EPISTEMIC, MEAN
from ..pruning.families import check_family, silenced
from ..pruning.ranking import Ranking
from ..pruning.signal_to_noise import SIGNAL_TO_NOISE, scores
from .page import Picture, Section, Table
from .pictures import FAINT, draw
from .subject import SEED, Subject
from .words import cut, fixed, many, percent, show

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FRACTIONS = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98)
ROWS = 500  # to measure by
TOLERANCE = 0.02  # nats a row


def section(subject: Subject) -> Section:
    """The spread of signal-to-noise ratios, and what removing the lowest costs."""
    part = Section("pruning", "Pruning: how much of the network is needed?")
    posterior = subject.posterior
    try:
        check_family(posterior)
        ranking = Ranking(posterior, scores(posterior, SIGNAL_TO_NOISE, None), "global")
    except (ValueError, TypeError) as error:
        reason = str(error).partition(": ")[2].partition(": fit with")[0].partition(";")[0]
        reason = cut(reason, 200)
        part.say(f"Not for this posterior: {reason}.")
        return part
    table, nll = _curve(subject, ranking)
    fine = np.array(nll) <= nll[0] + TOLERANCE
    most = FRACTIONS[int(np.argmin([*fine, False])) - 1]  # the largest up to which all are fine
    total = ranking.total
    if most > 0:
        words = (
            f"{percent(most)} of the {many(total, 'weight')} can be removed, the lowest signal "
            f"|μ|\u00a0/\u00a0σ first, before the NLL grows by more than {TOLERANCE} nats a row: "
            f"px.prune({_place(subject)}, {most:g}) does it."
        )
    else:
        words = (
            f"Removing a quarter of the {many(total, 'weight')} costs more than {TOLERANCE} nats a "
            "row already: this network has little to spare."
        )
    if not subject.held_out:
        words += " Measured on the training rows, so take it as a hint."
    part.say(words)
    part.show(_ratios(subject), _picture(subject, table))
    name = "Error" if subject.classifies else "RMSE"
    write = (lambda v: percent(v, 1)) if subject.classifies else show
    rows = [
        [percent(f), f"{round((1 - f) * total):,}", fixed(n, 3), write(e)]
        for (f, e), n in zip(table, nll, strict=True)
    ]
    part.blocks.append(
        Table(
            ["Removed", "Weights left", "NLL", name], rows, f"Pruning, on {subject.where}",
            frozenset({0, 1, 2, 3}), folded="Show the numbers",
        )
    )  # fmt: skip
    return part


def _place(subject: Subject) -> str:
    return "posterior" if subject.fitted is subject.posterior else "model.posterior_"


def _curve(subject: Subject, ranking: Ranking) -> tuple[list[tuple[float, float]], list[float]]:
    """(fraction, error) pairs, and the NLL of each."""
    n = len(subject.y)
    rows = np.arange(n)
    if n > ROWS:
        rows = np.sort(np.random.default_rng(SEED).choice(n, ROWS, replace=False))
    y = subject.y[rows]
    table, nll = [], []
    for fraction in FRACTIONS:
        masks = ranking.masks(fraction) if fraction else {}
        predictive = subject.again(silenced(subject.posterior, masks), rows)
        mean = np.asarray(predictive.mean, np.float64)
        if subject.classifies:
            error = float(np.mean(mean.argmax(-1) != y))
        else:
            error = float(np.sqrt(np.mean(np.square(subject._first(mean) - subject.true[rows]))))
        table.append((fraction, error))
        nll.append(-float(np.mean(predictive.log_prob(y))))
    return table, nll


def _ratios(subject: Subject) -> Picture | None:
    try:
        return draw(
            "ratios", "Signal-to-noise of the weights",
            "The signal-to-noise ratio |μ|\u00a0/\u00a0σ of all weights in decibels, which are "
            "10\u00a0·\u00a0log₁₀ of it, as Blundell et al. (2015) define them. Weights at the "
            "left may as well be 0; they are the first to go.",
            lambda axes: plot.signal_to_noise(axes, subject.posterior),
        )  # fmt: skip
    except ValueError:  # a point has no deviation, and weights whose means are all 0 no ratio
        return None


def _picture(subject: Subject, table: list[tuple[float, float]]) -> Picture:
    removed, error = (np.array(part) for part in zip(*table, strict=True))
    scale = 100 if subject.classifies else 1
    name = "error (%)" if subject.classifies else "RMSE"

    def onto(axes: "Axes") -> None:
        axes.axhline(
            scale * error[0], color=MEAN, linestyle=":", linewidth=1.1, label="all weights"
        )
        axes.plot(
            100 * removed, scale * error, color=EPISTEMIC, marker="o", markersize=4.5,
            linewidth=1.6, label="pruned",
        )  # fmt: skip
        axes.set_xlabel("weights removed (%)")
        axes.set_ylabel(name)
        axes.set_ylim(bottom=0)
        axes.grid(color=FAINT, linewidth=0.5)

    return draw(
        "pruned", "Error by the share of weights removed",
        f"The {'error' if subject.classifies else 'RMSE'} on {subject.where} when the weights with "
        "the lowest signal-to-noise ratio are set to 0. Level means that they were not needed.",
        onto,
    )  # fmt: skip

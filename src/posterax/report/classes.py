"""Pictures of classes: whether probabilities hold, and whether the model knows its mistakes."""

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import metrics, plot
from ..metrics import Evaluation
from ..plot.style import EPISTEMIC, EPISTEMIC_FILL
from .page import Heat, Picture, Section, Table
from .pictures import WRONG, draw
from .scores import FEW_ROWS
from .subject import Subject
from .words import cut, fixed, many, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMALL, MOST_CLASSES = 4, 12  # of a confusion matrix; of more, the worst pairs are listed
FEW = 5  # wrong rows to draw a histogram of


def calibration(subject: Subject, scores: Evaluation) -> Section:
    """The reliability diagram, with words."""
    part = Section("calibration", "Calibration: does 80 % sure mean right in 80 %?")
    confidence, n = subject.p.max(-1), len(subject.y)
    mean, accuracy = float(confidence.mean()), float(subject.right.mean())
    error, *_, chance = scores["calibration_error"]
    chance = chance or 0.0
    text = (
        f"On average the model gives its choice a probability of {percent(mean, 1)}, and is right "
        f"in {percent(accuracy, 1)} of {many(n, 'row')}. The calibration error is "
        f"{fixed(error, 3)}; a perfectly calibrated model would have up to {fixed(chance, 3)} here "
        "by chance."
    )
    if n < FEW_ROWS:
        part.say(f"{text} These are too few rows to tell whether the probabilities hold.")
        part.find("care", f"Too few rows, {n}, to tell whether its probabilities hold.")
    elif error <= chance:
        part.say(f"{text} So there is no sign that the probabilities are wrong.")
        part.find("good", "Its probabilities are as often right as they say, within chance.")
    else:
        # a direction is named only where the mean gap is more than its own chance
        told = abs(mean - accuracy) > 1.96 * np.sqrt(np.sum(confidence * (1 - confidence))) / n
        sure = mean > accuracy
        word = "too sure of itself" if sure else "not sure enough of itself"
        word = word if told else "too sure of some rows and not sure enough of others"
        part.say(f"{text} So the probabilities are off: the model is {word}.")
        serious = not (told and not sure) and error > 0.15 + chance
        part.find(
            "bad" if serious else "care",
            f"Its probabilities are off by {percent(error, 1)} on average: it is {word}.",
        )
    part.show(_reliability(subject), _confidence(subject))
    return part


def uncertainty(subject: Subject) -> Section:
    """Confusions, uncertainty of right and wrong rows, and what is gained by leaving some out."""
    part = Section("uncertainty", "Uncertainty: what is confused, and does the model know?")
    wrong = int(np.sum(~subject.right))
    n = len(subject.y)
    if wrong == 0:
        part.say(f"All {many(n, 'row')} are predicted right.")
    else:
        curve = metrics.accuracy_rejection(subject.p, subject.y, subject.entropy)
        at = float(np.interp(0.1, curve.rejected, curve.accuracy))
        part.say(
            f"{many(wrong, 'row')} of {n:,} predicted wrong. Without the least certain tenth "
            f"the accuracy is {percent(at, 1)} instead of {percent(1 - wrong / n, 1)}. "
            f"{_ranks(subject, wrong)}"
        )
    confusions = _confusions(subject)
    wide = len(subject.classes) > SMALL  # too wide to stand beside a picture
    if wide:
        part.blocks.append(confusions)
    part.show(
        None if wide else confusions,
        _rejection(subject) if 0 < wrong < n else None,
        _histogram(subject, "epistemic"),
        _histogram(subject, "aleatoric"),
    )
    return part


def _ranks(subject: Subject, wrong: int) -> str:
    if wrong < FEW:
        return ""
    area = metrics.detection(subject.entropy[subject.right], subject.entropy[~subject.right]).auroc
    return (
        f"A wrong row has a larger entropy than a right one in {percent(area)} of pairs "
        f"({'so the uncertainty is a good warning' if area > 0.75 else '50 % would be chance'})."
    )


def _reliability(subject: Subject) -> Picture:
    return draw(
        "reliability", "Reliability diagram",
        "How often the chosen class is right, over the probability it was given. Dots on the "
        "diagonal are calibrated; below it the model is too sure. The bars at the bottom are the "
        "shares of rows: where there are few, a dot says little.",
        lambda axes: plot.reliability(axes, subject.p, subject.y),
        height=4.9,
    )  # fmt: skip


def _confidence(subject: Subject) -> Picture:
    confidence = subject.p.max(-1)
    edges = np.linspace(1 / subject.p.shape[1], 1, 21)

    def onto(axes: "Axes") -> None:
        axes.stairs(
            np.histogram(confidence[subject.right], edges)[0], edges, fill=True,
            facecolor=EPISTEMIC_FILL, edgecolor=EPISTEMIC, linewidth=0.8,
            label=f"right ({int(subject.right.sum()):,})",
        )  # fmt: skip
        wrong = np.histogram(confidence[~subject.right], edges)[0]
        if wrong.any():
            axes.stairs(
                wrong, edges, color=WRONG, linewidth=1.8,
                label=f"wrong ({int(wrong.sum()):,})",
            )  # fmt: skip
        axes.set_xlabel("probability of the chosen class")
        axes.set_ylabel("rows")
        axes.set_xlim(edges[0], 1)

    return draw(
        "confidence", "Confidence of right and wrong rows",
        "How sure the model is of its choices: rows that are right (filled) and rows that are "
        "wrong (line), each counted from 0. Wrong ones at the right are the costly kind: sure, and "
        "mistaken.",
        onto, height=4.9,
    )  # fmt: skip


def _histogram(subject: Subject, part: str) -> Picture:
    values = getattr(subject, part)
    values, right = np.maximum(values, 0), subject.right
    names = {
        "epistemic": ("epistemic entropy (nats)", "what more rows would remove"),
        "aleatoric": ("aleatoric entropy (nats)", "classes that overlap, which no row removes"),
    }
    axis, meaning = names[part]
    wrong = int(np.sum(~right))

    def onto(axes: "Axes") -> None:
        if FEW <= wrong < len(right):
            plot.entropy_histogram(
                axes, values[right], values[~right], bins=20, names=("right", "wrong"), score=part
            )
        else:
            edges = np.linspace(0, max(float(values.max()), 1e-6), 21)
            axes.stairs(
                np.histogram(values[right], edges)[0] / max(right.sum(), 1), edges, fill=True,
                facecolor=EPISTEMIC_FILL, edgecolor=EPISTEMIC, linewidth=1.1, label="right",
            )  # fmt: skip
            if wrong:
                axes.plot(
                    values[~right], np.zeros(wrong), linestyle="none", marker="X", markersize=7,
                    color=WRONG, clip_on=False, label=f"wrong ({wrong})", zorder=4,
                )  # fmt: skip
            axes.set_xlim(0, edges[-1])
        axes.set_xlabel(axis)
        axes.set_ylabel("share of rows")

    return draw(
        part, f"{part.capitalize()} uncertainty of right and wrong rows",
        f"The {part} part of the uncertainty, {meaning}, of rows predicted right and wrong. The "
        "further apart they lie, the better it warns.",
        onto,
    )  # fmt: skip


def _rejection(subject: Subject) -> Picture:
    return draw(
        "rejection", "Accuracy when the least certain are left out",
        "The accuracy of the other rows, over the share left out, the least certain first. "
        "The closer to the dashed line, which knows all mistakes, the better.",
        lambda axes: plot.accuracy_rejection(axes, {"by uncertainty": subject.p}, subject.y),
    )  # fmt: skip


def _confusions(subject: Subject) -> Table:
    names, guess = subject.classes, subject.p.argmax(-1)
    k = len(names)
    counts = np.bincount(subject.y * k + guess, minlength=k * k).reshape(k, k)
    if k > MOST_CLASSES:
        apart = counts - np.diag(np.diag(counts))
        order = np.argsort(-apart, axis=None, kind="stable")[:15]
        pairs = [(int(i // k), int(i % k)) for i in order if apart.flat[i]]
        rows = [
            [names[a], names[b], f"{counts[a, b]:,}", percent(counts[a, b] / counts[a].sum())]
            for a, b in pairs
        ]
        heads = ["True class", "Predicted", "Rows", "Of the true class"]
        return Table(heads, rows, "The most frequent confusions", frozenset({2, 3}))
    rows = []
    for a in range(k):
        total = int(counts[a].sum())
        cells: list[Any] = [
            Heat(f"{counts[a, b]:,}", counts[a, b] / max(total, 1)) for b in range(k)
        ]
        rows.append([names[a], *cells, percent(counts[a, a] / total) if total else "–"])
    heads = ["True class", *(cut(name, 24) for name in names), "Found"]
    return Table(
        heads, rows, "Confusion matrix: rows are the true classes, columns the predicted ones",
        frozenset(range(1, k + 2)),
    )  # fmt: skip

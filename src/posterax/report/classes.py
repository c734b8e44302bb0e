"""Pictures of classes: whether probabilities hold, and whether the model knows its mistakes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import metrics, plot
from .page import Finding, Heat, Picture, Section, Table
from .pictures import FILLED, WRONG, draw, label
from .subject import Subject
from .words import MISSING, cut, fixed, many, percent, show

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMALL, MOST_CLASSES = 4, 12  # of a confusion matrix; of more, the worst pairs are listed
FEW = 5  # wrong rows to draw a histogram of


def calibration(subject: Subject, findings: Sequence[Finding]) -> Section:
    """The reliability diagram, with what the verdict says of it."""
    part = Section("calibration", "Calibration: does 80 % sure mean right in 80 %?")
    part.tell(findings)
    part.show(
        draw("classes.reliability", lambda axes: plot.reliability(axes, subject.p, subject.y)),
        _confidence(subject),
    )
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
    if best := _threshold(subject):
        part.say(best)
    confusions = _confusions(subject)
    wide = len(subject.classes) > SMALL  # too wide to stand beside a picture
    if wide:
        part.blocks.append(confusions)
    rejection = (
        draw(
            "classes.rejection",
            lambda axes: plot.accuracy_rejection(axes, {"by uncertainty": subject.p}, subject.y),
        )
        if 0 < wrong < n
        else None
    )
    parts = [_histogram(subject, name) for name in ("epistemic", "aleatoric")]
    part.show(None if wide else confusions, rejection, *parts)
    return part


def _threshold(subject: Subject) -> str:
    """Where to draw the line between two classes."""
    every = subject.outcome
    if every.p.shape[1] != 2 or len(subject.classes) != 2:
        return ""
    best = metrics.best_threshold(every.predictive, every.y, weight=every.weight)
    if best is None:
        return ""
    return (
        f"If rows are called {subject.classes[1]} from a probability of {show(best.value)} on, F1 "
        f"is largest, {fixed(best.f1, 3)}: a precision of {percent(best.precision, 1)} and a "
        f"recall of {percent(best.recall, 1)}. The line was drawn on these very rows."
    )


def _ranks(subject: Subject, wrong: int) -> str:
    if wrong < FEW:
        return ""
    area = metrics.detection(subject.entropy[subject.right], subject.entropy[~subject.right]).auroc
    return (
        f"A wrong row has a larger entropy than a right one in {percent(area)} of pairs "
        f"({'so the uncertainty is a good warning' if area > 0.75 else '50 % would be chance'})."
    )


def _confidence(subject: Subject) -> Picture:
    edges = np.linspace(1 / subject.p.shape[1], 1, 21)
    right, wrong = (
        np.histogram(subject.p.max(-1)[rows], edges)[0] for rows in (subject.right, ~subject.right)
    )

    def onto(axes: "Axes") -> None:
        axes.stairs(right, edges, **FILLED, label=f"right ({right.sum():,})")
        if wrong.any():
            axes.stairs(wrong, edges, color=WRONG, linewidth=1.8, label=f"wrong ({wrong.sum():,})")
        label(axes, "probability of the chosen class", "rows")
        axes.set_xlim(edges[0], 1)

    return draw("classes.confidence", onto)


def _histogram(subject: Subject, part: str) -> Picture:
    values, right = np.maximum(getattr(subject, part), 0), subject.right
    wrong = int(np.sum(~right))

    def onto(axes: "Axes") -> None:
        if FEW <= wrong < len(right):
            plot.entropy_histogram(
                axes, values[right], values[~right], bins=20, names=("right", "wrong"), score=part
            )
        else:
            edges = np.linspace(0, max(float(values.max()), 1e-6), 21)
            shares = np.histogram(values[right], edges)[0] / max(right.sum(), 1)
            axes.stairs(shares, edges, **FILLED | {"linewidth": 1.1}, label="right")
            if wrong:
                axes.plot(
                    values[~right], np.zeros(wrong), linestyle="none", marker="X", markersize=7,
                    color=WRONG, clip_on=False, label=f"wrong ({wrong})", zorder=4,
                )  # fmt: skip
            axes.set_xlim(0, edges[-1])
        label(axes, f"{part} entropy (nats)", "share of rows")

    return draw(f"classes.{part}", onto)


def _confusions(subject: Subject) -> Table:
    names, k = subject.classes, len(subject.classes)
    counts = np.bincount(subject.y * k + subject.p.argmax(-1), minlength=k * k).reshape(k, k)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    if k > MOST_CLASSES:
        apart = counts - np.diag(np.diag(counts))
        order = np.argsort(-apart, axis=None, kind="stable")[:15]
        rows: list[Any] = [
            [names[a], names[b], f"{counts[a, b]:,}", percent(shares[a, b])]
            for a, b in zip(*np.unravel_index(order, (k, k)), strict=True)
            if apart[a, b]
        ]
        heads = ["True class", "Predicted", "Rows", "Of the true class"]
        return Table(heads, rows, "The most frequent confusions", frozenset({2, 3}))
    rows = []
    for a in range(k):
        cells = [
            Heat(f"{count:,}", share) for count, share in zip(counts[a], shares[a], strict=True)
        ]
        rows.append([names[a], *cells, percent(shares[a, a]) if counts[a].any() else MISSING])
    heads = ["True class", *(cut(name, 24) for name in names), "Found"]
    caption = "Confusion matrix: rows are the true classes, columns the predicted ones"
    return Table(heads, rows, caption, frozenset(range(1, k + 2)))

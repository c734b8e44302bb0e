"""What uncertainty is good for: telling strange inputs from usual ones, and mistakes from hits."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import metrics
from .._util.checks import whole_number
from ..metrics.detection import scores_of
from ..metrics.inputs import Forecast
from ..predictive import Predictive
from .style import BLUE, DATA, HATCHED, Axes, annotate, by_name, method_style

TAIL = 0.95  # beyond this share of rejections too few examples are left to set the limits by

NAMES = {
    "total": "entropy of the mean probabilities (nats)",
    "epistemic": "mutual information (nats)",
    "aleatoric": "expected entropy (nats)",
    "confidence": "1 − largest probability",
    "variance": "variance of the probabilities, summed",
}


def entropy_histogram(
    axes: Axes,
    inside: Forecast,
    outside: Forecast,
    *,
    score: str = "total",
    bins: int = 30,
    names: tuple[str, str] = ("inside", "outside"),
    title: str | None = None,
) -> Axes:
    """Draw how an uncertainty is spread over usual and over strange inputs.

    The bars are shares of each set: both sum to 1. The less they overlap the better the score
    tells the sets apart; the legend has its AUROC, the probability that a strange input has the
    larger score.

    Args:
        axes: where to draw.
        inside: a ``Predictive`` for inputs like those of the training; or class probabilities
            (N, K); or scores (N,).
        outside: the same for other inputs.
        score: which uncertainty, as ``px.metrics.uncertainty_score`` names it: the entropy
            ``"total"``, or ``"epistemic"``, ``"aleatoric"``, ``"confidence"``, ``"variance"``.
        bins: bars.
        names: of both sets.
        title: above the axes.

    Example:
        >>> from matplotlib.figure import Figure
        >>> import posterax as px
        >>> sure, unsure = [[0.9, 0.1], [0.8, 0.2]], [[0.5, 0.5]]
        >>> axes = px.plot.entropy_histogram(Figure().subplots(), sure, unsure)
        >>> axes.get_legend_handles_labels()[1]
        ['inside', 'outside (AUROC 1.000)']
    """
    bins = whole_number("bins", bins)
    area = metrics.detection(inside, outside, score=score).auroc
    values = [scores_of(inside, "inside", score), scores_of(outside, "outside", score)]
    low, high = min(0.0, *(v.min() for v in values)), max(v.max() for v in values)
    edges = np.linspace(low, high if high > low else low + 1, bins + 1)
    shares = [np.histogram(v, edges)[0] / len(v) for v in values]
    axes.stairs(shares[0], edges, fill=True, **BLUE, linewidth=1.1, label=names[0], zorder=2)
    axes.stairs(
        shares[1], edges, fill=True, **HATCHED | {"facecolor": "none"},
        linestyle="--", linewidth=1.3, label=f"{names[1]} (AUROC {area:.3f})", zorder=3,
    )  # fmt: skip
    axes.set(xlim=edges[[0, -1]], ylim=(0, 1.05 * np.max(shares)))
    plain = not any(isinstance(g, Predictive) or np.ndim(g) > 1 for g in (inside, outside))
    values_of = isinstance(inside, Predictive) and inside.kind != "classification"
    label = "score" if plain else f"{score} variance" if values_of else NAMES[score]
    return annotate(axes, title, xlabel=label, ylabel="share of inputs")


def accuracy_rejection(
    axes: Axes,
    predictives: Forecast | Mapping[str, Forecast],
    y: ArrayLike,
    *,
    score: str = "total",
    title: str | None = None,
) -> Axes:
    """Draw the accuracy of the rest over the share of inputs that are rejected.

    The most uncertain go first. Below are who rejects at random, above an oracle that rejects
    mistakes first: both of the most accurate method. The legend has the mean height of each line.

    Args:
        axes: where to draw.
        predictives: a ``Predictive`` of classes or class probabilities (N, K), or several by name.
        y: labels 0 … K−1.
        score: the uncertainty to reject by, as ``px.metrics.uncertainty_score`` names it.
        title: above the axes.

    Reference:
        Nadeem, Zucker and Hanczar, *Accuracy-rejection curves (ARCs) for comparing classification
        methods with a reject option*, MLSB 2010.

    Example:
        >>> from matplotlib.figure import Figure
        >>> import posterax as px
        >>> p = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]]
        >>> axes = px.plot.accuracy_rejection(Figure().subplots(), {"mine": p}, [0, 0, 1])
        >>> axes.get_legend_handles_labels()[1]
        ['mistakes first', 'mine (mean 0.889)', 'at random']
    """
    several: dict[str, Forecast] = by_name("predictives", predictives, "by uncertainty")
    curves = {name: metrics.accuracy_rejection(p, y, score) for name, p in several.items()}
    best = max(curves, key=lambda name: curves[name].accuracy[0])
    accuracy = float(curves[best].accuracy[0])
    rejected = curves[best].rejected
    oracle = np.minimum(accuracy / (1 - rejected), 1)
    of_best = f" ({best})" if len(curves) > 1 else ""
    bound: dict[str, Any] = {"color": DATA, "linewidth": 1.0, "zorder": 2}
    axes.plot(rejected, oracle, linestyle="--", label=f"mistakes first{of_best}", **bound)
    for index, (name, curve) in enumerate(curves.items()):
        axes.plot(
            *curve, **method_style(index), markevery=(0.04 * index, 0.12), linewidth=1.6,
            label=f"{name} (mean {curve.area:.3f})", zorder=4,
        )  # fmt: skip
    axes.axhline(accuracy, linestyle=":", label=f"at random{of_best}", **bound)
    lowest = min(c.accuracy[c.rejected <= TAIL].min() for c in curves.values())
    room = max(1 - lowest, 1e-3)
    axes.set(xlim=(0, 1), ylim=(lowest - 0.06 * room, 1 + 0.04 * room))
    by = NAMES[score].removesuffix(" (nats)") if isinstance(score, str) else "your score"
    return annotate(axes, title, xlabel=f"share rejected, by {by}", ylabel="accuracy of the rest")

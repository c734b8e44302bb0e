"""Learning curves: a score over the number of labels."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from ..active import Curve
from .style import DATA, Axes, annotate, method_style

Scores = Curve | tuple[ArrayLike, ArrayLike]

APART = 0.06  # of the height of the axes: the least distance of two labels


def learning_curve(
    axes: Axes,
    curves: Mapping[str, Scores | Sequence[Scores]],
    *,
    baseline: str | None = None,
    mark: str | None = None,
    metric: str = "accuracy",
    lower_is_better: bool | None = None,
    low: float | None = None,
    title: str | None = None,
) -> Axes:
    """Draw scores over labels, one line for each way to choose them, named at its end.

    Of several seeds, the mean, and a band of one standard error on both sides.

    Args:
        axes: where to draw.
        curves: by name: a ``px.active.Curve``, a pair (labels, scores), or a list of either, one
            for each seed, with the same numbers of labels.
        baseline: the name whose final score is drawn as a dotted line.
        mark: the name for which the number of labels that reach this line, by the mean, is marked.
        metric: what the scores are; ``"accuracy"`` is drawn in percent.
        lower_is_better: whether less of it is better, for ``mark`` (default: by the name, where
            ``px.metrics`` has it).
        low: where the axis of the scores begins, for curves that begin far below their end.
        title: above the axes.

    Example:
        >>> from matplotlib.figure import Figure
        >>> import posterax as px
        >>> curves = {
        ...     "BALD": ([20, 30, 40], [0.5, 0.7, 0.8]), "random": ([20, 30, 40], [0.5, 0.6, 0.7])
        ... }
        >>> axes = px.plot.learning_curve(
        ...     Figure().subplots(), curves, baseline="random", mark="BALD"
        ... )
        >>> [text.get_text() for text in axes.texts][-1]
        '30 labels'
    """
    for argument, name in {"baseline": baseline, "mark": mark}.items():
        if name is not None and name not in curves:
            raise ValueError(f"{argument} must be one of {', '.join(curves)}, got {name!r}")
    if mark is not None and baseline is None:
        raise ValueError("mark needs a baseline, whose final score is to be reached")
    factor = 100 if metric == "accuracy" else 1
    by_name = {name: _several(name, given) for name, given in curves.items()}
    ends = {}
    for index, (name, (labels, scores)) in enumerate(by_name.items()):
        style = method_style(index) | {"marker": None}
        mean = factor * scores.mean(0)
        if len(scores) > 1:
            error = factor * scores.std(0, ddof=1) / np.sqrt(len(scores))
            axes.fill_between(
                labels, mean - error, mean + error, color=style["color"], alpha=0.18, linewidth=0
            )
        axes.plot(labels, mean, linewidth=1.5, label=name, **style)
        ends[name] = (labels[-1], mean[-1], style["color"])
    annotate(axes, "labels", metric + " (%)" * (factor == 100), title)
    axes.grid(axis="y", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if low is not None:
        axes.set_ylim(bottom=factor * low)
    _names(axes, ends)
    if baseline is not None:
        goal = float(by_name[baseline][1].mean(0)[-1])
        axes.axhline(factor * goal, color=DATA, linestyle=":", linewidth=1, zorder=0)
        if mark is not None:
            labels, scores = by_name[mark]
            reached = Curve(labels, scores.mean(0), (), metric, lower_is_better).first(goal)
            if reached is not None:
                _mark(axes, reached, factor * goal, ends[mark][2])
    return axes


def _several(name: str, given: Scores | Sequence[Scores]) -> tuple[np.ndarray, np.ndarray]:
    """Labels (rounds,) and scores (seeds, rounds)."""
    seeds = given if isinstance(given, list) else [given]
    pairs = [(np.asarray(one[0], float), np.asarray(one[1], float)) for one in seeds]
    same = (np.array_equal(a, pairs[0][0]) and a.shape == b.shape for a, b in pairs)
    if not pairs or not all(same):
        raise ValueError(
            f"curves: {name!r} must have one score for each number of labels, and the same numbers "
            "with each seed"
        )
    return pairs[0][0], np.stack([scores for _, scores in pairs])


def _mark(axes: Axes, reached: int, score: float, color: str) -> None:
    """A dot there, and its number of labels at the foot of the axes, where no curve is."""
    foot = axes.get_ylim()[0]
    axes.plot([reached], [score], "o", color=color, markersize=5, zorder=5)
    axes.plot([reached, reached], [foot, score], ":", color=color, linewidth=1)
    axes.annotate(
        f"{reached} labels", (reached, foot), xytext=(5, 5), textcoords="offset points",
        color=color, fontsize="small",
    )  # fmt: skip


def _names(axes: Axes, ends: Mapping[str, tuple[float, float, str]]) -> None:
    """Names at the ends of the lines, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    least = APART * (high - low)
    order = sorted(ends, key=lambda name: ends[name][1])
    heights = np.array([ends[name][1] for name in order])
    for _ in range(500):  # neighbours that are too close give way by half of it each
        missing = np.maximum(least - np.diff(heights), 0) / 2
        heights[1:] += missing
        heights[:-1] -= missing
    for height, name in zip(heights.tolist(), order, strict=True):
        x, _, color = ends[name]
        axes.annotate(
            name, (x, height), xytext=(5, 0), textcoords="offset points", color=color,
            va="center", fontsize="small", annotation_clip=False,
        )  # fmt: skip

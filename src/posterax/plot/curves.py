"""Courses of learners: scores over labels, regret over interactions."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from .._util.checks import one_of
from ..active import Curve
from .style import DATA, Axes, annotate, by_name, chain_style

if TYPE_CHECKING:
    from ..bandits import Played

    Runs: TypeAlias = Played | ArrayLike | tuple[ArrayLike, ArrayLike]

Scores: TypeAlias = Curve | tuple[ArrayLike, ArrayLike]
Course: TypeAlias = tuple[np.ndarray, np.ndarray]  # places (points,), values there (runs, points)
Ends: TypeAlias = dict[str, tuple[float, float, str]]  # of lines: where, how high, which colour

SHOWN = 400  # points of a line
APART = 0.06  # of the height of the axes: the least distance of two names


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
    factor, unit = (100, " (%)") if metric == "accuracy" else (1, "")
    courses = {name: _several(name, given) for name, given in curves.items()}
    courses = {name: (labels, factor * scores) for name, (labels, scores) in courses.items()}
    ends = _lines(axes, courses, {}, "error")
    annotate(axes, title, xlabel="labels", ylabel=metric + unit)
    if low is not None:
        axes.set_ylim(bottom=factor * low)
    _name(axes, ends)
    if baseline is None:
        return axes
    goal = ends[baseline][1]
    axes.axhline(goal, color=DATA, linestyle=":", linewidth=1, zorder=0)
    if mark is not None:
        labels, scores = courses[mark]
        reached = Curve(labels, scores.mean(0), (), metric, lower_is_better).first(goal)
        if reached is not None:  # a dot, and its labels at the foot of the axes, where no curve is
            foot, color = axes.get_ylim()[0], ends[mark][2]
            axes.plot([reached], [goal], "o", color=color, markersize=5, zorder=5)
            axes.plot([reached, reached], [foot, goal], ":", color=color, linewidth=1)
            _text(axes, f"{reached} labels", (reached, foot), xytext=(5, 5), color=color)
    return axes


def regret(
    axes: Axes,
    played: "Runs | Mapping[str, Runs]",
    *,
    band: str = "range",
    log: bool = True,
    names: bool = True,
    styles: Mapping[str, dict[str, Any]] | None = None,
    title: str | None = None,
) -> Axes:
    """Draw the cumulative regret of policies: the mean over their runs, and a band.

    Flat means that nothing is lost any more; on a linear scale a straight climb is a policy that
    does not learn.

    Args:
        axes: where to draw.
        played: ``{name: played}`` with what ``px.bandits.play`` returned; or ``played`` alone; or
            in its place the regret of every interaction, (runs, interactions); or a tuple
            (interactions, cumulative regret after them (runs, points)).
        band: ``"range"``, from the least to the largest run; ``"error"``, ± one standard error of
            the mean; or ``"none"``.
        log: logarithmic regret, as such curves are mostly drawn.
        names: write each name at the end of its line, right of the axes.
        styles: colour and dashes by name, such as ``px.plot.chain_style(0)``, where several
            pictures share them.
        title: above the axes.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> from matplotlib.figure import Figure
        >>> drawn = {"coin": np.full((3, 50), 0.5), "learns": np.eye(50)[:3]}
        >>> axes = px.plot.regret(Figure().subplots(), drawn)
        >>> axes.get_legend_handles_labels()[1]
        ['coin', 'learns']
    """
    words = {"range": "least to largest run", "error": "± one standard error", "none": ""}
    one_of("band", band, tuple(words))
    several: dict[str, Runs] = by_name("played", played)
    courses = {name: _curve(one, name) for name, one in several.items()}
    ends = _lines(axes, courses, styles or {}, band, log)
    axes.set_xlim(0, max(end[0] for end in ends.values()))
    if log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    if names:
        _name(axes, {name: end for name, end in ends.items() if name})
    banded = any(len(runs) > 1 for _, runs in courses.values())
    note = f"\n(band: {words[band]})" if banded else ""
    return annotate(axes, title, xlabel="interactions", ylabel=f"cumulative regret{note}")


def _several(name: str, given: Scores | Sequence[Scores]) -> Course:
    seeds = given if isinstance(given, list) else [given]
    pairs = [(np.asarray(one[0], float), np.asarray(one[1], float)) for one in seeds]
    same = (np.array_equal(a, pairs[0][0]) and a.shape == b.shape for a, b in pairs)
    if not pairs or not all(same):
        raise ValueError(
            f"curves: {name!r} must have one score for each number of labels, the same in each seed"
        )
    return pairs[0][0], np.stack([scores for _, scores in pairs])


def _curve(played: "Runs", name: str) -> Course:
    if not hasattr(played, "regret") and isinstance(played, tuple) and len(played) == 2:
        after, runs = np.asarray(played[0], np.int64), np.atleast_2d(np.asarray(played[1], float))
    else:
        each = np.atleast_2d(np.asarray(getattr(played, "regret", played), np.float64))
        steps = each.shape[-1] if each.ndim == 2 else 0
        after = np.unique(np.linspace(1, max(steps, 1), min(SHOWN, max(steps, 1))).astype(int))
        runs = np.cumsum(each, -1)[:, after - 1] if steps else np.zeros((0, 0))
    if runs.ndim != 2 or runs.shape[1:] != after.shape or not runs.size:
        raise ValueError(
            f"played{f': {name}' * bool(name)} must be what px.bandits.play returned, the regret "
            "of each interaction (runs, interactions), or a tuple (interactions, cumulative regret)"
        )
    return after, runs


def _lines(
    axes: Axes,
    courses: Mapping[str, Course],
    styles: Mapping[str, dict[str, Any]],
    band: str,
    log: bool = False,
) -> Ends:
    """The means over runs, with bands around those of several."""
    ends = {}
    for index, (name, (at, runs)) in enumerate(courses.items()):
        style = styles.get(name) or chain_style(index)
        mean = runs.mean(0)
        shown = np.where(mean > 0, mean, np.nan) if log else mean
        axes.plot(at, shown, **style, linewidth=1.6, label=name or "mean", zorder=3)
        ends[name] = (float(at[-1]), float(mean[-1]), style["color"])
        if len(runs) > 1 and band != "none":
            low, high = runs.min(0), runs.max(0)
            if band == "error":
                error = runs.std(0, ddof=1) / np.sqrt(len(runs))
                low, high = mean - error, mean + error
            low = np.maximum(low, np.nanmin(shown)) if log and np.any(mean > 0) else low
            fill = {"color": style["color"], "alpha": 0.18, "linewidth": 0, "zorder": 2}
            axes.fill_between(at, low, high, **fill)
    axes.grid(axis="y", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return ends


def _name(axes: Axes, ends: Ends) -> None:
    """Names at the ends of the lines, moved apart where they would overlap."""
    floor, top = axes.get_ylim()
    axes.set_ylim(floor, top)
    names = sorted(ends, key=lambda name: ends[name][1])
    points = [(ends[name][0], max(ends[name][1], floor)) for name in names]
    to_axes = axes.transData + axes.transAxes.inverted()
    heights = to_axes.transform(np.reshape(points, (-1, 2)))[:, 1]
    for i in range(1, len(heights)):  # upwards from the lowest, and where there are too many back
        heights[i] = max(heights[i], heights[i - 1] + APART)
    heights = np.minimum(heights, 1 - APART * np.arange(len(heights))[::-1])
    for name, height in zip(names, heights.tolist(), strict=True):
        x, _, color = ends[name]
        at: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "annotation_clip": False}
        _text(axes, name, (x, height), xytext=(5, 0), color=color, va="center", **at)


def _text(axes: Axes, text: str, at: tuple[float, float], **options: Any) -> None:
    axes.annotate(text, at, textcoords="offset points", fontsize="small", **options)

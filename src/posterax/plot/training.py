"""The course of a fit."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..posteriors import Posterior
from .style import DASHES, Axes, annotate, by_name, chain_style, many_axes, method_style, smooth

SMOOTHED = 50  # the moving average is over one step in so many
CUT = 4  # so many times the range of what follows the start may take before it is cut off


def training(
    axes: Axes | Sequence[Axes],
    posteriors: Posterior | Mapping[str, Posterior],
    *,
    title: str | None = None,
) -> Any:
    """Draw the training NLL and the KL of one or several fits, step by step.

    Both are in nats an example: minus the evidence lower bound is their sum. They seldom have the
    same size, so each has a scale of its own: on two axes (NLL, KL), or on one, where the KL is
    dashed and belongs to the scale at the right. Bold are moving averages over a fiftieth of the
    steps, thin what they average; large markers are the NLL of validation data. A steep start may
    leave the picture at the top. Methods without a KL (points, ensembles, samplers) have the NLL
    only.

    Args:
        axes: where to draw; one, or two of them.
        posteriors: what ``px.fit`` returned, or several by name.
        title: above the (first) axes.

    Returns:
        What ``axes`` was.

    Example:
        >>> from matplotlib.figure import Figure
        >>> import posterax as px
        >>> from posterax.demo import curve_data, curve_model
        >>> posterior = px.fit(curve_model(), curve_data(16), px.BayesByBackprop(), steps=5, key=0)
        >>> px.plot.training(Figure().subplots(), posterior).get_legend_handles_labels()[1]
        ['NLL', 'KL / N (right)']
    """
    several = by_name("posteriors", posteriors)
    courses = {name: _course(posterior, name) for name, posterior in several.items()}
    left, right = _two_axes(axes, any("kl" in course for course in courses.values()))
    twinned = right is not None and not many_axes(axes)
    drawn: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for index, (name, course) in enumerate(courses.items()):
        prefix = f"{name}: " if name else ""
        # on two axes dashes tell methods apart; on one they tell the KL from the NLL
        style = method_style(index) | ({"linestyle": "-"} if twinned else {})
        marker = style["marker"]
        if not name:
            del style["marker"], style["markersize"]
        drawn[0].append(_line(left, course["nll"], f"{prefix}NLL", style, index))
        if "validation_nll" in course:
            left.plot(
                course["validation_step"], course["validation_nll"], linestyle="none",
                color=style["color"], marker=marker, markersize=7, markerfacecolor="white",
                label=f"{prefix}validation NLL", zorder=5,
            )  # fmt: skip
            drawn[0].append(course["validation_nll"])
        if "kl" not in course or right is None:
            continue
        label = f"{prefix}KL / N"
        if twinned:
            label += " (right)"
            color = chain_style(index if name else 1)["color"]
            style |= {"color": color, "linestyle": DASHES[1]}
            # so that the legend of the axes that were given knows of it
            left.plot([], [], **style, linewidth=1.6, label=label)
        drawn[1].append(_line(right, course["kl"], label, style, index))
    _limits(left, drawn[0])
    annotate(left, title, xlabel="step", ylabel="NLL (nats an example)").set_xlim(left=0)
    if right is not None:
        _limits(right, drawn[1])
        right.set_ylabel("KL / N (nats an example)" + (", dashed" if twinned else ""))
        if not twinned:
            annotate(right, None, xlabel="step").set_xlim(left=0)
    return axes


def _two_axes(axes: Any, with_kl: bool) -> tuple[Axes, Axes | None]:
    if not many_axes(axes):
        return axes, axes.twinx() if with_kl else None
    if len(axes) != 2:
        raise ValueError(f"axes must be one, or two of them (NLL, KL), got {len(axes)}")
    if not with_kl:
        raise ValueError("training: none of these fits has a KL; give one axes, for the NLL")
    return axes[0], axes[1]


def _course(posterior: Posterior, name: str) -> dict[str, np.ndarray]:
    """NLL, KL and validation step by step; of several phases ("optimising/nll") in the longest."""
    history = posterior.history if isinstance(posterior, Posterior) else None
    if history is None:
        raise TypeError(f"training draws what px.fit returned, got {type(posterior).__name__}")
    phases = [key.removesuffix("nll") for key in history if key.rpartition("/")[2] == "nll"]
    phase = max(phases, key=lambda phase: len(history[phase + "nll"]), default="")
    if not len(history.get(phase + "nll", ())):
        raise ValueError(
            f"training: {name or 'this posterior'} has no NLL in its history (it has "
            f"{', '.join(history) or 'none'}); for chains there is px.plot.trace"
        )
    ours = {key for key in history if key.startswith(phase)}
    return {key.removeprefix(phase): np.asarray(history[key], np.float64) for key in ours}


def _line(
    axes: Axes, values: np.ndarray, label: str, style: dict[str, Any], index: int
) -> np.ndarray:
    apart = (0.05 + 0.04 * index, 0.15)  # markers of different lines
    window = max(1, len(values) // SMOOTHED)
    return smooth(axes, values, window, style, start=1, label=label, markevery=apart)


def _limits(axes: Axes, lines: list[np.ndarray]) -> None:
    """Room for all lines; the first steps may be cut off where they would flatten all others."""
    low, high = (float(f([f(line) for line in lines])) for f in (np.min, np.max))
    settled = max(float(np.max(line[len(line) // 20 :])) for line in lines)
    if high > low + CUT * (settled - low) > low:
        high = settled + 0.5 * (settled - low)
    pad = 0.05 * (high - low) or 0.5
    axes.set_ylim(low - pad, high + pad)

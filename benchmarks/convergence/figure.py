"""The figure of docs/results/convergence.md."""

from pathlib import Path

import matplotlib.pyplot as plt

from benchmarks.convergence import problems, summary
from posterax._util.writing import written


def draw(found: list[summary.Group], path: Path) -> None:
    """How far below the best ELBO everyone is, over seconds."""
    names = [name for name in problems.NAMES if summary.reference(summary.of(found, name))]
    lines = -(-len(names) // 3)
    figure, axes = plt.subplots(
        lines, 3, figsize=(11, 0.5 + 2.6 * lines), layout="constrained", squeeze=False
    )
    colours = {name: f"C{i}" for i, name in enumerate(sorted(set(map(label, found))))}
    for ax in axes.flat[len(names) :]:
        ax.axis("off")
    for name, ax in zip(names, axes.flat, strict=False):
        here = summary.of(found, name)
        best = summary.reference(here)
        ax.set_title(name, fontsize=10)
        ax.set(xscale="log", yscale="log")
        for who in colours if best is not None else ():
            curve = envelope([g for g in here if label(g) == who], best.median)
            if curve:
                ax.plot(*zip(*curve, strict=True), "o-", ms=3, color=colours[who])
        ax.axhline(summary.NEAR, color="0.6", lw=0.8, ls="--")
    for ax in axes[-1]:
        ax.set_xlabel("seconds, compilation included")
    for ax in axes[:, 0]:
        ax.set_ylabel("nats a row below the best")
    handles = [plt.Line2D([], [], marker="o", ms=3, color=c, label=n) for n, c in colours.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    with written(path, binary=True) as file:
        figure.savefig(file, format="png", dpi=110, metadata={"Software": None})
    plt.close(figure)


def label(group: summary.Group) -> str:
    """A line of the figure."""
    if not group.ours:
        return group.contender
    return f"posterax {group.contender}, {'defaults' if group.default else 'tuned'}"


def envelope(found: list[summary.Group], best: float) -> list[tuple[float, float]]:
    """The smallest gap anyone of these had by each second; gaps below 0.001 are drawn there."""
    points = sorted(
        (p["seconds"], best - p["per_row"])
        for group in found
        for cell in group.cells
        for p in cell["points"]
        if "per_row" in p
    )
    curve: list[tuple[float, float]] = []
    for when, gap in points:
        shown = max(gap, 1e-3)
        if not curve or shown < curve[-1][1]:
            curve.append((when, shown))
    return curve

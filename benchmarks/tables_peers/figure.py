"""The critical-difference picture of docs/results/tables_peers.md (Demšar 2006)."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from benchmarks.tables_peers.contenders import CONTENDERS
from benchmarks.tables_peers.summary import OURS, Group, critical_difference, ranks
from posterax._util.writing import written

Panel = tuple[str, list[Group], str]


def draw(panels: list[Panel], path: Path) -> None:
    """A line of average ranks for each measure; bars join who is not told apart."""
    ready = [(title, len(g), ranks(g, what)) for title, g, what in panels if g]
    ready = [(title, n, found) for title, n, found in ready if len(found) > 2]
    if not ready:
        return
    heights = [1.3 + 0.24 * ((len(found) + 1) // 2) for *_, found in ready]
    figure, axes = plt.subplots(
        len(ready), 1, figsize=(8.5, sum(heights)), height_ratios=heights, squeeze=False
    )
    for ax, (title, sets, found) in zip(axes[:, 0], ready, strict=True):
        _panel(ax, title, sets, found)
    figure.tight_layout(h_pad=0.4)
    with written(path, binary=True) as file:
        figure.savefig(file, format="png", dpi=110, metadata={"Software": None})
    plt.close(figure)


def _panel(ax: Any, title: str, sets: int, found: dict[str, float]) -> None:
    order = sorted(found, key=lambda who: found[who])
    k, distance = len(order), critical_difference(len(order), sets)
    half = (k + 1) // 2
    depth = 1.2 + half  # lines of names below the axis
    ax.set(xlim=(-0.45 * k, 1.45 * k + 1), ylim=(-depth - 0.3, 2.4))
    ax.axis("off")
    ax.hlines(0, 1, k, color="k", lw=1)
    for rank in range(1, k + 1):
        ax.vlines(rank, 0, 0.2, color="k", lw=1)
        ax.text(rank, 0.3, str(rank), ha="center", va="bottom", fontsize=8)
    ax.hlines(1.55, 1, 1 + distance, color="0.4", lw=2)
    ax.text(1 + distance / 2, 1.65, f"CD {distance:.2f}", ha="center", va="bottom", fontsize=8,
            color="0.4")  # fmt: skip
    ax.text(-0.45 * k, 1.65, f"{title}, {sets} sets", fontsize=9.5, weight="bold", va="bottom")
    cliques = _cliques([found[who] for who in order], distance)
    for i, who in enumerate(order):
        left = i < half
        line = -1.6 - (i if left else k - 1 - i) * 1.0
        side = 0.7 if left else k + 0.3
        colour = "C3" if who == OURS else "k"
        ax.plot([found[who], found[who], side], [0, line, line], color=colour, lw=0.8)
        ax.text(side + (-0.1 if left else 0.1), line,
                f"{CONTENDERS[who].label}  {found[who]:.2f}", va="center", color=colour,
                ha="right" if left else "left", fontsize=8.5)  # fmt: skip
    for level, (low, high) in enumerate(cliques):
        y = -0.35 - 0.9 * level / max(len(cliques), 1)
        ax.hlines(y, low - 0.05, high + 0.05, color="0.25", lw=2.6)


def _cliques(values: list[float], distance: float) -> list[tuple[float, float]]:
    """The longest stretches of ranks that are within the critical difference."""
    found: list[tuple[float, float]] = []
    for low in values:
        high = max(v for v in values if v <= low + distance)
        if high > low and not any(a <= low and high <= b for a, b in found):
            found.append((low, high))
    return found

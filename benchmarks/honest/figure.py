"""The figure of docs/results/temperature.md: NLL over temperature, a panel for each data set."""

import math
from pathlib import Path

import matplotlib.pyplot as plt

from benchmarks.honest import data, summary
from benchmarks.honest.contenders import COLD
from posterax._util.writing import written

LABELS = {
    "BayesByBackprop": "BayesByBackprop", "IVON": "IVON", "low_rank": 'family="low_rank"',
    "ensemble": "ensemble of BayesByBackprop",
}  # fmt: skip
LINES = {"unit": "-", "fan_in": "--"}
PRIORS = {"unit": "N(0, 1)", "fan_in": "N(0, 1/fan-in)"}
ROOM = 0.6  # nats above what temperature 1 has


def draw(found: summary.Found, path: Path) -> None:
    """Test NLL of the first split over temperature; the long run is the dotted line."""
    figure, axes = plt.subplots(2, 4, figsize=(13, 6.5), layout="constrained")
    for name, ax in zip(data.NAMES, axes.flat, strict=True):
        _panel(ax, found, name)
    for ax in axes[-1]:
        ax.set_xlabel("temperature")
    for ax in axes[:, 0]:
        ax.set_ylabel("NLL on test rows, nats")
    handles = [
        plt.Line2D([], [], color=f"C{i}", marker="o", ms=3, label=LABELS[m])
        for i, m in enumerate(COLD)
    ]
    handles += [
        plt.Line2D([], [], color="0.3", ls=line, label=PRIORS[p]) for p, line in LINES.items()
    ]
    handles.append(plt.Line2D([], [], color="k", lw=0.9, label="long MCLMC run, temperature 1"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    with written(path, binary=True) as file:
        figure.savefig(file, format="png", dpi=100, metadata={"Software": None})
    plt.close(figure)


def _panel(ax: plt.Axes, found: summary.Found, name: str) -> None:
    seen, warm = [], []
    for prior, line in LINES.items():
        for i, method in enumerate(COLD):
            fits = summary.of(found, data=name, prior=prior, method=method, split=0)
            known = {e["temperature"]: e["test"]["nll"] for e in fits}
            # what was not fitted leaves a gap, not a straight line
            nlls = [known.get(t, math.nan) for t in summary.ALL_TEMPERATURES]
            ax.plot(summary.ALL_TEMPERATURES, nlls, "o", ls=line, ms=3, lw=1.2, color=f"C{i}")
            seen += known.values()
            warm += [nll for t, nll in known.items() if t == 1]
        for e in summary.of(found, data=name, prior=prior, method="reference"):
            ax.axhline(e["test"]["nll"], color="k", lw=0.9, ls=line)
            seen.append(e["test"]["nll"])
    ax.set_title(name, fontsize=10)
    ax.set_xscale("log")
    if seen:
        low, high = min(seen), max(warm, default=max(seen)) + ROOM
        ax.set_ylim(low - 0.05 * (high - low), min(high, max(seen) + 0.05 * (high - low)))

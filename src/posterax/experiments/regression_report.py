"""Tables and picture of the regression curve."""

from pathlib import Path
from typing import Any

import numpy as np

from ..plot.style import EPISTEMIC, EPISTEMIC_FILL, MEAN, TOTAL_FILL
from .pairs import estimate
from .regression import ARMS, LEVEL, PLACES
from .store import Store

PLAIN = ("rmse", "nll", "coverage", "inside", "outside", "seconds")
NOISE = 0.063  # root mean square of the curve's noise over [0, 0.5]
WIDENS = 3.0  # how many times as uncertain outside as inside counts as a warning


def _runs(store: Store, arm: str) -> list[dict[str, Any]]:
    return [run for name, run in store.runs.items() if name.startswith(f"{arm}/")]


def summary(store: Store) -> dict[str, Any]:
    """Means over the seeds, by method."""
    found: dict[str, Any] = {}
    for arm in ARMS:
        if not (runs := _runs(store, arm)):
            continue
        found[arm] = {k: estimate([run[k] for run in runs])._asdict() for k in PLAIN}
        found[arm]["deviation"] = {
            place: estimate([run["deviation"][place] for run in runs])._asdict()
            for place in runs[0]["deviation"]
        }
        found[arm]["seeds"] = len(runs)
        found[arm]["widens"] = found[arm]["outside"]["mean"] > WIDENS * found[arm]["inside"]["mean"]
    return found


def page(store: Store) -> str:
    """Markdown: scores inside the data, deviations inside and outside."""
    found, size, facts = summary(store), store.content["settings"], store.content["facts"]
    where = facts["device"] if facts["device"] != "cpu" else f"{facts['cores']} CPU cores"
    n = max(one["seeds"] for one in found.values())
    widening = [ARMS[arm].title for arm, one in found.items() if one["widens"]]
    rest = [ARMS[arm].title for arm, one in found.items() if not one["widens"]]
    lines = [
        f"{n} seed{'s' * (n > 1)}, {size['points']:,} points to train on and as many to test, "
        f"{size['epochs']} epochs in batches of {size['batch_size']}, ensemble of "
        f"{size['members']}, {size['chains']} chains of {size['draws']} draws after "
        f"{size['warmup']} ({where}, jax {facts['jax']}; seconds include compilation).",
        "",
        f"Outside the data the mean epistemic deviation is more than {WIDENS:g} times that inside "
        f"for: {', '.join(widening) or 'none'}"
        + (f"; it is not for: {', '.join(rest)}." if rest else "."),
        "",
        "![Median, 50 % and 95 % intervals](regression.png)",
        "",
        f"| | RMSE | NLL | {LEVEL:.0%} interval covers | epistemic sd inside | outside | seconds |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for arm, one in found.items():
        cover = _cell({k: 100 * v for k, v in one["coverage"].items()}, 1)
        lines.append(
            f"| {ARMS[arm].title} | {_cell(one['rmse'])} | {_cell(one['nll'])} | {cover} % | "
            f"{_cell(one['inside'], 4)} | {_cell(one['outside'], 3)} | "
            f"{one['seconds']['mean']:.0f} |"
        )
    lines += [
        "",
        "The epistemic deviation at single places; training inputs lie in [0, 0.5]:",
        "",
        "| x = | " + " | ".join(f"{place:g}" for place in PLACES) + " |",
        "| --- |" + " ---: |" * len(PLACES),
    ]
    for arm, one in found.items():
        cells = [f"{d['mean']:.3f}" for d in one["deviation"].values()]
        lines.append(f"| {ARMS[arm].title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(found: dict[str, float], digits: int = 3) -> str:
    error = "" if np.isnan(found["error"]) else f" ± {found['error']:.{digits}f}"
    return f"{found['mean']:.{digits}f}{error}"


def draw(store: Store, path: Path) -> None:
    """One panel a method, as figure 5 of the paper: median, interquartile range, 95 % interval."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    bands = {arm: run["band"] for arm in ARMS for run in _runs(store, arm) if "band" in run}
    figure, panels = plt.subplots(
        1, len(bands), figsize=(2.9 * len(bands), 3.4), layout="constrained", sharex=True,
        sharey=True, squeeze=False,
    )  # fmt: skip
    for ax, (arm, one) in zip(panels[0], bands.items(), strict=True):
        x, q = one["x"], one["quantiles"]
        ax.fill_between(x, q["0.025"], q["0.975"], color=TOTAL_FILL, label="95 % interval of y")
        ax.fill_between(
            x, q["0.25"], q["0.75"], color=EPISTEMIC_FILL, edgecolor=EPISTEMIC, linewidth=0.6,
            label="50 %",
        )  # fmt: skip
        ax.plot(*one["points"], "x", color="#444444", markersize=2.5, markeredgewidth=0.5,
                alpha=0.7, label="training points")  # fmt: skip
        ax.plot(x, one["truth"], ":", color=MEAN, linewidth=1, label="the curve")
        ax.plot(x, q["0.5"], color="#B00020", linewidth=1.3, label="median")
        ax.set(xlim=(x[0], x[-1]), ylim=(-1.25, 2.25), xlabel="x", xticks=(0, 0.5, 1))
        ax.set_title(ARMS[arm].title.replace(", ", ",\n"), fontsize="medium")
    panels[0][0].set_ylabel("y")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), frameon=False,
        fontsize="small",
    )  # fmt: skip
    figure.savefig(path, dpi=150)
    plt.close(figure)

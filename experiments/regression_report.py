"""Tables and picture of the regression curve."""

from pathlib import Path
from typing import Any

from posterax.plot.style import EPISTEMIC, EPISTEMIC_FILL, MEAN, TOTAL_FILL

from .pages import count, device, plus_minus, pyplot, save, table
from .pairs import estimates
from .regression import ARMS, LEVEL, PLACES
from .store import Store

PLAIN = ("rmse", "nll", "coverage", "inside", "outside", "seconds")
NOISE = 0.063  # root mean square of the curve's noise over [0, 0.5]
WIDENS = 3.0  # how many times as uncertain outside as inside counts as a warning


def _runs(store: Store, arm: str) -> list[dict[str, Any]]:
    return list(store.under(f"{arm}/").values())


def summary(store: Store) -> dict[str, Any]:
    """Means over the seeds, by method."""
    figures: dict[str, Any] = {}
    for arm in ARMS:
        if not (runs := _runs(store, arm)):
            continue
        one = estimates(runs, PLAIN)
        deviations = [run["deviation"] for run in runs]
        figures[arm] = one | {
            "deviation": estimates(deviations, deviations[0]),
            "seeds": len(runs),
            "widens": one["outside"]["mean"] > WIDENS * one["inside"]["mean"],
        }
    return figures


def page(store: Store) -> str:
    """Markdown: scores inside the data, deviations inside and outside."""
    figures, size, facts = summary(store), store.content["settings"], store.content["facts"]
    n = max(one["seeds"] for one in figures.values())
    widening = [ARMS[arm].title for arm, one in figures.items() if one["widens"]]
    rest = [ARMS[arm].title for arm, one in figures.items() if not one["widens"]]
    lines = [
        f"{count(n, 'seed')}, {size['points']:,} points to train on and as many to test, "
        f"{size['epochs']} epochs in batches of {size['batch_size']}, ensemble of "
        f"{size['members']}, {size['chains']} chains of {size['draws']} draws after "
        f"{size['warmup']} ({device(facts)}, jax {facts['jax']}; seconds include compilation).",
        "",
        f"Outside the data the mean epistemic deviation is more than {WIDENS:g} times that inside "
        f"for: {', '.join(widening) or 'none'}"
        + (f"; it is not for: {', '.join(rest)}." if rest else "."),
        "",
        "![Median, 50 % and 95 % intervals](regression.png)",
        "",
        _scores(figures),
        "",
        "The epistemic deviation at single places; training inputs lie in [0, 0.5]:",
        "",
        table(
            ["x =", *(f"{place:g}" for place in PLACES)],
            [
                [ARMS[arm].title, *(f"{d['mean']:.3f}" for d in one["deviation"].values())]
                for arm, one in figures.items()
            ],
        ),
    ]
    return "\n".join(lines)


def _scores(figures: dict[str, Any]) -> str:
    covers = f"{LEVEL:.0%} interval covers"
    heads = ("", "RMSE", "NLL", covers, "epistemic sd inside", "outside", "seconds")
    digits = {"rmse": 3, "nll": 3, "coverage": 1, "inside": 4, "outside": 3, "seconds": 0}
    rows = []
    for arm, one in figures.items():
        shown = {k: plus_minus(one[k], n) for k, n in digits.items()}
        shown["coverage"] = f"{plus_minus(one['coverage'], 1, 100)} %"
        shown["seconds"] = f"{one['seconds']['mean']:.0f}"
        rows.append([ARMS[arm].title, *shown.values()])
    return table(heads, rows)


def draw(store: Store, path: Path) -> None:
    """One panel a method, as figure 5 of the paper: median, interquartile range, 95 % interval."""
    plt = pyplot()
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
    save(figure, path)

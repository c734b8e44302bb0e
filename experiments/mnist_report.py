"""Tables and picture of the MNIST experiment."""

from pathlib import Path
from typing import Any

import numpy as np

from posterax.plot.style import CHAINS

from .mnist import CANDIDATES, HEADLINE, SAMPLES, Settings, choose, label
from .pages import count, device, percent, plus_minus, pyplot, save, table
from .pairs import estimates
from .store import Store

# Blundell et al. (2015), table 1: test error in % by the width of the two layers
PUBLISHED = {
    "SGD": {400: 1.83, 800: 1.84, 1200: 1.88},
    "dropout": {400: 1.51, 800: 1.33, 1200: 1.36},
    "BbB, Gaussian": {400: 1.82, 800: 1.99, 1200: 2.04},
    "BbB, scale mixture": {400: 1.36, 800: 1.34, 1200: 1.32},
    "BbB, scale mixture, KL weights 2^(M−i)": {400: 1.36, 800: 1.34, 1200: 1.32},
}
TITLES = {
    "SGD": "maximum likelihood",
    "dropout": "dropout",
    "BbB, Gaussian": "Bayes by Backprop, Gaussian prior",
    "BbB, scale mixture": "Bayes by Backprop, scale mixture",
    "BbB, scale mixture, KL weights 2^(M−i)": "Bayes by Backprop, mixture, KL weights 2^(M−i)",
}
OPTIMIZERS = {"sgd": "SGD", "adam": "Adam"}
BY = {"mean": "mean weights", "draws": f"{SAMPLES} draws"}
SECONDS = ("seconds to train", "seconds to predict")


def title(row: str, settings: Settings) -> str:
    """A row by what it was trained with: the study chose that, and the published row may differ.

    Example:
        >>> from experiments.mnist_report import title
        >>> title("SGD", {"optimizer": "adam"})
        'maximum likelihood (Adam)'
        >>> title("BbB, scale mixture", {"temperature": 0.1})
        'Bayes by Backprop, scale mixture, temperature 0.1'
    """
    if "temperature" in settings:
        return f"{TITLES[row]}, temperature {settings['temperature']:g}"
    return f"{TITLES[row]} ({OPTIMIZERS[settings.get('optimizer', 'adam')]})"


def finals(store: Store) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """The networks that were tested, by row and width; wide ones first, as in the settings."""
    named = [(name.split("/"), run) for name, run in store.under("test/").items()]
    return {
        (row, width): some
        for width in store.content["settings"]["widths"]
        for row in CANDIDATES
        if (some := [run for (r, w, _), run in named if (r, int(w)) == (row, width)])
    }


def summary(store: Store) -> dict[str, Any]:
    """Means over the seeds, by row, width and kind of prediction; the settings chosen."""
    figures: dict[str, Any] = {}
    for (row, width), runs in finals(store).items():
        one: dict[str, Any] = {by: estimates([run[by] for run in runs], runs[0][by]) for by in BY}
        one |= estimates(runs, SECONDS)
        one |= {"seeds": len(runs), "published error": PUBLISHED[row].get(width)}
        figures.setdefault(row, {"settings": runs[0]["settings"], "headline": HEADLINE[row]})
        figures[row][str(width)] = one
    return figures


def page(store: Store) -> str:
    """Markdown: errors beside the published ones, then what was tried and chosen."""
    figures, settings = summary(store), store.content["settings"]
    parts = [where(store, settings), verdict(figures, settings), "![Test errors](mnist.png)"]
    for width in settings["widths"]:
        parts += [f"### Two layers of {width}", _table(figures, str(width))]
    parts += ["### The settings", _chosen(figures)]
    if studied := [row for row in CANDIDATES if choose(store, row) is not None]:
        parts += [_protocol(settings)]
        parts += [tried(store, row, TITLES[row]) for row in studied]
    return "\n\n".join(parts)


def where(store: Store, settings: dict[str, Any]) -> str:
    """How many images and seeds, on which device, for how long."""
    facts = store.content["facts"]
    seeds = {name.rsplit("/", 1)[-1] for name in store.under("test/")}
    seconds = store.seconds
    took = f"{seconds / 60:.0f} minutes" if seconds > 120 else f"{seconds:.0f} s"
    return (
        f"{count(len(seeds), 'seed')}, {settings['images']:,} training and "
        f"{settings['test']:,} test images; {device(facts)}, jax {facts['jax']}, {took} "
        "in all. Mean ± standard error over the seeds. Seconds have the compilation in them."
    )


def verdict(figures: dict[str, Any], settings: dict[str, Any]) -> str:
    """Which published errors are reached, and which are not."""
    if settings["budget"] != "full":
        return (
            f"This is the budget `{settings['budget']}`: smaller and shorter than the paper's "
            "runs, so that its errors are no answer to theirs."
        )
    width = settings["widths"][0]
    reached: list[str] = []
    missed: list[str] = []
    for row, one in figures.items():
        if (ours := one.get(str(width))) is None:
            continue
        error = 100 * ours[HEADLINE[row]]["error"]["mean"]
        name = title(row, one["settings"])
        text = f"{name} with {error:.2f} % against {PUBLISHED[row][width]:.2f} %"
        (reached if round(error, 2) <= PUBLISHED[row][width] else missed).append(text)
    lines = [f"At or below the published error with {width} units: {'; '.join(reached) or 'none'}."]
    if missed:
        lines.append(f"**Missed**: {'; '.join(missed)}.")
    if cold := _cold(figures):
        lines.append(f"What has a temperature below 1 ({'; '.join(cold)}) is a cold posterior.")
    return " ".join(lines)


def _cold(figures: dict[str, Any]) -> list[str]:
    """Which rows have no posterior of Bayes' rule."""
    temperatures = {row: one["settings"].get("temperature", 1.0) for row, one in figures.items()}
    return [f"{TITLES[row]}: KL × {t:g}" for row, t in temperatures.items() if t < 1]


def _table(figures: dict[str, Any], width: str) -> str:
    heads = ("test error, %", "published", "ours", "by mean weights", "by 50 draws")
    rows = []
    for row, by_width in figures.items():
        if (one := by_width.get(width)) is None:
            continue
        head = one[HEADLINE[row]]
        rows.append([
            title(row, by_width["settings"]),
            "–" if one["published error"] is None else f"{one['published error']:.2f}",
            f"**{percent(head['error'])}**",
            percent(one["mean"]["error"]),
            "–" if row == "SGD" else percent(one["draws"]["error"]),
            plus_minus(head["nll"], 4),
            percent(head["ece"]),
            f"{one['seconds to train']['mean']:.0f}",
        ])  # fmt: skip
    lines = [
        table([*heads, "NLL", "ECE, %", "seconds to train"], rows),
        "",
        f"*Ours*, NLL and ECE are by the average over {SAMPLES} posterior draws for Bayes by "
        "Backprop, and by the mean weights for the other two, as published (dropout is off at "
        "prediction). This was fixed before the runs, not by which is better. The published rows "
        "without a posterior were trained by SGD.",
    ]
    if cold := _cold(figures):
        lines += [
            "",
            "A temperature multiplies the KL; below 1 it makes a cold posterior, not that of "
            f"Bayes' rule ({'; '.join(cold)}). With temperature 1 the KL counts in full.",
        ]
    return "\n".join(lines)


def _chosen(figures: dict[str, Any]) -> str:
    return "\n".join(
        f"- {title(row, one['settings'])}: {label(one['settings'])}."
        for row, one in figures.items()
    )


def _protocol(settings: dict[str, Any]) -> str:
    train = settings["images"] - settings["held"]
    seeds = settings["study_seeds"]
    return (
        f"Chosen by the error (then the NLL) on {settings['held']:,} validation images, trained on "
        f"the other {train:,} for {100 * settings['study']:.0f} % of the epochs, mean of "
        f"{count(seeds, 'seed')} that {'are' if seeds > 1 else 'is'} not reported. "
        "All that was tried, best first:"
    )


def tried(store: Store, row: str, title: str) -> str:
    """A folded table of all candidates of a row with their validation figures."""
    studied = store.under(f"study/{row}/").items()
    runs = sorted(studied, key=lambda one: (round(one[1]["error"], 9), one[1]["nll"]))
    parts = list(runs[0][1].get("by fraction", ()))  # of the weights, where some are pruned
    heads = ["validation error, %", "NLL", *(f"{100 * float(f):g} % removed" for f in parts)]
    lines = [
        f"<details><summary>{title}: {len(runs)} candidates</summary>", "",
        f"The others of their settings: {label(_common(runs))}.", "",
    ]  # fmt: skip
    rows = []
    for text, run in runs:
        cells = [f"{100 * run['error']:.3f}", f"{run['nll']:.4f}"]
        cells += [f"{100 * run['by fraction'][f]['error']:.3f}" for f in parts]
        rows.append([text, *cells])
    return "\n".join([*lines, table(["candidate", *heads], rows), "", "</details>"])


def _common(runs: list[tuple[str, dict[str, Any]]]) -> Settings:
    """What candidates leave to the defaults, all or some of them."""
    said = [{part.split(" ")[0] for part in text.split(", ")} for text, _ in runs]
    pairs = list(zip(said, (run["settings"] for _, run in runs), strict=True))
    return {
        k: next(settings[k] for own, settings in pairs if k not in own)
        for k in pairs[0][1]
        if any(k not in own for own, _ in pairs)
    }


def draw(store: Store, path: Path) -> None:
    """Test errors seed by seed, their means, and the published ones."""
    plt = pyplot()
    widths = store.content["settings"]["widths"]
    figure, grid = plt.subplots(
        1, len(widths), figsize=(3.3 + 3.2 * len(widths), 3), layout="constrained",
        sharex=True, sharey=True, squeeze=False,
    )  # fmt: skip
    chosen = {row: runs[0]["settings"] for (row, _), runs in finals(store).items()}
    rows = [row for row in CANDIDATES if row in chosen]
    named = [title(row, chosen[row]).replace("Backprop, ", "Backprop,\n") for row in rows]
    for axes, width in zip(grid[0], widths, strict=True):
        for (row, own), runs in finals(store).items():
            if own != width:
                continue
            place = -rows.index(row)
            errors = [100 * run[HEADLINE[row]]["error"] for run in runs]
            first = row == rows[0]
            axes.plot(
                errors, np.full(len(errors), place), "o", color=CHAINS[0], alpha=0.45,
                markersize=5, label="ours, seed by seed" if first else None,
            )  # fmt: skip
            axes.plot(
                np.mean(errors), place, "|", color=CHAINS[0], markersize=18, markeredgewidth=2,
                label="ours, mean" if first else None,
            )  # fmt: skip
            if width in PUBLISHED[row]:
                axes.plot(
                    PUBLISHED[row][width], place, "D", color="white", markeredgecolor=CHAINS[1],
                    markersize=6, markeredgewidth=1.5, label="published" if first else None,
                )  # fmt: skip
        axes.set_title(f"two layers of {width}", fontsize="medium")
        axes.set_xlabel("test error, %")
        axes.grid(axis="x", alpha=0.3)
    grid[0][0].set_yticks([-i for i in range(len(rows))], named, fontsize="small")
    grid[0][0].set_ylim(-len(rows) + 0.5, 0.5)
    handles, names = grid[0][0].get_legend_handles_labels()
    figure.legend(
        handles, names, loc="outside lower center", ncol=3, frameon=False, fontsize="small"
    )
    save(figure, path)

"""Tables and picture of the pruning experiment."""

from pathlib import Path
from typing import Any

import numpy as np

from ..plot.style import CHAINS, EPISTEMIC, EPISTEMIC_FILL, MEAN
from .mnist import SAMPLES, choose, label
from .mnist_report import BY, percent, tried, where
from .pairs import estimate
from .pruning import FRACTIONS, HEADLINE, JUDGED, ROW
from .store import Store

# Blundell et al. (2015), table 2: test error in % by the share of weights removed
PUBLISHED = {"0": 1.24, "0.5": 1.24, "0.75": 1.24, "0.95": 1.29, "0.98": 1.39}
MOST_WHOLE, MOST_MORE = 1.6, {"0.75": 0.1, "0.95": 0.1, "0.98": 0.2}  # %, and points above it
COSTS = ("bytes", "seconds to predict")
SCORES = ("error", "nll", "ece")


def finals(store: Store) -> list[dict[str, Any]]:
    """The networks that were tested."""
    return [run for name, run in store.runs.items() if name.startswith("test/")]


def summary(store: Store) -> dict[str, Any]:
    """Means over the seeds by fraction; ``more`` is the error above the whole network's."""
    runs = finals(store)
    found: dict[str, Any] = {"settings": runs[0]["settings"], "headline": HEADLINE}
    for fraction in PUBLISHED:
        parts = [run["fractions"][fraction] for run in runs]
        one = {by: _means([part[by] for part in parts], SCORES) for by in BY}
        if fraction != "0":
            one["tuned"] = {by: _means([part["tuned"][by] for part in parts], SCORES) for by in BY}
            whole = [run["fractions"]["0"][HEADLINE]["error"] for run in runs]
            more = np.subtract([part[HEADLINE]["error"] for part in parts], whole)
            one["more"] = estimate(more)._asdict()
            small = [part["compact"] for part in parts]
            one["compact"] = _means(small, COSTS)
            one["compact"]["units"] = np.mean([part["units"] for part in small], 0).tolist()
        found[fraction] = one | _means(parts, COSTS)
    return found | _means(runs, ("seconds to train",))


def _means(parts: list[dict[str, Any]], names: tuple[str, ...]) -> dict[str, Any]:
    return {k: estimate([part[k] for part in parts])._asdict() for k in names}


def page(store: Store) -> str:
    """Markdown: errors beside the published ones, sizes and speed, then what was tried."""
    found, settings = summary(store), store.content["settings"]
    width, weights = settings["width"], finals(store)[0]["ratios"]["weights"]
    parts = [
        f"784-{width}-{width}-10, {weights:,} weights. {where(store, settings)}",
        _verdict(found, settings),
        "![Errors by the share of weights removed, and the density of the ratios](pruning.png)",
        "### Without fine-tuning",
        _errors(found),
        "### With fine-tuning",
        f"{settings['tuning_epochs']:g} more epoch{'s' * (settings['tuning_epochs'] > 1)} of the "
        f"weights that are left, at a rate of {settings['tuning_rate']:g} that falls along a "
        "cosine, with the mask fixed.",
        _tuned(found),
        "### Size and speed",
        f"The file that `posterior.save` writes, and the seconds of a prediction of "
        f"{settings['test']:,} images by {SAMPLES} draws, compiled before; *compact* is the same "
        "posterior without the hidden units that pruning left without a use "
        "(`px.pruning.compact`).",
        _sizes(found),
        "### The settings",
        f"{label(found['settings'])}.",
    ]
    if choose(store, ROW) is not None:
        train, seeds = settings["images"] - settings["held"], settings["study_seeds"]
        judged = " and ".join(f"{100 * f:g}" for f in JUDGED)
        parts += [
            f"Chosen by the mean error (then the NLL) after pruning {judged} % on "
            f"{settings['held']:,} validation images, by {SAMPLES} draws, trained on the other "
            f"{train:,} for {100 * settings['study']:.0f} % of the epochs, mean of {seeds} "
            f"seed{'s' * (seeds > 1)} not reported. All that was tried, best first:",
            tried(store, ROW, "Bayes by Backprop, scale mixture"),
        ]
    return "\n\n".join(parts)


def _verdict(found: dict[str, Any], settings: dict[str, Any]) -> str:
    if settings["budget"] != "full":
        return (
            f"This is the budget `{settings['budget']}`: smaller and shorter than the paper's "
            "run, so that its errors are no answer to theirs."
        )
    whole = 100 * found["0"][HEADLINE]["error"]["mean"]
    more = {f: round(100 * found[f]["more"]["mean"], 2) for f in MOST_MORE}
    held = whole <= MOST_WHOLE and all(more[f] <= most for f, most in MOST_MORE.items())
    rises = " / ".join(f"{v:+.2f}".replace("-", "−") for v in more.values())
    limits = " / ".join(f"+{v}" for v in MOST_MORE.values())
    at = " / ".join(f"{100 * float(f):g}" for f in MOST_MORE)
    above = [f for f in PUBLISHED if 100 * found[f][HEADLINE]["error"]["mean"] > PUBLISHED[f]]
    text = (
        f"The line to hold, one network at {MOST_WHOLE} % or less that loses no more than {limits} "
        f"points at {at} % removed, is {'held' if held else '**missed**'}: {whole:.2f} %, {rises}."
    )
    if above:
        places = ", ".join(f"{100 * float(f):g}" for f in above)
        return f"{text} The published errors are not reached at {places} %."
    return f"{text} All five errors are at or below the published ones."


def _errors(found: dict[str, Any]) -> str:
    lines = [
        f"| removed | published | ours, by {BY['draws']} | more than whole, points | "
        f"by {BY['mean']} | NLL | ECE, % |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for fraction, theirs in PUBLISHED.items():
        one = found[fraction]
        head = one[HEADLINE]
        more = percent(one["more"]).replace("-", "−") if "more" in one else "–"
        lines.append(
            f"| {100 * float(fraction):g} % | {theirs:.2f} | **{percent(head['error'])}** | {more} "
            f"| {percent(one['mean']['error'])} | {head['nll']['mean']:.4f} | "
            f"{percent(head['ece'])} |"
        )
    return "\n".join(lines)


def _tuned(found: dict[str, Any]) -> str:
    lines = [
        f"| removed | test error, % by {BY['draws']} | by {BY['mean']} | NLL | ECE, % |",
        "| ---: | ---: | ---: | ---: | ---: |",
    ]
    for fraction in map("{:g}".format, FRACTIONS):
        one = found[fraction]["tuned"]
        lines.append(
            f"| {100 * float(fraction):g} % | {percent(one['draws']['error'])} | "
            f"{percent(one['mean']['error'])} | {one['draws']['nll']['mean']:.4f} | "
            f"{percent(one['draws']['ece'])} |"
        )
    return "\n".join(lines)


def _sizes(found: dict[str, Any]) -> str:
    lines = [
        "| removed | file, MB | seconds to predict | units left | compact: file, MB | seconds |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for fraction in PUBLISHED:
        one = found[fraction]
        cells = _cost(one)
        if "compact" in one:
            units = " + ".join(f"{n:.0f}" for n in one["compact"]["units"])
            cells += [units, *_cost(one["compact"])]
        else:
            cells += ["all", "–", "–"]
        lines.append(f"| {100 * float(fraction):g} % | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cost(one: dict[str, Any]) -> list[str]:
    return [f"{one['bytes']['mean'] / 1e6:.2f}", f"{one['seconds to predict']['mean']:.2f}"]


def draw(store: Store, path: Path) -> None:
    """Error against the share removed, ours and the published; the density of the ratios."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    runs = finals(store)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.4), layout="constrained")
    # by what is left, on a logarithmic axis, or 95 and 98 % would be one place
    kept = [1 - float(f) for f in PUBLISHED]
    for run in runs:
        parts = run["fractions"]
        errors = [100 * parts[f][HEADLINE]["error"] for f in PUBLISHED]
        left.plot(kept, errors, "-", color=CHAINS[0], alpha=0.3, linewidth=1)
    means = [np.mean([100 * r["fractions"][f][HEADLINE]["error"] for r in runs]) for f in PUBLISHED]
    left.plot(kept, means, "o-", color=CHAINS[0], label="ours, mean (thin: each seed)")
    tuned = [
        np.mean([100 * r["fractions"][f]["tuned"][HEADLINE]["error"] for r in runs])
        for f in map("{:g}".format, FRACTIONS)
    ]
    left.plot(
        kept[1:], tuned, "^:", color=CHAINS[2], label="ours, fine-tuned", markersize=5
    )  # fmt: skip
    left.plot(
        kept, list(PUBLISHED.values()), "D--", color=CHAINS[1], markerfacecolor="white",
        label="published", markersize=5,
    )  # fmt: skip
    left.set_xscale("log")
    left.invert_xaxis()
    left.set_xticks(kept, [f"{100 * float(f):g}" for f in PUBLISHED])
    left.set_xticks([], minor=True)
    left.set(xlabel="weights removed, %", ylabel="test error, %")
    each = [100 * r["fractions"][f][HEADLINE]["error"] for r in runs for f in PUBLISHED]
    low, high = min(*each, *tuned, *PUBLISHED.values()), max(*each, *tuned, *PUBLISHED.values())
    # from 1 %, where there is room: from 0 the curves would be one
    left.set_ylim(1.0 if low > 1.0 else 0.0, high + 0.1 * (high - min(low, 1.0)))
    left.grid(alpha=0.3)
    left.legend(frameon=False, fontsize="small", loc="best")

    ratios = runs[0]["ratios"]
    right.stairs(
        ratios["density"], ratios["edges"], fill=True, facecolor=EPISTEMIC_FILL,
        edgecolor=EPISTEMIC, linewidth=0.8,
    )  # fmt: skip
    top = 1.35 * max(ratios["density"])
    for fraction, place in list(ratios["at"].items())[1:]:
        right.axvline(place, color=MEAN, linestyle=(0, (5, 1.5)), linewidth=1)
        right.text(
            place, 0.98 * top, f"{100 * float(fraction):g} % below", ha="right", va="top",
            rotation=90, fontsize="x-small", color=MEAN,
        )  # fmt: skip
    right.set_ylim(0, top)
    right.set(xlabel="signal-to-noise |μ| / σ (dB)", ylabel="density (1 / dB)")
    figure.savefig(path, dpi=150)
    plt.close(figure)

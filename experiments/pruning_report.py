"""Tables and picture of the pruning experiment."""

from pathlib import Path
from typing import Any

import numpy as np

from posterax.plot.style import CHAINS, EPISTEMIC, EPISTEMIC_FILL, MEAN

from .mnist import SAMPLES, choose, label
from .mnist_report import BY, tried, where
from .pages import count, percent, pyplot, save, table
from .pairs import estimate, estimates
from .pruning import FRACTIONS, HEADLINE, JUDGED, ROW
from .store import Store

# Blundell et al. (2015), table 2: test error in % by the share of weights removed
PUBLISHED = {"0": 1.24, "0.5": 1.24, "0.75": 1.24, "0.95": 1.29, "0.98": 1.39}
MOST_WHOLE, MOST_MORE = 1.6, {"0.75": 0.1, "0.95": 0.1, "0.98": 0.2}  # %, and points above it
COSTS = ("bytes", "seconds to predict")
SCORES = ("error", "nll", "ece")


def finals(store: Store) -> list[dict[str, Any]]:
    """The networks that were tested."""
    return list(store.under("test/").values())


def summary(store: Store) -> dict[str, Any]:
    """Means over the seeds by fraction; ``more`` is the error above the whole network's."""
    runs = finals(store)
    figures: dict[str, Any] = {"settings": runs[0]["settings"], "headline": HEADLINE}
    for fraction in PUBLISHED:
        parts = [run["fractions"][fraction] for run in runs]
        one = {by: estimates([part[by] for part in parts], SCORES) for by in BY}
        if fraction != "0":
            tuned = [part["tuned"] for part in parts]
            one["tuned"] = {by: estimates([part[by] for part in tuned], SCORES) for by in BY}
            whole = [run["fractions"]["0"][HEADLINE]["error"] for run in runs]
            more = np.subtract([part[HEADLINE]["error"] for part in parts], whole)
            one["more"] = estimate(more)._asdict()
            small = [part["compact"] for part in parts]
            one["compact"] = estimates(small, COSTS)
            one["compact"]["units"] = np.mean([part["units"] for part in small], 0).tolist()
        figures[fraction] = one | estimates(parts, COSTS)
    return figures | estimates(runs, ("seconds to train",))


def page(store: Store) -> str:
    """Markdown: errors beside the published ones, sizes and speed, then what was tried."""
    figures, settings = summary(store), store.content["settings"]
    width, weights = settings["width"], finals(store)[0]["ratios"]["weights"]
    parts = [
        f"784-{width}-{width}-10, {weights:,} weights. {where(store, settings)}",
        _verdict(figures, settings),
        "![Errors by the share of weights removed, and the density of the ratios](pruning.png)",
        "### Without fine-tuning",
        _errors(figures),
        "### With fine-tuning",
        f"{settings['tuning_epochs']:g} more epoch{'s' * (settings['tuning_epochs'] > 1)} of the "
        f"weights that are left, at a rate of {settings['tuning_rate']:g} that falls along a "
        "cosine, with the mask fixed.",
        _tuned(figures),
        "### Size and speed",
        f"The file that `posterior.save` writes, and the seconds of a prediction of "
        f"{settings['test']:,} images by {SAMPLES} draws, compiled before; *compact* is the same "
        "posterior without the hidden units that pruning left without a use "
        "(`px.pruning.compact`).",
        _sizes(figures),
        "### The settings",
        f"{label(figures['settings'])}.",
    ]
    if choose(store, ROW) is not None:
        train, seeds = settings["images"] - settings["held"], settings["study_seeds"]
        judged = " and ".join(f"{100 * f:g}" for f in JUDGED)
        parts += [
            f"Chosen by the mean error (then the NLL) after pruning {judged} % on "
            f"{settings['held']:,} validation images, by {SAMPLES} draws, trained on the other "
            f"{train:,} for {100 * settings['study']:.0f} % of the epochs, mean of "
            f"{count(seeds, 'seed')} not reported. All that was tried, best first:",
            tried(store, ROW, "Bayes by Backprop, scale mixture"),
        ]
    return "\n\n".join(parts)


def _verdict(figures: dict[str, Any], settings: dict[str, Any]) -> str:
    if settings["budget"] != "full":
        return (
            f"This is the budget `{settings['budget']}`: smaller and shorter than the paper's "
            "run, so that its errors are no answer to theirs."
        )
    whole = 100 * figures["0"][HEADLINE]["error"]["mean"]
    more = {f: round(100 * figures[f]["more"]["mean"], 2) for f in MOST_MORE}
    held = whole <= MOST_WHOLE and all(more[f] <= most for f, most in MOST_MORE.items())
    rises = " / ".join(f"{v:+.2f}".replace("-", "−") for v in more.values())
    limits = " / ".join(f"+{v}" for v in MOST_MORE.values())
    at = " / ".join(f"{100 * float(f):g}" for f in MOST_MORE)
    above = [f for f in PUBLISHED if 100 * figures[f][HEADLINE]["error"]["mean"] > PUBLISHED[f]]
    text = (
        f"The line to hold, one network at {MOST_WHOLE} % or less that loses no more than {limits} "
        f"points at {at} % removed, is {'held' if held else '**missed**'}: {whole:.2f} %, {rises}."
    )
    if above:
        places = ", ".join(f"{100 * float(f):g}" for f in above)
        return f"{text} The published errors are not reached at {places} %."
    return f"{text} All five errors are at or below the published ones."


def _errors(figures: dict[str, Any]) -> str:
    rows = []
    for fraction, theirs in PUBLISHED.items():
        one = figures[fraction]
        head = one[HEADLINE]
        more = percent(one["more"]).replace("-", "−") if "more" in one else "–"
        errors = [f"{theirs:.2f}", f"**{percent(head['error'])}**", more]
        rows.append([_removed(fraction), *errors, *_scores(one["mean"], head)])
    ours = f"ours, by {BY['draws']}"
    heads = ("removed", "published", ours, "more than whole, points", f"by {BY['mean']}")
    return table([*heads, "NLL", "ECE, %"], rows, "r" * 7)


def _tuned(figures: dict[str, Any]) -> str:
    rows = []
    for fraction in map("{:g}".format, FRACTIONS):
        one = figures[fraction]["tuned"]
        draws = one["draws"]
        rows.append([_removed(fraction), percent(draws["error"]), *_scores(one["mean"], draws)])
    heads = ("removed", f"test error, % by {BY['draws']}", f"by {BY['mean']}", "NLL", "ECE, %")
    return table(heads, rows, "r" * 5)


def _removed(fraction: str) -> str:
    return f"{100 * float(fraction):g} %"


def _scores(mean: dict[str, Any], head: dict[str, Any]) -> list[str]:
    """The error by mean weights, and the other scores of the headline."""
    return [percent(mean["error"]), f"{head['nll']['mean']:.4f}", percent(head["ece"])]


def _sizes(figures: dict[str, Any]) -> str:
    rows = []
    for fraction in PUBLISHED:
        one = figures[fraction]
        compact = ["all", "–", "–"]
        if "compact" in one:
            units = " + ".join(f"{n:.0f}" for n in one["compact"]["units"])
            compact = [units, *_cost(one["compact"])]
        rows.append([_removed(fraction), *_cost(one), *compact])
    heads = ("removed", "file, MB", "seconds to predict", "units left", "compact: file, MB")
    return table([*heads, "seconds"], rows, "r" * 6)


def _cost(one: dict[str, Any]) -> list[str]:
    return [f"{one['bytes']['mean'] / 1e6:.2f}", f"{one['seconds to predict']['mean']:.2f}"]


def draw(store: Store, path: Path) -> None:
    """Error against the share removed, ours and the published; the density of the ratios."""
    plt = pyplot()
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
    save(figure, path)

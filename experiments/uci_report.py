"""Tables and picture of the UCI experiment, beside the published figures."""

from pathlib import Path
from typing import Any

import numpy as np

from posterax.plot.style import CHAINS, MARKERS

from .pages import device, plus_minus, pyplot, save, table
from .pairs import estimates
from .store import Store
from .uci import choose, study_name, words
from .uci_arms import ARMS, Work
from .uci_data import SETS

FIGURES = {"rmse": "RMSE", "log likelihood": "log likelihood"}
BETTER = {"rmse": -1, "log likelihood": 1}  # the sign of what is better

# Hernández-Lobato and Adams 2015 (VI is Graves 2011), Gal and Ghahramani 2016 with the corrected
# figures of their repository, Lakshminarayanan et al. 2017; means over the splits
PUBLISHED: dict[str, dict[str, dict[str, float]]] = {
    "rmse": {
        "VI": dict(boston=4.32, concrete=7.19, power=4.33, protein=4.84, wine=0.65, yacht=6.89),
        "PBP": dict(boston=3.01, concrete=5.67, power=4.12, protein=4.73, wine=0.64, yacht=1.02),
        "MC dropout": dict(
            boston=2.97, concrete=5.23, power=4.02, protein=4.36, wine=0.62, yacht=1.11
        ),
        "deep ensembles": dict(
            boston=3.28, concrete=6.03, power=4.11, protein=4.71, wine=0.64, yacht=1.58
        ),
    },
    "log likelihood": {
        "VI": dict(
            boston=-2.90, concrete=-3.39, power=-2.89, protein=-2.99, wine=-0.98, yacht=-3.43
        ),
        "PBP": dict(
            boston=-2.57, concrete=-3.16, power=-2.84, protein=-2.97, wine=-0.97, yacht=-1.63
        ),
        "MC dropout": dict(
            boston=-2.46, concrete=-3.04, power=-2.80, protein=-2.89, wine=-0.93, yacht=-1.55
        ),
        "deep ensembles": dict(
            boston=-2.41, concrete=-3.06, power=-2.79, protein=-2.83, wine=-0.94, yacht=-1.18
        ),
    },
}


def results(store: Store) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """The runs on test rows, by method and set."""
    return {
        arm: {
            name: runs
            for name in store.content["settings"]["sets"]
            if (runs := list(store.under(f"{arm}/{name}/").values()))
        }
        for arm in ARMS
    }


def study(store: Store) -> dict[str, dict[str, dict[str, Any]]]:
    """What was chosen for each set and method, and its mean figures on held-out rows."""
    figures: dict[str, dict[str, dict[str, Any]]] = {}
    if not store.content["settings"]["study"]:
        return figures
    for arm in ARMS:
        for name, numbers in store.content["settings"]["work"].items():
            work = Work(**numbers)
            candidates = ARMS[arm].candidates(work)
            if study_name(arm, name, candidates[-1], work.study - 1) not in store.runs:
                continue
            chosen = choose(arm, name, candidates, work.study, store)
            runs = [store.runs[study_name(arm, name, chosen, k)] for k in range(work.study)]
            means = {figure: float(np.mean([r[figure] for r in runs])) for figure in FIGURES}
            figures.setdefault(arm, {})[name] = means | {
                "settings": chosen, "candidates": len(candidates), "splits": work.study,
            }  # fmt: skip
    return figures


def best_arm(figures: dict[str, dict[str, dict[str, Any]]]) -> str | None:
    """The method with the best log likelihood of held-out rows, mean over the sets."""
    if not figures:
        return None
    sets = set.intersection(*(set(by) for by in figures.values()))

    def score(arm: str) -> float:
        return float(np.mean([figures[arm][name]["log likelihood"] for name in sets]))

    return max(figures, key=score) if sets else None


def summary(store: Store) -> dict[str, Any]:
    """Means over the splits, the study, and how many sets are better than what was published."""
    figures: dict[str, Any] = {
        arm: {
            name: estimates(runs, (*FIGURES, "seconds"))
            | {"splits": len(runs), "settings": runs[0]["settings"]}
            for name, runs in by.items()
        }
        for arm, by in results(store).items()
    }
    chosen = study(store)
    marks = {
        arm: {
            reference: {
                figure: [n for n, f in by.items() if beats(f[figure]["mean"], figure, reference, n)]
                for figure in FIGURES
            }
            for reference in PUBLISHED["rmse"]
        }
        for arm, by in figures.items()
    }
    return {"arms": figures, "study": chosen, "chosen": best_arm(chosen), "better": marks}


def beats(value: float, figure: str, reference: str, name: str) -> bool:
    """Whether a figure is better than the published one.

    Example:
        >>> from experiments.uci_report import beats
        >>> beats(-0.93, "log likelihood", "deep ensembles", "wine")
        True
    """
    return BETTER[figure] * (value - PUBLISHED[figure][reference][name]) > 0


def page(store: Store) -> str:
    """Markdown: both figures of every method on every set, the marks, the study."""
    figures = summary(store)
    sets = [name for name in SETS if any(name in by for by in figures["arms"].values())]
    parts = [_where(store, figures, sets), _verdict(figures, sets), "![Log likelihoods](uci.png)"]
    for figure, title in FIGURES.items():
        parts.append(f"Test {title}, mean ± standard error over the splits:")
        parts.append(_table(figure, figures["arms"], sets))
    if figures["study"]:
        parts += [_study_words(figures), _study_table(figures["study"])]
    return "\n\n".join(parts)


def _where(store: Store, figures: dict[str, Any], sets: list[str]) -> str:
    facts = store.content["facts"]
    everywhere = [facts] + [r["facts"] for r in store.runs.values() if "facts" in r]
    devices = sorted(set(map(device, everywhere)))
    counts = {name: max(by[name]["splits"] for by in figures["arms"].values()) for name in sets}
    splits = ", ".join(f"{name} {count}" for name, count in counts.items())
    return (
        f"Splits: {splits}. {len(store.runs):,} fits, {store.seconds / 60:.0f} minutes of them, "
        f"compilation included ({' and '.join(devices)}, jax {facts['jax']})."
    )


def _verdict(figures: dict[str, Any], sets: list[str]) -> str:
    n = len(sets)

    def count(arm: str, reference: str, figure: str) -> str:
        better = figures["better"][arm][reference][figure]
        rest = [name for name in sets if name not in better]
        return f"{len(better)} of {n}" + (f" (not {', '.join(rest)})" if rest else "")

    lines = [
        f"- Bayes by Backprop against {reference}: better RMSE on "
        f"{count('bbb', reference, 'rmse')}, better log likelihood on "
        f"{count('bbb', reference, 'log likelihood')}."
        for reference in ("VI", "PBP")
    ]
    chosen = figures["chosen"]
    if chosen:
        lines.append(
            f"- The method that held-out rows chose, {ARMS[chosen].title}, against deep ensembles: "
            f"better log likelihood on {count(chosen, 'deep ensembles', 'log likelihood')}."
        )
    return "\n".join(lines)


def _table(figure: str, arms: dict[str, Any], sets: list[str]) -> str:
    digits = {n: 3 if n == "wine" or (figure == "rmse" and n == "yacht") else 2 for n in sets}
    rows = [
        [f"{title}, published", *(f"{values[n]:.2f}" for n in sets)]
        for title, values in PUBLISHED[figure].items()
    ]
    for arm, by in arms.items():
        cells = [plus_minus(by[n][figure], digits[n]) if n in by else "–" for n in sets]
        rows.append([f"**{ARMS[arm].title}**", *cells])
    return table(["", *sets], rows)


def _study_words(figures: dict[str, Any]) -> str:
    means = {
        arm: np.mean([one["log likelihood"] for one in by.values()])
        for arm, by in figures["study"].items()
    }
    shown = ", ".join(f"{ARMS[arm].title} {mean:.3f}" for arm, mean in means.items())
    return (
        "The study: the best candidate of each method and set by the mean log likelihood of "
        f"held-out rows. Mean of these over the sets: {shown}."
    )


def _study_table(figures: dict[str, dict[str, dict[str, Any]]]) -> str:
    heads = ["method", "set", "chosen", "of", "on the training rows of splits", *FIGURES.values()]
    rows = []
    for arm, by in figures.items():
        for name, one in by.items():
            splits = "0" if one["splits"] == 1 else f"0–{one['splits'] - 1}"
            chosen = [words(one["settings"]), str(one["candidates"]), splits]
            rows.append([ARMS[arm].title, name, *chosen, *(f"{one[k]:.3f}" for k in FIGURES)])
    return table(heads, rows, "lllrlrr")


def draw(store: Store, path: Path) -> None:
    """Log likelihood less that of deep ensembles, set by set, for every method."""
    plt = pyplot()
    figures = summary(store)["arms"]
    sets = [name for name in SETS if any(name in by for by in figures.values())]
    zero = PUBLISHED["log likelihood"]["deep ensembles"]
    figure, ax = plt.subplots(figsize=(7.5, 0.75 * len(sets) + 1.6), layout="constrained")
    rows = -np.arange(len(sets))
    shifts = np.linspace(0.3, -0.3, len(figures) + 3)
    ax.axvline(0, color="#555555", linestyle=":", linewidth=1)
    for i, (reference, marker) in enumerate((("VI", "1"), ("PBP", "2"), ("MC dropout", "3"))):
        values = [PUBLISHED["log likelihood"][reference][n] - zero[n] for n in sets]
        ax.plot(
            values, rows + shifts[i], marker, color="#777777", markersize=8,
            label=f"{reference}, published",
        )  # fmt: skip
    for i, (arm, by) in enumerate(figures.items()):
        there = [k for k, n in enumerate(sets) if n in by]
        own = [by[sets[k]]["log likelihood"] for k in there]
        values = [f["mean"] - zero[sets[k]] for f, k in zip(own, there, strict=True)]
        errors = np.nan_to_num([f["error"] for f in own])
        ax.errorbar(
            values, rows[there] + shifts[3 + i], xerr=errors, fmt=MARKERS[i], color=CHAINS[i],
            capsize=2, markersize=5, label=ARMS[arm].title,
        )  # fmt: skip
    ax.set_yticks(rows, sets)
    ax.set_xscale("symlog", linthresh=0.1, linscale=0.8)
    ticks = (-2, -0.5, -0.1, 0, 0.1, 0.5, 1)
    ax.set_xticks(ticks, [f"{t:+g}" if t else "0" for t in ticks])
    ax.minorticks_off()
    ax.set_xlim(-3, 2)
    ax.set_xlabel("test log likelihood, less that of deep ensembles (published): right is better")
    ax.grid(axis="x", alpha=0.3)
    figure.legend(fontsize="small", loc="outside lower center", ncols=2, frameon=False)
    save(figure, path)

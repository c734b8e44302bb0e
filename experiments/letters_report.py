"""Tables and picture of the letters experiment."""

from pathlib import Path
from typing import Any

import numpy as np

from posterax.plot.style import CHAINS

from .pages import count, device, plus_minus, pyplot, save, table
from .pairs import estimates
from .store import Store

SETS = {"notMNIST": "notMNIST's letters", "Fashion-MNIST": "Fashion-MNIST's clothes"}
SCORES = {
    "epistemic": "mutual information",
    "total": "total entropy",
    "confidence": "1 − the largest probability",
}
PLAIN = ("accuracy", "nll", "ece", "seconds to train", "seconds to predict")


def _final(store: Store) -> list[dict[str, Any]]:
    return list(store.under("letters/").values())


def summary(store: Store) -> dict[str, Any]:
    """Means over the seeds."""
    runs = _final(store)
    away = {name: estimates([run[name] for run in runs], runs[0][name]) for name in SETS}
    return estimates(runs, PLAIN) | away


def page(store: Store) -> str:
    """Markdown: AUROC by each score; where there is a study, what it compared."""
    figures, settings, facts = summary(store), store.content["settings"], store.content["facts"]
    seconds = figures["seconds to train"]["mean"], figures["seconds to predict"]["mean"]
    lines = [
        f"{count(len(_final(store)), 'seed')}; {settings['members']} anchored members "
        f"784-{settings['width']}-{settings['width']}-10, prior N(0, {settings['scale']:g}²), "
        f"{settings['images']:,} digits, {settings['epochs']:g} epochs in batches of "
        f"{settings['batch_size']}, Adam at {settings['learning_rate']:g} falling along a cosine. "
        f"{seconds[0]:.0f} s to train, {seconds[1]:.0f} s to predict, compilation included "
        f"({device(facts)}, jax {facts['jax']}). On {settings['test']:,} test digits: accuracy "
        f"{100 * figures['accuracy']['mean']:.2f} %, NLL {figures['nll']['mean']:.4f}, "
        f"calibration error {100 * figures['ece']['mean']:.2f} %.",
        table(
            ["AUROC against test digits, by", *SETS.values()],
            [
                [title, *(plus_minus(figures[name][f"auroc {score}"], 4) for name in SETS)]
                for score, title in SCORES.items()
            ],
        ),
    ]
    if study := store.under("study/"):
        lines += ["The study that chose the prior, on held-out digits and Fashion-MNIST:"]
        lines += [_study(study)]
    return "\n\n".join(lines)


def _study(study: dict[str, dict[str, Any]]) -> str:
    rows = []
    for scale, run in study.items():
        title = "none (maximum likelihood)" if scale == "None" else f"anchors from N(0, {scale}²)"
        away = [run["Fashion-MNIST"][k] for k in ("auroc epistemic", "auroc total")]
        shown = [f"{figure:.4f}" for figure in (run["nll"], *away)]
        rows.append([title, f"{100 * run['accuracy']:.2f} %", *shown])
    heads = ("prior", "accuracy", "NLL", "AUROC, mutual information", "AUROC, total entropy")
    return table(heads, rows)


def draw(store: Store, path: Path) -> None:
    """AUROC by score, seed by seed."""
    plt = pyplot()
    figure, ax = plt.subplots(figsize=(6, 2.6), layout="constrained")
    for (name, title), marker, colour, shift in zip(
        SETS.items(), "os", CHAINS, (0.1, -0.1), strict=False
    ):
        for i, score in enumerate(SCORES):
            values = [run[name][f"auroc {score}"] for run in _final(store)]
            ax.plot(
                values, np.full(len(values), shift - i), marker, color=colour, alpha=0.7,
                label=title if i == 0 else None,
            )  # fmt: skip
    ax.axvline(0.95, color="#555555", linestyle=":", linewidth=1)
    ax.set_yticks([0, -1, -2], list(SCORES.values()))
    ax.set(xlabel="AUROC against test digits", ylim=(-2.5, 0.5))
    ax.grid(axis="x", alpha=0.3)
    ax.legend(fontsize="small", loc="lower left")
    save(figure, path)

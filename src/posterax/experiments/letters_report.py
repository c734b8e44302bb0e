"""Tables and picture of the letters experiment."""

from pathlib import Path
from typing import Any

import numpy as np

from ..plot.style import CHAINS
from .pairs import estimate
from .store import Store

SETS = {"notMNIST": "notMNIST's letters", "Fashion-MNIST": "Fashion-MNIST's clothes"}
SCORES = {
    "epistemic": "mutual information",
    "total": "total entropy",
    "confidence": "1 − the largest probability",
}
PLAIN = ("accuracy", "nll", "ece", "seconds to train", "seconds to predict")


def _final(store: Store) -> list[dict[str, Any]]:
    return [run for name, run in store.runs.items() if name.startswith("letters/")]


def summary(store: Store) -> dict[str, Any]:
    """Means over the seeds."""
    runs = _final(store)
    found: dict[str, Any] = {k: estimate([run[k] for run in runs])._asdict() for k in PLAIN}
    for name in SETS:
        found[name] = {k: estimate([r[name][k] for r in runs])._asdict() for k in runs[0][name]}
    return found


def page(store: Store) -> str:
    """Markdown: AUROC by each score; where there is a study, what it compared."""
    found, settings, facts = summary(store), store.content["settings"], store.content["facts"]
    where = (
        facts["device"]
        if facts["device"] != "cpu"
        else f"{facts['cores']} CPU core{'s' * (facts['cores'] > 1)}"
    )
    seconds = found["seconds to train"]["mean"], found["seconds to predict"]["mean"]
    n = len(_final(store))
    lines = [
        f"{n} seed{'s' * (n > 1)}; {settings['members']} anchored members "
        f"784-{settings['width']}-{settings['width']}-10, prior N(0, {settings['scale']:g}²), "
        f"{settings['images']:,} digits, {settings['epochs']:g} epochs in batches of "
        f"{settings['batch_size']}, Adam at {settings['learning_rate']:g} falling along a cosine. "
        f"{seconds[0]:.0f} s to train, {seconds[1]:.0f} s to predict, compilation included "
        f"({where}, jax {facts['jax']}). On {settings['test']:,} test digits: accuracy "
        f"{100 * found['accuracy']['mean']:.2f} %, NLL {found['nll']['mean']:.4f}, "
        f"calibration error {100 * found['ece']['mean']:.2f} %.",
        "",
        "| AUROC against test digits, by | " + " | ".join(SETS.values()) + " |",
        "| --- | ---: | ---: |",
    ]
    for score, title in SCORES.items():
        cells = [_plus_minus(found[name][f"auroc {score}"]) for name in SETS]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    study = {name[6:]: run for name, run in store.runs.items() if name.startswith("study/")}
    if study:
        lines += [
            "",
            "The study that chose the prior, on held-out digits and Fashion-MNIST:",
            "",
            "| prior | accuracy | NLL | AUROC, mutual information | AUROC, total entropy |",
            "| --- | ---: | ---: | ---: | ---: |",
        ]
    for scale, run in study.items():
        title = "none (maximum likelihood)" if scale == "None" else f"anchors from N(0, {scale}²)"
        away = run["Fashion-MNIST"]
        lines.append(
            f"| {title} | {100 * run['accuracy']:.2f} % | {run['nll']:.4f} | "
            f"{away['auroc epistemic']:.4f} | {away['auroc total']:.4f} |"
        )
    return "\n".join(lines)


def _plus_minus(found: dict[str, float]) -> str:
    error = "" if np.isnan(found["error"]) else f" ± {found['error']:.4f}"
    return f"{found['mean']:.4f}{error}"


def draw(store: Store, path: Path) -> None:
    """AUROC by score, seed by seed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

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
    figure.savefig(path, dpi=150)
    plt.close(figure)

"""Tables and picture of the over-confidence experiment."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from posterax.plot.style import CHAINS, DASHES

from .arms import ARMS
from .pages import count, plus_minus, pyplot, save, table
from .pairs import Estimate, differences, estimate
from .store import Store


class Question(NamedTuple):
    """A figure of the tables: where it is, how it is written, and which way is better."""

    name: str
    training: str
    place: str
    score: str
    sign: int  # 1: more is better
    percent: bool = False


QUESTIONS = (
    Question("accuracy", "all digits", "test", "accuracy", 1, True),
    Question("NLL", "all digits", "test", "nll", -1),
    Question("ECE", "all digits", "test", "ece", -1, True),
    Question("unseen: entropy", "unseen digits", "outside", "entropy", 1),
    Question("unseen: > 0.9", "unseen digits", "outside", "confident", -1, True),
    Question("unseen: AUROC", "unseen digits", "outside", "auroc total", 1),
    Question("letters: entropy", "all digits", "letters", "entropy", 1),
    Question("letters: > 0.9", "all digits", "letters", "confident", -1, True),
    Question("letters: AUROC", "all digits", "letters", "auroc total", 1),
    Question("letters: AUROC, MI", "all digits", "letters", "auroc epistemic", 1),
    Question("turned: NLL", "all digits", "turned, mean", "nll", -1),
    Question("turned: ECE", "all digits", "turned, mean", "ece", -1, True),
    Question("turned: wrong, > 0.9", "all digits", "turned, mean", "confidently wrong", -1, True),
    Question("imbalanced: NLL", "imbalanced", "test", "nll", -1),
    Question("imbalanced: ECE", "imbalanced", "test", "ece", -1, True),
    Question("imbalanced, rare: NLL", "imbalanced", "rare", "nll", -1),
    Question("imbalanced, rare: accuracy", "imbalanced", "rare", "accuracy", 1, True),
)
TABLES = {
    "On test digits, and on digits 8 and 9 that were left out of training": ("unseen", ""),
    "On letters": ("letters",),
    "On digits turned by 15° to 180°": ("turned",),
    "With 2 % as many of 2, 5 and 8": ("imbalanced",),
}
COLOURS, MARKERS = (*CHAINS, "#56B4E9"), "osD^vXP"
POINTS = [arm.name for arm in ARMS if arm.point]
BAYESIAN = [arm.name for arm in ARMS if not arm.point]


def values(store: Store, question: Question) -> dict[str, list[float]]:
    """One figure a seed, for the seeds that all arms have.

    The mutual information of a point network is 0: its total entropy is all it can be told by.
    """
    figures: dict[str, dict[int, float]] = {}
    for name, result in store.runs.items():
        arm, training, *seed = name.split("/")
        if training == question.training and seed:
            scores = result[question.place]
            score = "auroc total" if scores[question.score] is None else question.score
            figures.setdefault(arm, {})[int(seed[0])] = scores[score]
    shared = set.intersection(*(set(by_seed) for by_seed in figures.values())) if figures else set()
    return {arm: [by_seed[s] for s in sorted(shared)] for arm, by_seed in figures.items() if shared}


def summary(store: Store) -> dict[str, Any]:
    """Means over the seeds, and posteriors minus point networks, seed by seed."""
    result: dict[str, Any] = {}
    for question in QUESTIONS:
        figures = values(store, question)
        points = [name for name in POINTS if name in figures]
        rows = [name for name in BAYESIAN if name in figures]
        paired = differences(figures, rows, points, question.sign) if points and rows else {}
        result[question.name] = {
            "more is better": question.sign > 0,
            "means": {name: estimate(v)._asdict() for name, v in figures.items()},
            "differences": {
                row: {name: e._asdict() for name, e in by_name.items()}
                for row, by_name in paired.items()
            },
        }
    return result


def page(store: Store) -> str:
    """Markdown: the figures, and the paired differences to the best point network."""
    figures = summary(store)
    seeds = {name.rsplit("/", 1)[1] for name in store.runs if name.count("/") == 2}
    facts, settings = store.content["facts"], store.content["settings"]
    width = settings["width"]
    lines = [
        f"{count(len(seeds), 'seed')}, 784-{width}-{width}-10, "
        f"{settings['images']:,} images, {settings['epochs']:g} epochs in batches of "
        f"{settings['batch_size']}, {settings['samples']} posterior draws; {facts['device']}, "
        f"jax {facts['jax']}, {store.seconds / 60:.0f} minutes in all.",
        "",
        "Mean ± standard error over the seeds. *> 0.9*: the share of inputs whose class is given "
        "a probability above 0.9; AUROC by total entropy, *MI* by mutual information, which point "
        "networks have none of (theirs by total entropy is what the difference is to).",
    ]
    lines += ["", "### In short", "", _verdicts(figures)]
    for title, groups in TABLES.items():
        chosen = [q for q in QUESTIONS if _group(q) in groups]
        heads = ["", *map(_short, chosen)]
        means = [
            [
                arm if arm in POINTS else f"**{arm}**",
                *(_cell(figures[q.name]["means"].get(arm), q, arm in POINTS) for q in chosen),
            ]
            for arm in (*POINTS, *BAYESIAN)
        ]
        paired = {q: figures[q.name]["differences"] for q in chosen}
        gains = [
            [arm, *(_difference(by.get(arm, {}).get("best"), q) for q, by in paired.items())]
            for arm in BAYESIAN
        ]
        lines += [
            "",
            f"### {title}",
            "",
            table(heads, means),
            "",
            "Minus the best point network of each column, seed by seed: mean ± half of the 95 % "
            "interval, **better**, *worse* where the interval leaves out 0.",
            "",
            table(heads, gains),
        ]
    lines += ["", "### Settings chosen on validation digits", "", _chosen(store)]
    return "\n".join(lines)


def _verdicts(figures: dict[str, Any]) -> str:
    """Who is clearly better or worse than the best point network, question by question."""
    rows = []
    for question in QUESTIONS:
        means, paired = figures[question.name]["means"], figures[question.name]["differences"]
        points = [name for name in POINTS if name in means]
        if not points or not paired:
            continue
        best = max(points, key=lambda name: question.sign * means[name]["mean"])
        sides: dict[bool, list[str]] = {True: [], False: []}
        for name, by_reference in paired.items():
            made = Estimate(**by_reference["best"])
            if made.clear:
                sides[made.mean * question.sign > 0].append(name)
        cells = [", ".join(sides[side]) or "–" for side in (True, False)]
        value = _cell(means[best], question, False)
        rows.append([question.name, f"{best}, {value}", *cells])
    return table(["", "best point network", "clearly better", "clearly worse"], rows, "llll")


def _group(question: Question) -> str:
    before, colon, _ = question.name.partition(":")
    return before.split(",")[0] if colon else ""


def _short(question: Question) -> str:
    before, colon, after = question.name.partition(": ")
    return (
        after + before.removeprefix(_group(question))
        if colon and "," in before
        else (question.name if not colon or _group(question) == "unseen" else after)
    )


def _digits(question: Question) -> tuple[int, int]:
    """What a figure is multiplied by, and its decimal places."""
    if not question.percent:
        return 1, 3
    return 100, 2 if question.score in ("accuracy", "ece") and question.place == "test" else 1


def _cell(figures: dict[str, float] | None, question: Question, point: bool) -> str:
    if figures is None or (point and question.score == "auroc epistemic"):
        return "–"
    scale, digits = _digits(question)
    return plus_minus(figures, digits, scale) + (" %" if question.percent else "")


def _difference(figures: dict[str, float] | None, question: Question) -> str:
    if figures is None:
        return "–"
    made = Estimate(**figures)
    scale, digits = _digits(question)
    text = f"{scale * made.mean:+.{digits}f}".replace("-", "−")
    text += "" if np.isnan(made.half) else f" ± {scale * made.half:.{digits}f}"
    if not made.clear:
        return text
    return f"**{text}**" if made.mean * question.sign > 0 else f"*{text}*"


def _chosen(store: Store) -> str:
    rows = []
    for arm in ARMS:
        made = store.runs.get(f"{arm.name}/settings")
        settings = made["chosen"] if made else arm.candidates[0]
        scale = f"{settings['scale']:g}" if "scale" in settings else "–"
        rows.append([arm.name, f"{settings['learning_rate']:g}", scale])
    return table(["", "learning rate", "prior's deviation"], rows)


def draw(store: Store, path: Path) -> None:
    """Confidence away from the data: unseen digits and letters; turned digits by their angle."""
    plt = pyplot()
    angles = [int(a) for a in store.content["settings"]["angles"]]
    arms = [arm for arm in ARMS if f"{arm.name}/all digits/0" in store.runs]
    figure, axes = plt.subplots(
        1, 3, figsize=(12, 4.4), layout="constrained", width_ratios=[5, 4, 4]
    )
    asked = {
        "unseen digits": Question("", "unseen digits", "outside", "confident", -1),
        "letters": Question("", "all digits", "letters", "confident", -1),
    }
    heights = -np.arange(len(arms)) - np.array([0.0 if arm.point else 0.7 for arm in arms])
    for (label, question), marker, colour in zip(asked.items(), "os", CHAINS, strict=False):
        figures = values(store, question)
        for arm, height in zip(arms, heights, strict=True):
            made = estimate(figures.get(arm.name, [np.nan]))
            axes[0].errorbar(
                100 * made.mean, height, xerr=100 * np.nan_to_num(made.half), fmt=marker,
                color=colour, markerfacecolor="white" if arm.point else colour, capsize=2,
                label=label if arm is arms[-1] else None,
            )  # fmt: skip
    axes[0].set_yticks(heights, [arm.name for arm in arms])
    axes[0].set(xlabel="inputs given a probability above 0.9, %", xlim=(-2, None))
    axes[0].grid(axis="x", alpha=0.3)
    axes[0].legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=2, frameon=False)
    for ax, score, label in (
        (axes[1], "confidently wrong", "wrong with probability above 0.9, %"),
        (axes[2], "nll", "negative log likelihood"),
    ):
        drawn = {True: 0, False: 0}
        for arm in arms:
            line = _by_angle(store, arm.name, angles, score) * (100 if "wrong" in score else 1)
            place = drawn[arm.point]
            drawn[arm.point] += 1
            style: dict[str, Any] = (
                {"color": "#999999", "linestyle": DASHES[place % len(DASHES)], "linewidth": 1.2}
                if arm.point
                else {"color": COLOURS[place], "marker": MARKERS[place], "markersize": 4.5}
            )
            if arm.point and place >= len(DASHES):
                style |= {"marker": "x+"[place - len(DASHES)], "markersize": 4}
            ax.plot(angles, line, label=arm.name, **style)
        ax.set(xlabel="angle by which digits are turned, °", xticks=angles[::3], ylim=(0, None))
        ax.set_title(label, fontsize="medium")
        ax.grid(alpha=0.3)
    axes[2].legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    save(figure, path)


def _by_angle(store: Store, arm: str, angles: list[int], score: str) -> np.ndarray:
    runs = store.under(f"{arm}/all digits/").values()
    return np.array([np.mean([run["turned"][str(a)][score] for run in runs]) for a in angles])

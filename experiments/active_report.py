"""Tables and picture of the active learning experiment."""

from pathlib import Path
from typing import Any

import numpy as np

from posterax.active import Curve

from . import active
from .pages import count, device, percent, pyplot, save, table
from .pairs import estimate
from .store import Store

SHARE = 0.5  # of random's labels, with which BALD should be as good
MARKS = (100, 200, 300, 500, 1000)  # labels at which the table has accuracies


def _budget(store: Store) -> active.Budget:
    return active.BUDGETS[store.content["settings"]["budget"]]


def _curves(store: Store) -> dict[str, list[Curve]]:
    """By arm, one for each seed."""
    return {
        arm: [
            Curve(np.array(run["labels"]), np.array(run["accuracy"]), (), "accuracy")
            for run in store.under(f"{arm}/").values()
        ]
        for arm in _budget(store).arms
    }


def _mean(curves: list[Curve]) -> Curve:
    return curves[0]._replace(scores=np.mean([curve.scores for curve in curves], axis=0))


def summary(store: Store) -> dict[str, Any]:
    """Accuracies at the marks and at the end, and the labels that reach random's last accuracy.

    By the mean over the seeds, and seed by seed.
    """
    curves = _curves(store)
    goal = float(_mean(curves["random"]).scores[-1])
    end = int(curves["random"][0].labels[-1])
    figures: dict[str, Any] = {"goal": goal, "labels": end, "arms": {}}
    for arm, own in curves.items():
        labels = own[0].labels
        marks = [int(labels[np.abs(labels - m).argmin()]) for m in MARKS if m <= end] or [end]
        pairs = zip(own, curves["random"], strict=True)
        figures["arms"][arm] = {
            "accuracy": {
                str(m): estimate([c.scores[labels == m][0] for c in own])._asdict()
                for m in sorted({*marks, end})
            },
            "reaches": _mean(own).first(goal),
            "stays from": _mean(own).first(goal, stays=True),
            "reaches by seed": [c.first(float(r.scores[-1])) for c, r in pairs],
        }
    reached = figures["arms"]["BALD"]["reaches"]
    figures["holds"] = reached is not None and reached <= SHARE * end
    return figures


def page(store: Store) -> str:
    """Markdown: what was run, accuracies by labels, the settings and how they were chosen."""
    figures, size, facts = summary(store), _budget(store), store.content["facts"]
    seeds = len(_curves(store)["random"])
    what = "LeNet-5" if size.network == "lenet" else f"784-{size.width}-{size.width}-10"
    settings = active.chosen(store, size)
    reached, goal = figures["arms"]["BALD"]["reaches"], 100 * figures["goal"]
    wanted = f"at most {SHARE * figures['labels']:.0f} were wanted"
    verdict = (
        f"**Random labels reach {goal:.2f} % with {figures['labels']}; BALD "
        + (f"with {reached}.**" if reached else "does not.**")
        + (f" It holds: {wanted}." if figures["holds"] else f" It misses its mark: {wanted}.")
    )
    lines = [
        verdict,
        "",
        f"{what}, {count(seeds, 'seed')}, ± standard error; {size.n} labels a round, the "
        f"best of {size.candidates:,} drawn anew from a pool of {size.pool:,}, by {size.samples} "
        f"dropout samples; {size.steps} steps of Adam in batches of {size.batch_size}, from the "
        f"same start in each round; accuracy on {size.test:,} test digits. {device(facts)}, "
        f"jax {facts['jax']}, {store.seconds / 60:.0f} minutes in all.",
        "",
        _table(figures),
        "",
        "![Accuracy by labels](active.png)",
        "",
        f"Chosen on held-out digits, with labels at random and a seed of no arm: dropout "
        f"{settings['rate']:g}, prior N(0, {settings['scale']:g}²), learning rate "
        f"{settings['learning_rate']:g}. Compared were:",
        "",
        _study(store, size),
    ]
    return "\n".join(lines)


def _table(figures: dict[str, Any]) -> str:
    marks = list(figures["arms"]["random"]["accuracy"])
    reached = ("reaches random's last accuracy with", "and stays there from", "seed by seed")
    rows = []
    for arm, own in figures["arms"].items():
        cells = [f"{percent(own['accuracy'][m])} %" for m in marks]
        cells += ["–" if own[k] is None else str(own[k]) for k in ("reaches", "stays from")]
        each = ", ".join("–" if n is None else str(n) for n in own["reaches by seed"])
        rows.append([arm, *cells, each])
    return table(["chosen by", *(f"{m} labels" for m in marks), *reached], rows)


def _study(store: Store, size: active.Budget) -> str:
    rows = []
    for name in map(active.name, size.grid):
        accuracy = store.runs[f"study/{name}"]["accuracy"]
        rows.append([name, *(f"{100 * a:.2f} %" for a in (*accuracy, np.mean(accuracy)))])
    return table(["settings", *(f"{n} labels" for n in size.sizes), "mean"], rows)


def draw(store: Store, path: Path) -> None:
    """Learning curves of all arms."""
    plt = pyplot()
    from posterax.plot import learning_curve

    curves = _curves(store)
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    ends = [(curve.scores[0], curve.scores[-1]) for own in curves.values() for curve in own]
    low = max(min(min(pair) for pair in ends), min(ends, key=lambda pair: pair[1])[1] - 0.2)
    learning_curve(axes, curves, baseline="random", mark="BALD", low=low)
    axes.set_ylabel("test accuracy (%)")
    save(figure, path)

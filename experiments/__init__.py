"""Experiments by one command: ``make reproduce NAME=mnist``.

Each is a module with ``run``, which trains and measures, and one that makes tables and a picture of
the results. A new one is a line in ``EXPERIMENTS``.
"""

from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from posterax._util.progress import Watch
from posterax._util.writing import write_file

from .store import Store

BUDGETS = ("quick", "cpu", "full")


class Experiment(NamedTuple):
    """Where an experiment's functions are; imported when it runs."""

    summary: str
    module: str  # run(budget, seeds, keep) → Store
    report: str  # summary(store) → dict, page(store) → Markdown, draw(store, path)
    seeds: int = 5  # repetitions, where the user does not say


EXPERIMENTS = {
    "overconfidence": Experiment(
        "point networks and posteriors on unseen digits, letters, turned digits, rare classes",
        "overconfidence", "overconfidence_report",
    ),
    "letters": Experiment(
        "an ensemble of MLPs on MNIST tells notMNIST's letters from digits",
        "letters", "letters_report", seeds=3,
    ),
    "mnist": Experiment(
        "MNIST by two layers: maximum likelihood, dropout, Bayes by Backprop with two priors",
        "mnist", "mnist_report", seeds=3,
    ),
    "pruning": Experiment(
        "the same network without 50, 75, 95 and 98 % of its weights",
        "pruning", "pruning_report", seeds=3,
    ),
    "active": Experiment(
        "MNIST from 20 labels to 1000: asking by BALD against asking at random",
        "active", "active_report",
    ),
    "bandit": Experiment(
        "which mushrooms to eat: Thompson sampling by Bayes by Backprop beside ε-greedy",
        "bandit", "bandit_report",
    ),
    "regression": Experiment(
        "the paper's curve: does the band widen where there are no data?",
        "regression", "regression_report",
    ),
    "uci": Experiment(
        "six UCI regression sets by the usual splits, beside published figures (seeds are splits)",
        "uci", "uci_report", seeds=20,
    ),
}  # fmt: skip


def reproduce(
    name: str,
    out: Path | None,
    *,
    budget: str = "cpu",
    seeds: int | None = None,
    watch: Watch | None = None,
) -> Store:
    """Run an experiment, or go on with one that was stopped, and write its results.

    Writes ``NAME.json`` (every figure, the settings, versions, device and seconds), ``NAME.md``
    (the tables; a page that has the marks ``<!-- NAME -->`` and ``<!-- /NAME -->`` keeps all
    outside them) and ``NAME.png``.

    Args:
        name: of the experiment.
        out: the directory to write to; ``None`` writes nothing.
        budget: ``"quick"`` (seconds, to try it), ``"cpu"`` (about ten minutes on two cores) or
            ``"full"`` (a GPU).
        seeds: repetitions (default: the experiment's own number).
        watch: what shows how far the run is.

    Example:
        >>> from experiments import EXPERIMENTS
        >>> EXPERIMENTS["mnist"].module
        'mnist'
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"name must be one of {', '.join(EXPERIMENTS)}, got {name!r}")
    if budget not in BUDGETS:
        raise ValueError(f"budget must be one of {', '.join(BUDGETS)}, got {budget!r}")
    experiment = EXPERIMENTS[name]
    module = import_module(f".{experiment.module}", __name__)
    report = import_module(f".{experiment.report}", __name__)
    path = None if out is None else out / f"{name}.json"
    store = module.run(
        budget, seeds or experiment.seeds, lambda settings: Store(path, settings, watch)
    )
    store.content["summary"] = report.summary(store)
    store.write()
    if out is not None:
        put(out / f"{name}.md", name, report.page(store))
        report.draw(store, out / f"{name}.png")
    return store


def put(path: Path, name: str, text: str) -> None:
    """Text between the marks of a page, or as a page of its own."""
    first, last = f"<!-- {name} -->", f"<!-- /{name} -->"
    page = path.read_text() if path.exists() else ""
    if first in page and last in page:
        before, after = page.split(first)[0], page.split(last)[1]
        write_file(path, f"{before}{first}\n\n{text}\n\n{last}{after}")
    else:
        write_file(path, f"{first}\n\n{text}\n\n{last}\n")

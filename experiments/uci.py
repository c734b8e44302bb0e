r"""Regression on six sets of the UCI repository, by the protocol of Hernández-Lobato and Adams.

One hidden layer of 50 ReLU units (100 for protein), 20 random splits into 90 % training and 10 %
test rows (5 for protein), x and y standardised with the training rows; RMSE and the mean log
density of the test targets, in their own units. (*Probabilistic backpropagation for scalable
learning of Bayesian neural networks*, ICML 2015; Gal and Ghahramani, *Dropout as a Bayesian
approximation*, ICML 2016, whose splits these are.)

Settings are chosen for each set and method by the log likelihood of rows held out from training
rows: a fifth of those of the first few splits. Then every split is fitted once with all its
training rows, and its test rows are looked at. The one method that is compared with deep ensembles
is the one with the best mean log likelihood, over the sets, of the held-out rows.

Here ``seeds`` are splits: the first so many of each set.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .store import Store
from .uci_arms import ARMS, CHOSEN, WORK, Arm, Settings, Work, train
from .uci_data import SETS, Rows, Standard, load_uci, splits

HELD = 5  # one in so many training rows chooses settings
STUDY_SEED = 1000  # and those after it; the reported fits have the number of their split


class Budget(NamedTuple):
    """How large a run is."""

    sets: tuple[str, ...]
    splits: int  # at most, of each set
    study: bool
    shorter: int  # everything is trained for 1/shorter of its time


SMALL = ("boston", "concrete", "wine", "yacht")
BUDGETS = {
    "quick": Budget(("yacht",), 1, False, 50),
    "cpu": Budget(SMALL, 3, False, 1),
    "full": Budget(tuple(SETS), 20, True, 1),
}


def run(budget: str, seeds: int, keep: Callable[[dict[str, Any]], Store]) -> Store:
    """Every set in turn."""
    # all are read first: what is missing is told before anything is trained
    sets = {name: load_uci(name) for name in BUDGETS[budget].sets}
    store = keep(settings_of(budget))
    store.expect(result for name in sets for result in names_of(name, budget, seeds))
    for name, rows in sets.items():
        one_set(name, rows, budget, seeds, store)
    return store


def settings_of(budget: str) -> dict[str, Any]:
    """What the file of a run says about it: the same for all sets, so that parts can be merged."""
    size = BUDGETS[budget]
    work = {name: _work(name, size)._asdict() for name in size.sets}
    return {"budget": budget, **size._asdict(), "held": HELD, "work": work}


def names_of(name: str, budget: str, seeds: int) -> list[str]:
    """The results of one set."""
    size = BUDGETS[budget]
    work = _work(name, size)
    study = [
        study_name(arm, name, settings, split)
        for arm in (ARMS if size.study else ())
        for settings in ARMS[arm].candidates(work)
        for split in range(work.study)
    ]
    tests = range(_count(name, size, seeds))
    return study + [f"{arm}/{name}/{split:02d}" for arm in ARMS for split in tests]


def study_name(arm: str, name: str, settings: Settings, split: int) -> str:
    """What a candidate's figures on held-out rows are called.

    Example:
        >>> from experiments.uci import study_name
        >>> study_name("bbb", "yacht", {"scale": 1.0, "epochs": 200}, 3)
        'study/bbb/yacht/scale 1, epochs 200/03'
    """
    return f"study/{arm}/{name}/{words(settings)}/{split:02d}"


def words(settings: Settings) -> str:
    """Settings in words."""
    return ", ".join(
        f"{k} {v}" if isinstance(v, bool) else f"{k} {v:g}" for k, v in settings.items()
    )


def one_set(name: str, rows: Rows, budget: str, seeds: int, store: Store) -> None:
    """The study of a set, and then its splits, for every method."""
    size = BUDGETS[budget]
    work, width = _work(name, size), SETS[name].width
    every = splits(len(rows.y), SETS[name].splits)
    for key, arm in ARMS.items():
        known = CHOSEN[key].get(name) if size.shorter == 1 else None
        chosen = known or arm.candidates(work)[0]
        if size.study:
            chosen = study(key, name, rows, work, store)
        for split in range(_count(name, size, seeds)):
            learn, test = (rows.at(numbers) for numbers in every[split])
            make = partial(one, arm, learn, test, width, work, chosen, split)
            store.get(f"{key}/{name}/{split:02d}", make, chosen)


def study(key: str, name: str, rows: Rows, work: Work, store: Store) -> Settings:
    """All candidates of a method on held-out training rows of the first splits; the best one."""
    arm, width = ARMS[key], SETS[name].width
    parts = [held_out(train) for train, _ in splits(len(rows.y), work.study)]
    candidates = arm.candidates(work)
    for settings in candidates:
        for split, (learn, held) in enumerate(parts):
            seed = STUDY_SEED + split
            make = partial(one, arm, rows.at(learn), rows.at(held), width, work, settings, seed)
            store.get(study_name(key, name, settings, split), make, settings)
    return choose(key, name, candidates, work.study, store)


def held_out(training: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Training rows to learn from, and the last fifth of them (they are in random order).

    Example:
        >>> import numpy as np
        >>> from experiments.uci import held_out
        >>> [len(part) for part in held_out(np.arange(277))]
        [222, 55]
    """
    count = len(training) // HELD
    return training[:-count], training[-count:]


def choose(
    arm: str, name: str, candidates: Iterable[Settings], count: int, store: Store
) -> Settings:
    """The candidate with the best mean log likelihood of held-out rows."""

    def score(settings: Settings) -> float:
        names = (study_name(arm, name, settings, split) for split in range(count))
        return float(np.mean([store.runs[n]["log likelihood"] for n in names]))

    return max(candidates, key=score)


def one(
    arm: Arm, learn: Rows, test: Rows, width: int, work: Work, settings: Settings, key: int
) -> dict[str, Any]:
    """A fit and its figures on other rows, in the units of the targets."""
    standard = Standard.of(learn)
    posterior = train(arm, standard.of_rows(learn), width, work, settings, key)
    x, y = standard.of_rows(test)
    predictive = posterior.predict(x, samples=arm.samples, key=key)
    miss = np.asarray(predictive.mean).reshape(-1) - y
    density = np.asarray(predictive.log_prob(y), np.float64)
    return {
        "rmse": float(np.sqrt(np.mean(np.square(miss))) * standard.y_scale),
        "log likelihood": float(density.mean() - np.log(standard.y_scale)),
    }


def _count(name: str, size: Budget, seeds: int) -> int:
    return min(seeds, size.splits, SETS[name].splits)


def _work(name: str, size: Budget) -> Work:
    work = WORK[name]
    if size.shorter == 1:
        return work
    few = ("short", "middle", "long", "training", "warmup", "draws", "chains")
    shorter = {k: max(1, getattr(work, k) // size.shorter) for k in few}
    return work._replace(**shorter, between=2)

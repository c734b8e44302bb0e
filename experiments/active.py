r"""Active learning on MNIST: from 20 labels to 1000, asking for those that tell most.

A small network with Monte Carlo dropout (Gal, Islam and Ghahramani 2017) begins with two digits of
each class, asks for a few labels a round, and is trained afresh on all it has. The arms differ only
in how they choose: at random, by BALD, and others; the first digits of a seed, the starting weights
and the settings are the same for all.

Dropout rate, prior and learning rate are chosen by the run, with labels at random, on digits held
out of the training images: the arms have none of their own to choose. The number of steps and of
labels a round were set by hand after trial runs, of BALD too; see ``docs/results/active.md``.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from posterax import priors
from posterax.active import Learner
from posterax.active import run as ask_and_learn
from posterax.infer import MCDropout
from posterax.likelihoods import Categorical
from posterax.model import Model
from posterax.networks import MLP, LeNet5

from .data import Images, inputs, load, spread
from .store import Store

Data = tuple[np.ndarray, np.ndarray]

HELD = 10_000  # of MNIST's training images, neither trained on nor asked about
FIRST_SEED = 10  # those before were seen in trial runs
STUDY_SEED = 1000  # of no reported run
ARMS = {
    "random": "random",
    "BALD": "bald",
    "variation ratio": "variation_ratio",
    "entropy": "entropy",  # in no budget, since it is much like the variation ratio
    "BatchBALD": "batch_bald",
}


class Budget(NamedTuple):
    """How large a run is."""

    network: str
    width: int  # of the perceptron
    pool: int
    candidates: int  # of the pool, drawn anew and scored in each round
    test: int
    n: int  # labels a round
    rounds: int
    samples: int
    steps: int  # of training a round: enough to fit the hard labels that BALD asks for
    batch_size: int
    arms: tuple[str, ...]
    # what the study chooses from
    rates: tuple[float, ...]
    scales: tuple[float, ...]
    learning_rates: tuple[float, ...]
    sizes: tuple[int, ...]  # labels of the study

    @property
    def grid(self) -> list[dict[str, float]]:
        """All settings that the study compares."""
        return [
            {"rate": rate, "scale": scale, "learning_rate": step}
            for rate in self.rates
            for scale in self.scales
            for step in self.learning_rates
        ]


BUDGETS = {
    "quick": Budget(
        "mlp", 32, 1_000, 300, 300, 10, 3, 10, 50, 32, ("random", "BALD"),
        (0.5,), (1.0,), (1e-3, 3e-3), (50,),
    ),
    "cpu": Budget(
        "mlp", 128, 50_000, 2_000, 2_000, 10, 98, 20, 1000, 64, ("random", "BALD"),
        (0.25, 0.5), (1.0, 3.0), (1e-3, 3e-3), (100, 300, 1000),
    ),
    "full": Budget(
        "lenet", 0, 50_000, 10_000, 10_000, 10, 98, 30, 1000, 64,
        ("random", "BALD", "variation ratio", "BatchBALD"),
        (0.25, 0.5), (0.3, 1.0, 3.0), (1e-3, 3e-3), (100, 300, 1000),
    ),
}  # fmt: skip


def run(budget: str, seeds: int, keep: Callable[[dict[str, Any]], Store]) -> Store:
    """The study that chooses the settings, then each arm with each seed."""
    size = BUDGETS[budget]
    digits = load("mnist")
    store = keep({"budget": budget, **size._asdict()})
    arms = [(arm, seed) for arm in size.arms for seed in range(FIRST_SEED, FIRST_SEED + seeds)]
    store.expect(
        [*(f"study/{name(s)}" for s in size.grid), *(f"{arm}/{seed}" for arm, seed in arms)]
    )
    pool, test = _split(digits, size)
    held = _part(digits.x, digits.y, len(digits.y) - HELD + spread(HELD, size.test), size)
    for settings in size.grid:
        store.get(f"study/{name(settings)}", partial(study, pool, held, size, settings))
    settings = chosen(store, size)
    for arm, seed in arms:
        store.get(f"{arm}/{seed}", partial(one, pool, test, size, settings, arm, seed))
    return store


def name(settings: dict[str, float]) -> str:
    """Settings in words.

    Example:
        >>> from experiments.active import name
        >>> name({"rate": 0.5, "scale": 1.0, "learning_rate": 0.001})
        'dropout 0.5, prior 1, rate 0.001'
    """
    return (
        f"dropout {settings['rate']:g}, prior {settings['scale']:g}, "
        f"rate {settings['learning_rate']:g}"
    )


def chosen(store: Store, size: Budget) -> dict[str, float]:
    """The settings of the best mean accuracy on the digits held out."""
    return max(size.grid, key=lambda s: np.mean(store.runs[f"study/{name(s)}"]["accuracy"]))


def learner(
    x: np.ndarray, y: np.ndarray, size: Budget, settings: dict[str, float], by: str, seed: int
) -> Learner:
    """The network and how it is trained; the seed sets its start and all that is random."""
    lenet = size.network == "lenet"
    network = LeNet5(key=seed) if lenet else MLP(784, 10, (size.width, size.width), key=seed)
    method = MCDropout(
        settings["rate"], where=("dense.*", "head.*") if lenet else None,
        learning_rate=settings["learning_rate"],
    )  # fmt: skip
    return Learner(
        Model(network, priors.Gaussian(settings["scale"]), Categorical()), method, x, y,
        by=by, samples=size.samples, key=seed, steps=size.steps, batch_size=size.batch_size,
        room=max(20 + size.rounds * size.n, *size.sizes), progress=False,
    )  # fmt: skip


def study(pool: Data, held: Data, size: Budget, settings: dict[str, float]) -> dict[str, Any]:
    """Accuracy on digits held out, with labels at random."""
    order = np.random.default_rng(STUDY_SEED).permutation(len(pool[1]))
    accuracy = []
    for n in size.sizes:
        rows = order[:n]
        fitted = learner(pool[0][rows], pool[1][rows], size, settings, "random", STUDY_SEED)
        predictive = fitted.posterior.predict(held[0], samples=size.samples, key=0)
        accuracy.append(float(np.mean(predictive.mode == held[1])))
    return {"labels": list(size.sizes), "accuracy": accuracy}


def one(
    pool: Data, test: Data, size: Budget, settings: dict[str, float], arm: str, seed: int
) -> dict[str, Any]:
    """The learning curve of an arm."""
    x, y = pool
    first = balanced(y, seed)
    learns = learner(x[first], y[first], size, settings, ARMS[arm], seed)
    left = np.setdiff1d(np.arange(len(y)), first)
    curve = ask_and_learn(
        learns, x[left], y[left], rounds=size.rounds, n=size.n, test=test,
        candidates=size.candidates, progress=False,
    )  # fmt: skip
    if len(curve.labels) <= size.rounds:
        raise KeyboardInterrupt  # a curve that was cut short is no result
    asked = np.bincount(y[left[np.concatenate(curve.chosen)]], minlength=10)
    return {
        "labels": curve.labels.tolist(),
        "accuracy": curve.scores.tolist(),
        "asked": asked.tolist(),
    }


def balanced(y: np.ndarray, seed: int, each: int = 2) -> np.ndarray:
    """The first digits to be labelled, ``each`` of every class; the same for all arms of a seed.

    Example:
        >>> import numpy as np
        >>> from experiments.active import balanced
        >>> y = np.arange(50) % 10
        >>> sorted(y[balanced(y, 0, 1)].tolist())
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    order = np.random.default_rng(seed).permutation(len(y))
    return np.concatenate([order[y[order] == k][:each] for k in range(10)])


def _split(digits: Images, size: Budget) -> tuple[Data, Data]:
    rows = spread(len(digits.y) - HELD, size.pool)
    test = spread(len(digits.y_test), size.test)
    return (
        _part(digits.x, digits.y, rows, size),
        _part(digits.x_test, digits.y_test, test, size),
    )


def _part(x: np.ndarray, y: np.ndarray, rows: np.ndarray, size: Budget) -> Data:
    return (x[rows] if size.network == "lenet" else inputs(x[rows])), y[rows]

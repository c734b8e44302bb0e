r"""Pruning MNIST's perceptron by signal to noise: how many weights does it need?

The second half of section 5.1 of Blundell et al. (2015): weights in the order of |μ| / σ, the
lowest 50, 75, 95 and 98 % set to zero, nothing trained afterwards. Here also with a few epochs of
fine-tuning under the fixed mask, which is reported apart.

Candidates are chosen as for ``mnist``, but by the errors on the validation images that are left
after 95 and 98 % of the weights are gone (their mean; then the NLL): a posterior that predicts best
need not be one that says which weights it could do without. One network for each seed is then
trained on all 60,000 images, and every figure of a seed is of that one network.
"""

import math
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from posterax.fitting.fit import fit
from posterax.posteriors import Posterior
from posterax.pruning import compact, prune, report, signal_to_noise

from . import mnist
from .data import Images, load, spread
from .mnist import Data, Settings
from .store import Store

ROW = "BbB, scale mixture"
FRACTIONS = (0.5, 0.75, 0.95, 0.98)
JUDGED = (0.95, 0.98)  # what the settings are chosen by
FLOOR = -60.0  # decibels: a picture that began with means of 0 would show nothing else
HEADLINE = "draws"  # by 50 draws, as in ``mnist``; the mean weights are reported too

# What is tried; what a candidate leaves out is in DEFAULTS. The first one is what the run in
# docs/results chose, and is taken by budgets that choose nothing.
CANDIDATES: tuple[Settings, ...] = (
    {"temperature": 0.1, "estimator": "local", "pi": 0.25},
    {"temperature": 0.1, "estimator": "local"},
    {"temperature": 0.1, "estimator": "local", "sigma1": math.exp(-1)},
    {"temperature": 0.3, "estimator": "local"},
)
DEFAULTS: Settings = mnist.MIXTURE


class Budget(NamedTuple):
    """How large a run is."""

    images: int  # to train on in the end, of which the last ``held`` choose the settings
    held: int
    test: int
    width: int
    epochs: float  # at most
    study: float  # the share of its epochs for which a candidate is trained; 0: no study
    study_seeds: int
    candidates: int  # at most
    tuning_epochs: float
    tuning_rate: float = 1e-4


BUDGETS = {
    "quick": Budget(1_000, 250, 250, 32, 20, 0, 0, 1, 1),
    "cpu": Budget(60_000, mnist.HELD, 10_000, 400, 20, 0, 0, 1, 1),
    "full": Budget(60_000, mnist.HELD, 10_000, 1200, 1_000, 0.4, 1, 100, 10),
}


def run(budget: str, seeds: int, keep: Callable[[dict[str, Any]], Store]) -> Store:
    """The study, and then a network for every seed, whole and in parts."""
    size = BUDGETS[budget]
    digits = load("mnist")
    store = keep({"budget": budget, **size._asdict()})
    tried = mnist.candidates(CANDIDATES, DEFAULTS, size)
    names = {label: f"study/{ROW}/{label}" for label in tried}
    store.expect([*names.values(), *(f"test/{seed}" for seed in range(seeds))])
    for label, settings in tried.items():
        store.get(names[label], partial(study, settings, digits, size), settings)
    chosen = mnist.choose(store, ROW) or mnist.complete(CANDIDATES[0], DEFAULTS, size)
    for seed in range(seeds):
        store.get(f"test/{seed}", partial(final, chosen, digits, size, seed), chosen)
    return store


def study(settings: Settings, digits: Images, size: Budget) -> dict[str, Any]:
    """A candidate on the validation images: errors whole and pruned."""
    data, held = mnist.split(digits, size, settings)
    shorter = settings | {"epochs": size.study * settings["epochs"]}
    by_seed = []
    for seed in range(mnist.STUDY_SEED, mnist.STUDY_SEED + size.study_seeds):
        posterior = mnist.train(ROW, shorter, data, size.width, seed)
        left = {0.0: posterior} | {f: prune(posterior, fraction=f) for f in JUDGED}
        by_seed.append({f: mnist.scores(p, *held, key=seed)[HEADLINE] for f, p in left.items()})
    means = {
        f: {k: float(np.mean([one[f][k] for one in by_seed])) for k in ("error", "nll")}
        for f in (0.0, *JUDGED)
    }
    judged = {k: float(np.mean([means[f][k] for f in JUDGED])) for k in ("error", "nll")}
    return judged | {"by fraction": {f"{f:g}": one for f, one in means.items()}}


def final(settings: Settings, digits: Images, size: Budget, seed: int) -> dict[str, Any]:
    """One network on all training images: the test images' verdict on it and its parts."""
    data = mnist.pixels(digits.x[: size.images], settings), digits.y[: size.images]
    some = spread(len(digits.y_test), size.test)
    test = mnist.pixels(digits.x_test[some], settings), digits.y_test[some]
    began = time.perf_counter()
    full = mnist.train(ROW, settings, data, size.width, seed)
    trained = time.perf_counter() - began
    parts: dict[str, Any] = {"0": mnist.scores(full, *test, key=seed) | costs(full, test, seed)}
    for fraction in FRACTIONS:
        left = prune(full, fraction=fraction)
        tuned = tune(left, settings, data, size, seed)
        small = compact(left)
        widths = report(small).widths or ([], [])  # before and after
        parts[f"{fraction:g}"] = {
            **mnist.scores(left, *test, key=seed),
            **costs(left, test, seed),
            "tuned": mnist.scores(tuned, *test, key=seed),
            "compact": costs(small, test, seed) | {"units": widths[1]},
        }
    return {"fractions": parts, "ratios": ratios(full), "seconds to train": trained}


def tune(left: Posterior, settings: Settings, data: Data, size: Budget, seed: int) -> Posterior:
    """A few more epochs of the same method, at a small rate, for the weights that are left."""
    slow = settings | {"learning_rate": size.tuning_rate, "epochs": size.tuning_epochs}
    return fit(
        left.model, data, mnist.method(ROW, slow, len(data[1])), init=left,
        epochs=slow["epochs"], batch_size=slow["batch_size"], key=seed, progress=False,
    )  # fmt: skip


def costs(posterior: Posterior, test: Data, seed: int) -> dict[str, float]:
    """Bytes of the saved file, and seconds of a prediction.

    The seconds are of a second prediction, of other draws: the first had to be compiled.
    """
    for key in (seed, seed + 1):
        began = time.perf_counter()
        _ = posterior.predict(test[0], samples=mnist.SAMPLES, key=key).mean
        seconds = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "posterior.px"
        posterior.save(path)
        return {"bytes": path.stat().st_size, "seconds to predict": seconds}


def ratios(posterior: Posterior) -> dict[str, Any]:
    """The density of 10 log₁₀(|μ| / σ) in bins, and its value at each fraction of the weights."""
    decibels = np.concatenate([np.ravel(a) for a in signal_to_noise(posterior).values()])
    low, high = np.quantile(decibels, [0.001, 1], method="higher")
    heights, edges = np.histogram(decibels, 120, (max(low, FLOOR), high))
    return {
        "edges": edges.tolist(),
        "density": (heights / (len(decibels) * np.diff(edges))).tolist(),
        "at": {f"{f:g}": float(np.quantile(decibels, f)) for f in FRACTIONS},
        "weights": len(decibels),
    }

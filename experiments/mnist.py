r"""MNIST by a plain perceptron: maximum likelihood, dropout, and Bayes by Backprop with two priors.

The classification experiment of Blundell, Cornebise, Kavukcuoglu and Wierstra (*Weight uncertainty
in neural networks*, ICML 2015, section 5.1): two ReLU layers, no convolution, no augmentation.

For every row the candidates below are trained on 50,000 images, for a share of their epochs and
with seeds that are not reported, and the one with the fewest errors on the other 10,000 is chosen
(the smaller NLL decides between equals). It is then trained again on all 60,000, once for each
seed, and only these networks are shown the test images.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import optax

from posterax import priors
from posterax.fitting.fit import fit
from posterax.infer import BayesByBackprop, MaximumLikelihood, MCDropout, Method
from posterax.likelihoods import Categorical
from posterax.metrics import evaluate
from posterax.model import Model
from posterax.posteriors import Point, Posterior

from .data import Images, inputs, load, spread
from .methods import bayes_by_backprop
from .perceptrons import perceptron
from .store import Store

Settings = dict[str, Any]
Data = tuple[np.ndarray, np.ndarray]

HELD = 10_000  # of the training images: they choose the settings
SAMPLES = 50  # posterior draws that a prediction averages over
STUDY_SEED = 1_000  # and those after it; the reported seeds begin with 0

# What each row tries; what a candidate leaves out is in DEFAULTS. The first one is what the run in
# docs/results chose, and is taken by budgets that choose nothing.
CANDIDATES: dict[str, tuple[Settings, ...]] = {
    "SGD": (
        {"optimizer": "adam", "learning_rate": 1e-3},
        {"optimizer": "sgd", "learning_rate": 0.1},
        {"optimizer": "sgd", "learning_rate": 0.03},
    ),
    "dropout": (
        {"learning_rate": 3e-4, "input_rate": 0.2},
        {"learning_rate": 1e-3, "input_rate": 0.2},
        {"learning_rate": 1e-3, "input_rate": 0.0},
    ),
    "BbB, Gaussian": (
        {"sigma": 1.0, "kl_weights": "blundell"},
        {"sigma": math.exp(-1), "kl_weights": "blundell"},
        {"sigma": math.exp(-2), "kl_weights": "blundell"},
        {"sigma": math.exp(-2), "temperature": 0.1, "estimator": "local"},
    ),
    "BbB, scale mixture": (
        {"temperature": 0.1, "estimator": "local"},
        {"temperature": 0.3, "estimator": "local"},
        {"temperature": 0.03, "estimator": "local"},
        {"temperature": 0.1, "estimator": "local", "pi": 0.25},
        {"temperature": 0.1, "estimator": "local", "sigma1": math.exp(-1)},
        {"temperature": 0.1},
        {"temperature": 1.0, "estimator": "local"},
    ),
    "BbB, scale mixture, KL weights 2^(M−i)": (
        {"kl_weights": "blundell", "estimator": "local"},
        {"kl_weights": "blundell"},
        {"kl_weights": "blundell", "initial_rho": -4.0},
        {"kl_weights": "blundell", "sigma2": math.exp(-7)},
    ),
}

BBB: Settings = {
    "learning_rate": 1e-3, "epochs": 200, "batch_size": 128, "pixels": 126, "initial_rho": -5.0,
    "kl_weights": "uniform", "kl": "auto", "temperature": 1.0, "samples": 1, "estimator": "weight",
}  # fmt: skip
MIXTURE: Settings = BBB | {"pi": 0.5, "sigma1": 1.0, "sigma2": math.exp(-6)}
DEFAULTS: dict[str, Settings] = {
    "SGD": {"optimizer": "sgd", "epochs": 100, "batch_size": 128, "pixels": 126},
    "dropout": {"rate": 0.5, "sigma": 10.0, "epochs": 200, "batch_size": 128, "pixels": 126},
    "BbB, Gaussian": BBB | {"sigma": 1.0},
    "BbB, scale mixture": MIXTURE,
    "BbB, scale mixture, KL weights 2^(M−i)": MIXTURE,
}

# By which prediction a row is judged, chosen before any run: the posterior's average over draws;
# the mean weights where the published row has no posterior (dropout is off at prediction there).
HEADLINE = {row: "mean" if row in ("SGD", "dropout") else "draws" for row in CANDIDATES}


class Budget(NamedTuple):
    """How large a run is."""

    images: int  # to train on in the end, of which the last ``held`` choose the settings
    held: int
    test: int
    widths: tuple[int, ...]  # of both layers; the settings are chosen with the first
    epochs: float  # at most
    study: float  # the share of its epochs for which a candidate is trained; 0: no study
    study_seeds: int
    candidates: int  # at most, of each row


BUDGETS = {
    "quick": Budget(1_000, 250, 250, (32,), 20, 0.5, 1, 2),
    "cpu": Budget(60_000, HELD, 10_000, (400,), 8, 0, 0, 1),
    "full": Budget(60_000, HELD, 10_000, (1200,), 1_000, 0.4, 1, 100),
}


def run(
    budget: str,
    seeds: int,
    keep: Callable[[dict[str, Any]], Store],
    rows: Iterable[str] = tuple(CANDIDATES),
) -> Store:
    """For every row the study and then the networks that are tested; or for some rows only."""
    size, rows = BUDGETS[budget], tuple(rows)
    digits = load("mnist")
    store = keep({"budget": budget, **size._asdict()})
    tried = {row: candidates(CANDIDATES[row], DEFAULTS[row], size) for row in rows}
    last = [(row, width, seed) for row in rows for width in size.widths for seed in range(seeds)]
    store.expect(
        [f"study/{row}/{label}" for row in rows for label in tried[row]]
        + ["/".join(map(str, ("test", *name))) for name in last]
    )
    chosen = {}
    for row in rows:
        for label, settings in tried[row].items():
            make = partial(study, row, settings, digits, size)
            store.get(f"study/{row}/{label}", make, settings)
        chosen[row] = choose(store, row) or complete(CANDIDATES[row][0], DEFAULTS[row], size)
    for row, width, seed in last:
        make = partial(final, row, chosen[row], digits, size, width, seed)
        store.get(f"test/{row}/{width}/{seed}", make, chosen[row])
    return store


# -- settings


def complete(given: Settings, defaults: Settings, size: Any) -> Settings:
    """A candidate with what it leaves out, and no more epochs than there is time for."""
    full = defaults | given
    return full | {"epochs": min(full["epochs"], size.epochs)}


def candidates(given: Sequence[Settings], defaults: Settings, size: Any) -> dict[str, Settings]:
    """Those that the budget has time for, complete, by what tells them apart; none: no study."""
    some = given[: size.candidates] if size.study else ()
    return {label(one): complete(one, defaults, size) for one in some}


def label(settings: Settings) -> str:
    """Settings in a line.

    Example:
        >>> from experiments.mnist import label
        >>> label({"kl_weights": "blundell", "sigma2": 0.00247875})
        'kl_weights blundell, sigma2 0.00248'
    """
    shown = [f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in settings.items()]
    return ", ".join(shown)


def choose(store: Store, row: str) -> Settings | None:
    """The settings with the fewest errors on the validation images, then the smallest NLL.

    Example:
        >>> from experiments.mnist import choose
        >>> from experiments.store import Store
        >>> store = Store(None, {})
        >>> for i, (error, nll) in enumerate([(0.02, 0.1), (0.01, 0.3), (0.01, 0.2)]):
        ...     made = {"settings": i, "error": error, "nll": nll}
        ...     _ = store.get(f"study/SGD/{i}", lambda: made)
        >>> choose(store, "SGD")
        2
    """
    tried = store.under(f"study/{row}/").values()
    # seeds are averaged: 0.01 and 0.03 must equal 0.02 and 0.02
    best = min(tried, key=lambda run: (round(run["error"], 9), run["nll"]), default=None)
    return best and best["settings"]


# -- one network


def study(row: str, settings: Settings, digits: Images, size: Budget) -> dict[str, Any]:
    """A candidate on the validation images; neither they nor the test images train it."""
    data, held = split(digits, size, settings)
    shorter = settings | {"epochs": size.study * settings["epochs"]}
    by_seed = []
    for seed in range(STUDY_SEED, STUDY_SEED + size.study_seeds):
        posterior = train(row, shorter, data, size.widths[0], seed)
        by_seed.append(scores(posterior, *held, key=seed)[HEADLINE[row]])
    return {k: float(np.mean([one[k] for one in by_seed])) for k in by_seed[0]}


def final(
    row: str, settings: Settings, digits: Images, size: Budget, width: int, seed: int
) -> dict[str, Any]:
    """The chosen settings on all training images, and what the test images say."""
    data = pixels(digits.x[: size.images], settings), digits.y[: size.images]
    some = spread(len(digits.y_test), size.test)
    began = time.perf_counter()
    posterior = train(row, settings, data, width, seed)
    trained = time.perf_counter()
    result: dict[str, Any] = scores(
        posterior, pixels(digits.x_test[some], settings), digits.y_test[some], key=seed
    )
    done = time.perf_counter()
    return result | {"seconds to train": trained - began, "seconds to predict": done - trained}


def pixels(x: np.ndarray, settings: Settings) -> np.ndarray:
    """Bytes, divided by 126 as in the paper, or by another number."""
    return inputs(x) * np.float32(255 / settings["pixels"])


def split(digits: Images, size: Any, settings: Settings) -> tuple[Data, Data]:
    """Training images for a study, and the ``held`` ones after them."""
    x, y = pixels(digits.x[: size.images], settings), digits.y[: size.images]
    return (x[: -size.held], y[: -size.held]), (x[-size.held :], y[-size.held :])


def train(row: str, settings: Settings, data: Data, width: int, seed: int) -> Posterior:
    """One fit; the seed sets the start, the order of the batches and the draws."""
    kind = "dropout" if row == "dropout" else "plain"
    rates = {k: settings[k] for k in ("rate", "input_rate") if k in settings}
    network = perceptron(width, kind, key=seed, **rates)
    return fit(
        Model(network, prior(settings), Categorical()), data,
        method(row, settings, len(data[1])), epochs=settings["epochs"],
        batch_size=settings["batch_size"], key=seed, progress=False,
    )  # fmt: skip


def prior(settings: Settings) -> Any:
    """The scale mixture where the settings have one, else N(0, sigma²)."""
    if "pi" in settings:
        return priors.ScaleMixture(settings["pi"], settings["sigma1"], settings["sigma2"])
    return priors.Gaussian(settings.get("sigma", 1.0))


def method(row: str, settings: Settings, images: int) -> Method:
    """What the row is trained by."""
    rate = settings["learning_rate"]
    if row == "SGD":
        steps = round(settings["epochs"] * math.ceil(images / settings["batch_size"]))
        own = _sgd(rate, steps) if settings["optimizer"] == "sgd" else None
        return MaximumLikelihood(rate, optimizer=own)
    if row == "dropout":
        return MCDropout(learning_rate=rate)
    names = {field.name for field in BayesByBackprop.__dataclass_fields__.values()}
    return bayes_by_backprop(**{k: v for k, v in settings.items() if k in names})


@cache  # one transformation for all seeds: another would be compiled anew
def _sgd(rate: float, steps: int) -> optax.GradientTransformation:
    return optax.sgd(optax.cosine_decay_schedule(rate, max(steps, 1)))


def scores(posterior: Posterior, x: np.ndarray, y: np.ndarray, key: int) -> dict[str, Settings]:
    """Error, NLL and calibration error by the mean weights, and by the average over draws."""
    centre = Point(
        posterior.model, posterior.state, posterior.targets, point=posterior.moments()[0]
    )
    result = {}
    for name, one in {"mean": centre, "draws": posterior}.items():
        predictive = one.predict(x, samples=SAMPLES, key=key)
        scored = evaluate(predictive, y, resamples=0)
        names = {"error": "error", "nll": "nll", "ece": "calibration_error"}
        result[name] = {short: scored[full].value for short, full in names.items()}
    return result

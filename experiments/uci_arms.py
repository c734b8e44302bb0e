"""The methods of the UCI experiment: their candidates, and how each is trained."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from posterax import priors
from posterax.fitting.fit import fit
from posterax.infer import MCLMC, DeepEnsemble
from posterax.likelihoods import Gaussian
from posterax.model import Model
from posterax.networks import MLP
from posterax.posteriors import Posterior

from .methods import bayes_by_backprop

Data = tuple[np.ndarray, np.ndarray]
Settings = dict[str, Any]


class Work(NamedTuple):
    """How long a set is trained on: epochs of minibatches, and steps of chains."""

    batch_size: int
    short: int  # epochs
    middle: int
    long: int
    training: int = 1000  # steps of Adam before a chain; 0: ``short`` epochs of minibatches
    warmup: int = 2000
    draws: int = 50  # of each chain
    between: int = 40  # integrator steps of a draw
    chains: int = 8
    study: int = 5  # splits whose training rows choose the settings


WORK = {
    "boston": Work(64, 200, 400, 1000),
    "concrete": Work(64, 200, 400, 1000),
    "power": Work(128, 30, 100, 300, 0, warmup=1000, draws=30, between=20, chains=4, study=2),
    "protein": Work(256, 30, 60, 120, 0, warmup=800, draws=25, between=20, chains=4, study=1),
    "wine": Work(64, 200, 400, 1000),
    "yacht": Work(32, 200, 400, 1000),
}


class Arm(NamedTuple):
    """A method: what it is called, what it tries on a set, and how it is trained.

    Example:
        >>> from experiments.uci_arms import ARMS, WORK
        >>> arm, work = ARMS["bbb"], WORK["yacht"]
        >>> method, options = arm.method(arm.candidates(work)[0], work)
        >>> method.temperature, options["epochs"]
        (1.0, 1000)
    """

    title: str
    predicted: bool  # whether the noise is an output of the network
    candidates: Callable[[Work], list[Settings]]
    method: Callable[[Settings, Work], tuple[Any, dict[str, Any]]]  # and how long to fit it
    samples: int | None = None  # that a prediction averages over


def _bbb(settings: Settings, work: Work) -> tuple[Any, dict[str, Any]]:
    method = bayes_by_backprop(
        estimator="local", learning_rate=1e-2, temperature=settings["temperature"]
    )
    return method, {"epochs": settings["epochs"], "batch_size": work.batch_size}


def _ensemble(settings: Settings, work: Work) -> tuple[Any, dict[str, Any]]:
    method = DeepEnsemble(settings["members"], learning_rate=1e-2, anchored=settings["anchored"])
    return method, {"epochs": settings["epochs"], "batch_size": work.batch_size}


def _chains(settings: Settings, work: Work) -> tuple[Any, dict[str, Any]]:
    method = MCLMC(
        chains=settings["chains"], warmup=work.warmup, ensemble_steps=work.training,
        steps_between=work.between,
    )  # fmt: skip
    return method, {"steps": work.draws}


def _variational(work: Work) -> list[Settings]:
    return [
        {"scale": scale, "temperature": temperature, "epochs": epochs}
        for scale in (1.0, 2.0)
        for temperature, epochs in (
            (1.0, work.long), (0.5, work.middle), (0.3, work.short), (0.3, work.middle),
        )
    ]  # fmt: skip


def _ensembles(work: Work) -> list[Settings]:
    return [
        {"scale": scale, "epochs": epochs, "anchored": anchored, "members": 5}
        for scale in (0.5, 1.0)
        for epochs, anchored in ((work.short, False), (work.middle, False), (work.middle, True))
    ]


def _chain_priors(work: Work) -> list[Settings]:
    return [{"scale": scale, "chains": work.chains} for scale in (1.0, 2.0, 4.0)]


ARMS = {
    "bbb": Arm("Bayes by Backprop", False, _variational, _bbb, samples=200),
    "bbb-noise": Arm("Bayes by Backprop, noise predicted", True, _variational, _bbb, samples=200),
    "ensemble": Arm("deep ensemble, noise predicted", True, _ensembles, _ensemble),
    "mclmc": Arm("MCLMC, noise predicted", True, _chain_priors, _chains),
}

# What held-out rows chose, as the study of a full run does, for budgets without one; where nothing
# is said, a method's first candidate.
CHOSEN: dict[str, dict[str, Settings]] = {
    "bbb": {
        "boston": {"scale": 2.0, "temperature": 0.3, "epochs": 200},
        "concrete": {"scale": 2.0, "temperature": 0.5, "epochs": 400},
        "wine": {"scale": 1.0, "temperature": 0.5, "epochs": 400},
        "yacht": {"scale": 2.0, "temperature": 0.3, "epochs": 400},
    },
    "bbb-noise": {
        "boston": {"scale": 1.0, "temperature": 0.3, "epochs": 400},
        "concrete": {"scale": 1.0, "temperature": 0.5, "epochs": 400},
        "wine": {"scale": 2.0, "temperature": 0.5, "epochs": 400},
        "yacht": {"scale": 1.0, "temperature": 0.5, "epochs": 400},
    },
    "ensemble": {
        "boston": {"scale": 0.5, "epochs": 400, "anchored": True, "members": 5},
        "concrete": {"scale": 0.5, "epochs": 400, "anchored": True, "members": 5},
        "wine": {"scale": 0.5, "epochs": 400, "anchored": True, "members": 5},
        "yacht": {"scale": 1.0, "epochs": 400, "anchored": False, "members": 5},
    },
    "mclmc": {
        "boston": {"scale": 2.0, "chains": 8},
        "concrete": {"scale": 2.0, "chains": 8},
        "wine": {"scale": 4.0, "chains": 8},
        "yacht": {"scale": 1.0, "chains": 8},
    },
}


def train(arm: Arm, data: Data, width: int, work: Work, settings: Settings, key: int) -> Posterior:
    """A network with one hidden layer, its posterior by this method."""
    network = MLP(data[0].shape[1], 1 + arm.predicted, (width,), key=key)
    noise = Gaussian("predicted" if arm.predicted else "learned", initial=0.3)
    method, options = arm.method(settings, work)
    model = Model(network, priors.Gaussian(settings["scale"], fan_in=True), noise)
    if isinstance(method, MCLMC) and not method.ensemble_steps:
        # all rows at each step of a large set would train the starts of chains slowly
        start = DeepEnsemble(method.chains, learning_rate=1e-2)
        length: dict[str, Any] = {"epochs": work.short, "batch_size": work.batch_size}
        options["init"] = fit(model, data, start, key=key, progress=False, **length)
    return fit(model, data, method, key=key, progress=False, **options)

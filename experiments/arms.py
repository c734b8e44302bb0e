"""What the experiments compare: point networks with their regularisers, and posteriors."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from posterax import priors
from posterax.fitting.fit import fit
from posterax.fitting.validation import Validation
from posterax.infer import (
    IVON,
    SWAG,
    DeepEnsemble,
    Laplace,
    MaximumAPosteriori,
    MaximumLikelihood,
    MCDropout,
    Method,
)
from posterax.likelihoods import Categorical
from posterax.model import Model
from posterax.posteriors import Posterior

from .methods import bayes_by_backprop
from .perceptrons import perceptron

RATE = 0.5  # of dropout
MIXTURE = priors.ScaleMixture(pi=0.5, sigma1=1.0, sigma2=float(np.exp(-6)))  # Blundell et al.


class Arm(NamedTuple):
    """A row: a network, its prior and method by the settings that may be chosen for it."""

    name: str
    point: bool
    method: Callable[[dict[str, float]], Method]
    candidates: tuple[dict[str, float], ...]
    kind: str = "plain"
    prior: Any = None  # default: N(0, scale²) where the settings have a scale
    patience: int | None = None  # of early stopping, in looks at the validation images


def _grid(rates: Iterable[float], scales: Iterable[float] = ()) -> tuple[dict[str, float], ...]:
    own: list[dict[str, float]] = [{"scale": scale} for scale in scales] or [{}]
    return tuple({"learning_rate": rate} | scale for rate in rates for scale in own)


def _likelihood(settings: dict[str, float]) -> Method:
    return MaximumLikelihood(settings["learning_rate"])


RATES = (3e-4, 1e-3, 3e-3, 1e-2)
POINTS = _grid(RATES)
SCALES = (0.1, 0.3, 1.0)
SCALED = _grid((1e-3, 3e-3), SCALES)
ARMS = (
    Arm("nothing", True, _likelihood, POINTS),
    Arm("early stopping", True, _likelihood, POINTS, patience=3),
    Arm("BatchNorm", True, _likelihood, POINTS, "batch_norm"),
    Arm("LayerNorm", True, _likelihood, POINTS, "layer_norm"),
    Arm("dropout", True, _likelihood, POINTS, "dropout"),
    Arm("weight decay", True, lambda s: MaximumAPosteriori(s["learning_rate"]), SCALED),
    Arm(
        "Bayes by Backprop", False,
        lambda s: bayes_by_backprop(kl_weights="blundell", learning_rate=s["learning_rate"]),
        POINTS, prior=MIXTURE,
    ),
    Arm("IVON", False, lambda s: IVON(s["learning_rate"]), _grid((0.5, 1.0), SCALES)),
    Arm(
        "MC dropout", False,
        lambda s: MCDropout(RATE, learning_rate=s["learning_rate"]), SCALED,
    ),
    Arm("SWAG", False, lambda s: SWAG(training=MaximumAPosteriori(s["learning_rate"])), SCALED),
    Arm(
        "Laplace", False,
        lambda s: Laplace("kronecker", prior_precision="fixed", learning_rate=s["learning_rate"]),
        SCALED,
    ),
    Arm(
        "deep ensemble", False,
        lambda s: DeepEnsemble(5, "ml", learning_rate=s["learning_rate"]), POINTS,
    ),
    Arm(
        "anchored ensemble", False,
        lambda s: DeepEnsemble(5, anchored=True, learning_rate=s["learning_rate"]), SCALED,
    ),
)  # fmt: skip


def train(
    arm: Arm,
    data: tuple[np.ndarray, np.ndarray],
    validation: tuple[np.ndarray, np.ndarray],
    settings: dict[str, float],
    seed: int,
    *,
    width: int,
    epochs: float,
    batch_size: int,
) -> Posterior:
    """One fit; the seed sets the start and the order of the batches."""
    network = perceptron(width, arm.kind, rate=RATE, key=seed)
    prior = arm.prior or priors.Gaussian(settings.get("scale", 1.0))
    watch = None if arm.patience is None else Validation(*validation, patience=arm.patience)
    return fit(
        Model(network, prior, Categorical()), data, arm.method(settings),
        epochs=epochs, batch_size=batch_size, key=seed, validation=watch, progress=False,
    )  # fmt: skip

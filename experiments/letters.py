r"""MNIST → notMNIST: do networks that learned digits know that a letter is none?

An anchored ensemble of MLPs (Pearce, Leibfried and Brintrup 2020): each member is a maximum a
posteriori under a prior N(w⁰, s²) around its own draw w⁰ ~ N(0, s²). Where the data say nothing, as
about the weights of pixels that no digit ever touches, a member stays at its anchor, and letters,
which fill the frame, meet weights on which the members disagree: the mutual information is large.
With ordinary weight decay the same weights fall to zero, and with none they stay at a small start.

Settings were chosen on digits held out from MNIST's training images and on Fashion-MNIST's training
images as what is no digit (the budget ``full`` does so again); letters choose nothing.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from posterax import priors
from posterax.fitting.fit import fit
from posterax.infer import DeepEnsemble
from posterax.likelihoods import Categorical
from posterax.metrics import evaluate
from posterax.model import Model
from posterax.networks import MLP
from posterax.posteriors import Posterior

from .data import inputs, load, spread
from .store import Store

HELD = 10_000  # of MNIST's training images, never trained on
STUDY_IMAGES, STUDY_HELD = 10_000, 2_000
SCALES: tuple[float | None, ...] = (None, 0.1, 0.3, 1.0, 3.0)  # None: maximum likelihood


class Budget(NamedTuple):
    """How large a run is."""

    images: int
    test: int  # digits, and as many letters and clothes
    width: int
    members: int
    scale: float
    epochs: float
    batch_size: int
    learning_rate: float
    study: bool = False


BUDGETS = {
    "quick": Budget(1_000, 300, 32, 5, 1.0, 5, 64, 3e-3),
    "cpu": Budget(50_000, 10_000, 200, 10, 1.0, 10, 128, 3e-3),
    "full": Budget(50_000, 10_000, 200, 10, 1.0, 10, 128, 3e-3, study=True),
}


def run(budget: str, seeds: int, keep: Callable[[dict[str, Any]], Store]) -> Store:
    """The ensemble for every seed, and with ``full`` the study that chose its prior."""
    size = BUDGETS[budget]
    digits, clothes, letters = load("mnist"), load("fashion_mnist"), load("notmnist_test")
    store = keep({"budget": budget, **size._asdict()})
    store.expect(
        [f"study/{scale}" for scale in (SCALES if size.study else ())]
        + [f"letters/{seed}" for seed in range(seeds)]
    )
    x, y, held = inputs(digits.x[:-HELD]), digits.y[:-HELD], inputs(digits.x[-HELD:])
    if size.study:
        few = (x[:STUDY_IMAGES], y[:STUDY_IMAGES])
        known = (held[:STUDY_HELD], digits.y[-HELD:][:STUDY_HELD])
        no_digits = {"Fashion-MNIST": inputs(clothes.x[:STUDY_HELD])}
        for scale in SCALES:
            store.get(f"study/{scale}", partial(one, few, known, no_digits, size, scale, 0))
    data = (x[: size.images], y[: size.images])
    chosen = spread(len(digits.y_test), size.test)
    test = (inputs(digits.x_test[chosen]), digits.y_test[chosen])
    others = {
        name: inputs(images.x_test[spread(len(images.y_test), size.test)])
        for name, images in {"notMNIST": letters, "Fashion-MNIST": clothes}.items()
    }
    for seed in range(seeds):
        store.get(f"letters/{seed}", partial(one, data, test, others, size, size.scale, seed))
    return store


def train(
    data: tuple[np.ndarray, np.ndarray], size: Budget, scale: float | None, seed: int
) -> Posterior:
    """The ensemble; without a scale its members are maximum likelihood, from different starts."""
    network = MLP(784, 10, (size.width, size.width), key=seed)
    inside = "ml" if scale is None else "map"
    rate, anchored = size.learning_rate, scale is not None
    method = DeepEnsemble(size.members, inside, learning_rate=rate, anchored=anchored)
    return fit(
        Model(network, priors.Gaussian(scale or 1.0), Categorical()), data, method,
        epochs=size.epochs, batch_size=size.batch_size, key=seed, progress=False,
    )  # fmt: skip


def one(
    data: tuple[np.ndarray, np.ndarray],
    known: tuple[np.ndarray, np.ndarray],
    others: dict[str, np.ndarray],
    size: Budget,
    scale: float | None,
    seed: int,
) -> dict[str, Any]:
    """A fit, its scores on digits, and how well each set of others is told from them."""
    from sklearn.metrics import roc_auc_score

    began = time.perf_counter()
    posterior = train(data, size, scale, seed)
    trained = time.perf_counter()
    inside = posterior.predict(known[0], key=seed)
    scored = evaluate(inside, known[1], resamples=0)
    result: dict[str, Any] = {
        "accuracy": 1 - scored["error"].value,
        "nll": scored["nll"].value,
        "ece": scored["calibration_error"].value,
        "entropy": float(inside.total.mean()),
    }
    for name, x in others.items():
        outside = posterior.predict(x, key=seed)
        labels = np.r_[np.zeros(len(inside)), np.ones(len(outside))]
        scores = {
            "epistemic": np.r_[inside.epistemic, outside.epistemic],
            "total": np.r_[inside.total, outside.total],
            "confidence": 1 - np.r_[inside.mean.max(-1), outside.mean.max(-1)],
        }
        result[name] = {f"auroc {k}": float(roc_auc_score(labels, v)) for k, v in scores.items()}
        result[name]["entropy"] = float(outside.total.mean())
        result[name]["confident"] = float(np.mean(outside.mean.max(-1) > 0.9))
    done = time.perf_counter()
    return result | {"seconds to train": trained - began, "seconds to predict": done - trained}

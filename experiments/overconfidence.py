r"""Over-confidence away from the data: point networks with their regularisers, and posteriors.

Three trainings on equally many images of MNIST, and what is asked of each:

- *all digits*: test digits; letters (notMNIST), which are none; digits turned by up to 180°;
- *unseen digits*: trained without 8 and 9, then shown all;
- *imbalanced*: of 2, 5 and 8 only 2 % as many as of the others; tested on all alike.

Every arm has the same architecture, epochs and batch size; what else it may choose (learning rate,
the prior's deviation) is chosen by the log likelihood of validation digits, which come from MNIST's
training images and are not trained on. Test digits, letters and turned digits choose nothing.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from posterax.errors import NonFiniteError
from posterax.metrics import expected_calibration_error

from .arms import ARMS, Arm, train
from .data import Images, inputs, load, rotated, spread
from .store import Store

UNSEEN, RARE, SHARE = (8, 9), (2, 5, 8), 0.02
ANGLES = tuple(range(0, 181, 15))
CONFIDENT = 0.9
TRAININGS = ("all digits", "unseen digits", "imbalanced")
CHOOSING = 1000  # the seed under which settings are chosen: none of those reported
SCORES = ("total", "epistemic", "confidence")

Arrays = tuple[np.ndarray, np.ndarray]


class Budget(NamedTuple):
    """How large a run is."""

    images: int  # to train on, in each of the three trainings
    validation: int
    test: int  # digits, and as many letters
    turned: int  # digits for each angle
    width: int
    epochs: float
    batch_size: int
    samples: int  # posterior draws a prediction
    choose: bool = True  # else the first settings of each arm


BUDGETS = {
    "quick": Budget(300, 100, 200, 50, 16, 2, 50, 4, choose=False),
    "cpu": Budget(5_000, 2_000, 2_000, 500, 200, 10, 128, 16),
    "full": Budget(30_000, 10_000, 10_000, 4_000, 400, 30, 128, 64),
}


def run(budget: str, seeds: int, keep: Callable[[dict[str, Any]], Store]) -> Store:
    """All arms, trainings and seeds; what the store has already is not made again."""
    size = BUDGETS[budget]
    digits, letters = load("mnist"), load("notmnist_test")
    arms = {arm.name: list(arm.candidates) for arm in ARMS}
    store = keep({"budget": budget, **size._asdict(), "angles": list(ANGLES), "arms": arms})
    store.expect(
        [f"{arm.name}/settings" for arm in (ARMS if size.choose else ())]
        + [f"{a.name}/{t}/{seed}" for a in ARMS for t in TRAININGS for seed in range(seeds)]
    )
    shown = Shown(digits, letters, size)
    for arm in ARMS:
        settings = choose(arm, digits, size, store)
        for seed in range(seeds):
            for training in TRAININGS:
                name = f"{arm.name}/{training}/{seed}"
                store.get(name, partial(one, arm, training, seed, settings, digits, shown))
    return store


def choose(arm: Arm, digits: Images, size: Budget, store: Store) -> dict[str, float]:
    """The settings with the best log likelihood on validation digits, by one fit each."""
    if not size.choose:
        return arm.candidates[0]

    def score() -> dict[str, Any]:
        data, held = split(digits, "all digits", CHOOSING, size)
        scores: list[float | None] = []
        for settings in arm.candidates:
            try:
                posterior = _train(arm, data, held, settings, CHOOSING, size)
            except NonFiniteError:  # settings that run away are not chosen
                scores.append(None)
                continue
            predictive = posterior.predict(held[0], key=CHOOSING, **_draws(arm, size))
            scores.append(-float(np.mean(predictive.log_prob(held[1]))))
        best = int(np.argmin([np.inf if nll is None else nll for nll in scores]))
        return {"candidates": list(arm.candidates), "nll": scores, "chosen": arm.candidates[best]}

    return store.get(f"{arm.name}/settings", score)["chosen"]


def one(
    arm: Arm, training: str, seed: int, settings: dict[str, float], digits: Images, shown: "Shown"
) -> dict[str, Any]:
    """A fit and all that is asked of it."""
    data, held = split(digits, training, seed, shown.size)
    posterior = _train(arm, data, held, settings, seed, shown.size)

    def look(x: np.ndarray, y: np.ndarray | None = None) -> Seen:
        predictive = posterior.predict(x, key=seed, **_draws(arm, shown.size))
        density = None if y is None else predictive.log_prob(y)
        return Seen(predictive.mean, predictive.total, predictive.epistemic, density)

    return shown.ask(training, look)


def _train(arm: Arm, data: Arrays, held: Arrays, settings: Any, seed: int, size: Budget) -> Any:
    return train(
        arm, data, held, settings, seed,
        width=size.width, epochs=size.epochs, batch_size=size.batch_size,
    )  # fmt: skip


def _draws(arm: Arm, size: Budget) -> dict[str, int]:
    exact = arm.point or "ensemble" in arm.name  # all there is
    return {} if exact else {"samples": size.samples}


def split(digits: Images, training: str, seed: int, size: Budget) -> tuple[Arrays, Arrays]:
    """Digits to train on and to validate with, drawn anew for every seed.

    The last ``validation`` images of MNIST's training part are for validation, with the classes and
    shares of the training: it knows no more than that.
    """
    rng = np.random.default_rng(seed)
    pool, held = np.arange(len(digits.y) - size.validation), np.arange(len(digits.y))
    held = held[-size.validation :]
    wanted = np.full(10, 1.0)
    if training == "unseen digits":
        wanted[list(UNSEEN)] = 0
        held = held[~np.isin(digits.y[held], UNSEEN)]
    elif training == "imbalanced":
        wanted[list(RARE)] = SHARE
        rare = [held[digits.y[held] == digit] for digit in RARE]
        few = [rows[: max(1, round(SHARE * len(rows)))] for rows in rare]
        held = np.concatenate([held[~np.isin(digits.y[held], RARE)], *few])
    counts = np.maximum(np.rint(size.images * wanted / wanted.sum()), wanted > 0).astype(int)
    counts[0] += size.images - counts.sum()  # rounding: every training has as many images
    chosen = [
        rng.choice(pool[digits.y[pool] == digit], count, replace=False)
        for digit, count in enumerate(counts)
    ]
    rows = rng.permutation(np.concatenate(chosen))
    return (inputs(digits.x[rows]), digits.y[rows]), (inputs(digits.x[held]), digits.y[held])


class Seen(NamedTuple):
    """What a method says about some inputs."""

    mean: np.ndarray
    total: np.ndarray
    epistemic: np.ndarray
    log_prob: np.ndarray | None = None  # of the right answers, where there are any

    def rows(self, chosen: np.ndarray) -> "Seen":
        density = None if self.log_prob is None else self.log_prob[chosen]
        return Seen(self.mean[chosen], self.total[chosen], self.epistemic[chosen], density)


class Shown:
    """The images that are asked about, the same for every arm and seed."""

    def __init__(self, digits: Images, letters: Images, size: Budget):
        self.size = size
        chosen = spread(len(digits.y_test), size.test)
        self.x, self.y = digits.x_test[chosen], digits.y_test[chosen]
        self.letters = inputs(letters.x_test[spread(len(letters.y_test), size.test)])
        self.to_turn = spread(size.test, size.turned)
        turned = self.x[self.to_turn]
        self.turned = {angle: inputs(rotated(turned, angle)) for angle in ANGLES}

    def ask(self, training: str, look: Callable[..., Seen]) -> dict[str, Any]:
        """All figures of one fit."""
        test = look(inputs(self.x), self.y)
        if training == "unseen digits":
            new = np.isin(self.y, UNSEEN)
            inside, outside = test.rows(~new), test.rows(new)
            known = fits(inside, self.y[~new])
            return {"test": known, "outside": away(inside, outside)}
        answers: dict[str, Any] = {"test": fits(test, self.y)}
        if training == "imbalanced":
            rare = np.isin(self.y, RARE)
            return answers | {
                "rare": fits(test.rows(rare), self.y[rare]),
                "common": fits(test.rows(~rare), self.y[~rare]),
            }
        answers["letters"] = away(test, look(self.letters))
        y = self.y[self.to_turn]
        turned = {angle: fits(look(x, y), y) for angle, x in self.turned.items()}
        answers["turned"] = {str(angle): scores for angle, scores in turned.items()}
        beyond = [scores for angle, scores in turned.items() if angle > 0]
        answers["turned, mean"] = {k: float(np.mean([s[k] for s in beyond])) for k in beyond[0]}
        return answers


def fits(seen: Seen, y: np.ndarray) -> dict[str, float]:
    """Scores of inputs that have a right answer."""
    confidence, right = seen.mean.max(-1), seen.mean.argmax(-1) == y
    assert seen.log_prob is not None
    return {
        "accuracy": float(right.mean()),
        "nll": float(-np.mean(seen.log_prob)),
        "ece": float(expected_calibration_error(seen.mean, y)),
        "entropy": float(seen.total.mean()),
        "confident": float((confidence > CONFIDENT).mean()),
        "confidently wrong": float(((confidence > CONFIDENT) & ~right).mean()),
    }


def away(inside: Seen, outside: Seen) -> dict[str, float | None]:
    """Scores of inputs that have none: entropy, confidence, and whether they can be told apart."""
    from sklearn.metrics import roc_auc_score

    labels = np.r_[np.zeros(len(inside.total)), np.ones(len(outside.total))]

    def auroc(score: Callable[[Seen], np.ndarray]) -> float | None:
        values = np.r_[score(inside), score(outside)]
        return float(roc_auc_score(labels, values)) if np.ptp(values) > 1e-6 else None

    return {
        "entropy": float(outside.total.mean()),
        "mutual information": float(outside.epistemic.mean()),
        "confident": float((outside.mean.max(-1) > CONFIDENT).mean()),
        "auroc total": auroc(lambda s: s.total),
        "auroc epistemic": auroc(lambda s: s.epistemic),
        "auroc confidence": auroc(lambda s: 1 - s.mean.max(-1)),
    }

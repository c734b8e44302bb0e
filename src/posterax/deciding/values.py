"""Decisions about values of y: exact for losses of known optimum, by draws for others."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .._util.checks import fraction
from ..metrics.inputs import aligned
from ..predictive import Predictive
from .options import Actions, Loss, LossFunction, Options, losses, named_actions

QUANTILES = 99  # of the predictive, tried as actions where none are given


def by_name(predictive: Predictive, loss: Loss, samples: int) -> Options:
    """Losses whose best action is a property of the predictive; several targets add up."""
    name, level, scale = loss, 0.5, 1.0
    if loss == "absolute":
        name, scale = "pinball", 2.0
    elif isinstance(loss, tuple) and len(loss) == 2:
        name, level = loss[0], fraction("τ", loss[1])
    if name not in ("squared", "pinball") or loss == "pinball":
        raise ValueError(
            f"loss must be 'squared', 'absolute', ('pinball', τ) or a function, got {loss!r}"
        )
    if name == "squared":
        lost = _LostByName(np.asarray(predictive.mean, np.float64), None, scale)
        risk = np.asarray(predictive.variance, np.float64).reshape(len(predictive), -1).sum(-1)
        error = np.zeros(risk.shape)
    else:
        lost = _LostByName(np.asarray(predictive.quantile(level), np.float64), level, scale)
        drawn = lost.of(np.asarray(predictive.sample(samples), np.float64))
        risk, error = drawn.mean(0), drawn.std(0) / np.sqrt(samples)

    def perfect(cost: np.ndarray) -> np.ndarray:
        return np.zeros(risk.shape) + np.minimum(cost, 0)

    return Options(lost.action, risk, risk[:, None], error, perfect, lost)


@dataclass(frozen=True)
class _LostByName:
    """What values cost by squared loss, or by pinball loss at a level."""

    action: np.ndarray
    level: float | None
    scale: float

    def __call__(self, y: ArrayLike) -> np.ndarray:
        return self.of(aligned(y, self.action.shape).astype(np.float64))

    def of(self, y: np.ndarray) -> np.ndarray:
        above = y - self.action
        if self.level is None:
            each = np.square(above)
        else:
            each = self.scale * np.maximum(self.level * above, (self.level - 1) * above)
        return each.reshape(*each.shape[: each.ndim - self.action.ndim + 1], -1).sum(-1)


def for_values(
    predictive: Predictive, loss: LossFunction, actions: Actions, samples: int
) -> Options:
    """The best of a set of actions, by draws of y that are the same for all of them."""
    targets = predictive.mean.shape
    drawn = np.asarray(predictive.sample(samples), np.float64)
    if targets[1:] == (1,):  # one target an example, whichever way it is written
        targets, drawn = targets[:1], drawn[..., 0]
    if actions is not None:
        named = named_actions(actions)
    elif len(targets) == 1:
        quantiles = predictive.quantile(np.arange(1, QUANTILES + 1) / (QUANTILES + 1))
        named = np.asarray(quantiles, np.float64).reshape(QUANTILES, -1)
    else:
        raise ValueError(f"actions must be given where an example has targets {targets[1:]}")
    shape, rows = drawn.shape[:2], np.arange(targets[0])
    least = np.full(shape, np.inf)
    means, errors = [], []
    for action in named:
        each = losses(loss, drawn, action, shape)
        means.append(each.mean(0))
        errors.append(each.std(0) / np.sqrt(samples))
        np.minimum(least, each, out=least)
    expected = np.stack(means, axis=-1)
    best = expected.argmin(-1)
    own = actions is None  # each example has candidates of its own

    def perfect(cost: np.ndarray) -> np.ndarray:
        return np.minimum(least, cost).mean(0)

    lost = _LostByFunction(loss, named, best, targets)
    return Options(
        named[best, rows] if own else named[best], expected.min(-1), expected,
        np.stack(errors)[best, rows], perfect, lost,
    )  # fmt: skip


@dataclass(frozen=True)
class _LostByFunction:
    """What the chosen actions cost by a function."""

    loss: LossFunction
    actions: np.ndarray
    best: np.ndarray
    targets: tuple[int, ...]

    def __call__(self, y: ArrayLike) -> np.ndarray:
        y = aligned(y, self.targets).astype(np.float64)
        each = [losses(self.loss, y, action, self.best.shape) for action in self.actions]
        return np.stack(each)[self.best, np.arange(len(self.best))]

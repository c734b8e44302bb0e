"""Decisions about values of y: exact for losses of known optimum, by draws for others."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._util.checks import fraction
from ..metrics.inputs import aligned
from .options import Options, losses, named_actions

QUANTILES = 99  # of the predictive, tried as actions where none are given


def by_name(predictive: Any, loss: Any, samples: int) -> Options:
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
    action = predictive.mean if name == "squared" else predictive.quantile(level)
    action = np.asarray(action, np.float64)

    lost = _LostByName(action, None if name == "squared" else level, scale)
    if name == "squared":
        risk = np.asarray(predictive.variance, np.float64).reshape(len(action), -1).sum(-1)
        error = np.zeros(risk.shape)
    else:
        drawn = lost.of(np.asarray(predictive.sample(samples), np.float64))
        risk, error = drawn.mean(0), drawn.std(0) / np.sqrt(samples)

    def perfect(cost: np.ndarray) -> np.ndarray:
        return np.zeros(risk.shape) + np.minimum(cost, 0)

    return Options(action, risk, risk[:, None], error, perfect, lost)


@dataclass(frozen=True)
class _LostByName:
    """What values cost by squared loss, or by pinball loss at a level."""

    action: np.ndarray
    level: float | None
    scale: float

    def __call__(self, y: Any) -> np.ndarray:
        return self.of(aligned(y, self.action.shape).astype(np.float64))

    def of(self, y: np.ndarray) -> np.ndarray:
        above = y - self.action
        if self.level is None:
            each = np.square(above)
        else:
            each = self.scale * np.maximum(self.level * above, (self.level - 1) * above)
        return each.reshape(*each.shape[: each.ndim - self.action.ndim + 1], -1).sum(-1)


def for_values(predictive: Any, loss: Callable[..., Any], actions: Any, samples: int) -> Options:
    """The best of a set of actions, by draws of y that are the same for all of them."""
    targets = predictive.mean.shape
    drawn = np.asarray(predictive.sample(samples), np.float64)
    if targets[1:] == (1,):  # one target an example, whichever way it is written
        targets, drawn = targets[:1], drawn[..., 0]
    if actions is not None:
        named = named_actions(actions)
    elif len(targets) == 1:
        found = predictive.quantile(np.arange(1, QUANTILES + 1) / (QUANTILES + 1))
        named = np.asarray(found, np.float64).reshape(QUANTILES, -1)
    else:
        raise ValueError(f"actions must be given where an example has targets {targets[1:]}")
    count = targets[0]
    shape = (samples, count)
    least = np.full(shape, np.inf)
    means, errors = [], []
    for action in named:
        each = losses(loss, drawn, action, shape)
        means.append(each.mean(0))
        errors.append(each.std(0) / np.sqrt(samples))
        np.minimum(least, each, out=least)
    expected = np.stack(means, axis=-1)
    best = expected.argmin(-1)
    rows = np.arange(count)
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

    loss: Callable[..., Any]
    actions: np.ndarray
    best: np.ndarray
    targets: tuple[int, ...]

    def __call__(self, y: Any) -> np.ndarray:
        y = aligned(y, self.targets).astype(np.float64)
        each = [losses(self.loss, y, action, self.best.shape) for action in self.actions]
        return np.stack(each)[self.best, np.arange(len(self.best))]

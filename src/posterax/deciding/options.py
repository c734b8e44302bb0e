"""What there is to choose from: exact for classes and for losses of known optimum, else by draws.

What a choice costs once y is known is a ``partial`` of a function here, so that it can be pickled.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from .._util.admit import admit_float64, check_finite
from .._util.checks import fraction
from ..metrics.inputs import Forecast, aligned, class_probabilities, is_predictive, labels
from ..predictive import Predictive

LossFunction: TypeAlias = Callable[..., ArrayLike]
Actions: TypeAlias = ArrayLike | None
Loss: TypeAlias = str | tuple[str, float] | ArrayLike | LossFunction
Costs: TypeAlias = tuple[float, float] | None  # of a unit too low and too high; None: squared

QUANTILES = 99  # of the predictive, tried as actions where none are given


class Options(NamedTuple):
    """The best action of each example, and what there was to choose from."""

    action: np.ndarray
    risk: np.ndarray
    expected: np.ndarray
    error: np.ndarray
    perfect: Callable[[np.ndarray], np.ndarray]  # of the cost of abstaining
    lost: Callable[[ArrayLike], np.ndarray]  # of y


# -- classes: expectations are sums


def for_classes(predictive: Forecast, loss: Loss, actions: Actions) -> Options:
    """The best column of a loss matrix, or the best action for a function."""
    one = not is_predictive(predictive) and np.ndim(predictive) == 1  # a single example
    given: Forecast = admit_float64(predictive, "predictive")[None] if one else predictive
    p = class_probabilities(given, "predictive")
    p = p[0] if one else p
    matrix, named = _loss_matrix(loss, actions, p.shape[-1])
    # zero-one: 1 − p, which orders the actions as p does to the last bit that 1 − p has
    expected = 1 - p if isinstance(loss, str) and actions is None else p @ matrix
    best, risk = expected.argmin(-1), expected.min(-1)
    return Options(
        named[best], risk, expected, np.zeros(risk.shape),
        lambda cost: np.sum(p * np.minimum(matrix.min(1), cost[..., None]), axis=-1),
        partial(_lost_by_matrix, matrix, best),
    )  # fmt: skip


def _lost_by_matrix(matrix: np.ndarray, best: np.ndarray, y: ArrayLike) -> np.ndarray:
    return matrix[labels(y, best.shape, len(matrix)), best]


def _loss_matrix(loss: Loss, actions: Actions, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Losses, classes × actions, and what the actions are called."""
    named = None if actions is None else _named_actions(actions)
    if is_name(loss):
        if loss != "zero_one":
            raise ValueError(
                "for classes loss must be 'zero_one', a matrix (classes × actions) or a function "
                f"of y and an action, got {loss!r}"
            )
        if named is not None and named.dtype.kind not in "biuf":
            raise ValueError(
                f"actions for 'zero_one' must be labels 0 to {classes - 1}, got {actions!r}; named "
                f"actions need a loss matrix, such as 1 - np.eye({classes})"
            )
        loss = np.not_equal
    if callable(loss):
        every = np.arange(classes)
        named = every if named is None else named
        return np.stack([_losses(loss, every, a, every.shape) for a in named], axis=1), named
    matrix = admit_float64(loss, "loss")
    named = np.arange(matrix.shape[-1] if matrix.ndim else 0) if named is None else named
    if not len(named) or matrix.shape != (classes, len(named)):
        columns = "a column for each action" if actions is None else f"{len(named)} columns"
        raise ValueError(
            f"the loss matrix must have {classes} rows and {columns}, got shape {matrix.shape}"
        )
    check_finite("loss", matrix)
    return matrix, named


# -- values


def is_name(loss: Loss) -> bool:
    """Whether the loss is one with a name, as "squared" or ("pinball", 0.9)."""
    return isinstance(loss[0] if isinstance(loss, tuple) and loss else loss, str)


def by_name(predictive: Predictive, loss: Loss, samples: int) -> Options:
    """Losses whose best action is a property of the predictive; several targets add up."""
    costs: Costs = None
    match loss:
        case "squared":
            best = predictive.mean
        case "absolute":
            costs, best = (1.0, 1.0), predictive.quantile(0.5)
        case ("pinball", given):
            level = fraction("τ", given)
            costs, best = (level, 1 - level), predictive.quantile(level)
        case _:
            raise ValueError(
                f"loss must be 'squared', 'absolute', ('pinball', τ) or a function, got {loss!r}"
            )
    action = np.asarray(best, np.float64)
    if costs is None:
        risk = np.asarray(predictive.variance, np.float64).reshape(len(predictive), -1).sum(-1)
        error = np.zeros(risk.shape)
    else:
        drawn = _named_losses(costs, action, np.asarray(predictive.sample(samples), np.float64))
        risk, error = drawn.mean(0), drawn.std(0) / np.sqrt(samples)
    return Options(
        action, risk, risk[:, None], error, lambda cost: np.zeros(risk.shape) + np.minimum(cost, 0),
        partial(_lost_by_name, costs, action),
    )  # fmt: skip


def _named_losses(costs: Costs, action: np.ndarray, y: np.ndarray) -> np.ndarray:
    above = y - action
    each = np.square(above) if costs is None else np.maximum(costs[0] * above, -costs[1] * above)
    return each.reshape(*each.shape[: each.ndim - action.ndim + 1], -1).sum(-1)


def _lost_by_name(costs: Costs, action: np.ndarray, y: ArrayLike) -> np.ndarray:
    return _named_losses(costs, action, aligned(y, action.shape).astype(np.float64))


def for_values(predictive: Predictive, loss: Loss, actions: Actions, samples: int) -> Options:
    """The best of a set of actions, by draws of y that are the same for all of them."""
    if not callable(loss):
        raise ValueError("a loss matrix is for classes: values need a named loss or a function")
    targets = predictive.mean.shape
    drawn = np.asarray(predictive.sample(samples), np.float64)
    if targets[1:] == (1,):  # one target an example, whichever way it is written
        targets, drawn = targets[:1], drawn[..., 0]
    if actions is not None:
        named = _named_actions(actions)
    elif len(targets) == 1:
        quantiles = predictive.quantile(np.arange(1, QUANTILES + 1) / (QUANTILES + 1))
        named = np.asarray(quantiles, np.float64).reshape(QUANTILES, -1)
    else:
        raise ValueError(f"actions must be given where an example has targets {targets[1:]}")
    shape, rows = drawn.shape[:2], np.arange(targets[0])
    least = np.full(shape, np.inf)
    means, errors = [], []
    for action in named:
        each = _losses(loss, drawn, action, shape)
        means.append(each.mean(0))
        errors.append(each.std(0) / np.sqrt(samples))
        np.minimum(least, each, out=least)
    expected = np.stack(means, axis=-1)
    best = expected.argmin(-1)
    own = actions is None  # each example has candidates of its own
    return Options(
        named[best, rows] if own else named[best], expected.min(-1), expected,
        np.stack(errors)[best, rows], lambda cost: np.minimum(least, cost).mean(0),
        partial(_lost_by_function, loss, named, best, targets),
    )  # fmt: skip


def _lost_by_function(
    loss: LossFunction, actions: np.ndarray, best: np.ndarray, shape: tuple[int, ...], y: ArrayLike
) -> np.ndarray:
    y = aligned(y, shape).astype(np.float64)
    each = [_losses(loss, y, action, best.shape) for action in actions]
    return np.stack(each)[best, np.arange(len(best))]


# -- functions and actions that a user gives


def _losses(
    loss: LossFunction, y: np.ndarray, action: ArrayLike, shape: tuple[int, ...]
) -> np.ndarray:
    """What an action costs for each y."""
    each = admit_float64(loss(y, action), "loss(y, action)")
    if each.shape not in ((), shape):
        raise ValueError(
            f"loss(y, action) must be one number for each example, shape {shape}, got {each.shape}"
        )
    if not np.all(np.isfinite(each)):
        raise ValueError(f"loss(y, action) must be finite, got NaN or infinity for {action!r}")
    return np.broadcast_to(each, shape)  # one number: the same for every y


def _named_actions(actions: ArrayLike) -> np.ndarray:
    named = np.asarray(actions)
    if named.ndim == 0 or not len(named):
        raise ValueError(f"actions must hold at least one action, got {actions!r}")
    return named

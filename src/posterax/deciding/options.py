"""What there is to choose from, whatever y is."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

LossFunction: TypeAlias = Callable[..., ArrayLike]
Actions: TypeAlias = ArrayLike | None
Loss: TypeAlias = str | tuple[str, float] | ArrayLike | LossFunction


class Options(NamedTuple):
    """The best action of each example, and what there was to choose from."""

    action: np.ndarray
    risk: np.ndarray
    expected: np.ndarray
    error: np.ndarray
    perfect: Callable[[np.ndarray], np.ndarray]  # of the cost of abstaining
    lost: Callable[[ArrayLike], np.ndarray]  # of y


def losses(
    loss: LossFunction, y: np.ndarray, action: ArrayLike, shape: tuple[int, ...]
) -> np.ndarray:
    """What an action costs for each y, by a function."""
    each = np.asarray(loss(y, action), np.float64)
    if each.shape not in ((), shape):
        raise ValueError(
            f"loss(y, action) must be one number for each example: for y of shape {y.shape} it "
            f"must have shape {shape}, got {each.shape}"
        )
    if not np.all(np.isfinite(each)):
        raise ValueError(f"loss(y, action) must be finite, got NaN or infinity for {action!r}")
    return np.broadcast_to(each, shape)  # one number: the same for every y


def is_name(loss: Loss) -> bool:
    """Whether the loss is one with a name, as "squared" or ("pinball", 0.9)."""
    first = loss[0] if isinstance(loss, tuple) and loss else loss
    return isinstance(first, str)


def named_actions(actions: ArrayLike) -> np.ndarray:
    """Actions as an array with one of them after the other."""
    named = np.asarray(actions)
    if named.ndim == 0 or not len(named):
        raise ValueError(f"actions must hold at least one action, got {actions!r}")
    return named

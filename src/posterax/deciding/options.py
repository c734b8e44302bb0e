"""What there is to choose from, whatever y is."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Options(NamedTuple):
    """The best action of each example, and what there was to choose from."""

    action: np.ndarray
    risk: np.ndarray
    expected: np.ndarray
    error: np.ndarray
    perfect: Callable[[np.ndarray], np.ndarray]  # of the cost of abstaining
    lost: Callable[[Any], np.ndarray]  # of y


def losses(
    loss: Callable[..., Any], y: np.ndarray, action: Any, shape: tuple[int, ...]
) -> np.ndarray:
    found = np.asarray(loss(y, action), np.float64)
    if found.shape == ():  # the same for every y
        found = np.broadcast_to(found, shape)
    if found.shape != shape:
        raise ValueError(
            f"loss(y, action) must be one number for each example: for y of shape {y.shape} it "
            f"must have shape {shape}, got {found.shape}"
        )
    if not np.all(np.isfinite(found)):
        raise ValueError(f"loss(y, action) must be finite, got NaN or infinity for {action!r}")
    return found


def is_name(loss: Any) -> bool:
    """Whether the loss is one with a name, as "squared" or ("pinball", 0.9)."""
    first = loss[0] if isinstance(loss, tuple) and loss else loss
    return isinstance(first, str)


def named_actions(actions: Any) -> np.ndarray:
    """Actions as an array with one of them after the other."""
    named = np.asarray(actions)
    if named.ndim == 0 or not len(named):
        raise ValueError(f"actions must hold at least one action, got {actions!r}")
    return named

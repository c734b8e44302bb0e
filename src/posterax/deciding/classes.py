"""Decisions about classes: expectations are sums."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..data import as_array, check_finite
from ..metrics.inputs import Forecast, class_probabilities, is_predictive, labels
from .options import Actions, Loss, Options, is_name, losses, named_actions


def for_classes(predictive: Forecast, loss: Loss, actions: Actions) -> Options:
    """The best column of a loss matrix, or the best action for a function."""
    one = not is_predictive(predictive) and np.ndim(predictive) == 1  # a single example
    given: Any = [predictive] if one else predictive
    p = class_probabilities(given, "predictive")
    p = p[0] if one else p
    matrix, named = _loss_matrix(loss, actions, p.shape[-1])
    # zero-one: 1 − p, which orders the actions as p does to the last bit that 1 − p has
    expected = 1 - p if isinstance(loss, str) and actions is None else p @ matrix
    best, risk = expected.argmin(-1), expected.min(-1)

    def perfect(cost: np.ndarray) -> np.ndarray:
        return np.sum(p * np.minimum(matrix.min(1), cost[..., None]), axis=-1)

    return Options(named[best], risk, expected, np.zeros(risk.shape), perfect, _Lost(matrix, best))


@dataclass(frozen=True)
class _Lost:
    """What the chosen columns of a matrix cost."""

    matrix: np.ndarray
    best: np.ndarray

    def __call__(self, y: ArrayLike) -> np.ndarray:
        return self.matrix[labels(y, self.best.shape, len(self.matrix)), self.best]


def _loss_matrix(loss: Loss, actions: Actions, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Losses, classes × actions, and what the actions are called."""
    named = None if actions is None else named_actions(actions)
    if is_name(loss):
        if loss != "zero_one":
            raise ValueError(
                f"for classes loss must be 'zero_one', a matrix (classes × actions) or a function "
                f"of y and an action, got {loss!r}"
            )
        if named is not None and named.dtype.kind not in "biuf":
            raise ValueError(
                f"actions for 'zero_one' must be labels 0 to {classes - 1}, got {actions!r}; for "
                f"named actions give the loss as a matrix, as 1 - np.eye({classes}) for the classes"
            )
        loss = np.not_equal
    if callable(loss):
        every = np.arange(classes)
        named = every if named is None else named
        columns = [losses(loss, every, action, every.shape) for action in named]
        return np.stack(columns, axis=1), named
    matrix = np.asarray(as_array(loss, "loss"), np.float64)
    if named is None and matrix.size:
        named = np.arange(matrix.shape[-1])
    if named is None or matrix.shape != (classes, len(named)):
        raise ValueError(
            f"the loss matrix must have {classes} rows, one for each class, and a column for each "
            f"action{'' if actions is None else f' ({np.size(actions)})'}, got shape {matrix.shape}"
        )
    check_finite("loss", matrix)
    return matrix, named

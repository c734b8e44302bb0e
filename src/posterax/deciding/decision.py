"""What ``px.decide`` returns."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class Realised(NamedTuple):
    """What decisions have cost, once y is known."""

    loss: float  # mean over all examples, with the cost of abstaining where that was done
    accepted: float  # the share that was decided
    loss_of_accepted: float  # mean over these; NaN if there are none


@dataclass(frozen=True)
class Decision:
    """Actions of least expected loss, one for each example; made by ``px.decide``.

    It can be pickled; for values with a loss function of one's own, if that can.

    Example:
        >>> import posterax as px
        >>> decision = px.decide([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]], "zero_one", abstain=0.3)
        >>> decision.action, round(decision.accepted, 2), round(decision.accepted_risk, 2)
        (array([ 0, -1,  1]), 0.67, 0.15)
        >>> decision.realised([0, 0, 0])
        Realised(loss=0.433..., accepted=0.666..., loss_of_accepted=0.5)
    """

    action: np.ndarray
    """What to do. Where abstained: −1 among class indices, NaN among numbers, None among others."""
    risk: np.ndarray
    """The expected loss of that: of the action, or the cost of abstaining."""
    expected: np.ndarray
    """The expected loss of every action, with the actions last."""
    abstained: np.ndarray
    """Where no action is worth its risk."""
    error: np.ndarray
    """The standard error of ``risk`` where it comes from draws of y; 0 where it is exact."""
    perfect: np.ndarray
    """The expected loss of someone who knows y before acting."""
    _lost: Callable[[ArrayLike], np.ndarray] = field(repr=False)
    _cost: np.ndarray = field(repr=False)  # of abstaining; infinite where that is no option

    @property
    def accepted(self) -> float:
        """The share of examples that is decided."""
        return 1 - float(np.mean(self.abstained))

    @property
    def accepted_risk(self) -> float:
        """The mean expected loss over the examples that are decided; NaN if there are none."""
        return _mean(np.asarray(self.risk)[~self.abstained])

    @property
    def value_of_information(self) -> np.ndarray:
        """What knowing y before acting is worth: risk − perfect, at least 0."""
        return np.maximum(self.risk - self.perfect, 0)  # rounding apart it is

    def realised(self, y: ArrayLike) -> Realised:
        """What these decisions cost where ``y`` came true."""
        lost = np.asarray(self._lost(y))
        loss = np.where(self.abstained, self._cost, lost)
        return Realised(float(np.mean(loss)), self.accepted, _mean(lost[~self.abstained]))


def _mean(losses: np.ndarray) -> float:
    return float(np.mean(losses)) if losses.size else float("nan")

r"""What to do, given what is believed: the action of least expected loss, or none at all.

    a*(x) = argmin_a E[ℓ(y, a) | x, D],   and abstain where even that expects more than c

A probability says what may be the case; a decision also needs what each mistake costs.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._util.admit import admit_float64, check_finite
from .._util.checks import whole_number
from ..metrics.inputs import Forecast, is_predictive, of_examples
from .options import Actions, Loss, by_name, for_classes, for_values, is_name


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
        return _mean(self.risk[~self.abstained])

    @property
    def value_of_information(self) -> np.ndarray:
        """What knowing y before acting is worth: risk − perfect, at least 0."""
        return np.maximum(self.risk - self.perfect, 0)  # rounding apart it is

    def realised(self, y: ArrayLike) -> Realised:
        """What these decisions cost where ``y`` came true."""
        lost = self._lost(y)
        loss = np.where(self.abstained, self._cost, lost)
        return Realised(float(np.mean(loss)), self.accepted, _mean(lost[~self.abstained]))


def decide(
    predictive: Forecast,
    loss: Loss,
    *,
    actions: Actions = None,
    abstain: ArrayLike | None = None,
    samples: int = 1000,
) -> Decision:
    r"""The action of least expected loss under a predictive, and where to abstain from acting.

    | predictive | ``loss`` | |
    | --- | --- | --- |
    | classes | ``"zero_one"`` | the most probable class |
    | | a matrix, classes × actions | exact |
    | | a function of y and an action | exact |
    | regression, counts | ``"squared"`` | the mean |
    | | ``"absolute"`` | the median; its risk from draws of y |
    | | ``("pinball", τ)`` | the quantile τ, where too low costs τ a unit and too high 1 − τ |
    | | a function of y and an action | the best of ``actions``, by draws of y |

    Args:
        predictive: a ``Predictive``, or class probabilities with the classes last.
        loss: what each action costs for each y, as above. A function is given an array of y and one
            action at a time (of several targets an example, y has them last), and returns the
            losses: one for each example and draw.
        actions: the actions to choose from: numbers or names. For classes by default the classes,
            or the columns of the matrix; for a function of values the predictive's quantiles at
            1 %, 2 %, … 99 %.
        abstain: what it costs to leave an example undecided (Chow 1970): a number, or one for each
            (of several labels an example, for each of them).
        samples: draws of y, where the risk comes from draws.

    Example:
        >>> import posterax as px
        >>> animals = [0.4, 0.3, 0.2, 0.1]  # dog, wolf, cat, another
        >>> int(px.decide(animals, "zero_one").action)  # the most probable: a dog
        0
        >>> loss = [[0, 1], [20, 0], [0, 1], [0, 1]]  # to stroke a wolf costs 20
        >>> choice = px.decide(animals, loss, actions=["stroke", "keep away"])
        >>> str(choice.action), choice.expected.round(2)
        ('keep away', array([6. , 0.7]))

    References:
        Berger, Statistical Decision Theory and Bayesian Analysis, 1985.
        Chow, On Optimum Recognition Error and Reject Tradeoff, IEEE Transactions on Information
        Theory 1970.
    """
    samples = whole_number("samples", samples)
    if not is_predictive(predictive) or predictive.kind == "classification":
        options = for_classes(predictive, loss, actions)
    elif is_name(loss) and actions is None:
        options = by_name(predictive, loss, samples)
    elif is_name(loss):
        raise ValueError(f"the best action for {loss!r} is known exactly: leave actions out")
    else:
        options = for_values(predictive, loss, actions, samples)
    cost = np.asarray(np.inf)
    if abstain is not None:
        cost = admit_float64(abstain, "abstain")
        check_finite("abstain", cost)
        if cost.shape != ():
            cost = of_examples(cost, options.risk.shape, "abstain")
    undecided, action = options.risk > cost, options.action
    if abstain is not None:
        action = _without(action, undecided, indices=actions is None)
    return Decision(
        action, np.minimum(options.risk, cost), options.expected, undecided,
        np.where(undecided, 0, options.error), options.perfect(cost), options.lost, cost,
    )  # fmt: skip


def _without(action: np.ndarray, undecided: np.ndarray, indices: bool) -> np.ndarray:
    """Actions with a mark where there is none."""
    kind = action.dtype.kind
    mark = -1 if indices and kind == "i" else np.nan if kind in "biuf" else np.array(None)
    each = np.reshape(undecided, undecided.shape + (1,) * (action.ndim - undecided.ndim))
    return np.where(each, mark, action)


def _mean(losses: np.ndarray) -> float:
    return float(np.mean(losses)) if losses.size else float("nan")

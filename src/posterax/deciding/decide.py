r"""What to do, given what is believed: the action of least expected loss, or none at all.

    a*(x) = argmin_a E[ℓ(y, a) | x, D],   and abstain where even that expects more than c

A probability says what may be the case; a decision also needs what each mistake costs.
"""

import numpy as np
from numpy.typing import ArrayLike

from .._util.checks import whole_number
from ..data import as_array, check_finite
from ..metrics.inputs import Forecast, is_predictive, of_examples
from .classes import for_classes
from .decision import Decision
from .options import Actions, Loss, is_name
from .values import by_name, for_values


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
    elif callable(loss):
        options = for_values(predictive, loss, actions, samples)
    else:
        raise ValueError(
            "a loss matrix is for classes; for regression and counts loss must be 'squared', "
            "'absolute', ('pinball', τ) or a function of y and an action"
        )
    cost, action = np.asarray(np.inf), options.action
    if abstain is not None:
        cost = np.asarray(as_array(abstain, "abstain"), np.float64)
        check_finite("abstain", cost)
        if cost.shape != ():
            cost = of_examples(cost, options.risk.shape, "abstain")
    undecided = options.risk > cost
    if abstain is not None:
        action = _without(action, undecided, indices=actions is None)
    return Decision(
        action, np.minimum(options.risk, cost), options.expected, undecided,
        np.where(undecided, 0, options.error), options.perfect(cost), options.lost, cost,
    )  # fmt: skip


def _without(action: np.ndarray, undecided: np.ndarray, indices: bool) -> np.ndarray:
    """Actions with a mark where there is none."""
    kind = action.dtype.kind
    if indices and kind == "i":
        return np.where(undecided, -1, action)
    if kind in "biuf":
        each = undecided.reshape(*undecided.shape, *[1] * (action.ndim - undecided.ndim))
        return np.where(each, np.nan, action)
    return np.where(undecided, np.array(None), action)

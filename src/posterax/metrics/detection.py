"""How uncertain each prediction is, and how well that tells outside inputs from inside ones."""

from typing import NamedTuple

import numpy as np
from scipy.special import entr

from .._util.admit import check_finite
from .._util.checks import one_of
from .inputs import Forecast, class_probabilities, is_predictive, plain_array, predicts_values

SCORES = ("epistemic", "aleatoric", "total", "confidence", "variance")


def uncertainty_score(predictive: Forecast, name: str = "total") -> np.ndarray:
    """The uncertainty of each prediction by one of the usual scores; larger is less certain.

    | name | classes | regression and counts |
    | --- | --- | --- |
    | ``"epistemic"`` | mutual information of y and w | Var_w(E[y given w]) |
    | ``"aleatoric"`` | expected entropy | E_w(Var[y given w]) |
    | ``"total"`` | entropy of the mean probabilities | Var[y] |
    | ``"confidence"`` | 1 − the largest probability | |
    | ``"variance"`` | Var_w of the probabilities, summed over classes | Var[y] |

    Several targets of one example are summed in regression. Probabilities without a posterior
    have ``"total"`` and ``"confidence"``.

    Args:
        predictive: a ``Predictive``, or class probabilities (N, K).
        name: which score.

    Example:
        >>> from posterax.metrics import uncertainty_score
        >>> uncertainty_score([[1.0, 0.0], [0.5, 0.5]], "total").round(4)
        array([0. , 0.6931])
        >>> uncertainty_score([[1.0, 0.0], [0.5, 0.5]], "confidence")
        array([0. , 0.5])
    """
    one_of("the score", name, SCORES)
    if predicts_values(predictive):
        if name == "confidence":
            raise ValueError("the score 'confidence' is for classes; take 'total' for regression")
        part = getattr(predictive, name)
        return part.reshape(len(part), -1).sum(-1)
    if name == "confidence":
        return 1 - class_probabilities(predictive).max(-1)
    if is_predictive(predictive):
        part = getattr(predictive, name)
        return part.sum(-1) if name == "variance" else part
    if name != "total":
        raise ValueError(
            f"the score {name!r} needs a Predictive: probabilities alone do not say how much of "
            "their spread is epistemic. They have 'total' and 'confidence'"
        )
    return entr(class_probabilities(predictive)).sum(-1)


class Detection(NamedTuple):
    """Areas under the curves of a detector of outside inputs; 1 is perfect."""

    auroc: float  # P(score outside > score inside), ties counting half; 0.5 is chance
    aupr_out: float  # average precision with outside as the positives; chance is their share
    aupr_in: float  # and with inside as the positives, by the negated score


def detection(inside: Forecast, outside: Forecast, score: str = "epistemic") -> Detection:
    """AUROC and average precision of out-of-distribution detection by an uncertainty score.

    Equal scores count half in the AUROC and enter the precision together, so that the order of
    examples is of no matter (scikit-learn's ``roc_auc_score`` and ``average_precision_score``).

    Args:
        inside: a ``Predictive`` for inputs like those of the training; or class probabilities
            (N, K); or scores (N,), larger for outside.
        outside: the same for other inputs.
        score: a name for ``uncertainty_score``, for predictives and probabilities.

    Example:
        >>> from posterax.metrics import detection
        >>> detection([0.1, 0.2, 0.5], [0.5, 0.9])
        Detection(auroc=0.916..., aupr_out=0.833..., aupr_in=0.916...)

    References:
        Hendrycks & Gimpel, A Baseline for Detecting Misclassified and Out-of-Distribution Examples
        in Neural Networks, ICLR 2017.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    low, high = scores_of(inside, "inside", score), scores_of(outside, "outside", score)
    scores = np.concatenate([low, high])
    out = np.concatenate([np.zeros(len(low)), np.ones(len(high))])
    return Detection(
        float(roc_auc_score(out, scores)),
        float(average_precision_score(out, scores)),
        float(average_precision_score(1 - out, -scores)),
    )


def detection_by_score(inside: Forecast, outside: Forecast) -> dict[str, Detection]:
    """``detection`` by every score that these predictions have.

    Example:
        >>> from posterax.metrics import detection_by_score
        >>> by_score = detection_by_score([[0.9, 0.1], [0.8, 0.2]], [[0.6, 0.4]])
        >>> {name: each.auroc for name, each in by_score.items()}
        {'total': 1.0, 'confidence': 1.0}
    """
    known = SCORES if is_predictive(inside) else ("total", "confidence")
    missing = "confidence" if predicts_values(inside) else None
    return {name: detection(inside, outside, name) for name in known if name != missing}


def scores_of(given: Forecast, name: str, score: str) -> np.ndarray:
    """The score of every example: of predictions, or as they are given."""
    scores = None if is_predictive(given) else plain_array(given, name)
    if scores is None or scores.ndim > 1:
        scores = np.ravel(uncertainty_score(given, score))
    if scores.size == 0:
        raise ValueError(f"{name} holds no examples")
    check_finite(name, scores)
    return scores

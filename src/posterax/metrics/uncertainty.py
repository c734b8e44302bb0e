"""One number for how uncertain each prediction is, larger where it is more so."""

import numpy as np

from .inputs import Forecast, class_probabilities, is_predictive

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
    if name not in SCORES:
        raise ValueError(f"the score must be one of {', '.join(SCORES)}, got {name!r}")
    if is_predictive(predictive) and predictive.kind != "classification":
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
    from scipy.special import entr

    return entr(class_probabilities(predictive)).sum(-1)

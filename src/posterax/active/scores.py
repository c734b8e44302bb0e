r"""How much a label would tell: one number for each input, the larger the better.

With posterior draws w, p̄ = E_w p the class probabilities, V_e and V_a the epistemic and the
aleatoric part of the variance of y:

    bald             I[y; w] = H[p̄] − E_w H[p],    ½ log |V_e + V_a| / |V_a| for values
    entropy          H[p̄],                         ½ log |2πe (V_e + V_a)| for values
    variation_ratio  1 − max_k p̄_k
    variance         Σ_k Var_w p_k,                 tr V_e for values

Predictives stream, so that a pool of any size is scored in bounded memory. Several targets of one
input count together.
"""

from collections.abc import Callable
from typing import Literal

import jax
import numpy as np

from .. import information
from .._util.checks import one_of
from .._util.keys import KeyLike, as_key
from ..metrics.inputs import Forecast, class_probabilities, is_predictive
from ..predictive import Predictive

LOG_2PIE = float(np.log(2 * np.pi * np.e))
LEAST = np.finfo(np.float32).tiny


def bald(predictive: Predictive) -> np.ndarray:
    r"""I[y; w]: what the label would tell about the weights, in nats.

    Exact for classes, over the draws of the predictive. For regression it is that of a Gaussian
    E[y | w] with Gaussian noise, ½ log |V_e + V_a| / |V_a|; for counts, entropies by draws of y.

    Args:
        predictive: of more than one posterior sample.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> network = px.networks.MLP(1, 3, (8,), key=0)
        >>> model = px.Model(network, likelihood=px.likelihoods.Categorical())
        >>> x = np.array([[0.1], [9.0]], "float32")
        >>> near, far = px.active.bald(px.prior_posterior(model, x).predict(x, key=0))
        >>> bool(near < far)
        True

    Reference:
        Houlsby, Huszár, Ghahramani and Lengyel, Bayesian Active Learning for Classification and
        Preference Learning, 2011; with dropout: Gal, Islam and Ghahramani, Deep Bayesian Active
        Learning with Image Data, ICML 2017.
    """
    _several(predictive, "bald")
    if predictive.kind == "classification":
        return together(predictive.epistemic)
    if predictive.kind == "counts":
        return together(predictive.parts("entropy").epistemic)
    return 0.5 * (_log_det(predictive, "total") - _log_det(predictive, "aleatoric"))


def entropy(predictive: Forecast) -> np.ndarray:
    """H[y]: how open the label is, whether or not anything could be learned from it.

    For regression that of a Gaussian with the predictive's covariance.

    Args:
        predictive: what a posterior predicts, or class probabilities (N, K).

    Example:
        >>> import posterax as px
        >>> px.active.entropy([[0.5, 0.5], [1.0, 0.0]]).round(3)
        array([0.693, 0.   ])
    """
    if not is_predictive(predictive):
        return together(information.entropy(class_probabilities(predictive, "predictive")))
    if predictive.kind == "classification":
        return together(predictive.total)
    if predictive.kind == "counts":
        return together(predictive.parts("entropy").total)
    outputs = int(np.prod(predictive.mean.shape[1:]))
    return 0.5 * (_log_det(predictive, "total") + outputs * LOG_2PIE)


def variation_ratio(predictive: Forecast) -> np.ndarray:
    """1 − max_k p̄_k: the probability that the most probable class is wrong.

    Args:
        predictive: of classes, or class probabilities (N, K).

    Example:
        >>> import posterax as px
        >>> px.active.variation_ratio([[0.5, 0.5], [1.0, 0.0]])
        array([0.5, 0. ])

    Reference:
        Freeman, Elementary Applied Statistics, 1965.
    """
    if is_predictive(predictive) and predictive.kind != "classification":
        raise ValueError(
            f"by: variation_ratio is for classes, and the predictive is of {predictive.kind}; "
            "use 'bald' or 'variance'"
        )
    return together(1 - class_probabilities(predictive, "predictive").max(-1))


def variance(predictive: Predictive, part: str = "epistemic") -> np.ndarray:
    """The variance of y, summed over targets; for classes that of the indicators of the classes.

    Args:
        predictive: what a posterior predicts.
        part: ``"epistemic"`` (what labels would remove) or ``"total"``.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> model = px.Model(px.networks.MLP(1, 1, (8,), key=0), None, px.likelihoods.Gaussian(0.1))
        >>> x = np.array([[0.1], [9.0]], "float32")
        >>> near, far = px.active.variance(px.prior_posterior(model, x).predict(x, key=0))
        >>> bool(near < far)
        True
    """
    one_of("part", part, ("epistemic", "total"))
    if part == "epistemic":
        _several(predictive, "variance")
    return together(getattr(predictive.parts("variance"), part))


def random(n: int, key: KeyLike) -> np.ndarray:
    """Scores that mean nothing: the baseline that every other has to beat.

    Args:
        n: how many.
        key: an int or a JAX key.

    Example:
        >>> import posterax as px
        >>> px.active.random(3, key=0).shape
        (3,)
    """
    return generator(key).random(n)


SCORES: dict[str, Callable[..., np.ndarray]] = {
    "bald": bald,
    "entropy": entropy,
    "variation_ratio": variation_ratio,
    "variance": variance,
}


def generator(key: KeyLike) -> np.random.Generator:
    """numpy's generator for a key: choosing a few of many rows happens on the host."""
    return np.random.default_rng(np.asarray(jax.random.key_data(as_key(key))).tolist())


def together(values: np.ndarray) -> np.ndarray:
    """One number for each input, (N,): summed over its targets."""
    values = np.asarray(values, np.float64)
    return values.reshape(len(values), -1).sum(-1)


def _several(predictive: Predictive, by: str) -> None:
    if not is_predictive(predictive):
        raise TypeError(
            f"by={by!r} needs a Predictive (posterior.predict makes one), whose posterior samples "
            f"may disagree; got {type(predictive).__name__}"
        )
    if predictive.samples < 2:
        raise ValueError(
            f"by={by!r} needs posterior samples that may disagree, and there is one only (a point "
            "estimate?): use 'entropy', or a method that gives a posterior"
        )


def _log_det(predictive: Predictive, part: Literal["total", "aleatoric"]) -> np.ndarray:
    """log |V| of each input; several targets have a covariance."""
    if int(np.prod(predictive.mean.shape[1:])) == 1:
        values = np.asarray(getattr(predictive, part), np.float64).reshape(len(predictive))
        return np.log(np.maximum(values, LEAST))
    return np.linalg.slogdet(predictive.covariance(part).astype(np.float64))[1]

r"""Which inputs to ask about next: those with the best scores, or the best batch.

A score says how much a label would tell, in one number for each input. With posterior draws w,
p̄ = E_w p the class probabilities, V_e and V_a the epistemic and the aleatoric part of the variance
of y:

    bald             I[y; w] = H[p̄] − E_w H[p],    ½ log |V_e + V_a| / |V_a| for values
    entropy          H[p̄],                         ½ log |2πe (V_e + V_a)| for values
    variation_ratio  1 − max_k p̄_k
    variance         Σ_k Var_w p_k,                 tr V_e for values

Predictives stream, so that a pool of any size is scored in bounded memory. Several targets of one
input count together.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from .. import information
from .._util.admit import admit_float64
from .._util.checks import one_of, whole_number
from .._util.keys import KeyLike
from ..metrics.inputs import Forecast, class_probabilities, is_predictive, predicts_values
from ..predictive import Predictive
from .batches import batch_bald, check_left, diverse, generator

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
    if predicts_values(predictive):
        raise ValueError("by: variation_ratio is for classes; use 'bald' or 'variance'")
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
    score.__name__: score for score in (bald, entropy, variation_ratio, variance)
}


def together(values: np.ndarray) -> np.ndarray:
    """One number for each input, (N,): summed over its targets."""
    values = np.asarray(values, np.float64)
    return values.reshape(len(values), -1).sum(-1)


def _several(predictive: Predictive, by: str) -> None:
    if not is_predictive(predictive):
        raise TypeError(
            f"by={by!r} needs a Predictive (posterior.predict makes one), got "
            f"{type(predictive).__name__}"
        )
    if predictive.samples < 2:
        raise ValueError(
            f"by={by!r} needs posterior samples that may disagree; a point estimate has one: use "
            "'entropy', or a method that gives a posterior"
        )


def _log_det(predictive: Predictive, part: Literal["total", "aleatoric"]) -> np.ndarray:
    """log |V| of each input; several targets have a covariance."""
    if int(np.prod(predictive.mean.shape[1:])) == 1:
        values = np.asarray(getattr(predictive, part), np.float64).reshape(len(predictive))
        return np.log(np.maximum(values, LEAST))
    return np.linalg.slogdet(predictive.covariance(part).astype(np.float64))[1]


# -- choosing

BATCHES = ("batch_bald", "diverse")
NAMES = (*SCORES, *BATCHES, "random")
BATCH_BALD = 1000  # inputs among which it chooses: each is compared with 10,000 configurations
BATCH_BYTES = 2**26  # of predictions of all samples, held at once to choose a batch

By: TypeAlias = str | Callable[[Predictive], ArrayLike]


def pick(
    predictive: Forecast,
    n: int,
    *,
    by: By = "bald",
    exclude: ArrayLike = (),
    candidates: int | None = None,
    key: KeyLike = 0,
) -> np.ndarray:
    """The ``n`` inputs whose labels to ask for.

    Args:
        predictive: what a posterior predicts for the pool; or a score for each input, of which the
            largest are chosen.
        n: how many.
        by: ``"bald"``, ``"entropy"``, ``"variation_ratio"``, ``"variance"`` or ``"random"``: the
            largest scores; ``"batch_bald"`` or ``"diverse"``: inputs that tell most together; or a
            function of the predictive that returns scores.
        exclude: inputs that must not be chosen, since their labels are there: their numbers, or an
            array of booleans, true for them.
        candidates: of how many, the best by BALD, a batch is chosen (default: 1000 for BatchBALD;
            as many as leave their predictions in 64 MiB, 16,000 of 10 classes and 100 samples, for
            the diverse). What an input adds to a batch is never more than its own BALD, so that
            little is lost.
        key: breaks ties, and is behind all that is random.

    Returns:
        Their numbers, the best first.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> px.active.pick([0.1, 0.9, 0.5], 2)
        array([1, 2])
        >>> model = px.Model(px.networks.MLP(1, 1, (8,), key=0), None, px.likelihoods.Gaussian(0.1))
        >>> x = np.linspace(0, 5, 6)[:, None].astype("float32")
        >>> px.active.pick(px.prior_posterior(model, x).predict(x, key=0), 1)
        array([5])
    """
    check_by(by)
    left = left_of(len(predictive), exclude)  # type: ignore[arg-type]
    n = check_left(n, len(left))
    if isinstance(by, str) and by in BATCHES:
        return left[_batch(predictive, left, n, by, candidates, key)]  # type: ignore[arg-type]
    scores = scores_of(predictive, by, key)[left]
    order = generator(key).permutation(len(left))  # equal scores in random order
    return left[order[np.argsort(-scores[order], kind="stable")[:n]]]


def left_of(size: int, exclude: ArrayLike) -> np.ndarray:
    """The numbers of the inputs of a pool that may be chosen."""
    rows = np.asarray(exclude).reshape(-1)
    if rows.dtype == bool:
        if len(rows) != size:
            raise ValueError(f"exclude: a mask has one for each of {size} inputs, got {len(rows)}")
        return np.flatnonzero(~rows)
    if rows.size and not np.issubdtype(rows.dtype, np.integer):
        raise TypeError(f"exclude must be numbers of inputs or booleans, got {rows.dtype}")
    wrong = rows[(rows < 0) | (rows >= size)]
    if wrong.size:
        raise ValueError(f"exclude: there is no input {wrong[0]} in a pool of {size}")
    return np.setdiff1d(np.arange(size), rows)


def scores_of(predictive: Forecast, by: By, key: KeyLike) -> np.ndarray:
    """One score for each input, by a name or a function; an array of them is checked."""
    size = len(predictive)  # type: ignore[arg-type]
    if not is_predictive(predictive) and np.ndim(predictive) == 1:
        scores = predictive
    elif by == "random":
        scores = random(size, key)
    else:
        scores = (by if callable(by) else SCORES[by])(predictive)  # type: ignore[arg-type]
    scores = admit_float64(scores, "scores")
    if scores.shape != (size,) or np.any(np.isnan(scores)):
        got = "NaN" if scores.shape == (size,) else f"shape {scores.shape}"
        raise ValueError(f"by must give one number for each of {size} inputs, got {got}")
    return scores


def check_by(by: By) -> None:
    """Refuse what is neither a known name nor a function."""
    if not callable(by) and by not in NAMES:
        names = ", ".join(map(repr, NAMES))
        raise ValueError(f"by must be one of {names}, or a function of a predictive, got {by!r}")


def _batch(
    predictive: Predictive, left: np.ndarray, n: int, by: str, candidates: int | None, key: KeyLike
) -> np.ndarray:
    _several(predictive, by)
    classes = predictive.kind == "classification"
    if by == "batch_bald" and not classes:
        raise ValueError(f"by='batch_bald' is for classes, not {predictive.kind}: use 'diverse'")
    scores = bald(predictive)[left]
    each = 4 * predictive.samples * int(np.prod(predictive.mean.shape[1:]))
    most = BATCH_BALD if by == "batch_bald" else BATCH_BYTES // each
    most = max(n, most if candidates is None else whole_number("candidates", candidates))
    best = np.argsort(-scores, kind="stable")[:most]
    few = predictive if len(best) == len(predictive) else predictive.at(left[best])
    if few is predictive:
        best = np.arange(len(best))
    means, weights = few.conditional_means(), predictive.weights.astype(np.float64)
    if by == "batch_bald":
        return best[batch_bald(means, n, weights=weights, key=key)[0]]
    # p̄ is where a class is impossible; its probability does not vary there
    noise = np.maximum(few.mean, 1e-12) if classes else few.aleatoric
    return best[diverse(means, noise, n, weights=weights)[0]]

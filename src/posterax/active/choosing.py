"""Which inputs to ask about next: the best by a score, or the best batch."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from .._util.checks import whole_number
from .._util.keys import KeyLike
from ..metrics.inputs import Forecast, is_predictive
from ..predictive import Predictive
from .batches import batch_bald, check_left, diverse
from .scores import SCORES, bald, generator, random

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
        return left[_batch(predictive, left, n, by, candidates, key)]
    scores = scores_of(predictive, by, key)[left]
    order = generator(key).permutation(len(left))  # equal scores in random order
    return left[order[np.argsort(-scores[order], kind="stable")[:n]]]


def left_of(size: int, exclude: ArrayLike) -> np.ndarray:
    """The numbers of the inputs of a pool that may be chosen."""
    rows = np.asarray(exclude).reshape(-1)
    if rows.dtype == bool:
        if len(rows) != size:
            raise ValueError(
                f"exclude: a mask must have one entry for each of {size} inputs, got {len(rows)}"
            )
        return np.flatnonzero(~rows)
    if rows.size and not np.issubdtype(rows.dtype, np.integer):
        raise TypeError(f"exclude must be numbers of inputs or booleans, got {rows.dtype}")
    wrong = rows[(rows < 0) | (rows >= size)]
    if wrong.size:
        raise ValueError(
            f"exclude: there is no input {wrong[0]} in a pool of {size}, 0 … {size - 1}"
        )
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
    scores = np.asarray(scores, np.float64)
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
    predictive: Forecast, left: np.ndarray, n: int, by: str, candidates: int | None, key: KeyLike
) -> np.ndarray:
    if not is_predictive(predictive):
        raise TypeError(
            f"by={by!r} needs a Predictive (posterior.predict makes one), got "
            f"{type(predictive).__name__}"
        )
    classes = predictive.kind == "classification"
    if by == "batch_bald" and not classes:
        raise ValueError(
            f"by='batch_bald' is for classes, and the predictive is of {predictive.kind}: use "
            "'diverse'"
        )
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

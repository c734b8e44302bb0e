r"""What averaging over all folds changes in a blend that was judged fold by fold.

A row left out is answered by the networks of one fold, a new row by those of all K. The mean of
several has a smaller error than one of them, and says so less surely than it could. What all folds
say is asked of rows that none has seen, each made of two near ones.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from ..posteriors import Blend
from ..predictive import Predictive
from .auto import Blended, answer
from .standardise import Rows

NEAR = 10  # rows, the row itself among them, of which another is made
MOST_NEW = 500
MOST_LEFT_OUT = 2000  # rows, to measure a temperature with
PRIOR = 0.25  # deviation of the logarithm of a temperature, before any row is seen
TEMPERATURES = (0.2, 2.0)


def apart(blended: Blended, seed: int) -> np.ndarray:
    r"""What averaging over all folds takes off the squared error of the networks of one.

    These say f_k of a new row, with the variance v = Var_k f_k; the mean of all K has an error
    smaller by v (1 − 1/K).
    """
    inputs, _ = _new_inputs(blended, seed)
    each = [one.mean for one in _by_fold(blended.posterior, inputs)]
    v = np.mean(np.var(each, axis=0, ddof=1), axis=0)
    return np.asarray(v * (1 - 1 / len(each)))


def temperature(blended: Blended, seed: int) -> float:
    r"""At which the blend of all folds is as sure of its class as the networks of one may be.

    A mixture is less sure than its parts. First T₁ is found at which rows left out are most
    probable, then T with  mean H[p(T)] = mean_k H[p_k(T₁)]  over new rows, where p mixes all folds
    and p_k has the networks of fold k. As p errs less than each p_k, this is still not too sure.
    """
    blend, rows, left = blended.posterior, blended.rows, blended.left_out(most=MOST_LEFT_OUT)
    known = [(_Draws.of(one), rows.y[own], rows.weight[own]) for own, one in left]

    def loss(log_t: float) -> float:
        log_p = (
            np.log(draws.at(log_t)[np.arange(len(y)), y]) @ weight for draws, y, weight in known
        )
        return float(0.5 * (log_t / PRIOR) ** 2 - sum(log_p))

    first = _least(loss)
    inputs, whole = _new_inputs(blended, seed)
    each = [_entropy(_Draws.of(one).at(first)) for one in _by_fold(blend, inputs)]
    wanted, draws = float(np.mean(each)), _Draws.of(answer(blend, whole))
    return float(np.exp(_least(lambda log_t: abs(_entropy(draws.at(log_t)) - wanted))))


class _Draws(NamedTuple):
    """Class probabilities by each draw."""

    log_p: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, predictive: Predictive) -> "_Draws":
        p = predictive.conditional_means()
        return cls(np.log(np.maximum(p, 1e-30)), predictive.weights)

    def at(self, log_t: float) -> np.ndarray:
        """Their mean at this temperature, (rows, classes)."""
        p = np.exp(log_softmax(self.log_p / np.exp(log_t), axis=-1))
        return np.asarray(np.maximum(np.tensordot(self.weights, p, axes=1), 1e-30))


def _entropy(p: np.ndarray) -> float:
    return float(-np.mean(np.sum(p * np.log(p), axis=-1)))


def _least(loss: Callable[[float], float]) -> float:
    """Where a function of log T is least."""
    bounds = np.log(TEMPERATURES)
    return float(minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 0.02}).x)


def _by_fold(blend: Blend, inputs: list[np.ndarray]) -> list[Predictive]:
    return [answer(blend.fold(k, blend.folds), x) for k, x in enumerate(inputs)]


def _new_inputs(blended: Blended, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    """New rows as the networks of each fold take them, and as the blend takes them."""
    new, own = _new(blended.rows, seed), blended.posterior.own
    trees = np.empty((len(new), 0)) if blended.forests is None else blended.forests(new)
    parts = (trees[:, k * own : (k + 1) * own] for k in range(blended.posterior.folds))
    each = [np.concatenate([new, part], axis=1) for part in parts]
    return each, np.concatenate([new, trees], axis=1)


def _new(rows: Rows, seed: int) -> np.ndarray:
    """Rows made of two near ones each, every column from either."""
    from sklearn.neighbors import NearestNeighbors  # whoever predicts does without

    random = np.random.default_rng(seed)
    x, weight = (part[rows.weight > 0] for part in (rows.x, rows.weight))
    some = random.choice(len(x), min(len(x), MOST_NEW), replace=False, p=weight / weight.sum())
    near = NearestNeighbors(n_neighbors=min(NEAR, len(x))).fit(x)
    other = near.kneighbors(x[some], return_distance=False)
    other = other[np.arange(len(some)), random.integers(other.shape[1], size=len(some))]
    return np.where(random.uniform(size=x[some].shape) < 0.5, x[some], x[other])

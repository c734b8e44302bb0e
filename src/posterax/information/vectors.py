r"""Information in probability vectors: float64 NumPy, the outcomes on the last axis.

Sums run over outcomes that have mass, so that 0 log 0 = 0. What passes the checks is divided by its
sum, which undoes the rounding of a float32 softmax and lets the identities hold in float64.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from .._util.admit import admit_float64

SLACK = 1e-5  # how far from one a sum may be: a float32 softmax over many classes
UNITS = {"nats": 1.0, "bits": float(np.log(2))}  # in nats


def probabilities(name: str, given: ArrayLike, axes: int = 1) -> np.ndarray:
    """An array whose last ``axes`` axes hold a distribution each, or an error that says why not."""
    p = numbers(name, given)
    if p.ndim < axes or 0 in p.shape[-axes:]:
        shape = "(…, outcomes)" if axes == 1 else "(…, outcomes of X, outcomes of Y)"
        raise ValueError(f"{name} must have shape {shape} with some outcomes, got {p.shape}")
    if np.any(p < 0):
        softmax = f"scipy.special.softmax({name}, axis=-1)"
        raise ValueError(f"{name} must hold probabilities, got {p.min():.3g}; of logits, {softmax}")
    over, where = (-1, "axis") if axes == 1 else ((-2, -1), "2 axes")
    total = p.sum(over, keepdims=True)
    if not np.all(np.abs(total - 1) <= SLACK):
        worst = total.flat[np.argmax(np.abs(total - 1))]
        raise ValueError(
            f"{name} must sum to one over its last {where}, got a sum of {worst:.6g}; "
            f"divide by {name}.sum({over}, keepdims=True)"
        )
    return p / total


def numbers(name: str, given: ArrayLike) -> np.ndarray:
    """A float64 array without NaN."""
    try:
        p = admit_float64(given, name)
    except (TypeError, ValueError):
        kinds = "an array of probabilities or a numpyro distribution"
        raise TypeError(f"{name} must be {kinds}, got {type(given).__name__}") from None
    if np.any(np.isnan(p)):
        raise ValueError(f"{name} must be free of NaN, got {int(np.isnan(p).sum())} of them")
    return p


def pair(p: ArrayLike, q: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """p and q over the same outcomes."""
    p, q = probabilities("p", p), probabilities("q", q)
    if (n := p.shape[-1]) != (m := q.shape[-1]):
        raise ValueError(f"p and q must be over the same outcomes, got {n} and {m}")
    check_batches(p.shape, q.shape)
    return p, q


def check_batches(p: tuple[int, ...], q: tuple[int, ...]) -> None:
    """Refuse shapes that do not broadcast."""
    try:
        np.broadcast_shapes(p, q)
    except ValueError:
        message = f"p and q must have batches that broadcast, got shapes {p} and {q}"
        raise ValueError(message) from None


def plain(value: ArrayLike, unit: str) -> Any:
    """Nats in another unit: a float where there is one value, an array where there is a batch."""
    if unit not in UNITS:
        raise ValueError(f'unit must be "nats" or "bits", got {unit!r}')
    value = np.asarray(value) / UNITS[unit]
    return float(value) if value.ndim == 0 else value


def entropy(p: np.ndarray) -> np.ndarray:
    return special.entr(p).sum(-1)


def cross_entropy(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.abs(special.xlogy(p, q).sum(-1))


def kl_divergence(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return np.maximum(special.rel_entr(p, q).sum(-1), 0.0)


def js_divergence(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    # p log(2p / (p + q)): half of the smallest number there is would be zero
    both = 0.5 * (special.rel_entr(2 * p, p + q) + special.rel_entr(2 * q, p + q)).sum(-1)
    return np.clip(0.5 * both, 0.0, np.log(2))

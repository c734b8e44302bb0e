r"""Information in numpyro distributions: E_P of log densities, by the best way there is.

Closed forms where numpyro has them; otherwise see ``expectations``.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from .._util.checks import whole_number
from .._util.keys import KeyLike, as_key
from . import densities as de
from .expectations import WAYS, Integrand, Measured, expectation


def entropy(p: Any, samples: int, key: KeyLike) -> Measured:
    return _measure(p, None, lambda p, q: -p, _closed_entropy, samples, key)


def cross_entropy(p: Any, q: Any, samples: int, key: KeyLike) -> Measured:
    def closed(p: Any, q: Any) -> Any:
        apart, own = _closed_kl(p, q), _closed_entropy(p, q)
        return None if apart is None or own is None else apart + own

    return _measure(p, q, lambda p, q: -q, closed, samples, key)


def kl_divergence(p: Any, q: Any, samples: int, key: KeyLike) -> Measured:
    found = _measure(p, q, lambda p, q: p - q, _closed_kl, samples, key)
    if found.how == WAYS[-1]:
        return found  # unbiased, at the price of values below zero
    return found._replace(value=np.maximum(found.value, 0.0))


def js_divergence(p: Any, q: Any, samples: int, key: KeyLike) -> Measured:
    def to_middle(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        return p - np.logaddexp(p, q) + math.log(2)

    first, second = as_key(key), jax.random.fold_in(as_key(key), 1)
    halves = [
        _measure(a, b, to_middle, None, samples, k) for a, b, k in ((p, q, first), (q, p, second))
    ]
    how = max((half.how for half in halves), key=WAYS.index)
    value = 0.5 * (halves[0].value + halves[1].value)
    error = 0.5 * _together(np.stack([halves[0].error, halves[1].error]), how)
    return Measured(np.clip(value, 0.0, math.log(2)), error, how)


def self_information(d: Any, value: Any) -> np.ndarray:
    with jax.enable_x64(True):
        (found,) = de.log_densities((de.double(d),), jnp.asarray(value))
        return -np.asarray(found)


def mutual_information(joint: Any, first: Any) -> np.ndarray:
    """½ log |Σ_aa| |Σ_bb| / |Σ|."""
    if not isinstance(joint, dist.MultivariateNormal | dist.LowRankMultivariateNormal):
        raise TypeError(
            "joint must be a table of probabilities or a multivariate normal distribution, "
            f"got {type(joint).__name__}; KL(joint ‖ product of its margins) is the same quantity"
        )
    with jax.enable_x64(True):
        covariance = np.asarray(de.double(joint).covariance_matrix)
    (n,) = joint.event_shape
    chosen = np.zeros(n, bool)
    try:
        chosen[np.asarray(first)] = True
    except (IndexError, TypeError):
        raise ValueError(f"first must hold coordinates between 0 and {n - 1}: {first!r}") from None
    if first is None or np.all(chosen) or not np.any(chosen):
        raise ValueError(f"first must name some of the {n} coordinates of joint, got {first!r}")

    def log_det(rows: np.ndarray) -> np.ndarray:
        return np.linalg.slogdet(covariance[..., rows, :][..., rows])[1]

    gain = 0.5 * (log_det(chosen) + log_det(~chosen) - log_det(np.ones(n, bool)))
    return np.maximum(gain, 0.0)


def _measure(
    p: Any, q: Any, integrand: Integrand, closed: Any, samples: int, key: KeyLike
) -> Measured:
    """E_P of ``integrand(log p, log q)``, of independent parts where both are made of them."""
    _comparable(p, q)
    additive = closed is not None  # all but Jensen–Shannon
    if additive and isinstance(p, dist.Independent) and isinstance(q, dist.Independent | None):
        n = p.reinterpreted_batch_ndims
        if q is None or q.reinterpreted_batch_ndims == n:
            base = None if q is None else q.base_dist
            parts = _measure(p.base_dist, base, integrand, closed, samples, key)
            shape = (*np.shape(parts.value)[: np.ndim(parts.value) - n], -1)
            value, error = (np.reshape(a, shape) for a in (parts.value, parts.error))
            return Measured(
                value.sum(-1), _together(np.moveaxis(error, -1, 0), parts.how), parts.how
            )
    batch = p.batch_shape if q is None else np.broadcast_shapes(p.batch_shape, q.batch_shape)
    with jax.enable_x64(True):
        p, q = de.double(de.bare(p)), None if q is None else de.double(de.bare(q))
        if closed is not None and not de.is_discrete(p):  # sums are as exact, and always right
            exact = closed(p, q)
            if exact is not None:
                return Measured(np.broadcast_to(exact, batch), np.zeros(batch), WAYS[0])
        return expectation(p, q, integrand, batch, whole_number("samples", samples, least=2), key)


def _closed_entropy(p: Any, q: Any) -> Any:
    try:
        return _finite(p.entropy()) if _trusted(p) else None
    except NotImplementedError:
        return None


def _closed_kl(p: Any, q: Any) -> Any:
    try:
        return _finite(dist.kl_divergence(p, q)) if _trusted(p) and _trusted(q) else None
    except NotImplementedError:
        return None


def _finite(value: Any) -> Any:
    return value if np.all(np.isfinite(value)) else None


def _trusted(d: Any) -> bool:
    """numpyro's own: a class derived from one of them inherits formulas that may not be its own.

    Nor Kumaraswamy's divergence, a series cut after ten terms.
    """
    while isinstance(d, dist.Independent | dist.ExpandedDistribution):
        d = d.base_dist
    return type(d).__module__.startswith("numpyro.") and not isinstance(d, dist.Kumaraswamy)


def _comparable(p: Any, q: Any) -> None:
    for name, d in (("p", p), ("q", q)):
        if isinstance(d, dist.MixtureGeneral) and not de.is_discrete(d):
            parts = d.component_distributions
            if any(de.is_discrete(part) for part in parts):
                raise ValueError(
                    f"{name} mixes point masses with densities, which have no common measure; "
                    "use a narrow density for the point mass"
                )
    if q is None:
        return
    if de.is_discrete(p) != de.is_discrete(q):
        kinds = ["discrete" if de.is_discrete(d) else "continuous" for d in (p, q)]
        raise ValueError(
            f"p is {kinds[0]} and q is {kinds[1]}: a probability and a density cannot be compared "
            "(their divergence is infinite); use distributions of one kind"
        )
    if p.event_shape != q.event_shape:
        raise ValueError(
            "p and q must be over values of one shape, "
            f"got event_shape {p.event_shape} and {q.event_shape}"
        )
    try:
        np.broadcast_shapes(p.batch_shape, q.batch_shape)
    except ValueError:
        raise ValueError(
            "p and q must have batches that broadcast, "
            f"got batch_shape {p.batch_shape} and {q.batch_shape}"
        ) from None


def _together(errors: np.ndarray, how: str) -> np.ndarray:
    """The error of a sum over the first axis: draws are independent, other errors may add up."""
    return np.sqrt(np.sum(errors**2, 0)) if how == WAYS[-1] else np.sum(errors, 0)

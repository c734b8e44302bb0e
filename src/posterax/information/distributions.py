r"""Information in numpyro distributions: E_P of log densities, by the best way there is.

Closed forms where numpyro has them; otherwise see ``expectations``.
"""

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpy.typing import ArrayLike
from numpyro.distributions import Distribution

from .._util.admit import admit
from .._util.checks import whole_number
from .._util.keys import KeyLike, as_key
from . import densities as de
from .expectations import WAYS, Integrand, Measured, expectation
from .vectors import check_batches

# of P and Q, or None where numpyro has no formula
ClosedForm: TypeAlias = Callable[[Distribution, Distribution | None], jax.Array | None]


def entropy(p: Distribution, samples: int, key: KeyLike) -> Measured:
    return _measure(p, None, lambda p, q: -p, _closed_entropy, samples, key)


def cross_entropy(p: Distribution, q: Distribution, samples: int, key: KeyLike) -> Measured:
    def closed(p: Distribution, q: Distribution | None) -> jax.Array | None:
        apart, own = _closed_kl(p, q), _closed_entropy(p, q)
        return None if apart is None or own is None else apart + own

    return _measure(p, q, lambda p, q: -q, closed, samples, key)


def kl_divergence(p: Distribution, q: Distribution, samples: int, key: KeyLike) -> Measured:
    measured = _measure(p, q, lambda p, q: p - q, _closed_kl, samples, key)
    if measured.how == WAYS[-1]:
        return measured  # unbiased, at the price of values below zero
    return measured._replace(value=np.maximum(measured.value, 0.0))


def js_divergence(p: Distribution, q: Distribution, samples: int, key: KeyLike) -> Measured:
    def to_middle(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        return p - np.logaddexp(p, q) + math.log(2)

    key = as_key(key)
    first = _measure(p, q, to_middle, None, samples, key)
    second = _measure(q, p, to_middle, None, samples, jax.random.fold_in(key, 1))
    how = max(first.how, second.how, key=WAYS.index)
    value = 0.5 * (first.value + second.value)
    error = 0.5 * _together(np.stack([first.error, second.error]), how)
    return Measured(np.clip(value, 0.0, math.log(2)), error, how)


def self_information(d: Distribution, value: ArrayLike) -> np.ndarray:
    with jax.enable_x64(True):
        at = jnp.asarray(admit(value, "value"))
        return -de.Densities(de.double(d), None, d.batch_shape).logs(at)[0]


def mutual_information(joint: Distribution, first: int | Sequence[int] | None) -> np.ndarray:
    """½ log |Σ_aa| |Σ_bb| / |Σ|."""
    if not isinstance(joint, dist.MultivariateNormal | dist.LowRankMultivariateNormal):
        kind = type(joint).__name__
        raise TypeError(f"joint must be a table of probabilities or a normal, got {kind}")
    with jax.enable_x64(True):
        covariance = np.asarray(de.double(joint).covariance_matrix)
    (n,) = joint.event_shape
    chosen = np.zeros(n, bool)
    with contextlib.suppress(IndexError, TypeError):
        chosen[np.asarray(first)] = True
    if first is None or np.all(chosen) or not np.any(chosen):
        raise ValueError(f"first must name some of the {n} coordinates of joint, got {first!r}")

    def log_det(rows: np.ndarray) -> np.ndarray:
        return np.linalg.slogdet(covariance[..., rows, :][..., rows])[1]

    gain = 0.5 * (log_det(chosen) + log_det(~chosen) - log_det(np.ones(n, bool)))
    return np.maximum(gain, 0.0)


def _measure(
    p: Distribution,
    q: Distribution | None,
    integrand: Integrand,
    closed: ClosedForm | None,
    samples: int,
    key: KeyLike,
) -> Measured:
    """E_P of ``integrand(log p, log q)``, of independent parts where both are made of them.

    All integrands that have a ``closed`` form are sums over such parts; Jensen–Shannon's is not.
    """
    _comparable(p, q)
    if closed is not None and isinstance(p, dist.Independent):
        n = p.reinterpreted_batch_ndims
        if q is None or (isinstance(q, dist.Independent) and q.reinterpreted_batch_ndims == n):
            base = None if q is None else q.base_dist
            parts = _measure(p.base_dist, base, integrand, closed, samples, key)
            shape = (*np.shape(parts.value)[: np.ndim(parts.value) - n], -1)
            value, error = (np.reshape(a, shape) for a in (parts.value, parts.error))
            together = _together(np.moveaxis(error, -1, 0), parts.how)
            return Measured(value.sum(-1), together, parts.how)
    batch = p.batch_shape if q is None else np.broadcast_shapes(p.batch_shape, q.batch_shape)
    with jax.enable_x64(True):
        p, q = de.double(p), None if q is None else de.double(q)
        # of what is discrete sums are as exact, and always right
        exact = None if closed is None or de.is_discrete(p) else closed(p, q)
        if exact is not None:
            return Measured(np.broadcast_to(exact, batch), np.zeros(batch), WAYS[0])
        samples = whole_number("samples", samples, least=2)
        return expectation(de.Densities(p, q, batch), integrand, samples, key)


def _closed_entropy(p: Distribution, q: Distribution | None) -> jax.Array | None:
    return _finite(p.entropy, p)


def _closed_kl(p: Distribution, q: Distribution | None) -> jax.Array | None:
    return _finite(lambda: dist.kl_divergence(p, q), p, q)


def _finite(formula: Callable[[], jax.Array], *ds: Distribution | None) -> jax.Array | None:
    """numpyro's value; None where it has no formula, or one that is not to be trusted.

    A class derived from one of numpyro's inherits formulas that may not be its own, and
    Kumaraswamy's divergence is a series cut after ten terms.
    """
    for d in map(de.inner, ds):
        if not type(d).__module__.startswith("numpyro.") or isinstance(d, dist.Kumaraswamy):
            return None
    try:
        value = formula()
    except NotImplementedError:
        return None
    return value if np.all(np.isfinite(value)) else None


def _comparable(p: Distribution, q: Distribution | None) -> None:
    for name, d in (("p", p), ("q", q)):
        parts = d.component_distributions if isinstance(d, dist.MixtureGeneral) else ()
        if any(map(de.is_discrete, parts)) and not (d is None or de.is_discrete(d)):
            raise ValueError(f"{name} mixes point masses with densities: use narrow densities")
    if q is None:
        return
    if de.is_discrete(p) != de.is_discrete(q):
        kinds = ["discrete" if de.is_discrete(d) else "continuous" for d in (p, q)]
        raise ValueError("p is {} and q is {}: use distributions of one kind".format(*kinds))
    if p.event_shape != q.event_shape:
        shapes = f"event_shape {p.event_shape} and {q.event_shape}"
        raise ValueError(f"p and q must be over values of one shape, got {shapes}")
    check_batches(p.batch_shape, q.batch_shape)


def _together(errors: np.ndarray, how: str) -> np.ndarray:
    """The error of a sum over the first axis: draws are independent, other errors may add up."""
    return np.sqrt(np.sum(errors**2, 0)) if how == WAYS[-1] else np.sum(errors, 0)

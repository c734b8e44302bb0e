r"""Information in numpyro distributions: E_P of log densities, by the best way there is.

Closed forms where numpyro has them; sums over the values of what is discrete; quadrature for one
continuous dimension; otherwise the mean over draws, with its standard error.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from .._checks import whole
from .._keys import KeyLike, as_key
from . import densities as de
from .quadrature import integrate

Integrand = Callable[..., np.ndarray]  # of log p and log q
WAYS = ("closed form", "sum", "quadrature", "Monte Carlo")
BLOCK = 1024  # points a compiled call evaluates
MOST_TERMS = 2**20  # of a sum over counts


class Measured(NamedTuple):
    """A quantity, how wrong it may be, and how it was found; ``float(…)`` is its value.

    ``how`` is ``"closed form"``, ``"sum"`` (over the values of a discrete distribution),
    ``"quadrature"`` or ``"Monte Carlo"``. ``error`` is the standard error of Monte Carlo, an
    estimate of the error of quadrature and of what a sum leaves out, 0 for a closed form. Value and
    error have the batch shape of the distributions.

    Example:
        >>> import numpyro.distributions as dist
        >>> import posterax as px
        >>> value, error, how = px.information.entropy(dist.Normal(0.0, 1.0))
        >>> round(value, 4), error, how
        (1.4189, 0.0, 'closed form')
    """

    value: Any
    error: Any
    how: str

    def __float__(self) -> float:
        return float(self.value)


def entropy(p: Any, samples: int, key: KeyLike) -> Measured:
    return _measure(p, None, lambda p, q: -p, _closed_entropy, samples, key)


def cross_entropy(p: Any, q: Any, samples: int, key: KeyLike) -> Measured:
    def closed(p: Any, q: Any) -> Any:
        apart, own = _closed_kl(p, q), _closed_entropy(p, q)
        return None if apart is None or own is None else apart + own

    return _measure(p, q, lambda p, q: -q, closed, samples, key)


def kl_divergence(p: Any, q: Any, samples: int, key: KeyLike) -> Measured:
    return _measure(p, q, lambda p, q: p - q, _closed_kl, samples, key)


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
        return -np.asarray(de.log_density(de.double(d), jnp.asarray(value)))


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


# -- the ways


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
    with jax.enable_x64(True):
        p, q = de.double(p), None if q is None else de.double(q)
        batch = p.batch_shape if q is None else np.broadcast_shapes(p.batch_shape, q.batch_shape)
        if de.is_discrete(p):
            ways = [_sum, _count]
        else:
            ways = [] if p.event_shape else [_quadrature]
        exact = closed(p, q) if closed is not None and not de.is_discrete(p) else None
        if exact is not None:
            exact = np.broadcast_to(np.asarray(exact), batch)
            return Measured(exact, np.zeros(batch), WAYS[0])
        for way in ways:
            found = way(p, q, integrand, batch)
            if found is not None:
                return found
        return _monte_carlo(p, q, integrand, batch, whole("samples", samples, least=2), key)


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
    while hasattr(d, "base_dist") and isinstance(d, dist.Independent | dist.ExpandedDistribution):
        d = d.base_dist
    return type(d).__module__.startswith("numpyro.") and not isinstance(d, dist.Kumaraswamy)


def _sum(p: Any, q: Any, integrand: Integrand, batch: tuple[int, ...]) -> Measured | None:
    """Over all values, where there is a list."""
    x = de.atoms(p)
    if x is None:
        return None
    x = x.reshape(len(x), *[1] * (len(batch) - len(p.batch_shape)), *x.shape[1:])
    _, value, _ = _terms(p, q, integrand, x)
    return Measured(np.broadcast_to(value, batch), np.zeros(batch), WAYS[1])


def _count(p: Any, q: Any, integrand: Integrand, batch: tuple[int, ...]) -> Measured | None:
    """Over counts from the least, until hardly any mass is left."""
    if p.event_shape:
        return None
    low, high = de.bounds(p)
    if not np.all(np.isfinite(low)):
        return None
    mass, value = np.zeros(batch), np.zeros(batch)
    start, size, last = int(low.min()), BLOCK, high.max()
    while start <= last and size <= MOST_TERMS:
        x = jnp.arange(start, start + size).reshape(-1, *[1] * len(batch))
        more_mass, more, late = _terms(p, q, integrand, x)
        mass, value = mass + more_mass, value + more
        left = np.abs(1 - mass)
        if np.all((left < 1e-9) & ~(late > 1e-9 * (1 + np.abs(value)))):
            return Measured(value, left * (1 + np.abs(value)), WAYS[1])
        start, size = start + size, 2 * size
    if start > last and np.all(np.abs(1 - mass) < 1e-6):
        return Measured(value, np.abs(1 - mass) * (1 + np.abs(value)), WAYS[1])
    return None


def _terms(p: Any, q: Any, integrand: Integrand, x: Any) -> tuple[np.ndarray, ...]:
    """Σ p, Σ p g, and the share of the second half of the values in |p g|."""
    logs = _logs(p, q, x)
    weight = np.exp(logs[0])
    terms = weight * np.where(weight > 0, _values(integrand, logs), 0.0)
    return weight.sum(0), terms.sum(0), np.abs(terms[len(terms) // 2 :]).sum(0)


def _quadrature(p: Any, q: Any, integrand: Integrand, batch: tuple[int, ...]) -> Measured | None:
    """Of a scalar; None where the density it sees does not have mass one."""
    found = de.mesh((p,) if q is None else (p, q), batch)
    if found is None:
        return None
    line, edges = found
    endless = np.zeros(batch)  # +1 and −1 where the integral is infinite
    peak = np.zeros(batch)

    def both(t: np.ndarray) -> np.ndarray:
        """dP/dt and g dP/dt."""
        nonlocal endless, peak
        x, log_slope = line.x(t)
        parts = []
        for rows in range(0, len(x), BLOCK):  # of one size, for one compilation
            block = x[rows : rows + BLOCK]
            more = np.concatenate([block, np.broadcast_to(block[:1], (BLOCK, *batch))])[:BLOCK]
            parts.append([part[: len(block)] for part in _logs(p, q, more)])
        logs = [np.concatenate(part) for part in zip(*parts, strict=True)]
        # rounding puts the outermost points on the ends, where a density may be infinite
        inside = (x > line.low) & (x < line.high) & (logs[0] > -np.inf)
        values = np.where(inside, _values(integrand, logs), 0.0)
        endless = np.where(np.any(np.isposinf(values), axis=0), 1.0, endless)
        weight = np.exp(np.where(inside, logs[0] + log_slope, -np.inf))
        values = np.where((weight > 0) & (endless == 0), values, 0.0)
        peak = np.maximum(peak, np.abs(np.where(weight > 1e-9, values, 0.0)).max(0))
        return np.stack([weight, weight * values])

    crude = integrate(both, edges, rounds=1)[0][1]
    # what has not died away where x is 1e150 never does
    ends = both(np.stack([edges[0], edges[-1]]))[1]
    diverges = np.abs(ends).max(0) > 1e-3 * (1 + np.abs(crude))
    endless = np.where(diverges, np.sign(ends.sum(0)), endless)
    (mass, value), (_, error) = integrate(both, edges)
    off = np.abs(1 - mass)
    if not np.all(off < 1e-4):
        return None
    missing = np.where(off > 1e-12, off, 0.0)  # less is rounding
    error = np.where(endless == 0, error + missing * (1 + peak), 0.0)
    return Measured(np.where(endless == 0, value, np.copysign(np.inf, endless)), error, WAYS[2])


def _monte_carlo(
    p: Any, q: Any, integrand: Integrand, batch: tuple[int, ...], samples: int, key: KeyLike
) -> Measured:
    x = jnp.asarray(de.draws(p.expand(batch), as_key(key), samples))
    logs = [np.asarray(p.log_prob(x)), *_logs(p, q, x)[1:]]  # a draw is inside, whatever rounding
    values = _values(integrand, logs)
    if np.any(np.isnan(values)):
        raise FloatingPointError(
            "log_prob of p or q is NaN at draws of p: check their parameters, and that they are "
            "over the same values"
        )
    endless = np.any(np.isinf(values), axis=0)
    finite = np.where(np.isinf(values), 0.0, values)
    error = np.where(endless, 0.0, finite.std(0, ddof=1) / math.sqrt(samples))
    return Measured(np.where(endless, np.inf, finite.mean(0)), error, WAYS[3])


def _logs(p: Any, q: Any, x: Any) -> list[np.ndarray]:
    ds = (p,) if q is None else (p, q)
    return [np.asarray(part) for part in np.broadcast_arrays(*de.log_densities(ds, jnp.asarray(x)))]


def _values(integrand: Integrand, logs: list[np.ndarray]) -> np.ndarray:
    """The integrand; NaN only where p has no mass and nobody looks."""
    with np.errstate(invalid="ignore"):
        return integrand(logs[0], logs[-1])


def _together(errors: np.ndarray, how: str) -> np.ndarray:
    """The error of a sum over the first axis: draws are independent, other errors may add up."""
    return np.sqrt(np.sum(errors**2, 0)) if how == WAYS[-1] else np.sum(errors, 0)


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

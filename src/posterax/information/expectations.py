r"""E_P of a function of log densities, by the best way there is.

Sums over the values of what is discrete; quadrature for one continuous dimension; otherwise the
mean over draws, with its standard error. Everything here runs in float64.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from .._util.keys import KeyLike, as_key
from .._util.memory import refuse_draws
from .densities import Densities, atoms, bounds, draws, is_discrete
from .quadrature import integrate

Integrand = Callable[..., np.ndarray]  # of log p and log q
WAYS = ("closed form", "sum", "quadrature", "Monte Carlo")
BLOCK = 1024  # points a compiled call evaluates
MOST_TERMS = 2**20  # of a sum over counts, in its last block
AROUND = 40  # deviations below the mean, where a float64 probability is 0


class Measured(NamedTuple):
    """A quantity, how wrong it may be, and how it was found; ``float(…)`` is its value.

    ``how`` is ``"closed form"``, ``"sum"`` (over the values of a discrete distribution),
    ``"quadrature"`` or ``"Monte Carlo"``. ``error`` is the standard error of Monte Carlo, an
    estimate of the error of quadrature, for a sum what its probabilities are away from one (by what
    it leaves out, and by the rounding of ``log_prob``) times the largest term, 0 for a closed form.
    Value and error have the batch shape of the distributions.

    Example:
        >>> import numpyro.distributions as dist
        >>> import posterax as px
        >>> value, error, how = px.information.entropy(dist.Normal(0.0, 1.0))
        >>> round(value, 4), error, how
        (1.4189, 0.0, 'closed form')
    """

    value: Any  # a float, or an array for a batch
    error: Any
    how: str

    def __float__(self) -> float:
        return float(self.value)


def expectation(of: Densities, integrand: Integrand, samples: int, key: KeyLike) -> Measured:
    """E_P of ``integrand(log p, log q)`` for every element of a batch."""
    ways = (_sum, _count) if is_discrete(of.p) else () if of.p.event_shape else (_quadrature,)
    results = (way(of, integrand) for way in ways)
    exact = next((result for result in results if result is not None), None)
    return _monte_carlo(of, integrand, samples, key) if exact is None else exact


def _sum(of: Densities, integrand: Integrand) -> Measured | None:
    """Over all values, where there is a list."""
    x = atoms(of.p)
    if x is None:
        return None
    x = x.reshape(len(x), *[1] * (len(of.batch) - len(of.p.batch_shape)), *x.shape[1:])
    terms = _terms(of, integrand, x)
    value, error = (np.broadcast_to(a, of.batch) for a in (terms.value, terms.error))
    return Measured(value, error, WAYS[1])


def _count(of: Densities, integrand: Integrand) -> Measured | None:
    """Over counts from the least that has mass, until hardly any is left."""
    if of.p.event_shape:
        return None
    low, high = bounds(of.p)
    if not np.all(np.isfinite(low)):
        return None
    least = int(low.min())
    try:  # where counts begin to have mass, as far as mean and variance tell
        first = np.min(np.asarray(of.p.mean) - AROUND * np.sqrt(np.asarray(of.p.variance)))
    except NotImplementedError:
        first = np.nan
    start = max(least, int(first)) if np.isfinite(first) else least
    results = (_count_from(of, integrand, s, high.max()) for s in dict.fromkeys((start, least)))
    return next((result for result in results if result is not None), None)


def _count_from(of: Densities, integrand: Integrand, start: int, last: float) -> Measured | None:
    """Over counts from ``start``; None where they lack mass."""
    sums = _Terms(*np.zeros((4, *of.batch)))
    size = BLOCK
    while start <= last and size <= MOST_TERMS:
        x = jnp.arange(start, start + size).reshape(-1, *[1] * len(of.batch))
        more = _terms(of, integrand, x)
        peak = np.maximum(sums.peak, more.peak)
        sums = _Terms(sums.mass + more.mass, sums.value + more.value, more.late, peak)
        start, size = start + size, 2 * size
        # rounding of log_prob alone costs 1e-7 of a negative binomial's mass
        near = np.abs(1 - sums.mass) < 1e-6
        if np.all(near & ((start > last) | ~(sums.late > 1e-9 * (1 + np.abs(sums.value))))):
            return Measured(sums.value, sums.error, WAYS[1])
    return None


class _Terms(NamedTuple):
    """Sums over values of x."""

    mass: np.ndarray  # Σ p
    value: np.ndarray  # Σ p g
    late: np.ndarray  # Σ |p g| over the second half of the last values
    peak: np.ndarray  # the largest |g| where there is mass to speak of

    @property
    def error(self) -> np.ndarray:
        return _missing(self.mass) * (1 + self.peak)


def _terms(of: Densities, integrand: Integrand, x: ArrayLike) -> _Terms:
    logs = of.logs(x)
    weight = np.exp(logs[0])
    values = np.where(weight > 0, _values(integrand, logs), 0.0)
    terms = weight * values
    peak = np.where((weight > 1e-9) & np.isfinite(values), np.abs(values), 0.0).max(0)
    return _Terms(weight.sum(0), terms.sum(0), np.abs(terms[len(terms) // 2 :]).sum(0), peak)


def _missing(mass: np.ndarray) -> np.ndarray:
    """How far probabilities are from summing to one, as far as it is not rounding."""
    off = np.abs(1 - mass)
    return np.where(off > 1e-12, off, 0.0)


def _quadrature(of: Densities, integrand: Integrand) -> Measured | None:
    """Of a scalar; None where the density it sees does not have mass one."""
    mesh = of.mesh()
    if mesh is None:
        return None
    line, edges = mesh
    endless = np.zeros(of.batch)  # +1 and −1 where the integral is infinite
    peak = np.zeros(of.batch)

    def both(t: np.ndarray) -> np.ndarray:
        """dP/dt and g dP/dt."""
        nonlocal endless, peak
        x, log_slope = line.x(t)
        parts = []
        for rows in range(0, len(x), BLOCK):  # of one size, for one compilation
            block = x[rows : rows + BLOCK]
            more = np.concatenate([block, np.broadcast_to(block[:1], (BLOCK, *of.batch))])[:BLOCK]
            parts.append([part[: len(block)] for part in of.logs(more)])
        logs = [np.concatenate(part) for part in zip(*parts, strict=True)]
        # rounding puts the outermost points on the ends, where a density may be infinite
        inside = (x > line.low) & (x < line.high) & (logs[0] > -np.inf)
        values = np.where(inside, _values(integrand, logs), 0.0)
        endless = np.where(np.any(np.isposinf(values), axis=0), 1.0, endless)
        weight = np.exp(np.where(inside, logs[0] + log_slope, -np.inf))
        values = np.where((weight > 0) & (endless == 0), values, 0.0)
        peak = np.maximum(peak, np.abs(np.where(weight > 1e-9, values, 0.0)).max(0))
        return np.stack([weight, weight * values])

    # what has not died away where x is 1e150 never does, and would be refined in vain
    ends = both(np.stack([edges[0], edges[-1]]))[1]
    if np.any(np.abs(ends) > 1e-3):
        crude = integrate(both, edges, rounds=1)[0][1]
        diverges = np.abs(ends).max(0) > 1e-3 * (1 + np.abs(crude))
        endless = np.where(diverges, np.sign(ends.sum(0)), endless)
    (mass, value), (_, error) = integrate(both, edges)
    if not np.all(np.abs(1 - mass) < 1e-4):
        return None
    error = np.where(endless == 0, error + _missing(mass) * (1 + peak), 0.0)
    return Measured(np.where(endless == 0, value, np.copysign(np.inf, endless)), error, WAYS[2])


def _monte_carlo(of: Densities, integrand: Integrand, samples: int, key: KeyLike) -> Measured:
    refuse_draws("samples", samples, 32 * math.prod((*of.batch, *of.p.event_shape)))
    x = jnp.asarray(draws(of.p.expand(of.batch), as_key(key), samples))
    logs = [np.asarray(of.p.log_prob(x)), *of.logs(x)[1:]]  # a draw is inside, whatever rounding
    values = _values(integrand, logs)
    if np.any(np.isnan(values)):
        raise FloatingPointError("log_prob of p or q is NaN at draws of p: check their parameters")
    endless = np.any(np.isinf(values), axis=0)
    finite = np.where(np.isinf(values), 0.0, values)
    error = np.where(endless, 0.0, finite.std(0, ddof=1) / math.sqrt(samples))
    return Measured(np.where(endless, np.inf, finite.mean(0)), error, WAYS[3])


def _values(integrand: Integrand, logs: list[np.ndarray]) -> np.ndarray:
    """The integrand; NaN only where p has no mass and nobody looks."""
    with np.errstate(invalid="ignore"):
        return integrand(logs[0], logs[-1])

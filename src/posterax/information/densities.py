r"""What integrals need to know of a numpyro distribution: density, support, atoms, landmarks.

All of it in float64: the parameters are cast, whatever JAX's default precision.
"""

import inspect
import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike
from jaxtyping import PyTree
from numpyro.distributions import Distribution

from .quadrature import REACH, Line

SCOUTS = 512  # draws that tell where a density lives
LANDMARKS = 24  # quantiles of them, between which quadrature starts


def double(d: Distribution) -> Distribution:
    """The same distribution with float64 parameters, without the repeats that ``expand`` adds."""
    if isinstance(d, dist.ExpandedDistribution):
        return double(d.base_dist)  # arithmetic broadcasts as well
    return _cast(d, jnp.float64, jnp.int64) if _declared(d) else d


def _cast(d: Distribution, real: type, integer: type) -> Distribution:
    def one(leaf: PyTree) -> jax.Array:
        leaf = jnp.asarray(leaf)
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf.astype(real)
        return leaf.astype(integer) if jnp.issubdtype(leaf.dtype, jnp.integer) else leaf

    return jax.tree.map(one, d)


def _declared(d: Distribution) -> bool:
    """Whether JAX sees all of it: a class of one's own may hold what it has not declared."""
    again = jax.tree.unflatten(jax.tree.structure(d), jax.tree.leaves(d))
    # cached properties come back when they are asked for
    held = [
        name for name, value in vars(d).items()
        if value is not None and not hasattr(inspect.getattr_static(type(d), name, None), "__get__")
    ]  # fmt: skip
    lost = any(getattr(again, name, None) is None for name in held)
    parts = jax.tree.leaves(list(vars(d).values()), is_leaf=lambda v: isinstance(v, Distribution))
    return not lost and all(_declared(v) for v in parts if isinstance(v, Distribution))


def inner(d: Distribution) -> Distribution:
    """Without ``expand`` and ``to_event``."""
    wrapped = isinstance(d, dist.Independent | dist.ExpandedDistribution)
    return inner(d.base_dist) if wrapped else d


def is_discrete(d: Distribution) -> bool:
    """Whether it is counted, not measured: a point mass is."""
    d = inner(d)
    return isinstance(d, dist.Delta) or bool(d.is_discrete)


def log_density(d: Distribution, x: jax.Array) -> jax.Array:
    """log p(x), and −∞ outside the support, where numpyro's formulas go on."""
    if isinstance(d, dist.MixtureGeneral):
        weights = jax.nn.log_softmax(d.mixing_distribution.logits)
        each = jnp.stack([log_density(c, x) for c in d.component_distributions], -1)
        return logsumexp(weights + each, axis=-1)
    if isinstance(d, dist.ExpandedDistribution):
        return log_density(d.base_dist, x)
    value = _certain(d, x, d.log_prob(x))
    try:
        inside = d.support(x)
    except (NotImplementedError, TypeError, ValueError):  # no support, or one that cannot tell
        return value
    return jnp.where(inside, value, -jnp.inf)


def _certain(d: Distribution, x: jax.Array, value: jax.Array) -> jax.Array:
    """log p(x) where a probability is 0 or 1, which numpyro's formulas round away from there."""
    if isinstance(d, dist.CategoricalProbs):
        p, at = jnp.broadcast_arrays(d.probs, jnp.asarray(x, int)[..., None])
        return jnp.where(jnp.take_along_axis(p, at[..., :1], -1)[..., 0] == 0, -jnp.inf, value)
    if isinstance(d, dist.BernoulliProbs | dist.BinomialProbs):
        most = getattr(d, "total_count", 1)
        value = jnp.where(d.probs == 0, jnp.log(x == 0), value)
        return jnp.where(d.probs == 1, jnp.log(x == most), value)
    if isinstance(d, dist.GeometricProbs):
        return jnp.where(d.probs == 1, jnp.log(x == 0), value)
    return value


@jax.jit
def _compiled(ds: tuple[Distribution, ...], x: jax.Array) -> list[jax.Array]:
    return [log_density(d, x) for d in ds]


def draws(d: Distribution, key: jax.Array, n: int) -> np.ndarray:
    """n draws, (n, batch, event)."""
    try:
        return np.asarray(d.sample(key, (n,)))
    except TypeError:  # some samplers of numpyro know float32 only
        single = _cast(d, jnp.float32, jnp.int32)
        with jax.enable_x64(False):
            return np.asarray(single.sample(key, (n,)))


def bounds(d: Distribution) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the support of a scalar, for every element of the batch."""
    if isinstance(d, dist.MixtureGeneral):
        lows, highs = zip(*(bounds(c) for c in d.component_distributions), strict=True)
        low, high = (np.stack(np.broadcast_arrays(*ends)) for ends in (lows, highs))
        return low.min(0), high.max(0)
    low, high = (
        np.broadcast_to(np.asarray(getattr(d.support, name, beyond), np.float64), d.batch_shape)
        for name, beyond in (("lower_bound", -np.inf), ("upper_bound", np.inf))
    )
    return low, high


def atoms(d: Distribution) -> jax.Array | None:
    """All values of a discrete distribution on the first axis, or None where there is no list."""
    if isinstance(d, dist.Delta):
        return jnp.asarray(d.v)[None]
    if d.event_shape or not d.has_enumerate_support:
        return None
    try:
        return d.enumerate_support(expand=False)
    except NotImplementedError:  # a batch whose elements have different values
        return None


class Densities(NamedTuple):
    """P, Q where there is one, and the batch shape of both."""

    p: Distribution
    q: Distribution | None
    batch: tuple[int, ...]

    @property
    def both(self) -> tuple[Distribution, ...]:
        """P, or P and Q."""
        return (self.p,) if self.q is None else (self.p, self.q)

    def logs(self, x: ArrayLike) -> list[np.ndarray]:
        """log p and log q at x, of one shape."""
        x = jnp.asarray(x)
        if all(map(_declared, self.both)):
            logs = _compiled(self.both, x)
        else:
            with warnings.catch_warnings(action="ignore"):  # that x is outside the support
                logs = [log_density(d, x) for d in self.both]
        return [np.asarray(part) for part in np.broadcast_arrays(*logs)]

    def mesh(self) -> tuple[Line, np.ndarray] | None:
        """Where to integrate P, a scalar: a line, and edges of panels on it.

        Edges are quantiles of draws of P and Q, the ends of their supports, their means, and for
        mixtures the mean and width of every component, however light.
        """
        scouts = [
            self._aligned(draws(d, jax.random.key(k), SCOUTS), d) for k, d in enumerate(self.both)
        ]
        low, high = (np.broadcast_to(end, self.batch) for end in bounds(self.p))
        line = Line.through(low, high, scouts[0])
        if line is None:
            return None
        points = [np.quantile(s, np.linspace(0, 1, LANDMARKS), axis=0) for s in scouts]
        for d in self.both:
            # what cannot be inside the support of P is an infinity, and drops out
            own = [*(end[None] for end in bounds(d)), *_landmarks(d)]
            points += [self._aligned(p, d) for p in own]
        x = np.concatenate(points)
        with np.errstate(over="ignore"):
            t = np.where(np.isfinite(x), line.t(np.where(np.isfinite(x), x, line.centre)), REACH)
        ends = np.full((1, *self.batch), REACH)
        return line, np.concatenate([-ends, np.sort(t, axis=0), ends])

    def _aligned(self, a: np.ndarray, d: Distribution) -> np.ndarray:
        """(n, batch of d) as (n, batch)."""
        shape = (len(a), *[1] * (len(self.batch) - len(d.batch_shape)), *a.shape[1:])
        return np.broadcast_to(a.reshape(shape), (len(a), *self.batch))


def _landmarks(d: Distribution) -> list[np.ndarray]:
    try:
        middle = np.asarray(d.mean)[None]
        if not isinstance(d, dist.MixtureSameFamily | dist.MixtureGeneral):
            return [middle]
        mean, std = np.asarray(d.component_mean), np.sqrt(np.asarray(d.component_variance))
    except NotImplementedError:
        return []
    return [middle, *(np.moveaxis(mean + k * std, -1, 0) for k in (-8, -3, 0, 3, 8))]

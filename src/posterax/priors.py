r"""Priors over weights.

A prior gives every array of a parameter tree a density that factorises over its entries. It is
one for all weights, or one per part of the tree ([`ByPart`][posterax.priors.ByPart]), or one per
weight ([`PerWeight`][posterax.priors.PerWeight], what ``posterior.as_prior()`` returns). Any
distribution of ``numpyro.distributions`` is accepted in their place.
"""

import fnmatch
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import erf

from ._tree import path_name, same_structure

_LOG_2PI = float(np.log(2 * np.pi))


def _positive(name: str, value: Any) -> np.ndarray:
    array = _number(name, value)
    if not (np.all(np.isfinite(array)) and np.all(array > 0)):
        raise ValueError(f"{name} must be positive and finite, got {value!r}")
    return array


def _number(name: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {value!r}") from None


class Prior(eqx.Module):
    """What a prior knows: its log density, its draws, and where it can its KL from a Gaussian."""

    def log_prob(self, w: jax.Array) -> jax.Array:
        """log p(w), an array whose sum is the log density."""
        raise NotImplementedError

    def sample(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """A draw of an array of weights."""
        raise NotImplementedError

    def kl_from_gaussian(self, mu: jax.Array, sigma: jax.Array) -> jax.Array | None:
        """KL(N(mu, sigma²) ‖ p) entry by entry, or ``None`` where there is no closed form."""
        return None

    def resolve(self, params: Any, fan_in: Callable[[tuple[int, ...]], int]) -> Any:
        """A tree like ``params`` with one prior at every array."""
        return jax.tree.map(lambda w: self.for_shape(w.shape, fan_in), params)

    def for_shape(self, shape: tuple[int, ...], fan_in: Callable[..., int]) -> "Prior":
        """The prior of one array; only fan-in scaling looks at the shape."""
        return self


class Gaussian(Prior):
    r"""w ~ N(loc, scale²); its maximum a posteriori estimate is L2 regularisation.

    With ``fan_in=True`` the deviation of a weight matrix is scale / √fan-in (Neal 1996), so that
    activations keep their size whatever the width; biases keep ``scale``.

    Args:
        scale: standard deviation.
        loc: mean.
        fan_in: divide the deviation of matrices by the root of their number of inputs.

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> print(f"{px.priors.Gaussian(1.0).log_prob(jnp.zeros(())):.4f}")
        -0.9189
    """

    scale: Any
    loc: Any
    fan_in: bool = eqx.field(static=True)

    def __init__(self, scale: Any = 1.0, loc: Any = 0.0, *, fan_in: bool = False):
        traced = isinstance(scale, jax.core.Tracer)
        checked = scale if traced else _positive("scale", scale)
        # arrays of the device stay where they are
        self.scale = scale if isinstance(scale, jax.Array) else checked
        self.loc = loc if isinstance(loc, jax.Array) else _number("loc", loc)
        self.fan_in = bool(fan_in)

    def _moments(self, dtype: Any) -> tuple[jax.Array, jax.Array]:
        return jnp.asarray(self.loc, dtype), jnp.asarray(self.scale, dtype)

    def log_prob(self, w: jax.Array) -> jax.Array:
        loc, scale = self._moments(w.dtype)
        return -0.5 * jnp.square((w - loc) / scale) - jnp.log(scale) - 0.5 * _LOG_2PI

    def sample(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        loc, scale = self._moments(dtype)
        return loc + scale * jax.random.normal(key, shape, dtype)

    def kl_from_gaussian(self, mu: jax.Array, sigma: jax.Array) -> jax.Array:
        loc, scale = self._moments(mu.dtype)
        ratio = sigma / scale
        return 0.5 * (jnp.square(ratio) + jnp.square((mu - loc) / scale) - 1) - jnp.log(ratio)

    def for_shape(self, shape: tuple[int, ...], fan_in: Callable[..., int]) -> "Prior":
        if not self.fan_in:
            return self
        return Gaussian(self.scale / np.sqrt(fan_in(shape)), self.loc)


class ScaleMixture(Prior):
    r"""p(w) = π N(0, σ₁²) + (1 − π) N(0, σ₂²), the prior of Blundell et al. (2015, eq. 7).

    A wide and a narrow Gaussian: heavier tails than one Gaussian of equal variance, and more mass
    near zero, so that many weights shrink and a few stay large.

    Args:
        pi: share of the first component, in (0, 1).
        sigma1: deviation of the first component.
        sigma2: deviation of the second component.

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> prior = px.priors.ScaleMixture(pi=0.5, sigma1=1.0, sigma2=0.0025)
        >>> bool(prior.log_prob(jnp.array(1e4)) < prior.log_prob(jnp.array(1.0)))
        True
    """

    pi: Any
    sigma1: Any
    sigma2: Any
    _ratios: Any = eqx.field(repr=False)

    def __init__(self, pi: Any = 0.5, sigma1: Any = 1.0, sigma2: Any = 0.0025):
        self.pi = _number("pi", pi)
        if not np.all((self.pi > 0) & (self.pi < 1)):
            raise ValueError(f"pi must lie strictly between 0 and 1, got {pi!r}")
        self.sigma1, self.sigma2 = _positive("sigma1", sigma1), _positive("sigma2", sigma2)
        odds = (1 - self.pi) * self.sigma1 / (self.pi * self.sigma2)
        narrow, wide = 1 / np.square(self.sigma2), 1 / np.square(self.sigma1)
        # what the derivative needs, so that no step divides numbers that never change
        self._ratios = (odds, wide, narrow, wide - narrow)

    def log_prob(self, w: jax.Array) -> jax.Array:
        numbers = (self.pi, self.sigma1, self.sigma2, self._ratios)
        return _log_mixture(w, *jax.tree.map(lambda v: jnp.asarray(v, w.dtype), numbers))

    def sample(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        pick, noise = jax.random.split(key)
        wide = jax.random.bernoulli(pick, jnp.asarray(self.pi, dtype), shape)
        sigma = jnp.where(wide, jnp.asarray(self.sigma1, dtype), jnp.asarray(self.sigma2, dtype))
        return sigma * jax.random.normal(noise, shape, dtype)


@jax.custom_jvp
def _log_mixture(w: jax.Array, pi: jax.Array, s1: jax.Array, s2: jax.Array, ratios: Any) -> Any:
    first = jnp.log(pi) - jnp.log(s1) - 0.5 * jnp.square(w / s1)
    second = jnp.log1p(-pi) - jnp.log(s2) - 0.5 * jnp.square(w / s2)
    return jnp.logaddexp(first, second) - 0.5 * _LOG_2PI


@_log_mixture.defjvp
def _(primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    """The derivative with one exponential: −w (1/σ₁² + q/σ₂²) / (1 + q), q the odds of the second.

    It is most of what a variational step computes for this prior, without the logarithm. Both
    precisions are added, never subtracted: they can differ by more than float32 resolves. The
    bound keeps q finite where σ₁ < σ₂, and there the first component has nothing left to say.
    """
    w, (odds, wide, narrow, apart) = primals[0], primals[-1]
    q = odds * jnp.exp(jnp.minimum(0.5 * apart * jnp.square(w), 60))
    return _log_mixture(*primals), -w * (wide + q * narrow) / (1 + q) * tangents[0]


class Laplace(Prior):
    r"""p(w) = exp(−|w| / scale) / (2 scale); its maximum a posteriori estimate is L1.

    KL(N(μ, σ²) ‖ p) has a closed form through E|w| = σ √(2/π) exp(−μ²/2σ²) + μ erf(μ/σ√2).

    Args:
        scale: the mean of |w|.

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> print(f"{px.priors.Laplace(1.0).log_prob(jnp.array(2.0)):.4f}")
        -2.6931
    """

    scale: Any

    def __init__(self, scale: Any = 1.0):
        self.scale = _positive("scale", scale)

    def log_prob(self, w: jax.Array) -> jax.Array:
        scale = jnp.asarray(self.scale, w.dtype)
        return -jnp.abs(w) / scale - jnp.log(2 * scale)

    def sample(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        return jnp.asarray(self.scale, dtype) * jax.random.laplace(key, shape, dtype)

    def kl_from_gaussian(self, mu: jax.Array, sigma: jax.Array) -> jax.Array:
        scale = jnp.asarray(self.scale, mu.dtype)
        z = mu / (sigma * np.sqrt(2))
        mean_abs = sigma * np.sqrt(2 / np.pi) * jnp.exp(-jnp.square(z)) + mu * erf(z)
        return jnp.log(2 * scale) + mean_abs / scale - 0.5 * (1 + _LOG_2PI) - jnp.log(sigma)


class FromDistribution(Prior):
    """Any distribution of numpyro over the real line, the same for every entry."""

    distribution: dist.Distribution

    def __init__(self, distribution: dist.Distribution):
        if distribution.event_shape != () or distribution.batch_shape != ():
            raise ValueError(
                "prior must be a distribution of one number (empty batch and event shape), got "
                f"batch {distribution.batch_shape} and event {distribution.event_shape}; "
                "use px.priors.ByPart or px.priors.PerWeight for different weights"
            )
        if distribution.support is not dist.constraints.real:
            raise ValueError(
                "prior must have the whole real line as its support, got "
                f"{type(distribution).__name__} on {distribution.support}"
            )
        self.distribution = distribution

    def log_prob(self, w: jax.Array) -> jax.Array:
        return self.distribution.log_prob(w)

    def sample(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        return self.distribution.sample(key, shape).astype(dtype)

    def kl_from_gaussian(self, mu: jax.Array, sigma: jax.Array) -> jax.Array | None:
        try:
            return dist.kl_divergence(dist.Normal(mu, sigma), self.distribution)
        except NotImplementedError:
            return None


class ByPart(Prior):
    """Different priors for different parts of the tree; the first pattern that matches decides.

    Args:
        parts: patterns over names like ``layers.0.weight`` (as in file names: ``*.bias``), or
            functions of (name, array), each with its prior.
        default: the prior of what no pattern matches.

    Example:
        >>> import posterax as px
        >>> prior = px.priors.ByPart(
        ...     {"*.bias": px.priors.Gaussian(10.0)}, default=px.priors.Laplace(0.1)
        ... )
        >>> model = px.Model(
        ...     px.networks.MLP(2, 1, (4,), key=0), prior, px.likelihoods.Gaussian(0.1)
        ... )
        >>> model.priors.network.layers[0].bias.scale.item()
        10.0
    """

    parts: tuple[tuple[Any, Prior], ...]
    default: Prior

    def __init__(self, parts: Mapping[Any, Any], default: Any = None):
        self.parts = tuple((pattern, as_prior(prior)) for pattern, prior in parts.items())
        self.default = as_prior(Gaussian(1.0) if default is None else default)

    def resolve(self, params: Any, fan_in: Callable[[tuple[int, ...]], int]) -> Any:
        used: set[int] = set()

        def choose(path: Any, w: jax.Array) -> Prior:
            name = path_name(path)
            for i, (pattern, prior) in enumerate(self.parts):
                if pattern(name, w) if callable(pattern) else _matches(name, pattern):
                    used.add(i)
                    return prior.for_shape(w.shape, fan_in)
            return self.default.for_shape(w.shape, fan_in)

        tree = jtu.tree_map_with_path(choose, params)
        idle = [str(pattern) for i, (pattern, _) in enumerate(self.parts) if i not in used]
        if idle:
            names = [path_name(p) for p, _ in jtu.tree_leaves_with_path(params)]
            raise ValueError(
                f"prior: no weight matches {', '.join(idle)}; the weights are {', '.join(names)}"
            )
        return tree


def _matches(name: str, pattern: str) -> bool:
    # the name alone, or as the model's summary prints it
    return any(fnmatch.fnmatchcase(n, pattern) for n in (name, f"network.{name}"))


class PerWeight(Prior):
    """A Gaussian with its own mean and deviation for every weight, as an earlier posterior gives.

    Covers the likelihood's parameters too, since they are part of what was learned.

    Args:
        loc: means, a tree like the model's parameters.
        scale: deviations, a tree of the same shape.
    """

    loc: Any
    scale: Any

    def resolve(self, params: Any, fan_in: Callable[[tuple[int, ...]], int]) -> Any:
        if not same_structure(params, self.loc.network):
            raise ValueError(
                "prior: this posterior's weights have another tree than the network's; "
                "use it with the network it was fitted for"
            )
        return jax.tree.map(Gaussian, self.scale.network, self.loc.network)

    def resolve_likelihood(self) -> Any:
        """The priors of the likelihood's own parameters."""
        return jax.tree.map(Gaussian, self.scale.likelihood, self.loc.likelihood)


def as_prior(prior: Any) -> Prior:
    """Accept a prior of this module or a numpyro distribution.

    Example:
        >>> import numpyro.distributions as dist
        >>> import posterax as px
        >>> px.priors.as_prior(dist.Cauchy(0.0, 1.0))
        FromDistribution(...)
    """
    if isinstance(prior, Prior):
        return prior
    if isinstance(prior, dist.Distribution):
        return FromDistribution(prior)
    raise TypeError(
        "prior must be one of px.priors or a numpyro distribution, got "
        f"{type(prior).__name__}; for instance px.priors.Gaussian(1.0)"
    )


def is_prior(node: Any) -> bool:
    """Leaf test for trees of priors."""
    return isinstance(node, Prior)

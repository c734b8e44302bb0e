"""Priors that are the same for every entry of an array: Gaussian, scale mixture, Laplace, any."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import erf
from jax.typing import DTypeLike
from jaxtyping import PyTree
from numpy.typing import ArrayLike

from .._util.jax_names import Tracer
from .base import LOG_2PI, Prior, normal_log_prob, number, positive


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

    def __init__(self, scale: ArrayLike = 1.0, loc: ArrayLike = 0.0, *, fan_in: bool = False):
        checked = scale if isinstance(scale, Tracer) else positive("scale", scale)
        # arrays of the device stay where they are
        self.scale = scale if isinstance(scale, jax.Array) else checked
        self.loc = loc if isinstance(loc, jax.Array) else number("loc", loc)
        self.fan_in = bool(fan_in)

    def _moments(self, dtype: DTypeLike) -> tuple[jax.Array, jax.Array]:
        return jnp.asarray(self.loc, dtype), jnp.asarray(self.scale, dtype)

    def log_prob(self, w: jax.Array) -> jax.Array:
        return normal_log_prob(w, *self._moments(w.dtype))

    def sample(self, key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
        loc, scale = self._moments(dtype)
        return loc + scale * jax.random.normal(key, shape, dtype)

    def kl_from_gaussian(self, mu: jax.Array, sigma: jax.Array) -> jax.Array:
        loc, scale = self._moments(mu.dtype)
        ratio = sigma / scale
        return 0.5 * (jnp.square(ratio) + jnp.square((mu - loc) / scale) - 1) - jnp.log(ratio)

    def deviation(self) -> Any:
        return self.scale

    def for_shape(self, shape: tuple[int, ...], fan_in: Callable[..., int]) -> "Prior":
        return Gaussian(self.scale / np.sqrt(fan_in(shape)), self.loc) if self.fan_in else self


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

    def __init__(self, pi: ArrayLike = 0.5, sigma1: ArrayLike = 1.0, sigma2: ArrayLike = 0.0025):
        self.pi = number("pi", pi)
        if not np.all((self.pi > 0) & (self.pi < 1)):
            raise ValueError(f"pi must lie strictly between 0 and 1, got {pi!r}")
        self.sigma1, self.sigma2 = positive("sigma1", sigma1), positive("sigma2", sigma2)
        odds = (1 - self.pi) * self.sigma1 / (self.pi * self.sigma2)
        narrow, wide = 1 / np.square(self.sigma2), 1 / np.square(self.sigma1)
        # what the derivative needs, so that no step divides numbers that never change
        self._ratios = (odds, wide, narrow, wide - narrow)

    def log_prob(self, w: jax.Array) -> jax.Array:
        numbers = (self.pi, self.sigma1, self.sigma2, self._ratios)
        return _log_mixture(w, *jax.tree.map(lambda v: jnp.asarray(v, w.dtype), numbers))

    def sample(self, key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
        pick, noise = jax.random.split(key)
        pi, wide, narrow = (jnp.asarray(v, dtype) for v in (self.pi, self.sigma1, self.sigma2))
        sigma = jnp.where(jax.random.bernoulli(pick, pi, shape), wide, narrow)
        return sigma * jax.random.normal(noise, shape, dtype)


@jax.custom_jvp
def _log_mixture(w: jax.Array, pi: jax.Array, s1: jax.Array, s2: jax.Array, ratios: PyTree) -> Any:
    first = jnp.log(pi) - jnp.log(s1) - 0.5 * jnp.square(w / s1)
    second = jnp.log1p(-pi) - jnp.log(s2) - 0.5 * jnp.square(w / s2)
    return jnp.logaddexp(first, second) - 0.5 * LOG_2PI


@_log_mixture.defjvp
def _(primals: PyTree, tangents: PyTree) -> tuple[jax.Array, jax.Array]:
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

    scale: Any = eqx.field(converter=partial(positive, "scale"), default=1.0)

    def log_prob(self, w: jax.Array) -> jax.Array:
        scale = jnp.asarray(self.scale, w.dtype)
        return -jnp.abs(w) / scale - jnp.log(2 * scale)

    def sample(self, key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
        return jnp.asarray(self.scale, dtype) * jax.random.laplace(key, shape, dtype)

    def kl_from_gaussian(self, mu: jax.Array, sigma: jax.Array) -> jax.Array:
        scale = jnp.asarray(self.scale, mu.dtype)
        z = mu / (sigma * np.sqrt(2))
        mean_abs = sigma * np.sqrt(2 / np.pi) * jnp.exp(-jnp.square(z)) + mu * erf(z)
        return jnp.log(2 * scale) + mean_abs / scale - 0.5 * (1 + LOG_2PI) - jnp.log(sigma)


class FromDistribution(Prior):
    """Any distribution of numpyro over the real line, the same for every entry."""

    distribution: dist.Distribution

    def __init__(self, distribution: dist.Distribution):
        batch, event = distribution.batch_shape, distribution.event_shape
        if batch or event:
            raise ValueError(
                f"prior must be a distribution of one number, got batch {batch} and event {event}; "
                "use px.priors.ByPart or px.priors.PerWeight for different weights"
            )
        if distribution.support is not dist.constraints.real:
            name = type(distribution).__name__
            raise ValueError(f"prior must have the whole real line as its support, got {name}")
        self.distribution = distribution

    def log_prob(self, w: jax.Array) -> jax.Array:
        return self.distribution.log_prob(w)

    def sample(self, key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
        return self.distribution.sample(key, shape).astype(dtype)

    def kl_from_gaussian(self, mu: jax.Array, sigma: jax.Array) -> jax.Array | None:
        try:
            return dist.kl_divergence(dist.Normal(mu, sigma), self.distribution)
        except NotImplementedError:
            return None


def as_prior(prior: Any) -> Prior:
    """Accept a prior of this module or a numpyro distribution.

    numpyro's ``Normal`` becomes ``px.priors.Gaussian``, for which much has a closed form.

    Example:
        >>> import numpyro.distributions as dist
        >>> import posterax as px
        >>> px.priors.as_prior(dist.Cauchy(0.0, 1.0))
        FromDistribution(...)
    """
    if isinstance(prior, Prior):
        return prior
    if isinstance(prior, dist.Distribution):
        made = FromDistribution(prior)
        return Gaussian(prior.scale, prior.loc) if type(prior) is dist.Normal else made
    raise TypeError(
        f"prior must be one of px.priors or a numpyro distribution, got {type(prior).__name__}"
    )

"""Priors that are the same for every entry of an array: Gaussian, scale mixture, Laplace."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf

from .._util.jax_names import Tracer
from .base import LOG_2PI, Prior, number, positive


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
        traced = isinstance(scale, Tracer)
        checked = scale if traced else positive("scale", scale)
        # arrays of the device stay where they are
        self.scale = scale if isinstance(scale, jax.Array) else checked
        self.loc = loc if isinstance(loc, jax.Array) else number("loc", loc)
        self.fan_in = bool(fan_in)

    def _moments(self, dtype: Any) -> tuple[jax.Array, jax.Array]:
        return jnp.asarray(self.loc, dtype), jnp.asarray(self.scale, dtype)

    def log_prob(self, w: jax.Array) -> jax.Array:
        loc, scale = self._moments(w.dtype)
        return -0.5 * jnp.square((w - loc) / scale) - jnp.log(scale) - 0.5 * LOG_2PI

    def sample(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        loc, scale = self._moments(dtype)
        return loc + scale * jax.random.normal(key, shape, dtype)

    def kl_from_gaussian(self, mu: jax.Array, sigma: jax.Array) -> jax.Array:
        loc, scale = self._moments(mu.dtype)
        ratio = sigma / scale
        return 0.5 * (jnp.square(ratio) + jnp.square((mu - loc) / scale) - 1) - jnp.log(ratio)

    def deviation(self) -> Any:
        return self.scale

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

    def sample(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        pick, noise = jax.random.split(key)
        wide = jax.random.bernoulli(pick, jnp.asarray(self.pi, dtype), shape)
        sigma = jnp.where(wide, jnp.asarray(self.sigma1, dtype), jnp.asarray(self.sigma2, dtype))
        return sigma * jax.random.normal(noise, shape, dtype)


@jax.custom_jvp
def _log_mixture(w: jax.Array, pi: jax.Array, s1: jax.Array, s2: jax.Array, ratios: Any) -> Any:
    first = jnp.log(pi) - jnp.log(s1) - 0.5 * jnp.square(w / s1)
    second = jnp.log1p(-pi) - jnp.log(s2) - 0.5 * jnp.square(w / s2)
    return jnp.logaddexp(first, second) - 0.5 * LOG_2PI


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
        self.scale = positive("scale", scale)

    def log_prob(self, w: jax.Array) -> jax.Array:
        scale = jnp.asarray(self.scale, w.dtype)
        return -jnp.abs(w) / scale - jnp.log(2 * scale)

    def sample(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        return jnp.asarray(self.scale, dtype) * jax.random.laplace(key, shape, dtype)

    def kl_from_gaussian(self, mu: jax.Array, sigma: jax.Array) -> jax.Array:
        scale = jnp.asarray(self.scale, mu.dtype)
        z = mu / (sigma * np.sqrt(2))
        mean_abs = sigma * np.sqrt(2 / np.pi) * jnp.exp(-jnp.square(z)) + mu * erf(z)
        return jnp.log(2 * scale) + mean_abs / scale - 0.5 * (1 + LOG_2PI) - jnp.log(sigma)

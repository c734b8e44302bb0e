"""Regression: a location from the network, and a scale or covariance around it."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import PyTree
from numpy.typing import ArrayLike
from numpyro.distributions import Distribution

from ..priors.base import positive
from .base import Likelihood
from .links import FLOOR, scaled_softplus


def _check_noise(noise: Any, name: str = "noise") -> Any:
    if isinstance(noise, str):
        if noise not in ("learned", "predicted"):
            raise ValueError(
                f"{name} must be a positive number, 'learned' or 'predicted', got {noise!r}"
            )
        return noise
    return positive(name, noise)


UNSEEN = 0.1  # learned noise before there are data
# Learned noise at the start of a fit, as a part of the deviation of y. At 1 noise explains all, and
# on a curve of few points networks stay there; at 0.1 the first thousand steps fit noise.
OF_DEVIATION = 0.3


def _check_initial(initial: Any) -> Any:
    if initial is None:
        return None
    value = positive("initial", initial)
    return float(value) if value.ndim == 0 else value


def known_noise(likelihood: Any) -> np.ndarray | None:
    """The deviation of y around the network's outputs, where the user gave one.

    Example:
        >>> import posterax as px
        >>> from posterax.likelihoods.regression import known_noise
        >>> float(known_noise(px.likelihoods.Gaussian(0.5)))
        0.5
        >>> known_noise(px.likelihoods.Gaussian("learned")) is None
        True
    """
    factor = getattr(likelihood, "cholesky", None)
    if factor is not None:
        return np.sqrt(np.sum(np.square(factor), axis=1))
    # that of another likelihood is not in the units of y
    noise = likelihood.noise if isinstance(likelihood, _LocationScale) else None
    return None if noise is None or isinstance(noise, str) else np.asarray(noise, np.float64)


def deviations(y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The standard deviation of each output over the rows, by their weights.

    An output that does not vary gets that of all others, or 1 where none does.

    Example:
        >>> import numpy as np
        >>> from posterax.likelihoods.regression import deviations
        >>> print(deviations(np.array([[0.0, 5.0], [2.0, 5.0]]), np.ones(2)))
        [1. 1.]
    """
    y = np.asarray(y, np.float64)
    mean = np.average(y, axis=0, weights=weight)
    variance = np.average(np.square(y - mean), axis=0, weights=weight)
    # what is left of a constant column is rounding
    varies = variance > np.square(1e-6 * mean)
    usual = np.mean(variance[varies]) if varies.any() else 1.0
    return np.sqrt(np.where(varies, variance, usual))


class _LocationScale(Likelihood):
    """Location from the network; scale known, learned, or from the network too."""

    noise: Any
    initial: Any

    def init(self, target_shape: tuple[int, ...]) -> dict[str, Any]:
        if self._noise_is("learned"):
            initial = UNSEEN if self.initial is None else self.initial
            return {"log_noise": jnp.broadcast_to(jnp.asarray(np.log(initial)), target_shape)}
        return {}

    def for_data(self, y: np.ndarray, weight: np.ndarray) -> Likelihood:
        if not self._noise_is("learned") or self.initial is not None:
            return self
        start = OF_DEVIATION * deviations(y, weight)
        return eqx.tree_at(lambda own: own.initial, self, start, is_leaf=lambda leaf: leaf is None)

    def _noise_is(self, word: str) -> bool:
        return isinstance(self.noise, str) and self.noise == word

    def outputs_for(self, target_shape: tuple[int, ...]) -> tuple[int, ...]:
        if self._noise_is("predicted"):
            return (*target_shape[:-1], 2 * (target_shape[-1] if target_shape else 1))
        return target_shape

    def target_for(self, output_shape: tuple[int, ...]) -> tuple[int, ...]:
        if self._noise_is("predicted"):
            return (*output_shape[:-1], output_shape[-1] // 2)
        return output_shape

    def check(self, output_shape: tuple[int, ...], y: ArrayLike) -> tuple[int, ...]:
        shape = super().check(output_shape, y)
        if self._noise_is("predicted") and shape == ():
            return (1,)  # two outputs an example stand for targets of shape (N, 1)
        each = () if isinstance(self.noise, str) else np.shape(self.noise)
        if each != shape[len(shape) - len(each) :]:
            raise ValueError(f"noise must be one number or of shape {shape}, got shape {each}")
        return shape

    def widened(self, outputs: jax.Array, factor: Any) -> jax.Array:
        if not self._noise_is("predicted"):
            return outputs
        location, raw = jnp.split(outputs, 2, axis=-1)
        return jnp.concatenate([location, scaled_softplus(raw, factor)], axis=-1)

    def location(self, y: np.ndarray) -> np.ndarray:
        return y

    def location_scale(self, outputs: jax.Array, params: PyTree) -> tuple[jax.Array, jax.Array]:
        """Location and scale of y, both in the shape of the targets."""
        if self._noise_is("predicted"):
            location, raw = jnp.split(outputs, 2, axis=-1)
            # softplus keeps the scale positive; the floor keeps its logarithm finite
            return location, jax.nn.softplus(raw) + FLOOR
        if self._noise_is("learned"):
            return outputs, jnp.broadcast_to(jnp.exp(params["log_noise"]), outputs.shape)
        return outputs, jnp.broadcast_to(jnp.asarray(self.noise, outputs.dtype), outputs.shape)


class Gaussian(_LocationScale):
    r"""y ~ N(f(x), noise²): regression.

    Args:
        noise: the standard deviation of y around the network's output. A number (or one per
            output) when it is known; ``"learned"`` for one parameter per output with a prior
            N(log initial, 1) on its logarithm; ``"predicted"`` for a network with 2 × D outputs,
            means and then raw scales, σ = softplus(raw) (heteroscedastic).
        initial: where learned noise starts, a number or one per output (default: 0.3 of the
            deviation of y in the data of the fit).

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> likelihood = px.likelihoods.Gaussian(noise=0.5)
        >>> y = jnp.zeros((1, 1))
        >>> print(likelihood.log_prob(y, y, {}, None).round(4))
        [-0.2258]
    """

    def __init__(self, noise: Any = 0.1, *, initial: Any = None):
        self.noise, self.initial = _check_noise(noise), _check_initial(initial)

    def distribution(self, outputs: jax.Array, params: PyTree, side: PyTree = None) -> Distribution:
        return dist.Normal(*self.location_scale(outputs, params))


class StudentT(_LocationScale):
    """y ~ f(x) + noise · t(df): regression with outliers.

    Args:
        df: degrees of freedom; above 2, so that the variance exists.
        noise: as in [`Gaussian`][posterax.likelihoods.Gaussian]; the scale of the t.
        initial: where learned noise starts, as in [`Gaussian`][posterax.likelihoods.Gaussian].
    """

    df: Any

    def __init__(self, df: float = 4.0, noise: Any = 0.1, *, initial: Any = None):
        self.noise, self.initial = _check_noise(noise), _check_initial(initial)
        if not df > 2:
            raise ValueError(f"df must be above 2 so that y has a variance, got {df!r}")
        self.df = float(df)

    def distribution(self, outputs: jax.Array, params: PyTree, side: PyTree = None) -> Distribution:
        location, scale = self.location_scale(outputs, params)
        if self.df % 2 == 0 and self.df <= MOST_TERMS:
            return EvenStudentT(int(self.df), location, scale)
        return dist.StudentT(self.df, location, scale)

    def log_prob(self, outputs: jax.Array, y: jax.Array, params: PyTree, side: PyTree) -> jax.Array:
        # numpyro's, with what depends on df alone computed once and not for every example
        location, scale = self.location_scale(outputs, params)
        half = 0.5 * (self.df + 1)
        constant = (
            math.lgamma(half) - math.lgamma(0.5 * self.df) - 0.5 * math.log(self.df * math.pi)
        )
        z = (y - location) / scale
        log_prob = constant - jnp.log(scale) - half * jnp.log1p(jnp.square(z) / self.df)
        return log_prob.reshape(log_prob.shape[0], -1).sum(-1)


MOST_TERMS = 32


class EvenStudentT(dist.StudentT):
    r"""Student's t for even degrees of freedom, whose distribution function is a short sum.

    With sin θ = t / √(ν + t²): F(t) = ½ + ½ sin θ Σₖ cₖ cos²ᵏ θ, k = 0 … ν/2 − 1, c₀ = 1 and
    cₖ = cₖ₋₁ (2k − 1) / 2k (Abramowitz and Stegun, 26.7.4). Quantiles of a mixture evaluate it
    thousands of times, and the incomplete beta function in its place takes long.
    """

    pytree_aux_fields = ("even",)

    def __init__(
        self, df: int, loc: ArrayLike, scale: ArrayLike, *, validate_args: bool | None = None
    ):
        self.even = df
        super().__init__(float(df), loc, scale, validate_args=validate_args)

    def cdf(self, value: Any) -> jax.Array:
        """P(Y ≤ value)."""
        t = (value - self.loc) / self.scale
        cosine = self.even / (self.even + jnp.square(t))
        total, coefficient = jnp.ones_like(cosine), 1.0
        power = cosine
        for k in range(1, self.even // 2):
            coefficient *= (2 * k - 1) / (2 * k)
            total, power = total + coefficient * power, power * cosine
        return 0.5 + 0.5 * t / jnp.sqrt(self.even + jnp.square(t)) * total


class MultivariateGaussian(Likelihood):
    r"""y ~ N(f(x), Σ) with a full observation covariance over the outputs of one example.

    Args:
        covariance: Σ (D × D), or ``"learned"``: a Cholesky factor with standard Gaussian priors
            on its entries below the diagonal and on the logarithms of its diagonal.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> px.likelihoods.MultivariateGaussian(np.array([[1.0, 0.9], [0.9, 1.0]]))
        MultivariateGaussian(...)
    """

    covariance: Any
    cholesky: Any

    def __init__(self, covariance: Any):
        self.covariance, self.cholesky = covariance, None
        if isinstance(covariance, str):
            if covariance != "learned":
                raise ValueError(f"covariance must be a matrix or 'learned', got {covariance!r}")
            return
        sigma = np.asarray(covariance, np.float64)
        if sigma.ndim != 2 or sigma.shape[0] != sigma.shape[1] or not np.allclose(sigma, sigma.T):
            raise ValueError(f"covariance must be a symmetric matrix, got shape {sigma.shape}")
        self.covariance = sigma
        try:
            self.cholesky = np.linalg.cholesky(sigma)
        except np.linalg.LinAlgError:
            raise ValueError("covariance must be positive definite") from None

    def init(self, target_shape: tuple[int, ...]) -> dict[str, Any]:
        if self.cholesky is not None:
            return {}
        d = target_shape[-1]
        return {"log_diagonal": jnp.zeros(d), "lower": jnp.zeros(d * (d - 1) // 2)}

    def check(self, output_shape: tuple[int, ...], y: ArrayLike) -> tuple[int, ...]:
        shape = super().check(output_shape, y) or (1,)
        fixed = self.cholesky is not None
        if len(output_shape) != 2 or (fixed and shape != self.cholesky.shape[:1]):
            size = "{} × {}".format(*self.cholesky.shape) if fixed else "D × D"
            raise ValueError(
                f"y has shape {np.shape(y)} and the network's output {output_shape}: "
                f"MultivariateGaussian with a {size} covariance needs both to be (N, D)"
            )
        return shape

    def distribution(self, outputs: jax.Array, params: PyTree, side: PyTree = None) -> Distribution:
        if self.cholesky is not None:
            factor = jnp.asarray(self.cholesky, outputs.dtype)
        else:
            diagonal = jnp.exp(params["log_diagonal"])
            d = diagonal.shape[-1]
            factor = jnp.diag(diagonal).at[jnp.tril_indices(d, -1)].set(params["lower"])
        return dist.MultivariateNormal(outputs, scale_tril=factor)

    def location(self, y: np.ndarray) -> np.ndarray:
        return y

    def marginal(self, outputs: jax.Array, params: PyTree, side: PyTree) -> Distribution:
        both = self.distribution(outputs, params, side)
        return dist.Normal(both.mean, jnp.sqrt(both.variance))

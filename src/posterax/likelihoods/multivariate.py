"""Regression with correlated outputs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from .base import Likelihood


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

    def check(self, output_shape: tuple[int, ...], y: Any) -> tuple[int, ...]:
        shape = super().check(output_shape, y) or (1,)
        fixed = self.cholesky is not None
        if len(output_shape) != 2 or (fixed and shape != self.cholesky.shape[:1]):
            size = "{} × {}".format(*self.cholesky.shape) if fixed else "D × D"
            raise ValueError(
                f"y has shape {np.shape(y)} and the network's output {output_shape}: "
                f"MultivariateGaussian with a {size} covariance needs both to be (N, D)"
            )
        return shape

    def distribution(self, outputs: jax.Array, params: Any, side: Any = None) -> dist.Distribution:
        if self.cholesky is not None:
            factor = jnp.asarray(self.cholesky, outputs.dtype)
        else:
            diagonal = jnp.exp(params["log_diagonal"])
            d = diagonal.shape[-1]
            factor = jnp.diag(diagonal).at[jnp.tril_indices(d, -1)].set(params["lower"])
        return dist.MultivariateNormal(outputs, scale_tril=factor)

    def marginal(self, outputs: jax.Array, params: Any, side: Any) -> dist.Distribution:
        both = self.distribution(outputs, params, side)
        return dist.Normal(both.mean, jnp.sqrt(both.variance))

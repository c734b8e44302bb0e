"""Classes and counts."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import PyTree
from numpy.typing import ArrayLike
from numpyro.distributions import Distribution

from .base import Kind, Likelihood, check_support


class Categorical(Likelihood):
    r"""y ~ Categorical(softmax f(x)): classification, labels 0 … K−1, K outputs.

    Targets may have more axes (one label a pixel): outputs then are (N, H, W, K).

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> logits = jnp.zeros((1, 4))
        >>> print(px.likelihoods.Categorical().log_prob(logits, jnp.array([2]), {}, None).round(4))
        [-1.3863]
    """

    family: ClassVar[Kind] = "classification"

    def distribution(self, outputs: jax.Array, params: PyTree, side: PyTree = None) -> Distribution:
        return dist.Categorical(logits=outputs)

    def log_prob(self, outputs: jax.Array, y: jax.Array, params: PyTree, side: PyTree) -> jax.Array:
        log_p = jax.nn.log_softmax(outputs)
        # a comparison, not a look-up: the derivative of a look-up is a scatter, slow everywhere
        picked = jnp.where(jnp.arange(log_p.shape[-1]) == y[..., None], log_p, 0)
        return picked.reshape(picked.shape[0], -1).sum(-1)

    def widened(self, outputs: jax.Array, factor: Any) -> jax.Array:
        return outputs / factor

    def target_for(self, output_shape: tuple[int, ...]) -> tuple[int, ...]:
        return output_shape[:-1]

    def check(self, output_shape: tuple[int, ...], y: ArrayLike) -> tuple[int, ...]:
        target = tuple(np.shape(y)[1:])
        if len(output_shape) < 2 or output_shape[1:-1] != target or output_shape[-1] < 2:
            raise ValueError(
                f"y has shape {np.shape(y)} and the network's output {output_shape}: Categorical "
                f"needs labels of shape (N,) and one output per class, (N, K) with K of 2 or more"
            )
        return target

    def check_values(self, y: np.ndarray, output_shape: tuple[int, ...]) -> None:
        classes = output_shape[-1]
        check_support(y, y == np.floor(y), "whole numbers, the class labels, for Categorical")
        labels = f"labels 0 … {classes - 1} for a network with {classes} outputs"
        check_support(y, (y >= 0) & (y < classes), labels)


class Bernoulli(Likelihood):
    """y ~ Bernoulli(sigmoid f(x)): one output, labels 0 and 1.

    Predictions have two classes, like any classification.

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> out = jnp.zeros((1, 1))
        >>> print(px.likelihoods.Bernoulli().log_prob(out, out, {}, None).round(4))
        [-0.6931]
    """

    family: ClassVar[Kind] = "classification"

    def distribution(self, outputs: jax.Array, params: PyTree, side: PyTree = None) -> Distribution:
        return dist.Bernoulli(logits=outputs)

    def widened(self, outputs: jax.Array, factor: Any) -> jax.Array:
        return outputs / factor

    def check_values(self, y: np.ndarray, output_shape: tuple[int, ...]) -> None:
        check_support(y, (y == 0) | (y == 1), "0 and 1 only for Bernoulli")


class Poisson(Likelihood):
    r"""y ~ Poisson(exposure · exp f(x)): counts.

    Args:
        exposure: with ``True`` the inputs are a pair ``(x, exposure)``, in fitting and
            predicting; the exposure (time, area, population at risk) has the shape of y.

    Example:
        >>> import posterax as px
        >>> px.likelihoods.Poisson(exposure=True)
        Poisson(exposure=True)
    """

    exposure: bool = eqx.field(static=True, default=False)

    family: ClassVar[Kind] = "counts"

    def split(self, x: PyTree) -> tuple[Any, Any]:
        if not self.exposure:
            return x, None
        if not (isinstance(x, tuple) and len(x) == 2):
            raise TypeError(f"x must be a pair (x, exposure), got {type(x).__name__}")
        return x

    def distribution(self, outputs: jax.Array, params: PyTree, side: PyTree = None) -> Distribution:
        log_rate = outputs
        if self.exposure:
            log_rate = log_rate + jnp.log(side).reshape(outputs.shape)
        return dist.Poisson(jnp.exp(log_rate))

    def location(self, y: np.ndarray) -> np.ndarray:
        if self.exposure:
            return super().location(y)  # the exposure is not known here
        return np.log(np.asarray(y, np.float64) + 0.5)

    def check_values(self, y: np.ndarray, output_shape: tuple[int, ...]) -> None:
        counts = "counts, whole numbers of 0 or more, for Poisson"
        check_support(y, (y >= 0) & (y == np.floor(y)), counts)

"""Weights that take finitely many values: binary or ternary networks, and exact enumeration."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from numpy.typing import ArrayLike

from .base import Prior, number

TOLERANCE = 1e-3  # of the smallest distance between two values


class Grid(Prior):
    r"""P(w = vₖ) = pₖ: every weight takes one of finitely many values.

    There is no density and so no gradient: ``px.Enumeration`` sums over all states,
    ``px.ImportanceSampling`` and ``px.Metropolis`` sample them, and ``px.BlackBoxVI`` finds the
    best independent probabilities. In a
    [`ByPart`][posterax.priors.ByPart] different arrays have different grids.

    Args:
        values: the values, two or more, distinct in float32.
        probs: their probabilities (default: all the same).

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> prior = px.priors.Grid([-1.0, 0.0, 1.0], probs=[0.25, 0.5, 0.25])
        >>> print(prior.log_prob(jnp.array([0.0, 1.0, 0.3])))
        [-0.6931... -1.386... -inf]
        >>> prior.index(prior.value(jnp.array([2, 0]))).tolist()
        [2, 0]
    """

    values: Any
    probs: Any

    discrete: ClassVar[bool] = True

    def __init__(self, values: ArrayLike, probs: ArrayLike | None = None):
        self.values = number("values", values)
        if self.values.ndim != 1 or len(self.values) < 2:
            raise ValueError(f"values must be a list of two or more numbers, got {values!r}")
        if not np.all(np.isfinite(self.values)):
            raise ValueError(f"values must be finite, got {values!r}")
        if len(np.unique(self.values.astype(np.float32))) < len(self.values):
            raise ValueError(f"values must be distinct (in float32), got {values!r}")
        count = len(self.values)
        self.probs = np.full(count, 1 / count) if probs is None else number("probs", probs)
        if self.probs.shape != (count,):
            raise ValueError(
                f"probs must be {count} numbers, one for each value, got shape {self.probs.shape}"
            )
        if not (np.all(self.probs > 0) and abs(self.probs.sum() - 1) < 1e-6):
            raise ValueError(
                f"probs must be positive and sum to 1, got {probs!r}; leave out a value that is "
                "impossible"
            )

    def __len__(self) -> int:
        return len(self.values)

    def value(self, index: jax.Array, dtype: DTypeLike | None = None) -> jax.Array:
        """The values with these indices."""
        return jnp.asarray(self.values, dtype or jnp.result_type(float))[index]

    def index(self, w: jax.Array) -> jax.Array:
        """The index of the value that each weight is nearest to."""
        distance = jnp.abs(w[..., None] - jnp.asarray(self.values, w.dtype))
        return jnp.argmin(distance, axis=-1).astype(jnp.int32)

    def contains(self, w: jax.Array) -> jax.Array:
        """Whether a weight has one of the values, up to a thousandth of their distance."""
        values = jnp.sort(jnp.asarray(self.values, w.dtype))
        nearest = self.value(self.index(w), w.dtype)
        return jnp.abs(w - nearest) <= TOLERANCE * jnp.min(jnp.diff(values))

    def log_prob(self, w: jax.Array) -> jax.Array:
        log_probs = jnp.log(jnp.asarray(self.probs, w.dtype))
        return jnp.where(self.contains(w), log_probs[self.index(w)], -jnp.inf)

    def sample(self, key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
        logits = jnp.log(jnp.asarray(self.probs, jnp.result_type(float)))
        return self.value(jax.random.categorical(key, logits, shape=shape), dtype)

    def restrict(self, shape: tuple[int, ...], positions: np.ndarray) -> "Grid":
        return self  # its arrays are of values, not of weights

    def deviation(self) -> Any:
        return np.sqrt(self.probs @ np.square(self.values - self.probs @ self.values))


def is_grid(prior: Any) -> bool:
    """Whether what has this prior takes finitely many values."""
    return isinstance(prior, Grid)

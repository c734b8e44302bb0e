"""What a prior knows; no prior at all; and weights that take finitely many values."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree
from numpy.typing import ArrayLike

from .._util.tree import path_name

LOG_2PI = float(np.log(2 * np.pi))


def positive(name: str, value: object) -> np.ndarray:
    array = number(name, value)
    if not (np.all(np.isfinite(array)) and np.all(array > 0)):
        raise ValueError(f"{name} must be positive and finite, got {value!r}")
    return array


def number(name: str, value: object) -> np.ndarray:
    try:
        return np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {value!r}") from None


def normal_log_prob(w: jax.Array, loc: jax.Array, scale: jax.Array) -> jax.Array:
    """log N(w | loc, scale²), entry by entry."""
    return -0.5 * jnp.square((w - loc) / scale) - jnp.log(scale) - 0.5 * LOG_2PI


class Prior(eqx.Module):
    """What a prior knows: its log density, its draws, and where it can its KL from a Gaussian."""

    discrete: ClassVar[bool] = False  # probabilities in the place of a density
    each: ClassVar[bool] = False  # whether it has numbers for every weight, in a tree

    def log_prob(self, w: jax.Array) -> jax.Array:
        """log p(w), an array whose sum is the log density."""
        raise NotImplementedError

    def sample(self, key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
        """A draw of an array of weights."""
        raise NotImplementedError

    def kl_from_gaussian(self, mu: jax.Array, sigma: jax.Array) -> jax.Array | None:
        """KL(N(mu, sigma²) ‖ p) entry by entry, or ``None`` where there is no closed form."""
        return None

    def deviation(self) -> Any:
        """The standard deviation, where it is known."""
        return None

    def resolve(self, params: PyTree, fan_in: Callable[[tuple[int, ...], str], int]) -> Any:
        """A tree like ``params`` with one prior at every array; ``fan_in`` is of shape and name."""
        return jtu.tree_map_with_path(
            lambda path, w: self.for_weight(path_name(path), w, fan_in), params
        )

    def for_weight(self, name: str, w: jax.Array, fan_in: Callable[..., int]) -> "Prior":
        """The prior of one array, by its name and values."""
        return self.for_shape(w.shape, lambda shape: fan_in(shape, name))

    def for_shape(self, shape: tuple[int, ...], fan_in: Callable[..., int]) -> "Prior":
        """The prior of one array; only fan-in scaling looks at the shape."""
        return self

    def restrict(self, shape: tuple[int, ...], positions: np.ndarray) -> "Prior":
        """The prior of some entries of an array of this shape, by their flattened positions."""

        def one(a: PyTree) -> Any:
            if not np.ndim(a):
                return a
            entries = np.broadcast_to(np.asarray(a), shape).reshape(-1)[positions]
            return jnp.asarray(entries) if isinstance(a, jax.Array) else entries

        return jax.tree.map(one, self)


def is_prior(node: Any) -> bool:
    """Leaf test for trees of priors."""
    return isinstance(node, Prior)


class Flat(Prior):
    """No prior at all: such weights are learned as a point, by maximum likelihood.

    ``px.Model(…, where=…)`` gives it to the weights that ``where`` leaves out; in a
    [`ByPart`][posterax.priors.ByPart] it does the same by name.

    Example:
        >>> import posterax as px
        >>> prior = px.priors.ByPart({"*.bias": px.priors.Flat()})
        >>> network = px.networks.MLP(2, 1, (4,), key=0)
        >>> model = px.Model(network, prior, px.likelihoods.Gaussian(0.1))
        >>> model.bayesian_size  # 2 × 4 + 4 × 1, no bias among them
        12
    """

    def log_prob(self, w: jax.Array) -> jax.Array:
        return jnp.zeros_like(w)

    def sample(self, key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
        raise ValueError("a flat prior cannot be sampled")


def is_flat(prior: Any) -> bool:
    """Whether what has this prior is a point."""
    return isinstance(prior, Flat)


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
            raise ValueError(f"probs must be {count} numbers, got shape {self.probs.shape}")
        if not (np.all(self.probs > 0) and abs(self.probs.sum() - 1) < 1e-6):
            raise ValueError(
                f"probs must be positive and sum to 1, got {probs!r}; leave out impossible values"
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

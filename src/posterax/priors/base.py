"""What a prior knows; every prior of this package is one."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

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

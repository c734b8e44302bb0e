"""What a prior knows; every prior of this package is one."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from .._util.tree import path_name

LOG_2PI = float(np.log(2 * np.pi))


def positive(name: str, value: Any) -> np.ndarray:
    array = number(name, value)
    if not (np.all(np.isfinite(array)) and np.all(array > 0)):
        raise ValueError(f"{name} must be positive and finite, got {value!r}")
    return array


def number(name: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {value!r}") from None


class Prior(eqx.Module):
    """What a prior knows: its log density, its draws, and where it can its KL from a Gaussian."""

    discrete: ClassVar[bool] = False  # probabilities in the place of a density
    each: ClassVar[bool] = False  # whether it has numbers for every weight, in a tree

    def log_prob(self, w: jax.Array) -> jax.Array:
        """log p(w), an array whose sum is the log density."""
        raise NotImplementedError

    def sample(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """A draw of an array of weights."""
        raise NotImplementedError

    def kl_from_gaussian(self, mu: jax.Array, sigma: jax.Array) -> jax.Array | None:
        """KL(N(mu, sigma²) ‖ p) entry by entry, or ``None`` where there is no closed form."""
        return None

    def deviation(self) -> Any:
        """The standard deviation, where it is known."""
        return None

    def resolve(self, params: Any, fan_in: Callable[[tuple[int, ...], str], int]) -> Any:
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

    def kept(self, shape: tuple[int, ...], places: np.ndarray) -> "Prior":
        """The prior of some entries of an array of this shape, by their places when flattened."""

        def one(a: Any) -> Any:
            if not np.ndim(a):
                return a
            left = np.broadcast_to(np.asarray(a), shape).reshape(-1)[places]
            return jnp.asarray(left) if isinstance(a, jax.Array) else left

        return jax.tree.map(one, self)


def is_prior(node: Any) -> bool:
    """Leaf test for trees of priors."""
    return isinstance(node, Prior)

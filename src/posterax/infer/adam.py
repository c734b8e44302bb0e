r"""Adam (Kingma and Ba 2015) with its bias corrections folded into the rate.

    α_t = α √(1−β₂ᵗ) / (1−β₁ᵗ),  θ ← θ − α_t m / (√v + ε √(1−β₂ᵗ))

The same numbers as ``optax.adam`` (section 2 of the paper names this form) with one division per
weight where that has three, and one counter: every number that a GPU computes apart from the
weights is a kernel of its own, and a step has few of them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class AdamState(NamedTuple):
    """Number of steps taken, and running moments of the gradient."""

    step: jax.Array
    mean: Any
    square: Any


class Elementwise(optax.GradientTransformation):
    """A transformation that treats every weight alone, whatever array it is in."""


def is_elementwise(optimizer: optax.GradientTransformation | None) -> bool:
    """Whether an optimiser, by default our Adam, treats every weight alone."""
    return optimizer is None or isinstance(optimizer, Elementwise)


def adam(
    rate: Callable[[jax.Array], Any], b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> Elementwise:
    """Adam whose rate is a function of the number of steps taken.

    Example:
        >>> import jax.numpy as jnp
        >>> from posterax.infer.adam import adam
        >>> optimizer = adam(lambda step: 0.1)
        >>> updates, _ = optimizer.update(jnp.array([3.0, -2.0]), optimizer.init(jnp.zeros(2)))
        >>> print(updates.round(3))
        [-0.1  0.1]
    """

    def init(params: Any) -> AdamState:
        zeros = lambda: jax.tree.map(jnp.zeros_like, params)  # noqa: E731
        return AdamState(jnp.zeros((), jnp.int32), zeros(), zeros())

    def update(grads: Any, state: AdamState, params: Any = None) -> tuple[Any, AdamState]:
        t = (state.step + 1).astype(float)
        root = jnp.sqrt(1 - b2**t)
        alpha = -rate(state.step) * root / (1 - b1**t)
        mean = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mean, grads)
        square = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * jnp.square(g), state.square, grads)
        updates = jax.tree.map(
            lambda m, v: alpha.astype(m.dtype) * m / (jnp.sqrt(v) + (eps * root).astype(m.dtype)),
            mean, square,
        )  # fmt: skip
        return updates, AdamState(state.step + 1, mean, square)

    return Elementwise(init, update)

"""Fully connected networks."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._checks import whole
from .._keys import KeyLike, as_key
from .._noise import noise_key, standard_normal

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "sigmoid": jax.nn.sigmoid,
    "identity": lambda x: x,
}


def activation_function(activation: str | Callable[..., Any]) -> Callable[..., Any]:
    """Look up an activation by name, or pass a function through."""
    if callable(activation):
        return activation
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"activation must be one of {', '.join(ACTIVATIONS)} or a function, got {activation!r}"
        )
    return ACTIVATIONS[activation]


@partial(jax.jit, static_argnums=1)
def initial_normal(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Standard normals, by the generator that takes a fifth of the time to compile."""
    return standard_normal(noise_key(key), shape, jnp.result_type(float))


class Linear(eqx.Module):
    """An affine map ``x Wᵀ + b`` over the last axis, for one example or a batch."""

    weight: jax.Array
    bias: jax.Array

    def __init__(self, in_size: int, out_size: int, *, gain: float, key: jax.Array):
        self.weight = (gain / in_size) ** 0.5 * initial_normal(key, (out_size, in_size))
        self.bias = jnp.zeros(out_size)

    def __call__(self, x: jax.Array) -> jax.Array:
        return x @ self.weight.T + self.bias


class MLP(eqx.Module):
    """A fully connected network, f(x) = W_L h(… h(W₁ x + b₁) …) + b_L.

    Weights start as He et al. (2015) have it, N(0, 2 / fan-in) before a ReLU and
    N(0, 1 / fan-in) elsewhere; biases start at zero.

    Args:
        in_size: number of inputs.
        out_size: number of outputs (logits, means, …).
        hidden_sizes: width of each hidden layer.
        activation: a name (``"relu"``, ``"tanh"``, ``"gelu"``, ``"silu"``, …) or a function.
        key: an int or a JAX key.

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> network = px.networks.MLP(3, 1, (16, 16), key=0)
        >>> network(jnp.ones((5, 3))).shape
        (5, 1)
    """

    layers: list[Linear]
    in_size: int = eqx.field(static=True)
    out_size: int = eqx.field(static=True)
    hidden_sizes: tuple[int, ...] = eqx.field(static=True)
    activation: str | Callable[..., Any] = eqx.field(static=True)

    batched = True  # takes a batch as it is: one large product instead of a vmapped small one

    def __init__(
        self,
        in_size: int,
        out_size: int,
        hidden_sizes: Sequence[int] = (100, 100),
        *,
        activation: str | Callable[..., Any] = "relu",
        key: KeyLike,
    ):
        sizes = (in_size, *hidden_sizes, out_size)
        names = ("in_size", *["hidden_sizes"] * len(hidden_sizes), "out_size")
        sizes = tuple(whole(name, size) for name, size in zip(names, sizes, strict=True))
        activation_function(activation)
        keys = jax.random.split(as_key(key), len(sizes) - 1)
        self.in_size, *hidden, self.out_size = sizes
        self.hidden_sizes = tuple(hidden)
        self.activation = activation
        gains = [2.0 if activation == "relu" else 1.0] * len(hidden_sizes) + [1.0]
        self.layers = [
            Linear(i, o, gain=gain, key=k)
            for i, o, gain, k in zip(sizes[:-1], sizes[1:], gains, keys, strict=True)
        ]

    def __call__(self, x: jax.Array) -> jax.Array:
        activation = activation_function(self.activation)
        for layer in self.layers[:-1]:
            x = activation(layer(x))
        return self.layers[-1](x)

    def config(self) -> dict[str, Any]:
        """Constructor arguments, for saving by name."""
        if not isinstance(self.activation, str):
            raise ValueError(
                "an MLP with an activation given as a function has no saved form; name it "
                f"({', '.join(ACTIVATIONS)}) or load with px.load(path, model=model)"
            )
        return {
            "in_size": self.in_size,
            "out_size": self.out_size,
            "hidden_sizes": list(self.hidden_sizes),
            "activation": self.activation,
        }

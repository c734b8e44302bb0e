"""Fully connected networks, and how weights start."""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.keys import KeyLike, as_key
from .._util.noise import noise_key, standard_normal
from .config import Activation, Configured, activation_function, flag, known_activation, several


@partial(jax.jit, static_argnums=1)
def initial_normal(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Standard normals, by the generator that takes a fifth of the time to compile."""
    return standard_normal(noise_key(key), shape, jnp.result_type(float))


def gain_of(activation: Activation) -> float:
    """What keeps the size of a signal through an activation: a ReLU halves its square."""
    return 2.0 if activation == "relu" else 1.0


def he_normal(layer: Any, *args: Any, gain: float, key: jax.Array, **options: Any) -> Any:
    """An Equinox layer with weights from N(0, gain / fan-in) and biases of zero.

    Args:
        layer: its class, ``eqx.nn.Conv2d`` for instance.
        args: arguments of the class.
        gain: 2 before a ReLU, else 1.
        key: a JAX key.
        options: keyword arguments of the class.

    Example:
        >>> import equinox as eqx
        >>> import jax
        >>> from posterax.networks.mlp import he_normal
        >>> he_normal(eqx.nn.Conv2d, 3, 8, 5, gain=2.0, key=jax.random.key(0)).weight.shape
        (8, 3, 5, 5)
    """
    # its shapes only: Equinox's own draw would be compiled and thrown away
    made = eqx.filter_eval_shape(layer, *args, key=key, **options)
    shape = made.weight.shape
    weight = (gain / prod(shape[1:])) ** 0.5 * initial_normal(key, shape)
    made = eqx.tree_at(lambda m: m.weight, made, weight)
    if made.bias is None:
        return made
    return eqx.tree_at(lambda m: m.bias, made, jnp.zeros(made.bias.shape))


class Linear(eqx.Module):
    """An affine map ``x Wᵀ + b`` over the last axis, for one example or a batch."""

    weight: jax.Array
    bias: jax.Array

    def __init__(self, in_size: int, out_size: int, *, gain: float, key: jax.Array):
        self.weight = (gain / in_size) ** 0.5 * initial_normal(key, (out_size, in_size))
        self.bias = jnp.zeros(out_size)

    def __call__(self, x: jax.Array) -> jax.Array:
        return x @ self.weight.T + self.bias


@eqx.filter_jit  # one program, not several for each layer
def _linears(key: jax.Array, sizes: tuple[int, ...], gains: tuple[float, ...]) -> list[Linear]:
    """Layers from each size to the next."""
    keys = jax.random.split(key, len(gains))
    return [
        Linear(i, o, gain=gain, key=k)
        for i, o, gain, k in zip(sizes[:-1], sizes[1:], gains, keys, strict=True)
    ]


def perceptron(layers: Sequence[Linear], activation: Callable[..., Any], x: jax.Array) -> jax.Array:
    """One layer after the other, all but the last with an activation."""
    for layer in layers[:-1]:
        x = activation(layer(x))
    return layers[-1](x)


class MLP(Configured):
    """A fully connected network, f(x) = W_L h(… h(W₁ x + b₁) …) + b_L.

    Weights start as He et al. (2015) have it, N(0, 2 / fan-in) before a ReLU and
    N(0, 1 / fan-in) elsewhere; biases start at zero. With ``residual`` the weights of the R layers
    that add to their input are divided by R: what a ReLU adds is never negative, and R such terms
    would make the outputs grow with the depth.

    Args:
        in_size: number of inputs.
        out_size: number of outputs (logits, means, …).
        hidden_sizes: width of each hidden layer.
        activation: a name (``"relu"``, ``"tanh"``, ``"gelu"``, ``"silu"``, …) or a function.
        residual: a hidden layer as wide as the one before adds to it, h ← h + a(W h + b).
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
    activation: Activation = eqx.field(static=True)
    residual: bool = eqx.field(static=True)

    batched = True  # takes a batch as it is: one large product instead of a vmapped small one

    def __init__(
        self,
        in_size: int,
        out_size: int,
        hidden_sizes: Sequence[int] = (100, 100),
        *,
        activation: Activation = "relu",
        residual: bool = False,
        key: KeyLike,
    ):
        self._set_sizes(in_size=in_size, out_size=out_size)
        self.hidden_sizes = several("hidden_sizes", hidden_sizes)
        self.activation = known_activation(activation)
        self.residual = flag("residual", residual)
        adding = sum(self._adds())
        if residual and not adding:
            raise ValueError(
                f"residual=True needs two equal hidden_sizes in a row, got {self.hidden_sizes}"
            )
        sizes = (self.in_size, *self.hidden_sizes, self.out_size)
        gain = gain_of(activation)
        gains = [gain / adding**2 if adds else gain for adds in self._adds()] + [1.0]
        self.layers = _linears(as_key(key), sizes, tuple(gains))

    def _adds(self) -> list[bool]:
        """Which hidden layers add to their input; the first never does, it reads x."""
        sizes = self.hidden_sizes
        return [self.residual and i > 0 and n == sizes[i - 1] for i, n in enumerate(sizes)]

    def __call__(self, x: jax.Array) -> jax.Array:
        activation = activation_function(self.activation)
        for layer, adds in zip(self.layers[:-1], self._adds(), strict=True):
            h = activation(layer(x))
            x = x + h if adds else h
        return self.layers[-1](x)

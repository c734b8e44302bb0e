"""Small convolutional networks: convolutions and pooling, then dense layers."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax

from .._util.checks import whole_number
from .._util.keys import KeyLike, as_key
from .config import Activation, Configured, activation_function, several
from .images import as_image
from .mlp import Linear, gain_of, he_normal


class LeNet5(Configured):
    """LeNet-5: two convolutions with pooling, then three dense layers.

    The layout of LeCun, Bottou, Bengio and Haffner (1998, *Gradient-based learning applied to
    document recognition*), 6 and 16 maps of 5 × 5, then 120 and 84 units, with today's parts: max
    pooling, all maps connected, and an affine output. Images below 32 × 32 are padded by 2, which
    takes 28 × 28 to the paper's 32 × 32.

    Args:
        in_channels: channels of the image.
        out_size: number of outputs.
        image_size: height and width in pixels, 12 or more.
        activation: a name (``"relu"``, ``"tanh"``, …) or a function.
        key: an int or a JAX key.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> network = px.networks.LeNet5(image_size=12, key=0)
        >>> jax.eval_shape(network, jnp.zeros((12, 12), "uint8")).shape
        (10,)
    """

    convolutions: list[eqx.nn.Conv2d]
    dense: list[Linear]
    head: Linear
    in_channels: int = eqx.field(static=True)
    out_size: int = eqx.field(static=True)
    image_size: int = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int = 1,
        out_size: int = 10,
        image_size: int = 28,
        *,
        activation: Activation = "relu",
        key: KeyLike,
    ):
        self.in_channels = whole_number("in_channels", in_channels)
        self.out_size = whole_number("out_size", out_size)
        self.image_size = whole_number("image_size", image_size, least=12)
        activation_function(activation)
        self.activation = activation
        gain = gain_of(activation)
        *conv, a, b, c = jax.random.split(as_key(key), 5)
        first = 2 if self.image_size < 32 else 0
        self.convolutions = [
            he_normal(eqx.nn.Conv2d, i, o, 5, padding=padding, gain=gain, key=k)
            for i, o, padding, k in ((self.in_channels, 6, first, conv[0]), (6, 16, 0, conv[1]))
        ]
        side = ((self.image_size + 2 * first - 4) // 2 - 4) // 2
        self.dense = [
            Linear(16 * side**2, 120, gain=gain, key=a),
            Linear(120, 84, gain=gain, key=b),
        ]
        self.head = Linear(84, self.out_size, gain=1.0, key=c)

    def __call__(self, x: Any) -> jax.Array:
        return _forward(self, x, eqx.nn.MaxPool2d(2, 2))


class ConvNet(Configured):
    """Three convolutions and three dense layers, the standard of Bayesian convolutional networks.

    The layout ``3Conv3FC`` of Shridhar, Laumann and Liwicki (2019, *A comprehensive guide to
    Bayesian convolutional neural network with variational inference*): 5 × 5 kernels, each
    followed by the activation and max pooling over 3 × 3 with stride 2. They use
    ``activation="softplus"``, smooth and without dead units.

    Args:
        in_channels: channels of the image.
        out_size: number of outputs.
        image_size: height and width in pixels, 23 or more.
        channels: maps of the three convolutions.
        hidden_sizes: width of each dense layer before the last.
        activation: a name (``"relu"``, ``"softplus"``, …) or a function.
        key: an int or a JAX key.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> network = px.networks.ConvNet(1, 3, 23, channels=(2, 2, 2), hidden_sizes=(4, 4), key=0)
        >>> jax.eval_shape(network, jnp.zeros((1, 23, 23))).shape
        (3,)
    """

    convolutions: list[eqx.nn.Conv2d]
    dense: list[Linear]
    head: Linear
    in_channels: int = eqx.field(static=True)
    out_size: int = eqx.field(static=True)
    image_size: int = eqx.field(static=True)
    channels: tuple[int, ...] = eqx.field(static=True)
    hidden_sizes: tuple[int, ...] = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int = 1,
        out_size: int = 10,
        image_size: int = 28,
        *,
        channels: Sequence[int] = (32, 64, 128),
        hidden_sizes: Sequence[int] = (1000, 1000),
        activation: Activation = "relu",
        key: KeyLike,
    ):
        self.in_channels = whole_number("in_channels", in_channels)
        self.out_size = whole_number("out_size", out_size)
        self.image_size = whole_number("image_size", image_size, least=23)
        self.channels = several("channels", channels, least=3, most=3)
        self.hidden_sizes = several("hidden_sizes", hidden_sizes)
        activation_function(activation)
        self.activation = activation
        gain = gain_of(activation)
        maps, side = (self.in_channels, *self.channels), self.image_size
        keys = jax.random.split(as_key(key), 4 + len(self.hidden_sizes))
        self.convolutions = []
        for i, o, padding, k in zip(maps, maps[1:], (2, 2, 1), keys, strict=False):
            layer = he_normal(eqx.nn.Conv2d, i, o, 5, padding=padding, gain=gain, key=k)
            self.convolutions.append(layer)
            side = (side + 2 * padding - 4 - 3) // 2 + 1
        sizes = (maps[-1] * side**2, *self.hidden_sizes)
        self.dense = [
            Linear(i, o, gain=gain, key=k)
            for i, o, k in zip(sizes, sizes[1:], keys[3:], strict=False)
        ]
        self.head = Linear(sizes[-1], self.out_size, gain=1.0, key=keys[-1])

    def __call__(self, x: Any) -> jax.Array:
        return _forward(self, x, eqx.nn.MaxPool2d(3, 2))


def _forward(network: LeNet5 | ConvNet, x: Any, pool: eqx.nn.MaxPool2d) -> jax.Array:
    activation = activation_function(network.activation)
    h = as_image(x, network.in_channels, network.head.weight.dtype, network.image_size)
    for convolution in network.convolutions:
        h = pool(activation(convolution(h)))
    h = h.reshape(-1)
    for layer in network.dense:
        h = activation(layer(h))
    return network.head(h)

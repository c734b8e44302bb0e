"""Small convolutional networks: convolutions and pooling, then dense layers."""

from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax
from jaxtyping import PyTree

from .._util.checks import whole_number
from .._util.keys import KeyLike, as_key
from .config import Activation, Configured, activation_function, known_activation, several
from .images import as_image
from .mlp import Linear, gain_of, he_normal


class _ConvThenDense(Configured):
    """5 × 5 convolutions, each with activation and max pooling of stride 2, then dense layers."""

    window: ClassVar[int]  # of the pooling

    convolutions: list[eqx.nn.Conv2d]
    dense: list[Linear]
    head: Linear
    in_channels: int = eqx.field(static=True)
    out_size: int = eqx.field(static=True)
    image_size: int = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)

    def _make_layers(
        self, maps: Sequence[int], paddings: Sequence[int], hidden: Sequence[int], key: KeyLike
    ) -> None:
        gain, side = gain_of(self.activation), self.image_size
        keys = jax.random.split(as_key(key), len(maps) + len(hidden) + 1)
        ins = (self.in_channels, *maps)
        self.convolutions = []
        for i, o, padding, k in zip(ins, maps, paddings, keys, strict=False):
            layer = he_normal(eqx.nn.Conv2d, i, o, 5, padding=padding, gain=gain, key=k)
            self.convolutions.append(layer)
            side = (side + 2 * padding - 4 - self.window) // 2 + 1
        sizes = (maps[-1] * side**2, *hidden)
        self.dense = [
            Linear(i, o, gain=gain, key=k)
            for i, o, k in zip(sizes, hidden, keys[len(maps) :], strict=False)
        ]
        self.head = Linear(sizes[-1], self.out_size, gain=1.0, key=keys[-1])

    def __call__(self, x: PyTree) -> jax.Array:
        activation, pool = activation_function(self.activation), eqx.nn.MaxPool2d(self.window, 2)
        h = as_image(x, self.in_channels, self.head.weight.dtype, self.image_size)
        for convolution in self.convolutions:
            h = pool(activation(convolution(h)))
        h = h.reshape(-1)
        for layer in self.dense:
            h = activation(layer(h))
        return self.head(h)


class LeNet5(_ConvThenDense):
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

    window: ClassVar[int] = 2

    def __init__(
        self,
        in_channels: int = 1,
        out_size: int = 10,
        image_size: int = 28,
        *,
        activation: Activation = "relu",
        key: KeyLike,
    ):
        self._set_sizes(in_channels=in_channels, out_size=out_size)
        self.image_size = whole_number("image_size", image_size, least=12)
        self.activation = known_activation(activation)
        self._make_layers((6, 16), (2 if self.image_size < 32 else 0, 0), (120, 84), key)


class ConvNet(_ConvThenDense):
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

    window: ClassVar[int] = 3

    channels: tuple[int, ...] = eqx.field(static=True)
    hidden_sizes: tuple[int, ...] = eqx.field(static=True)

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
        self._set_sizes(in_channels=in_channels, out_size=out_size)
        self.image_size = whole_number("image_size", image_size, least=23)
        self.channels = several("channels", channels, least=3, most=3)
        self.hidden_sizes = several("hidden_sizes", hidden_sizes)
        self.activation = known_activation(activation)
        self._make_layers(self.channels, (2, 2, 1), self.hidden_sizes, key)

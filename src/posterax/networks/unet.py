"""The U-Net: one class for every pixel."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .._util.keys import KeyLike, as_key
from .config import Activation, Configured, activation_function, known_activation
from .images import as_image, group_norm
from .mlp import gain_of, he_normal


class Pair(eqx.Module):
    """Two 3 × 3 convolutions, each with its norm and activation; the image keeps its size."""

    convolutions: list[eqx.nn.Conv2d]
    norms: list[eqx.nn.GroupNorm]

    def __init__(self, i: int, o: int, *, gain: float, key: jax.Array):
        self.convolutions = [
            he_normal(eqx.nn.Conv2d, n, o, 3, padding=1, use_bias=False, gain=gain, key=k)
            for n, k in zip((i, o), jax.random.split(key), strict=True)
        ]
        self.norms = [group_norm(o), group_norm(o)]

    def __call__(self, x: jax.Array, activation: Callable) -> jax.Array:
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = activation(norm(convolution(x)))
        return x


class UNet(Configured):
    """A small U-Net for per-pixel classification.

    After Ronneberger, Fischer and Brox (2015, *U-Net: convolutional networks for biomedical image
    segmentation*): a way down that halves the image and doubles the channels at each level, a way
    up by transposed convolutions, and a bridge at each level. Unlike theirs the convolutions are
    padded, so that output and image align pixel by pixel, and group-normalised. A side that
    2^levels does not divide is continued by its last pixel and the output cropped.

    Args:
        in_channels: channels of the image.
        classes: outputs of each pixel.
        width: channels of the first level.
        levels: how often the image is halved.
        activation: a name (``"relu"``, …) or a function.
        key: an int or a JAX key.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> network = px.networks.UNet(1, 3, width=2, levels=1, key=0)
        >>> jax.eval_shape(network, jnp.zeros((5, 8))).shape
        (5, 8, 3)
    """

    down: list[Pair]
    bottom: Pair
    enlarge: list[eqx.nn.ConvTranspose2d]
    up: list[Pair]
    head: eqx.nn.Conv2d
    in_channels: int = eqx.field(static=True)
    classes: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    levels: int = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int,
        classes: int,
        width: int = 16,
        levels: int = 2,
        *,
        activation: Activation = "relu",
        key: KeyLike,
    ):
        self._set_sizes(in_channels=in_channels, classes=classes, width=width, levels=levels)
        self.activation = known_activation(activation)
        gain = gain_of(activation)
        head, bottom, *keys = jax.random.split(as_key(key), 2 + 3 * self.levels)
        maps = [self.width * 2**level for level in range(self.levels + 1)]
        self.down = [
            Pair(i, o, gain=gain, key=keys.pop())
            for i, o in zip([self.in_channels, *maps], maps[:-1], strict=False)
        ]
        self.bottom = Pair(maps[-2], maps[-1], gain=gain, key=bottom)
        # each pixel of the larger image is reached by one of the 2 × 2 weights, not by four
        self.enlarge = [
            he_normal(eqx.nn.ConvTranspose2d, 2 * n, n, 2, stride=2, gain=4.0, key=keys.pop())
            for n in reversed(maps[:-1])
        ]
        self.up = [Pair(2 * n, n, gain=gain, key=keys.pop()) for n in reversed(maps[:-1])]
        self.head = he_normal(eqx.nn.Conv2d, self.width, self.classes, 1, gain=1.0, key=head)

    def __call__(self, x: PyTree) -> jax.Array:
        activation = activation_function(self.activation)
        h = as_image(x, self.in_channels, self.head.weight.dtype)
        _, height, width = h.shape
        factor = 2**self.levels
        h = jnp.pad(h, ((0, 0), (0, -height % factor), (0, -width % factor)), mode="edge")
        bridges = []
        for pair in self.down:
            bridges.append(pair(h, activation))
            h = eqx.nn.MaxPool2d(2, 2)(bridges[-1])
        h = self.bottom(h, activation)
        for enlarge, pair in zip(self.enlarge, self.up, strict=True):
            h = pair(jnp.concatenate([bridges.pop(), enlarge(h)]), activation)
        return jnp.moveaxis(self.head(h)[:, :height, :width], 0, -1)

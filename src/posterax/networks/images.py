"""Networks for images: what they take, the layers they are made of, ResNet and U-Net."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import PyTree

from .._util.admit import admit
from .._util.checks import one_of
from .._util.keys import KeyLike, as_key
from .config import Activation, Configured, activation_function, known_activation
from .mlp import Linear, gain_of, he_normal


def as_image(x: PyTree, channels: int, dtype: DTypeLike, size: int | None = None) -> jax.Array:
    """One image as (C, H, W) in the precision of the weights; bytes (uint8) are divided by 255.

    Args:
        x: (C, H, W), or (H, W) where there is one channel.
        channels: the number C the network was made for.
        dtype: the precision of the weights.
        size: height and width, where the network was made for one size only.

    Example:
        >>> import numpy as np
        >>> from posterax.networks.images import as_image
        >>> print(as_image(np.full((1, 2), 51, "uint8"), 1, "float32").round(3))
        [[[0.2 0.2]]]
    """
    x = jnp.asarray(admit(x, "x"))
    shape = x.shape
    if channels == 1 and x.ndim == 2:
        x = x[None]
    fits = x.ndim == 3 and x.shape[0] == channels
    if not fits or (size is not None and x.shape[1:] != (size, size)):
        sides = "H, W" if size is None else f"{size}, {size}"
        also = f" or ({sides})" if channels == 1 else ""
        raise ValueError(
            f"x must be one image of shape ({channels}, {sides}){also}, got {shape}; reshape flat "
            "pixels, move channels to the front, and call jax.vmap(network) on a batch"
        )
    image = x.astype(dtype)
    return image / 255 if x.dtype == jnp.uint8 else image


class GroupNorm(eqx.nn.GroupNorm):
    """Equinox's group normalisation, with sums over the pixels of each channel first.

    What is left for groups has an entry for each channel. A CPU would go through an array with an
    axis of a few channels each some three times as slowly.
    """

    def __call__(self, x: jax.Array, *args: Any, **options: Any) -> Any:
        assert self.weight is not None
        assert self.bias is not None
        space = tuple(range(1, x.ndim))

        def mean(a: jax.Array) -> jax.Array:
            """Of each channel its group's mean, in the shape of a channel's weight."""
            each = a.mean(space).reshape(self.groups, -1).mean(1, keepdims=True)
            each = jnp.broadcast_to(each, (self.groups, len(a) // self.groups))
            return each.reshape(-1, *(1 for _ in space))

        centred = x - mean(x)
        scale = jax.lax.rsqrt(mean(jnp.square(centred)) + self.eps)
        weight, bias = (a.reshape(scale.shape) for a in (self.weight, self.bias))
        return centred * (scale * weight) + bias


def group_norm(channels: int) -> GroupNorm:
    """Group normalisation (Wu and He 2018) in up to 8 groups of 4 channels or more.

    It depends on no other example, so the likelihood stays a product over the data; a group of
    one channel would lose the channel's mean, and at one pixel everything.

    Example:
        >>> from posterax.networks.images import group_norm
        >>> [group_norm(channels).groups for channels in (3, 16, 64)]
        [1, 4, 8]
    """
    groups = max(g for g in (1, 2, 4, 8) if g == 1 or channels % (4 * g) == 0)
    make: Any = GroupNorm
    return make(groups, channels)


def convolution_pair(
    i: int, o: int, a: jax.Array, b: jax.Array, *, gain: float, stride: int = 1
) -> list[eqx.nn.Conv2d]:
    """Two 3 × 3 convolutions without biases: the norm that follows each has its own."""
    options: dict[str, Any] = {"padding": 1, "use_bias": False, "gain": gain}
    first = he_normal(eqx.nn.Conv2d, i, o, 3, stride=stride, key=a, **options)
    return [first, he_normal(eqx.nn.Conv2d, o, o, 3, key=b, **options)]


# width of the first stage, blocks of each stage, and whether shortcuts are learned
_LAYOUTS = {18: (64, (2, 2, 2, 2), True), 20: (16, (3, 3, 3), False)}


class ResidualBlock(eqx.Module):
    """Two 3 × 3 convolutions, added to the input: h ← a(F(h) + h)."""

    convolutions: list[eqx.nn.Conv2d]
    norms: list[GroupNorm]
    shortcut: tuple[eqx.nn.Conv2d, GroupNorm] | None
    stride: int = eqx.field(static=True)

    def __init__(self, i: int, o: int, stride: int, *, learned: bool, gain: float, key: jax.Array):
        a, b, c = jax.random.split(key, 3)
        self.convolutions = convolution_pair(i, o, a, b, gain=gain, stride=stride)
        self.norms = [group_norm(o), group_norm(o)]
        self.stride = stride
        self.shortcut = None
        if learned and (stride > 1 or i != o):
            # no activation follows
            options: dict[str, Any] = {"use_bias": False, "gain": 1.0}
            projection = he_normal(eqx.nn.Conv2d, i, o, 1, stride=stride, key=c, **options)
            self.shortcut = projection, group_norm(o)

    def __call__(self, x: jax.Array, activation: Callable) -> jax.Array:
        first, second = self.convolutions
        h = self.norms[1](second(activation(self.norms[0](first(x)))))
        if self.shortcut is not None:
            projection, norm = self.shortcut
            return activation(h + norm(projection(x)))
        # He et al.'s option A: every second pixel, and zeros for the channels that are new
        x = x[:, :: self.stride, :: self.stride]
        return activation(h + jnp.pad(x, ((0, h.shape[0] - x.shape[0]), (0, 0), (0, 0))))


class ResNet(Configured):
    """A residual network of 18 or 20 layers for small images, with group normalisation.

    After He, Zhang, Ren and Sun (2016, *Deep residual learning for image recognition*). Depth 18
    has the four stages of their ImageNet network, 2-2-2-2 blocks, behind a 3 × 3 stem without
    pooling, as is usual for CIFAR; depth 20 is their CIFAR network, three stages of three blocks,
    16-32-64 channels, shortcuts without weights. Group normalisation (Wu and He 2018) takes the
    place of batch normalisation, under which the output for one example depends on the others
    and there is no likelihood of single examples.

    Args:
        depth: 18 or 20.
        in_channels: channels of the image.
        out_size: number of outputs.
        width: channels of the first stage, doubled at each next one; 64 for depth 18 and 16 for
            depth 20 unless given.
        activation: a name or a function; ``"silu"`` is smooth, as HMC likes it.
        key: an int or a JAX key.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> network = px.networks.ResNet(20, 3, 10, width=2, key=0)
        >>> jax.eval_shape(network, jnp.zeros((3, 8, 8))).shape
        (10,)
    """

    stem: eqx.nn.Conv2d
    norm: GroupNorm
    blocks: list[ResidualBlock]
    head: Linear
    depth: int = eqx.field(static=True)
    in_channels: int = eqx.field(static=True)
    out_size: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        depth: int = 18,
        in_channels: int = 3,
        out_size: int = 10,
        *,
        width: int | None = None,
        activation: Activation = "relu",
        key: KeyLike,
    ):
        self.depth = one_of("depth", depth, tuple(_LAYOUTS))
        usual, stages, learned = _LAYOUTS[depth]
        width = usual if width is None else width
        self._set_sizes(in_channels=in_channels, out_size=out_size, width=width)
        self.activation = known_activation(activation)
        gain = gain_of(activation)
        stem, head, *keys = jax.random.split(as_key(key), 2 + sum(stages))
        options: dict[str, Any] = {"padding": 1, "use_bias": False, "gain": gain}
        self.stem = he_normal(eqx.nn.Conv2d, self.in_channels, self.width, 3, key=stem, **options)
        self.norm = group_norm(self.width)
        self.blocks = []
        channels = self.width
        for stage, count in enumerate(stages):
            for i in range(count):
                before, channels = channels, self.width * 2**stage
                stride, k = 2 if stage > 0 and i == 0 else 1, keys.pop()
                block = ResidualBlock(before, channels, stride, learned=learned, gain=gain, key=k)
                self.blocks.append(block)
        self.head = Linear(channels, self.out_size, gain=1.0, key=head)

    def __call__(self, x: PyTree) -> jax.Array:
        activation = activation_function(self.activation)
        h = as_image(x, self.in_channels, self.head.weight.dtype)
        h = activation(self.norm(self.stem(h)))
        for block in self.blocks:
            h = block(h, activation)
        return self.head(h.mean((1, 2)))


class Pair(eqx.Module):
    """Two 3 × 3 convolutions, each with its norm and activation; the image keeps its size."""

    convolutions: list[eqx.nn.Conv2d]
    norms: list[GroupNorm]

    def __init__(self, i: int, o: int, *, gain: float, key: jax.Array):
        self.convolutions = convolution_pair(i, o, *jax.random.split(key), gain=gain)
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

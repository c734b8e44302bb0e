"""Residual networks for images."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .._util.keys import KeyLike, as_key
from .config import Activation, Configured, activation_function, known_activation, one_of
from .images import as_image, group_norm
from .mlp import Linear, gain_of, he_normal

# width of the first stage, blocks of each stage, and whether shortcuts are learned
_LAYOUTS = {18: (64, (2, 2, 2, 2), True), 20: (16, (3, 3, 3), False)}


class ResidualBlock(eqx.Module):
    """Two 3 × 3 convolutions, added to the input: h ← a(F(h) + h)."""

    convolutions: list[eqx.nn.Conv2d]
    norms: list[eqx.nn.GroupNorm]
    shortcut: tuple[eqx.nn.Conv2d, eqx.nn.GroupNorm] | None
    stride: int = eqx.field(static=True)

    def __init__(self, i: int, o: int, stride: int, *, learned: bool, gain: float, key: jax.Array):
        a, b, c = jax.random.split(key, 3)
        # no biases: the norm that follows has its own
        options: dict[str, Any] = {"use_bias": False, "gain": gain}
        self.convolutions = [
            he_normal(eqx.nn.Conv2d, i, o, 3, stride=stride, padding=1, key=a, **options),
            he_normal(eqx.nn.Conv2d, o, o, 3, padding=1, key=b, **options),
        ]
        self.norms = [group_norm(o), group_norm(o)]
        self.stride = stride
        self.shortcut = None
        if learned and (stride > 1 or i != o):
            options["gain"] = 1.0  # no activation follows
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
    norm: eqx.nn.GroupNorm
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
                out, stride = self.width * 2**stage, 2 if stage > 0 and i == 0 else 1
                options = {"learned": learned, "gain": gain, "key": keys.pop()}
                self.blocks.append(ResidualBlock(channels, out, stride, **options))
                channels = out
        self.head = Linear(channels, self.out_size, gain=1.0, key=head)

    def __call__(self, x: PyTree) -> jax.Array:
        activation = activation_function(self.activation)
        h = as_image(x, self.in_channels, self.head.weight.dtype)
        h = activation(self.norm(self.stem(h)))
        for block in self.blocks:
            h = block(h, activation)
        return self.head(h.mean((1, 2)))

"""Images as networks take them, and the layers every image network is made of."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import PyTree


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
    x = jnp.asarray(x)
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


def group_norm(channels: int) -> eqx.nn.GroupNorm:
    """Group normalisation (Wu and He 2018) in up to 8 groups of 4 channels or more.

    It depends on no other example, so the likelihood stays a product over the data; a group of
    one channel would lose the channel's mean, and at one pixel everything.

    Example:
        >>> from posterax.networks.images import group_norm
        >>> [group_norm(channels).groups for channels in (3, 16, 64)]
        [1, 4, 8]
    """
    groups = max(g for g in (1, 2, 4, 8) if g == 1 or channels % (4 * g) == 0)
    return eqx.nn.GroupNorm(groups, channels)

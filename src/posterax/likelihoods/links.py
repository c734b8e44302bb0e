"""From a network's outputs, which may be any number, to the numbers of a distribution."""

from typing import Any

import jax
import jax.numpy as jnp

from .._util.special import inverse_softplus

FLOOR = 1e-4  # of predicted scales: keeps their logarithms finite
SMALL = -15.0  # below, softplus is the exponential function in float32


def bent(f: jax.Array, least: Any, most: Any, beyond: float = 1.0) -> jax.Array:
    """f itself from ``least`` to ``most``, and outside bent so as to stay within ``beyond`` of it.

    For u = f − most above 0 it is most + u / (1 + u / beyond), and the same below. Its slope is
    never 0, so that a network that went too far comes back.

    Example:
        >>> import jax.numpy as jnp
        >>> from posterax.likelihoods.links import bent
        >>> print(bent(jnp.array([-50.0, 0.5, 4.0]), -2.0, 3.0))
        [-2.9795918  0.5        3.5      ]
    """
    over, under = jnp.maximum(f - most, 0), jnp.maximum(least - f, 0)
    return jnp.clip(f, least, most) + over / (1 + over / beyond) - under / (1 + under / beyond)


def scaled_softplus(raw: jax.Array, factor: Any) -> jax.Array:
    r"""r′ with softplus(r′) = factor · softplus(r), without overflow or underflow.

    For r below −15, softplus(r) is eʳ and r′ = r + log factor.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from posterax.likelihoods.links import scaled_softplus
        >>> r = scaled_softplus(jnp.array([-40.0, 0.0, 40.0]), 2.0)
        >>> print((jax.nn.softplus(r) / jax.nn.softplus(jnp.array([-40.0, 0.0, 40.0]))).round(4))
        [2. 2. 2.]
    """
    factor = jnp.asarray(factor, raw.dtype)
    small = raw < SMALL
    # what is not taken must not have infinite derivatives either
    scaled = inverse_softplus(factor * jax.nn.softplus(jnp.where(small, 0, raw)))
    return jnp.where(small, raw + jnp.log(factor), scaled)

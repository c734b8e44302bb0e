"""Explicit randomness: every random call takes a key, an int or a JAX key."""

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from .program_cache import keep_programs

Key: TypeAlias = jax.Array
KeyLike: TypeAlias = int | jax.Array


def _of_64_bits(seed: int) -> Key:
    """A key of its own for every seed: that of JAX with x64, which without it drops 32 bits."""
    high, low = seed // 2**32 % 2**32, seed % 2**32
    config: Any = jax.config  # its types leave the settings out
    if config.jax_default_prng_impl == "threefry2x32":  # a program less to compile
        return jax.random.wrap_key_data(jnp.asarray(np.array([high, low], np.uint32)))
    key = jax.random.key(low)
    if high == 0:
        return key
    words = np.array(jax.random.key_data(key)).reshape(-1, 2)  # high and low, once or twice
    words[:, 0] = high
    return jax.random.wrap_key_data(jnp.asarray(words.reshape(-1)), impl=jax.random.key_impl(key))


def as_key(key: KeyLike, name: str = "key") -> Key:
    """Turn an int, a typed JAX key or a raw ``uint32`` key into a typed key.

    Example:
        >>> from posterax._util.keys import as_key
        >>> as_key(0).shape
        ()
    """
    keep_programs()  # here, since what draws a network's first weights is compiled before a fit
    if isinstance(key, bool):
        raise TypeError(f"{name} must be an int or a JAX key, got a bool")
    if isinstance(key, int | np.integer):
        if not -(2**63) <= key < 2**63:
            raise ValueError(f"{name} must fit into 64 bits, from -2^63 to 2^63 - 1, got {key}")
        return _of_64_bits(int(key))
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        if key.shape != ():
            raise ValueError(f"{name} must be a single key, got keys of shape {key.shape}")
        return key
    if isinstance(key, jax.Array | np.ndarray) and key.dtype == np.uint32:
        try:
            return as_key(jax.random.wrap_key_data(jnp.asarray(key)), name)
        except TypeError:
            raise ValueError(f"{name} is no raw JAX key, got uint32 of shape {key.shape}") from None
    raise TypeError(
        f"{name} must be an int or a JAX key (jax.random.key(0)), got {type(key).__name__}"
    )


@jax.jit  # one program for what is three operations outside of one
def two_keys(key: Key) -> tuple[Key, Key]:
    """The two keys that a key splits into."""
    first, second = jax.random.split(key)
    return first, second

r"""Fast Gaussian noise for weights: a counter hash as a JAX key type.

A variational step needs as many normals as there are weights. JAX's default generator
(threefry, a cipher) makes that most of the step on a CPU; weight noise needs independence and
good marginals, not secrecy. Here the i-th word of a stream is a hash of (i, key): two rounds of
multiplication and xor-shift with the two words of the key mixed in between, which vectorises and
fuses with what is computed from it. ``tests/test_noise.py`` is the evidence for its quality.

The key type is internal. Public keys are JAX's own; ``noise_key`` crosses over.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import PyTree

from .jax_names import define_prng_impl
from .special import normal_from_bits

_GOLDEN = 0x9E3779B9


def _u32(value: int) -> jax.Array:
    return jnp.uint32(value)


def mix(h: jax.Array) -> jax.Array:
    """A bijection of 32-bit words in which every bit of the input moves every bit of the output
    (constants of the low-bias search by Wellons 2018)."""
    h = (h ^ (h >> 16)) * _u32(0x7FEB352D)
    h = (h ^ (h >> 15)) * _u32(0x846CA68B)
    return h ^ (h >> 16)


def _derive(key: jax.Array, data: jax.Array) -> jax.Array:
    """A new two-word key from a key and a number: thorough, since it runs once a stream."""
    a, b = key[..., 0], key[..., 1]
    for turn in range(3):
        a = mix(a ^ (data * _u32(_GOLDEN) + _u32(turn)))
        b = mix(b + a)
        a = a ^ (b << 7) ^ (b >> 9)
    return jnp.stack([a, b], axis=-1)


def _seed(seed: jax.Array) -> jax.Array:
    words = jnp.stack([_u32(0x243F6A88), _u32(0x85A308D3)])
    low = seed.astype(jnp.uint32)
    high = (seed >> 32).astype(jnp.uint32) if seed.dtype.itemsize > 4 else jnp.zeros_like(low)
    return _derive(_derive(words, low), high)


def _split(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    count = 1
    for size in shape:
        count *= size
    # an odd tag keeps children of split apart from those of fold_in
    children = _derive(_derive(key, _u32(0xB7E15163)), jnp.arange(count, dtype=jnp.uint32))
    return children.reshape(*shape, 2)


def _fold_in(key: jax.Array, data: Any) -> jax.Array:
    return _derive(key, jnp.asarray(data, jnp.uint32))


def _bits(key: jax.Array, bit_width: int, shape: tuple[int, ...]) -> jax.Array:
    if bit_width == 64:
        high, low = (_bits(_fold_in(key, _u32(i)), 32, shape) for i in (1, 2))
        return (high.astype(jnp.uint64) << 32) | low.astype(jnp.uint64)
    count = jnp.zeros((), jnp.uint32)
    # the index of a word, axis by axis: no reshape that a fusion would stumble over
    for axis, size in enumerate(shape):
        count = count * _u32(size) + jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
    h = (count + key[0]) * _u32(_GOLDEN)
    h = (h ^ (h >> 16)) * _u32(0x7FEB352D)
    h = ((h ^ (h >> 15)) + key[1]) * _u32(0x846CA68B)
    h = jnp.broadcast_to(h ^ (h >> 16), shape)
    return h if bit_width == 32 else (h >> (32 - bit_width)).astype(f"uint{bit_width}")


IMPLEMENTATION = define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_bits,
    fold_in=_fold_in,
    name="posterax",
    tag="px",
)


def noise_key(key: jax.Array) -> jax.Array:
    """A key of the fast generator from a key of JAX's own (or itself, if it is one already)."""
    if jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key) and key.dtype == _fast_dtype():
        return key
    # a seed of JAX's own is its key as it stands: small numbers, to be spread over all bits
    words = _derive(jax.random.key_data(key)[..., :2], _u32(0x13198A2E))
    return jax.random.wrap_key_data(words, impl=IMPLEMENTATION)


def _fast_dtype() -> Any:
    return jax.random.key(0, impl=IMPLEMENTATION).dtype


def standard_normal(key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
    """Independent N(0, 1) noise of one stream."""
    if jnp.dtype(dtype).itemsize > 4:
        return jax.random.normal(key, shape, dtype)
    return normal_from_bits(jax.random.bits(key, shape, jnp.uint32)).astype(dtype)


def standard_normal_like(key: jax.Array, tree: PyTree) -> Any:
    """Independent N(0, 1) noise in the shape of a tree, a stream of its own for every leaf."""
    key = noise_key(key)
    leaves, treedef = jax.tree.flatten(tree)
    # all keys at once: on a GPU every number computed apart is a kernel of its own
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(len(leaves)))
    noise = [standard_normal(keys[i], leaf.shape, leaf.dtype) for i, leaf in enumerate(leaves)]
    return jax.tree.unflatten(treedef, noise)

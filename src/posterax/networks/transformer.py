"""A small transformer encoder for sequences of features or of tokens."""

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._util.checks import whole_number
from .._util.keys import KeyLike, as_key
from .config import Activation, Configured, activation_function, known_activation
from .mlp import Linear, gain_of, initial_normal
from .sequences import as_sequence, split_mask


class TransformerBlock(eqx.Module):
    """Attention, then two dense layers, each on a normalised input and added to it."""

    norms: list[eqx.nn.LayerNorm]
    attention: eqx.nn.MultiheadAttention
    dense: list[Linear]

    def __init__(self, width: int, heads: int, gain: float, key: jax.Array):
        a, b, c = jax.random.split(key, 3)
        self.norms = [eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width)]
        self.attention = eqx.nn.MultiheadAttention(heads, width, key=a)
        self.dense = [
            Linear(width, 4 * width, gain=gain, key=b),
            Linear(4 * width, width, gain=1.0, key=c),
        ]

    def __call__(self, h: jax.Array, attended: jax.Array | None, activation: Callable) -> jax.Array:
        g = jax.vmap(self.norms[0])(h)
        h = h + self.attention(g, g, g, attended)
        wide, narrow = self.dense
        return h + narrow(activation(wide(jax.vmap(self.norms[1])(h))))


class Transformer(Configured):
    """A transformer encoder, the mean over its steps, and an affine output.

    The encoder of Vaswani et al. (2017, *Attention is all you need*) with the norms before each
    part instead of after it, which trains without a warm-up (Xiong et al. 2020, *On layer
    normalization in the transformer architecture*), and learned positions.

    Inputs are (T, features), or whole numbers (T,) where a ``vocabulary`` is given; or a pair
    (values, mask) with a boolean mask (T,): a masked step is neither attended to nor pooled nor
    counted as a position. A token outside 0 … vocabulary − 1 is refused, and gives NaN where values
    are not known (inside ``jit``), never another token's place.

    Args:
        in_size: features of each step; ``None`` with a vocabulary.
        out_size: number of outputs.
        width: size of the representation of a step, a multiple of ``heads``.
        heads: attention heads.
        layers: blocks of attention and dense layers.
        vocabulary: number of different tokens, where the inputs are tokens.
        length: the longest sequence.
        activation: of the dense layers, a name (``"gelu"``, …) or a function.
        key: an int or a JAX key.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> network = px.networks.Transformer(
        ...     None, 2, width=4, heads=2, layers=1, vocabulary=9, length=6, key=0
        ... )
        >>> jax.eval_shape(network, jnp.array([3, 1, 4, 1])).shape
        (2,)
    """

    of_sequences: ClassVar[bool] = True
    looked_up: ClassVar[tuple[str, ...]] = ("position",)  # and never added up

    embedding: Linear | eqx.nn.Embedding
    position: jax.Array
    blocks: list[TransformerBlock]
    norm: eqx.nn.LayerNorm
    head: Linear
    in_size: int | None = eqx.field(static=True)
    out_size: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    heads: int = eqx.field(static=True)
    layers: int = eqx.field(static=True)
    vocabulary: int | None = eqx.field(static=True)
    length: int = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        in_size: int | None,
        out_size: int,
        *,
        width: int = 32,
        heads: int = 4,
        layers: int = 2,
        vocabulary: int | None = None,
        length: int = 512,
        activation: Activation = "gelu",
        key: KeyLike,
    ):
        if (in_size is None) == (vocabulary is None):
            raise ValueError(
                "in_size is for inputs with features, vocabulary for tokens: give one of them"
            )
        self.in_size = None if in_size is None else whole_number("in_size", in_size)
        self.vocabulary = None if vocabulary is None else whole_number("vocabulary", vocabulary)
        self._set_sizes(out_size=out_size, width=width, heads=heads, layers=layers, length=length)
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads={heads}, got {width}")
        self.activation = known_activation(activation)
        first, second, head, *keys = jax.random.split(as_key(key), 3 + self.layers)
        scale = self.width**-0.5
        if self.in_size is not None:
            self.embedding = Linear(self.in_size, self.width, gain=1.0, key=first)
        else:
            weight = scale * initial_normal(first, (self.vocabulary, self.width))
            self.embedding = eqx.nn.Embedding(weight=weight)
        self.position = scale * initial_normal(second, (self.length, self.width))
        self.blocks = [
            TransformerBlock(self.width, self.heads, gain_of(activation), k) for k in keys
        ]
        self.norm = eqx.nn.LayerNorm(self.width)
        self.head = Linear(self.width, self.out_size, gain=1.0, key=head)

    def __call__(self, x: PyTree) -> jax.Array:
        activation = activation_function(self.activation)
        h, mask = self._embed(x)
        steps = len(h)
        if steps > self.length:
            raise ValueError(f"x has {steps} steps; make the network with length={steps} or more")
        if mask is None:
            h, attended = h + self.position[:steps], None
        else:
            # counted by what is there, so that padding in front moves nothing
            h = h + self.position[jnp.maximum(jnp.cumsum(mask) - 1, 0)]
            attended = jnp.broadcast_to(mask, (steps, steps))
        for block in self.blocks:
            h = block(h, attended, activation)
        h = jax.vmap(self.norm)(h)
        if mask is None:
            return self.head(h.mean(0))
        count = jnp.maximum(mask.sum(), 1).astype(h.dtype)
        return self.head(jnp.where(mask[:, None], h, 0).sum(0) / count)

    def check_inputs(self, x: PyTree) -> None:
        """Refuse tokens of a batch that are not in the vocabulary; masked ones do not count."""
        if self.vocabulary is None:
            return
        n = self.vocabulary
        tokens, *mask = x if isinstance(x, tuple | list) else (x,)
        tokens = np.asarray(tokens)
        unknown = (tokens < 0) | (tokens >= n)
        unknown = unknown & np.asarray(mask[0]) if mask else unknown
        if unknown.any():
            token, known = tokens[unknown][0], f"with vocabulary={n} tokens go from 0 to {n - 1}"
            raise ValueError(f"x holds the token {token}; {known}")

    def _embed(self, x: PyTree) -> tuple[jax.Array, jax.Array | None]:
        if isinstance(self.embedding, Linear):
            assert self.in_size is not None
            values, mask = as_sequence(x, self.in_size, self.head.weight.dtype)
            return self.embedding(values), mask
        tokens, mask = split_mask(x)
        if tokens.ndim != 1 or not jnp.issubdtype(tokens.dtype, jnp.integer):
            raise ValueError(
                f"x must be whole-number tokens below 2^31 of shape (T,), got "
                f"{tokens.dtype}{tokens.shape}"
            )
        tokens = tokens.astype(int) if mask is None else jnp.where(mask, tokens, 0).astype(int)
        known = (tokens >= 0) & (tokens < self.embedding.num_embeddings)
        embedded = jax.vmap(self.embedding)(tokens)
        return jnp.where(known[:, None], embedded, jnp.nan), mask

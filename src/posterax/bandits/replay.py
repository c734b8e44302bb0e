"""The replay buffer: the last so many interactions, in arrays of fixed size."""

from math import prod
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike

from ..data import shuffle


class Replay(NamedTuple):
    """A ring: interaction t lies in row t mod capacity, over what was there before."""

    inputs: jax.Array  # (capacity, …) what the network is shown: the context and the action taken
    rewards: jax.Array  # (capacity,)
    seen: jax.Array  # interactions so far, int32

    @property
    def capacity(self) -> int:
        """How many interactions it holds."""
        return len(self.rewards)

    @property
    def filled(self) -> jax.Array:
        """How many it holds by now."""
        return jnp.minimum(self.seen, self.capacity)

    def push(self, inputs: jax.Array, reward: jax.Array) -> "Replay":
        """With one more interaction; the oldest gives way once it is full."""
        row = self.seen % self.capacity
        put = jax.lax.dynamic_update_index_in_dim
        return Replay(
            put(self.inputs, inputs.astype(self.inputs.dtype), row, 0),
            put(self.rewards, reward.astype(self.rewards.dtype), row, 0),
            self.seen + 1,
        )

    def rows(self, shape: tuple[int, ...], key: jax.Array) -> jax.Array:
        """Rows for minibatches: a random order of what is filled, gone through again and again.

        So many minibatches as the buffer holds are one pass over it, without repetition; all rows
        of a half-filled one come equally often, but for one time.
        """
        filled = jnp.maximum(self.filled, 1)
        position = jnp.arange(prod(shape), dtype=jnp.int32) % filled
        return shuffle(position, filled, key).reshape(shape)

    def numbers(self, count: int, batches: ArrayLike) -> jax.Array:
        """Which minibatch of a pass each of the next ``count`` is, from 0 to ``batches`` − 1.

        Counted on from one interaction to the next: each number comes equally often whether or
        not ``count`` is a multiple of ``batches``, so that shares of the KL by number add up to 1.
        """
        return (self.seen % batches * count + jnp.arange(count, dtype=jnp.int32)) % batches


def empty(capacity: int, inputs: int, dtype: DTypeLike = jnp.float32) -> Replay:
    """A buffer before the first interaction.

    Example:
        >>> import jax.numpy as jnp
        >>> from posterax.bandits.replay import empty
        >>> replay = empty(2, 3)
        >>> for reward in (1.0, 2.0, 3.0):
        ...     replay = replay.push(jnp.ones(3), jnp.asarray(reward))
        >>> sorted(replay.rewards.tolist())
        [2.0, 3.0]
    """
    return Replay(
        jnp.zeros((capacity, inputs), dtype), jnp.zeros(capacity, dtype), jnp.zeros((), jnp.int32)
    )

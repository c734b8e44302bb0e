"""Policies that do not learn."""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .base import Policy


class Uniform(Policy):
    """Every action with the same probability: what any policy has to beat.

    Example:
        >>> import posterax as px
        >>> played = px.bandits.play(px.bandits.wheel(0.5), px.bandits.Uniform(), 50, key=0)
        >>> sorted(set(played.actions.ravel().tolist()))
        [0, 1, 2, 3, 4]
    """

    def init(self, features: int, actions: int, key: Array) -> Array:
        return jnp.zeros(actions, jnp.int32)  # how often each was chosen

    def choose(self, state: Array, context: Array, key: Array) -> Array:
        return jax.random.randint(key, (), 0, len(state))

    def update(
        self, state: Array, context: Array, action: Array, reward: Array, key: Array
    ) -> Array:
        return state.at[action].add(1)

"""Policies that do not learn."""

from typing import Any

import jax
import jax.numpy as jnp

from .base import Policy


class Uniform(Policy):
    """Every action with the same probability: what any policy has to beat.

    Example:
        >>> import posterax as px
        >>> played = px.bandits.play(px.bandits.wheel(0.5), px.bandits.Uniform(), 50, key=0)
        >>> sorted(set(played.actions.ravel().tolist()))
        [0, 1, 2, 3, 4]
    """

    def init(self, features: int, actions: int, key: jax.Array) -> Any:
        return jnp.zeros(actions, jnp.int32)  # how often each was chosen

    def choose(self, state: Any, context: jax.Array, key: jax.Array) -> jax.Array:
        return jax.random.randint(key, (), 0, len(state))

    def update(
        self, state: Any, context: jax.Array, action: jax.Array, reward: jax.Array, key: jax.Array
    ) -> Any:
        return state.at[action].add(1)

"""For live use: one context, one choice and one reward at a time; saved and loaded in between."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from numpy.typing import ArrayLike

from .._util.admit import admit, admit_float64
from .._util.checks import whole_number
from .._util.interrupts import raise_on_interrupt
from .._util.keys import KeyLike, as_key
from ..program.compiled import compiled
from .base import Policy, check_policy
from .loop import first_state, refit_key, step_keys


@compiled
def _choose(policy: Policy, state: PyTree, context: jax.Array, key: jax.Array) -> jax.Array:
    return policy.choose(state, context, key)


# the state is donated: its buffers are written in place
@compiled(donate="all-except-first")
def _update(fixed: tuple[Policy, tuple[jax.Array, ...]], state: PyTree) -> PyTree:
    policy, given = fixed
    return policy.update(state, *given)


class Agent:
    """A policy at work: it chooses, hears what came of it, and learns.

    With the key of a run (``jax.random.fold_in(key, r)``) it does what run r of ``play`` does.
    Rewards may come late: choices and updates are counted apart, each with randomness of its own.

    Args:
        policy: how to choose; see [`Policy`][posterax.bandits.Policy].
        features: length of a context.
        actions: how many there are to choose from.
        key: an int or a JAX key.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> policy = px.bandits.Thompson(hidden=(8,), buffer=32, batch_size=8, updates=4)
        >>> agent = px.bandits.Agent(policy, features=3, actions=2, key=0)
        >>> context = np.array([1.0, 0.0, 2.0])
        >>> action = agent.choose(context)
        >>> agent.update(context, action, reward=1.0)
        >>> agent.updates
        1
    """

    def __init__(self, policy: Policy, features: int, actions: int, *, key: KeyLike = 0):
        check_policy(policy)
        self.policy = policy
        self.features = whole_number("features", features)
        self.actions = whole_number("actions", actions)
        start, self.course = jax.random.split(as_key(key))
        self.state = first_state(policy, self.features, self.actions, start)
        self.choices = 0  # so far
        self.updates = 0

    def _context(self, context: ArrayLike) -> jax.Array:
        numbers = admit_float64(context, "context")
        if numbers.shape != (self.features,):
            raise ValueError(f"context must have shape ({self.features},), got {numbers.shape}")
        if not np.isfinite(numbers).all():
            raise ValueError("context must be finite")
        return jnp.asarray(admit(numbers, "context", jnp.result_type(float)))

    def choose(self, context: ArrayLike) -> int:
        """The action for a context, from 0 to ``actions`` − 1."""
        key = step_keys(self.course, self.choices)[1]
        action = int(_choose(self.policy, self.state, self._context(context), key))
        self.choices += 1
        return action

    def update(self, context: ArrayLike, action: int, reward: float) -> None:
        """Learn what an action was paid in a context."""
        x = self._context(context)
        if whole_number("action", action, least=0) >= self.actions:
            raise ValueError(f"action must be below {self.actions}, their number: {action}")
        paid = admit_float64(reward, "reward")
        if paid.shape != () or not np.isfinite(paid):
            raise ValueError(f"reward must be one finite number, got {reward!r}")
        key = step_keys(self.course, self.updates)[2]
        pay = jnp.asarray(admit(paid, "reward", jnp.result_type(float)))
        given = (x, jnp.asarray(action, jnp.int32), pay, key)
        self.state = _update((self.policy, given), self.state)
        self.updates += 1
        every = self.policy.refit_every
        if every is not None and self.updates % every == 0:
            key = refit_key(self.course, self.updates - 1)
            with raise_on_interrupt():  # Ctrl-C raises, and leaves what was known before
                self.state = self.policy.refit(self.state, key)

    def save(self, path: str | Path) -> None:
        """Write all it has learned to one file (safetensors with a JSON header)."""
        from .saved import save

        save(self, Path(path))

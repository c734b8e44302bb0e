"""Environments that change: what was learned stops being true."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.checks import one_of, whole_number
from .base import Environment, Interaction
from .environments import Table


class Switching(Environment):
    """See [`switching`][posterax.bandits.switching]."""

    inner: Environment
    every: int = eqx.field(static=True)
    what: str = eqx.field(static=True)

    @property
    def actions(self) -> int:
        """How many there are to choose from."""
        return self.inner.actions

    @property
    def features(self) -> int:
        """Length of a context."""
        return self.inner.features

    def draw(self, key: jax.Array, t: jax.Array) -> Interaction:
        shift: Any = t // self.every
        if self.what == "classes" and isinstance(self.inner, Table):
            return self.inner.of_class(key, shift)
        context, *pays = self.inner.draw(key, t)
        return Interaction(context, *(jnp.roll(pay, shift % self.actions) for pay in pays))


def switching(environment: Environment, every: int, *, what: str = "actions") -> Switching:
    """An environment whose pay changes its meaning after every so many interactions.

    Args:
        environment: any; the contexts stay as they are.
        every: interactions between two changes. After as many changes as there are actions
            (classes) all is as it was in the beginning.
        what: ``"actions"``: each action pays what its neighbour paid; or ``"classes"``, of a
            table: each class is paid as its neighbour was, and the poisonous mushrooms become the
            edible ones.

    Example:
        >>> import jax
        >>> import posterax as px
        >>> still = px.bandits.wheel(0.5)
        >>> moving = px.bandits.switching(still, every=100)
        >>> moving.draw(jax.random.key(0), 99).expected.argmax() == 0
        Array(True, dtype=bool)
        >>> moving.draw(jax.random.key(0), 100).expected.argmax() == 1
        Array(True, dtype=bool)
    """
    if not isinstance(environment, Environment):
        raise TypeError(f"environment must be one of px.bandits, got {type(environment).__name__}")
    one_of("what", what, ("actions", "classes"))
    if what == "classes" and not isinstance(environment, Table):
        raise ValueError("what='classes' is for tables (px.bandits.from_table); use 'actions'")
    return Switching(environment, whole_number("every", every), what)

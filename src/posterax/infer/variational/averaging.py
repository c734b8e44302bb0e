r"""The mean of the last iterates: what is left of the noise of gradients goes down with it.

    φ̄ = (1/K) Σ φ_t,  over every sixteenth of the last quarter of the steps

A learning rate that falls to zero leaves the noise of about the last √T steps in the parameters;
their mean (Polyak and Juditsky 1992) that of all the steps it is taken over.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..base import Plan

LAST = 0.75  # of the steps are taken before the first that counts


class Average(NamedTuple):
    """The mean so far, and of how many."""

    mean: PyTree
    taken: jax.Array


def no_average(values: PyTree) -> Average:
    """Before the first."""
    return Average(jax.tree.map(jnp.zeros_like, values), jnp.zeros((), jnp.int32))


def averaged(before: Average, values: Callable[[], PyTree], step: jax.Array, plan: Plan) -> Average:
    """With the values after ``step`` steps in it, where they count.

    It is for a phase's ``between``: neighbours are alike, and each costs a pass over the weights.

    Example:
        >>> import jax.numpy as jnp
        >>> from types import SimpleNamespace
        >>> from posterax.infer.variational.averaging import averaged, no_average
        >>> average, plan = no_average(jnp.zeros(())), SimpleNamespace(steps=jnp.asarray(128))
        >>> for step in range(16, 129, 16):
        ...     value = lambda: jnp.asarray(1.0 * step)
        ...     average = averaged(average, value, jnp.asarray(step), plan)
        >>> print(average.mean, average.taken)  # of 112 and 128
        120.0 2
    """
    late = step > LAST * plan.steps

    def put() -> Average:
        count = before.taken + 1
        mean = jax.tree.map(
            lambda m, v: m + (v - m) / count.astype(m.dtype), before.mean, values()
        )  # fmt: skip
        return Average(mean, count)

    def leave() -> Average:  # a fit that is made longer begins anew
        return Average(before.mean, jnp.where(late, before.taken, 0))

    if jax.default_backend() == "cpu":
        return jax.lax.cond(late, put, leave)
    # a GPU passes over the weights sooner than it decides not to
    return jax.tree.map(lambda a, b: jnp.where(late, a, b), put(), leave())


def best_of(average: Average, values: PyTree) -> PyTree:
    """The mean where there is one, else the values themselves; members on a leading axis."""

    def leaf(mean: jax.Array, value: jax.Array) -> jax.Array:
        count = average.taken.reshape(average.taken.shape + (1,) * (mean.ndim - average.taken.ndim))
        return jnp.where(count > 0, mean, value)

    return jax.tree.map(leaf, average.mean, values)

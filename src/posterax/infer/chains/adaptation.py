"""Warm-up by Stan's windows: a step size by dual averaging, scales by the variances of a window."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .base import WarmUpPhase


class Windows(NamedTuple):
    """How one chain's step size and metric adapt; blackjax has the recursions.

    Args:
        target: the acceptance rate that the step size is tuned to.
        dense: a metric with correlations, or a diagonal one.
        gamma: how strongly dual averaging holds the step size back.
    """

    target: jax.Array
    dense: bool = False
    gamma: float = 0.05

    def _parts(self) -> tuple[PyTree, PyTree]:
        from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
        from blackjax.adaptation.step_size import dual_averaging_adaptation

        dual = dual_averaging_adaptation(self.target, gamma=self.gamma)
        return mass_matrix_adaptation(not self.dense), dual

    def begin(self, weights: int, step_size: jax.Array) -> tuple[PyTree, PyTree]:
        """Nothing known: the state of both."""
        metric, dual = self._parts()
        return metric[0](weights), dual[0](step_size)

    def update(
        self,
        adaptation: tuple[PyTree, PyTree],
        position: jax.Array,
        rate: jax.Array,
        window: tuple[jax.Array, jax.Array],
        scales: jax.Array,
        read: Callable[[jax.Array], jax.Array] = lambda inverse_mass: inverse_mass,
        restart: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array, tuple[PyTree, PyTree]]:
        """Step size, scales and state after a step.

        Args:
            adaptation: the state of both.
            position: where the chain is.
            rate: how probable its last move was.
            window: whether the step is in a slow window, and whether it ends one.
            scales: the present ones.
            read: the scales of an inverse mass matrix.
            restart: the step size after a window (default: the one that it came to).
        """
        (metric, dual), (variances, steps), (slow, ends) = self._parts(), adaptation, window
        steps = dual[1](steps, rate)
        variances = jax.lax.cond(slow, lambda: metric[1](variances, position), lambda: variances)

        def close() -> PyTree:
            new = metric[2](variances)
            again = dual[2](steps) if restart is None else restart
            return new, dual[0](again), read(new.inverse_mass_matrix)

        variances, steps, scales = jax.lax.cond(ends, close, lambda: (variances, steps, scales))
        return jnp.exp(steps.log_step_size), scales, (variances, steps)


def window_schedule(steps: int) -> np.ndarray:
    """(steps, 2): whether each step is in a slow window, and whether it ends one."""
    from blackjax.adaptation.staged_adaptation import build_schedule

    return np.asarray(build_schedule(steps), np.int32).reshape(-1, 2)


class WindowPhase(WarmUpPhase):
    """Chains that adapt as long as the schedule of their windows."""

    schedule: jax.Array  # of ``window_schedule``
    target: jax.Array  # acceptance

    def length(self) -> int:
        return len(self.schedule)


def tuned_step_size(adaptation: tuple[PyTree, PyTree]) -> jax.Array:
    """The step size that dual averaging came to."""
    return jnp.exp(adaptation[1].log_step_size_avg)

"""What objectives share: the NLL of a minibatch, and the optimiser that follows its gradient."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from .._util.checks import above_zero, one_of
from ..data import Batch
from ..model import Model, Parameters
from .adam import adam
from .base import Phase, Plan


class DescentPhase(Phase):
    """Steps of an optimiser: that of ``method``, or Adam at its rate and schedule."""

    method: Any

    def _optimizer(self) -> optax.GradientTransformation:
        method = self.method
        return make_optimizer(method.optimizer, method.learning_rate, method.schedule, self.plan)


def batch_nll(
    model: Model, params: Parameters, state: Any, batch: Batch, key: jax.Array
) -> tuple[jax.Array, Any]:
    """Σ weight · −log p(y | x, w) over a minibatch, training; and the network's new state."""
    outputs, state = model.apply(params, state, batch.x, key, training=True)
    log_p = model.likelihood_of(params, outputs, batch.x, batch.y)
    return -jnp.sum(batch.weight * log_p), state


def mean_nll(total: jax.Array, batch: Batch) -> jax.Array:
    """A minibatch's NLL per data point, for people to read."""
    mass = jnp.sum(batch.weight)
    return total / jnp.where(mass > 0, mass, 1)


def make_optimizer(
    optimizer: optax.GradientTransformation | None,
    learning_rate: Any,
    schedule: str,
    plan: Plan,
) -> optax.GradientTransformation:
    """The user's optimiser, or Adam whose rate follows the schedule over all steps."""
    if optimizer is not None:
        return optimizer

    return adam(lambda step: rate_at(learning_rate, schedule, plan, step))


def rate_at(learning_rate: Any, schedule: str, plan: Plan, step: jax.Array) -> jax.Array:
    """The learning rate at a step: it falls to zero over the fit, or stays as it is."""
    if schedule == "constant":
        return learning_rate
    done = jnp.minimum(step / jnp.maximum(plan.steps, 1), 1.0)
    return learning_rate * 0.5 * (1 + jnp.cos(jnp.pi * done))


def check_optimizer(optimizer: Any, learning_rate: Any, schedule: str) -> None:
    """Refuse what ``make_optimizer`` cannot use, by name."""
    if optimizer is not None and not isinstance(optimizer, optax.GradientTransformation):
        raise TypeError(
            "optimizer must be an optax transformation such as optax.adam(1e-3), got "
            f"{type(optimizer).__name__}"
        )
    above_zero("learning_rate", learning_rate)
    one_of("schedule", schedule, ("cosine", "constant"))

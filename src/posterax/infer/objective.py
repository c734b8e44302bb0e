r"""What objectives share: the NLL of a minibatch, and the optimiser that follows its gradient.

By default that is Adam (Kingma and Ba 2015) with its bias corrections folded into the rate,

    α_t = α √(1−β₂ᵗ) / (1−β₁ᵗ),  θ ← θ − α_t m / (√v + ε √(1−β₂ᵗ))

The same numbers as ``optax.adam`` (section 2 of the paper names this form) with one division per
weight where that has three, and one counter: every number that a GPU computes apart from the
weights is a kernel of its own, and a step has few of them.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from ..data import Batch
from ..model import Model, Parameters
from .base import Phase, Plan


def batch_nll(
    model: Model, params: Parameters, state: PyTree, batch: Batch, key: jax.Array
) -> tuple[jax.Array, PyTree]:
    """Σ weight · −log p(y | x, w) over a minibatch, training; and the network's new state."""
    outputs, state = model.apply(params, state, batch.x, key, training=True)
    log_p = model.likelihood_of(params, outputs, batch.x, batch.y)
    return -jnp.sum(batch.weight * log_p), state


def log_likelihood(model: Model, params: Parameters, batch: Batch, state: PyTree) -> jax.Array:
    """Σ weight · log p(y | x, w) over a batch, the network in prediction mode."""
    return model.log_likelihood(params, batch.x, batch.y, batch.weight, state=state)


def mean_nll(total: jax.Array, batch: Batch) -> jax.Array:
    """A minibatch's NLL per data point, for people to read."""
    mass = jnp.sum(batch.weight)
    return total / jnp.where(mass > 0, mass, 1)


def need_prior(model: Model, name: str, instead: str = "px.MaximumLikelihood()") -> None:
    """Refuse a model none of whose weights has a prior."""
    if not model.bayesian_size:
        raise ValueError(
            f"model: no parameter has a prior, and {name} needs weights with a prior: give the "
            f"model one, or use {instead}"
        )


class AdamState(NamedTuple):
    """Number of steps taken, and running moments of the gradient."""

    step: jax.Array
    mean: PyTree
    square: PyTree


class Elementwise(optax.GradientTransformation):
    """A transformation that treats every weight alone, whatever array it is in."""


def adam(
    rate: Callable[[jax.Array], Any],
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    faster: Mapping[str, Any] | None = None,
    forget: Callable[[jax.Array], Any] | None = None,
) -> Elementwise:
    """Adam whose rate is a function of the number of steps taken.

    ``faster``: of a dictionary of trees, how many times the rate a name's tree moves at.
    ``forget``: a share of 1 − b2, by the number of steps: where it falls to 0, a gradient no longer
    moves what it is divided by, and skewed gradients come to rest where their mean is zero. (The
    correction for the start takes it as 1, which matters below some hundred steps.)

    Example:
        >>> import jax.numpy as jnp
        >>> from posterax.infer.objective import adam
        >>> optimizer = adam(lambda step: 0.1)
        >>> updates, _ = optimizer.update(jnp.array([3.0, -2.0]), optimizer.init(jnp.zeros(2)))
        >>> print(updates.round(3))
        [-0.1  0.1]
    """

    def init(params: PyTree) -> AdamState:
        zeros = lambda: jax.tree.map(jnp.zeros_like, params)  # noqa: E731
        return AdamState(jnp.zeros((), jnp.int32), zeros(), zeros())

    def update(grads: PyTree, state: AdamState, params: PyTree = None) -> tuple[PyTree, AdamState]:
        t = (state.step + 1).astype(float)
        root = jnp.sqrt(1 - b2**t)
        alpha = -rate(state.step) * root / (1 - b1**t)
        mean = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mean, grads)
        new = jnp.asarray(1 - b2 if forget is None else (1 - b2) * forget(state.step))

        def follow(v: jax.Array, g: jax.Array) -> jax.Array:
            return v + new.astype(v.dtype) * (jnp.square(g) - v)

        square = jax.tree.map(follow, state.square, grads)

        def move(mean: PyTree, square: PyTree, alpha: jax.Array = alpha) -> PyTree:
            return jax.tree.map(
                lambda m, v: (
                    alpha.astype(m.dtype) * m / (jnp.sqrt(v) + (eps * root).astype(m.dtype))
                ),
                mean, square,
            )  # fmt: skip

        if not faster:
            updates = move(mean, square)
        else:
            updates = {
                name: move(mean[name], square[name], alpha * faster.get(name, 1.0)) for name in mean
            }
        return updates, AdamState(state.step + 1, mean, square)

    return Elementwise(init, update)


def is_elementwise(optimizer: optax.GradientTransformation | None) -> bool:
    """Whether an optimiser, by default our Adam, treats every weight alone."""
    return optimizer is None or isinstance(optimizer, Elementwise)


def rate_at(rate: Any, schedule: str, plan: Plan, step: jax.Array) -> jax.Array:
    """The learning rate at a step, by a schedule over all steps; or a function's own.

    ``"hold"`` keeps it for the first half and then lets it fall to zero in a straight line: what a
    fit does in its first half does not depend on how long it will be.

    Example:
        >>> import jax.numpy as jnp
        >>> from types import SimpleNamespace
        >>> from posterax.infer.objective import rate_at
        >>> plan = SimpleNamespace(steps=8)
        >>> [float(rate_at(1.0, "hold", plan, jnp.asarray(t))) for t in (0, 4, 6, 8)]
        [1.0, 1.0, 0.5, 0.0]
    """
    if callable(rate):
        return jnp.asarray(rate(step))
    if schedule == "constant":
        return rate
    done = jnp.minimum(step / jnp.maximum(plan.steps, 1), 1.0)
    if schedule == "hold":
        return rate * jnp.minimum(1.0, 2 * (1 - done))
    return rate * 0.5 * (1 + jnp.cos(jnp.pi * done))


def holds(method: Any) -> bool:
    """Whether a method's rate is held for half of the steps, and then falls to zero."""
    own = getattr(method, "optimizer", None) is not None or callable(method.learning_rate)
    return method.schedule == "hold" and not own


def scheduled_adam(rate: Any, schedule: str, plan: Plan) -> Elementwise:
    """Adam whose rate follows the schedule over all steps."""
    return adam(lambda step: rate_at(rate, schedule, plan, step))


class DescentPhase(Phase):
    """Steps of an optimiser: that of ``method``, or Adam at its rate and schedule."""

    method: Any

    def _optimizer(self) -> optax.GradientTransformation:
        method = self.method
        return method.optimizer or scheduled_adam(method.learning_rate, method.schedule, self.plan)

    def _descend(self, trained: PyTree, grads: PyTree, optimizer: PyTree) -> tuple[PyTree, PyTree]:
        """What is trained after a step, and the optimiser's state.

        Of a dictionary an optimiser's weight decay sees the means and points alone, and zeros for
        the rest: it would pull a deviation to log 2, a probability to 1/2.
        """
        decayed = trained
        if isinstance(trained, dict):
            decayed = {
                name: part if name in ("mu", "point") else jax.tree.map(jnp.zeros_like, part)
                for name, part in trained.items()
            }
        updates, optimizer = self._optimizer().update(grads, optimizer, decayed)
        return optax.apply_updates(trained, updates), optimizer

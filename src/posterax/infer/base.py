"""The contract of inference methods.

A method is a frozen set of hyperparameters. ``method.phases(model, plan)`` gives its phases in
order; each phase is pure and jittable, and ``px.fit`` runs them all with its one loop. Whoever
has read one method has read them all.
"""

from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from .._util.checks import above_zero
from ..data import Batch, Data
from ..model import Model, Parameters
from ..posteriors import Posterior
from ..predictive import Targets
from .adam import adam


class Plan(eqx.Module):
    """What a method may know of the fit: arrays, so that another number compiles nothing."""

    total: Any  # N, the sum of the weights
    batches: Any  # M, minibatches per epoch
    steps: Any  # all steps: of optimisation, or retained per chain
    batch_size: int = eqx.field(static=True)
    targets: Targets = eqx.field(static=True)
    # how many of the last phase's steps an earlier fit took, which this one continues
    before: Any = eqx.field(default_factory=lambda: jnp.zeros((), jnp.int32))
    inputs: Any = None  # a minibatch of the inputs by shape and type


class Draw(NamedTuple):
    """One retained state of every chain: parameters (chain, …) and statistics (chain,)."""

    parameters: Parameters
    stats: dict[str, jax.Array]


class Info(NamedTuple):
    """What a step reports: numbers for the history, and a draw where the method keeps draws."""

    terms: dict[str, jax.Array]
    draw: Draw | None = None


class Start(NamedTuple):
    """What the first phase finds as its predecessor."""

    parameters: Parameters
    state: Any
    posterior: Posterior | None
    given: bool  # whether the user gave a start, or these are the network's own initial weights


class Phase(eqx.Module):
    """One stage of a method. Subclasses add fields of their own; all fields may be traced."""

    model: Model
    plan: Plan

    title: ClassVar[str] = "fitting"
    full_batch: ClassVar[bool] = False
    keeps_draws: ClassVar[bool] = False
    validated: ClassVar[bool] = True  # whether held-out data is looked at on the way
    improves: ClassVar[bool] = True  # whether to stop where held-out data gets no better
    # whether any of its states will do: for the phases after it, and as a posterior of its own
    stands_alone: ClassVar[bool] = False

    def length(self) -> int:
        """Number of steps; 0 makes the phase atomic (``init`` alone, redone whole on resume)."""
        return int(self.plan.steps)

    def kept(self, steps: Any, thin: int) -> Any:
        """How many of the first ``steps`` steps leave a draw, where ``fit`` keeps one in ``thin``.

        ``steps`` is a number or an array of them, known or traced.
        """
        return steps // thin

    def init(self, previous: Any, data: Data | None, key: jax.Array) -> Any:
        """The state before the first step, from the previous phase's last state."""
        raise NotImplementedError

    def step(self, state: Any, batch: Batch, key: jax.Array) -> tuple[Any, Info]:
        """One step."""
        raise NotImplementedError

    def report(self, state: Any, key: jax.Array) -> dict[str, jax.Array]:
        """Terms of the history that cost a pass of their own over the weights.

        They are computed before every sixteenth step only (``key`` is that step's) and stay the
        same in the history until the next.
        """
        return {}

    def done(self, state: Any) -> jax.Array:
        """Whether to stop before ``length`` steps."""
        return jnp.zeros((), bool)

    def reopened(self, state: Any) -> Any:
        """The state of the phase before, where ``resume`` means more of its steps; or ``None``."""
        return None

    def blame(self, state: Any, term: str) -> str:
        """Which part of the objective a non-finite term is, and what to try."""
        part = {"nll": "likelihood (nll)"}.get(term, term)
        return f"{part}: check the scale of the data and lower the learning rate"

    def trouble(self, terms: dict[str, np.ndarray]) -> str | None:
        """What is wrong with a phase that ran to its end, by its history, and what to change."""
        return None

    def finish(self, state: Any, draws: Draw | None) -> Posterior:
        """The posterior (of the last phase); draws have axes (chain, draw, …).

        Without draws it is called during the fit as well, to validate: keep it pure.
        """
        raise NotImplementedError


class Method(eqx.Module):
    """A frozen set of hyperparameters."""

    counts: ClassVar[Literal["epochs", "steps", "nothing"]] = "epochs"
    default_steps: ClassVar[int] = 1000
    full_batch: ClassVar[bool] = False
    kinds: ClassVar[tuple[str, ...]] = ("regression", "counts", "classification")  # it can do
    takes_start: ClassVar[bool] = True  # whether ``init=`` means anything to it
    takes_points: ClassVar[bool] = True  # whether it can train weights that have no prior
    takes_discrete: ClassVar[bool] = False  # whether weights may take finitely many values
    minibatches: ClassVar[bool] = False  # whether it needs more than one in an epoch
    instead_of_init: ClassVar[str] = "makes its own starts; leave init out"

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        """The phases in order."""
        raise NotImplementedError

    def label(self) -> str:
        """What errors call it."""
        return type(self).__name__

    def identity(self) -> str:
        """What a checkpoint knows this method by: any other setting must change it."""
        return repr(self)


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
    choose("schedule", schedule, ("cosine", "constant"))


def choose(name: str, value: Any, options: tuple[str, ...]) -> None:
    """Refuse an unknown option with the list of known ones."""
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}, got {value!r}")

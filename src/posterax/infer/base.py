"""The contract of inference methods.

A method is a frozen set of hyperparameters. It declares what it needs of a fit in one value
(``needs``) and gives its phases in order. A phase is pure and jittable: ``init``, ``step``,
``done``, and ``hand_over`` to the next one or, of the last, ``finish``. ``px.fit`` runs them all
with one loop. Whoever has read one method has read them all.
"""

import dataclasses
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._util.tree import dtype_of
from ..data import Batch, Data
from ..model import Model, Parameters
from ..posteriors import Posterior
from ..predictive import Targets
from .settings import annotations, check_settings

History = dict[str, np.ndarray]


class Plan(eqx.Module):
    """What a method may know of the fit: arrays, so that another number compiles nothing."""

    total: jax.Array  # N, the sum of the weights
    batches: jax.Array  # M, minibatches per epoch
    steps: jax.Array  # all steps: of optimisation, or retained per chain
    batch_size: int = eqx.field(static=True)
    targets: Targets = eqx.field(static=True)
    # how many of the last phase's steps an earlier fit took, which this one continues
    before: jax.Array = eqx.field(default_factory=lambda: jnp.zeros((), jnp.int32))
    inputs: PyTree = None  # a minibatch of the inputs by shape and type
    all_data: bool = eqx.field(static=True, default=False)  # whether a step sees all, or a batch
    members: int = eqx.field(static=True, default=1)  # of the ensemble that runs it under vmap


class Draw(NamedTuple):
    """One retained state of every chain: parameters (chain, …) and statistics (chain,)."""

    parameters: Parameters
    stats: dict[str, jax.Array]


class Info(NamedTuple):
    """What a step reports: numbers for the history, and a draw where the method keeps draws."""

    terms: dict[str, jax.Array]
    draw: Draw | None = None


class Start(NamedTuple):
    """What a phase begins with: the network's own weights, the user's ``init=``, or what the phase
    before hands over, with what it has tuned for this one (a metric, a step size, a curvature)."""

    parameters: Parameters
    state: PyTree
    posterior: Posterior | None
    given: bool | jax.Array  # whether someone gave a start, or these are initial weights
    tuned: PyTree = None


class Needs(NamedTuple):
    """What a method, with its present settings, asks of a fit."""

    counts: Literal["epochs", "steps", "nothing"] = "epochs"
    steps: int = 1000  # where it counts steps and the user names none
    all_data: bool = False  # whether each step sees all of it, or a minibatch
    batches: int = 1  # minibatches in an epoch, at least
    discrete: bool = False  # whether weights may take finitely many values
    elementwise: bool = False  # whether it does not matter which array a weight is in
    mixes: bool = False  # whether posteriors of several such fits make one mixture
    bound: bool = False  # whether it climbs an ELBO, which ``fit`` then evaluates on all rows
    anytime: bool = False  # whether its first half is the same, however long the fit: no end known
    overfits: bool = False  # whether longer may be worse, so that held-out rows choose its length
    no_start: str | None = None  # why ``init=`` means nothing to it, and what to do instead
    no_points: str | None = None  # why it cannot train weights that have no prior
    instead: str = "px.SGHMC or px.BayesByBackprop"  # of all data: what takes minibatches


class Phase(eqx.Module):
    """One stage of a method. Subclasses add fields of their own; all fields may be traced."""

    model: Model
    plan: Plan

    title: ClassVar[str] = "fitting"
    axis: ClassVar[str | None] = None  # the field with the size of the states' leading axis
    # at which steps ``finish`` gives a posterior: at the end; at any, to look at on the way; or at
    # any, to stop by as well
    finishes: ClassVar[Literal["at the end", "to look", "to stop"]] = "to stop"
    lengthens: ClassVar[bool] = True  # whether ``resume=`` takes more of its steps

    def length(self) -> int | None:
        """Number of steps at most; ``None`` runs until ``done``."""
        return int(self.plan.steps)

    def init(self, start: Start, data: Data | None, key: jax.Array) -> PyTree:
        """The state before the first step."""
        raise NotImplementedError

    def step(self, state: PyTree, batch: Batch, key: jax.Array) -> tuple[PyTree, Info]:
        """One step."""
        raise NotImplementedError

    def report(self, state: PyTree, key: jax.Array) -> dict[str, jax.Array]:
        """Terms of the history that cost a pass of their own over the weights.

        They are computed before every sixteenth step only; ``key`` is that step's.
        """
        return {}

    def between(self, state: PyTree) -> PyTree:
        """The state with what costs a pass over the weights and can wait (a mean of iterates).

        It is called after every sixteenth step.
        """
        return state

    def done(self, state: PyTree) -> jax.Array:
        """Whether to stop before ``length`` steps."""
        return jnp.zeros((), bool)

    def retained(self, steps: PyTree, thin: int) -> PyTree:
        """How many of the first ``steps`` steps leave a draw, where ``fit`` keeps one in ``thin``.

        ``steps`` is a number or an array of them, on the host or traced. ``None``: this phase
        leaves no draws.
        """
        return None

    def hand_over(self, state: PyTree) -> Start:
        """What the next phase starts from."""
        raise NotImplementedError

    def explain(self, state: PyTree, history: History, term: str | None = None) -> str | None:
        """What went wrong, and what to change.

        With ``term``, a number of the history that is not finite: which part of the objective it
        is. Without, at the end of the phase: why it was for nothing, or ``None``.
        """
        if term is None:
            return None
        part = {"nll": "likelihood (nll)"}.get(term, term)
        return f"{part}: check the scale of the data and lower the learning rate"

    def finish(self, state: PyTree, draws: Draw | None) -> Posterior:
        """The posterior (of the last phase); draws have axes (chain, draw, …)."""
        raise NotImplementedError


class Method(eqx.Module):
    """A frozen set of hyperparameters, checked by the annotations of its fields."""

    def __check_init__(self) -> None:
        check_settings(self)

    @property
    def needs(self) -> Needs:
        """What it asks of a fit (a class's own, where no setting changes it)."""
        return Needs()

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        """The phases in order, or why the model cannot have them."""
        raise NotImplementedError


M = TypeVar("M", bound=Method)


def with_arrays(method: M, model: Model) -> M:
    """The method with its numbers as arrays in the model's precision.

    Arrays are arguments of a compiled program, so that another learning rate compiles nothing.
    Fields that are annotated as ``float`` (or with one among others) and as ``Count`` become
    arrays; strings, flags, functions and plain ints stay what Python branches on.

    Example:
        >>> import posterax as px
        >>> from posterax.infer.base import with_arrays
        >>> model = px.Model(px.networks.MLP(1, 1, (), key=0), likelihood=px.likelihoods.Gaussian())
        >>> method = with_arrays(px.BayesByBackprop(samples=2), model)
        >>> method.learning_rate.shape, method.samples
        ((), 2)
    """
    wide, narrow = np.dtype(dtype_of(model.parameters)), np.dtype(np.int32)
    arrays: dict[str, Any] = {}
    for field in dataclasses.fields(method):
        value, options = getattr(method, field.name), annotations(type(method))[field.name]
        kinds = [getattr(option, "__origin__", option) for option in options]
        marks = [mark for option in options for mark in getattr(option, "__metadata__", ())]
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        if isinstance(value, Method):
            arrays[field.name] = with_arrays(value, model)
        elif plain and "traced" in marks:
            arrays[field.name] = np.asarray(value, narrow)
        elif (plain and float in kinds) or (value is not None and tuple[float, ...] in options):
            arrays[field.name] = np.asarray(value, wide)
    # not by making it anew: its checks are of plain numbers
    return eqx.tree_at(lambda m: [getattr(m, name) for name in arrays], method, [*arrays.values()])

r"""How microcanonical chains come to their start, metric, momentum length and step size.

First a network is trained for every chain; then the chains run, unadjusted, while three things
adapt: the metric M⁻¹ = diag(Var w), the length L = √d in its units, and the step size ε by the
law that the energy error grows as E[ΔE²] ∝ ε⁶ (Robnik et al. 2023; Bou-Rabee and
Sanz-Serna 2018). Unlike blackjax's tuner, which is one call, this goes step by step.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..._util.noise import noise_key
from ...data import Batch, Data
from ..base import Info, Start
from ..objective import Elementwise, scheduled_adam
from .base import ChainPhase, WarmUpPhase

LOST = 1000.0  # an energy error, in nats, after which a chain goes back
MOST_BETWEEN = 1000  # integrator steps of a draw
MEMORY = 150.0  # steps over which the energy error is averaged
SMALLEST = 1e-5  # step, in units of the metric
TRUST = 1.5  # how far, in log ε, an energy error still says something about its scale


class StepSearch(NamedTuple):
    """The step size at which E[ΔE²] / d is as wanted, sought by each chain."""

    step_size: jax.Array
    scale: jax.Array  # Σ weight · E[ΔE²] / (d · wanted · ε⁶)
    weight: jax.Array
    largest: jax.Array  # that did not diverge
    log_sum: jax.Array  # of the last part, whose mean is the answer
    averaged: jax.Array  # number of steps in it

    @classmethod
    def begin(cls, step_size: jax.Array) -> "StepSearch":
        """From here, knowing nothing."""
        zeros = jnp.zeros_like(step_size)
        largest = jnp.full_like(step_size, jnp.finfo(step_size.dtype).max)
        return cls(step_size, zeros, zeros, largest, zeros, zeros)

    def update(
        self, error: jax.Array, back: jax.Array, wanted: jax.Array, average: jax.Array
    ) -> "StepSearch":
        """After a step with squared energy error ``error`` per weight, or one that went back."""
        ratio = jnp.where(back, 1.0, error / wanted + 1e-8)
        # a step size far from the answer says little about the constant of the law
        trust = jnp.exp(-0.5 * jnp.square(jnp.log(ratio) / (6 * TRUST))) * ~back
        decay = (MEMORY - 1) / (MEMORY + 1)
        scale = decay * self.scale + trust * ratio / self.step_size**6
        weight = decay * self.weight + trust
        largest = jnp.where(back, jnp.maximum(0.8 * self.step_size, SMALLEST), self.largest)
        fitted = (scale / jnp.where(weight > 0, weight, 1)) ** (-1 / 6)
        # ε⁻⁶ is a number of the precision only down to a smallest ε
        new = jnp.clip(jnp.where(weight > 0, fitted, largest), SMALLEST, largest)
        log_sum = self.log_sum + average * jnp.log(new)
        return StepSearch(new, scale, weight, largest, log_sum, self.averaged + average)

    def final(self) -> jax.Array:
        """The chains' median, or less for a chain that needs much smaller steps.

        Energy errors have heavy tails, so that most of what chains differ in is chance; chains
        with unlike steps would also have unlike biases.
        """
        own = jnp.exp(self.log_sum / jnp.maximum(self.averaged, 1))
        own = jnp.where(self.averaged > 0, own, self.step_size)
        return jnp.minimum(jnp.median(own), 1.5 * own)


class Moments(NamedTuple):
    """Running mean and spread of every weight of each chain, weighted by time."""

    weight: jax.Array
    mean: jax.Array
    square: jax.Array

    @classmethod
    def begin(cls, position: jax.Array) -> "Moments":
        """Of no positions yet."""
        zeros = jnp.zeros_like(position)
        return cls(zeros[:, 0], zeros, zeros)

    def update(self, position: jax.Array, weight: jax.Array) -> "Moments":
        """Another position of each chain (Welford 1962; West 1979)."""
        total = self.weight + weight
        share = weight / jnp.where(total > 0, total, 1)
        away = position - self.mean
        mean = self.mean + share[:, None] * away
        return Moments(total, mean, self.square + weight[:, None] * away * (position - mean))

    def metric(self, before: jax.Array) -> tuple[jax.Array, jax.Array]:
        """M⁻¹, the same for all chains, and L = √(Σ Var w / M⁻¹) of each.

        Networks have exchangeable units: what is a weight's spread in one chain is as good as
        another's, and the mean over chains is far less noisy than each.
        """
        variance = self.square / jnp.where(self.weight > 0, self.weight, 1)[:, None]
        pooled = jnp.mean(variance, axis=0)
        inverse = jnp.where(jnp.isfinite(pooled) & (pooled > 0), pooled, before)
        length = jnp.sqrt(jnp.sum(variance / inverse, axis=1))
        root = np.sqrt(variance.shape[1])
        return inverse, jnp.clip(length, root / 2, 2 * root)


def steps_of(length: jax.Array, step_size: jax.Array) -> jax.Array:
    """L / ε, one number for all chains, which step together."""
    steps = jnp.round(jnp.median(length / step_size))
    return jnp.clip(steps, 1, MOST_BETWEEN).astype(jnp.int32)


class TrainingState(NamedTuple):
    """Positions of the members and their optimiser; ``given`` where the user brings a start."""

    position: jax.Array
    optimizer: PyTree
    given: jax.Array
    state: PyTree


class ChainState(NamedTuple):
    """All chains, what is tuned for each, and the network's state."""

    chain: PyTree
    step_size: jax.Array
    length: jax.Array  # L
    inverse_mass: jax.Array
    between: jax.Array  # integrator steps of a draw, the same for all chains
    adaptation: PyTree
    step: jax.Array
    state: PyTree


class Training(WarmUpPhase):
    """One network for every chain, by gradient ascent on the very density that is sampled."""

    method: Any  # a ``MCLMC``

    title: ClassVar[str] = "training members"

    def _optimizer(self) -> Elementwise:
        return scheduled_adam(self.method.learning_rate, "cosine", self.plan)

    def init(self, start: Start, data: Data | None, key: jax.Array) -> TrainingState:
        position = self.starts(start, key)
        optimizer = self._optimizer().init(position)
        return TrainingState(position, optimizer, jnp.asarray(start.given), start.state)

    def step(self, state: TrainingState, batch: Batch, key: jax.Array) -> tuple[PyTree, Info]:

        def one(chain: jax.Array, position: jax.Array) -> tuple[jax.Array, jax.Array]:
            return jax.value_and_grad(self.log_density(batch, state.state, chain))(position)

        value, slope = jax.vmap(one)(jnp.arange(self.chains), state.position)
        updates, optimizer = self._optimizer().update(-slope, state.optimizer, state.position)
        new = state._replace(position=state.position + updates, optimizer=optimizer)
        return new, Info({"log_density": jnp.mean(value)})

    def done(self, state: TrainingState) -> jax.Array:
        return state.given

    def hand_over(self, state: TrainingState) -> Start:
        return super().hand_over(state)._replace(tuned=state.position)


class Microcanonical(ChainPhase):
    """What tuning and sampling share: one step of the integrator for all chains."""

    method: Any  # a ``MCLMC``

    divergence: ClassVar[tuple[str, str]] = ("step", "Lower energy_error, take a longer warmup")

    def _between(self, length: jax.Array, step_size: jax.Array) -> jax.Array:
        """Integrator steps of a draw: as the user wants, or about L / ε."""
        wanted = self.method.steps_between
        return jnp.asarray(steps_of(length, step_size) if wanted is None else wanted, jnp.int32)

    def _move(self, state: ChainState, batch: Batch, key: jax.Array) -> PyTree:
        """The chains a step on, their energy errors, and whether they went back instead.

        ``key`` is one for noise: momenta need as many normals as there are weights.
        """
        from blackjax.mcmc.integrators import isokinetic_velocity_verlet, with_isokinetic_maruyama

        def one(
            chain: jax.Array, key: jax.Array, old: PyTree, inverse: jax.Array, length: jax.Array,
            step: jax.Array,
        ) -> PyTree:  # fmt: skip
            log_density = self.log_density(batch, state.state, chain)
            move = with_isokinetic_maruyama(isokinetic_velocity_verlet(log_density, inverse))
            new, kinetic = move(old, step, length, key)
            error = kinetic - new.logdensity + old.logdensity
            # blackjax's kernel draws another direction here, at each step and mostly for nothing;
            # to turn round is as good: a NaN in error is lost as well
            lost = ~(jnp.abs(error) < LOST) | ~jnp.all(jnp.isfinite(new.logdensity_grad))
            turned = old._replace(momentum=-old.momentum)
            new = jax.tree.map(lambda a, b: jnp.where(lost, a, b), turned, new)
            return new, jnp.where(lost, 0, error), lost

        keys = jax.random.split(key, self.chains)
        tuned = state.inverse_mass, state.length, state.step_size
        return jax.vmap(one)(jnp.arange(self.chains), keys, state.chain, *tuned)

    def _terms(
        self, state: ChainState, diverging: jax.Array, **more: jax.Array
    ) -> dict[str, jax.Array]:
        return {
            "log_density": jnp.mean(state.chain.logdensity),
            "step_size": jnp.mean(state.step_size),
            "divergences": jnp.sum(diverging).astype(state.step_size.dtype),
            **{name: jnp.mean(value) for name, value in more.items()},
        }

    def _positions(self, state: ChainState) -> jax.Array:
        return state.chain.position


class Tuning(Microcanonical, WarmUpPhase):
    """Metric, L and step size adapt, an integrator step at a time; no state is a draw."""

    title: ClassVar[str] = "tuning"

    def length(self) -> int:
        return int(self.method.warmup)

    def init(self, start: Start, data: Data | None, key: jax.Array) -> ChainState:
        from blackjax.mcmc import mclmc

        assert data is not None
        everything = data.everything()
        position = self.starts(start, key) if start.tuned is None else start.tuned
        keys = jax.random.split(jax.random.fold_in(key, 1), self.chains)

        def begin(chain: jax.Array, position: jax.Array, key: jax.Array) -> PyTree:
            return mclmc.init(position, self.log_density(everything, start.state, chain), key)

        chain = jax.vmap(begin)(jnp.arange(self.chains), position, keys)
        weights = position.shape[1]
        root = jnp.full(self.chains, np.sqrt(weights), position.dtype)
        adaptation = StepSearch.begin(0.02 * root), Moments.begin(position)
        one, zero = jnp.ones((), jnp.int32), jnp.zeros((), jnp.int32)
        inverse = jnp.ones_like(position)
        return ChainState(chain, 0.02 * root, root, inverse, one, adaptation, zero, start.state)

    def step(self, state: ChainState, batch: Batch, key: jax.Array) -> tuple[ChainState, Info]:
        chain, error, back = self._move(state, batch, noise_key(key))
        weights = chain.position.shape[1]
        search, moments = state.adaptation
        # settle, a first metric, the metric, and the step size that goes with it
        warmup = self.method.warmup
        part = state.step / warmup
        ends = [jnp.ceil(end * warmup).astype(jnp.int32) - 1 for end in (0.4, 0.8)]
        close = (state.step == ends[0]) | (state.step == ends[1])
        wanted = self.method.energy_error
        search = search.update(jnp.square(error) / weights, back, wanted, part >= 0.9)
        gather = jnp.where((part >= 0.2) & (part < 0.8) & ~back, state.step_size, 0)
        moments = moments.update(chain.position, gather)

        def keep() -> PyTree:
            return state.inverse_mass, state.length, search, moments

        def change() -> PyTree:
            inverse, length = moments.metric(state.inverse_mass)
            wider = jnp.mean(inverse / state.inverse_mass, axis=1)
            begin = StepSearch.begin(search.step_size / jnp.sqrt(wider))
            return inverse, length, begin, Moments.begin(chain.position)

        inverse, length, search, moments = jax.lax.cond(close, change, keep)
        new = ChainState(
            chain, search.step_size, length, inverse, state.between, (search, moments),
            state.step + 1, state.state,
        )  # fmt: skip
        return new, Info(self._terms(new, back, energy_error=jnp.square(error) / weights))

    def hand_over(self, state: ChainState) -> Start:
        step_size = state.adaptation[0].final()
        tuned = state._replace(step_size=step_size, between=self._between(state.length, step_size))
        return super().hand_over(tuned)

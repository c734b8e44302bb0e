r"""Simulated annealing: Metropolis moves on the energy while the temperature falls.

    E(w) = −log p(D, w),   accept w → w' with probability min(1, exp(−(E(w') − E(w)) / T))

Hot chains cross barriers between modes, cold ones settle in the deepest they have found. At T = 1
the moves sample the posterior; T → 0 leaves its mode.
"""

from typing import ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..._util.tree import tree_size
from ...data import Batch, Data
from ...model import Model
from ...posteriors import Point, Posterior
from ..base import Draw, History, Info, Method, Needs, Phase, Plan, Start
from ..chains.base import STILL, LogDensity
from ..chains.moves import Moved, MovePhase, layout, metropolis_hastings
from ..settings import Copies, Positive, Whole, check_settings

PROBES = 64  # draws of the prior, whose energies say how hot to begin
ACCEPTANCE = 0.234  # what the step size follows as the temperature falls
GAIN = 0.1  # of the log step size, per unit of acceptance above that; in long fits
TRACK = 200  # … this over their steps: enough to follow ε ∝ √T, and else as still as can be
WINDOW = 50  # steps over which the energy's variance is averaged
PACES = (0.2, 5.0)  # the adaptive schedule is never slower or faster, relative to its mean


class AnnealingState(NamedTuple):
    """All chains, their best points, the temperature, and the path so far."""

    position: jax.Array
    energy: jax.Array
    best: jax.Array  # (chains, weights)
    best_energy: jax.Array
    step_size: jax.Array
    first: jax.Array  # the temperature of the first step
    temperature: jax.Array
    fluctuation: "Fluctuation"
    path: dict[str, jax.Array]
    step: jax.Array
    state: PyTree


class Fluctuation(NamedTuple):
    """Moving averages: the energy of each chain, its variance, and T / σ since the start."""

    mean: jax.Array
    variance: jax.Array
    pace: jax.Array


class AnnealingPhase(MovePhase):
    """One step: all chains move at the temperature of the step."""

    schedule: str = eqx.field(static=True)
    hottest: np.ndarray | None  # None: from the spread of energies
    coldest: np.ndarray
    rows: int = eqx.field(static=True)

    title: ClassVar[str] = "annealing"

    def init(self, start: Start, data: Data | None, key: jax.Array) -> AnnealingState:
        assert data is not None
        start_key, probe_key = jax.random.split(key)
        target = self.log_density(data.everything(), start.state)
        positions = self.starts(start, start_key)
        energy = -jax.vmap(target)(positions)
        if self.hottest is None:
            first = jnp.maximum(self._spread(target, probe_key), self.coldest).astype(energy.dtype)
        else:
            first = jnp.asarray(self.hottest, energy.dtype)
        weights = positions.shape[1]
        path = {
            "position": jnp.zeros((self.chains, self.rows, weights), positions.dtype),
            "energy": jnp.zeros((self.chains, self.rows), energy.dtype),
            "temperature": jnp.zeros(self.rows, energy.dtype),
            "step": jnp.full(self.rows, -1, jnp.int32),  # not there yet
        }
        zero = jnp.zeros((), energy.dtype)
        step_size = jnp.full(self.chains, 2.38 / np.sqrt(weights), positions.dtype)
        return AnnealingState(
            positions, energy, positions, energy, step_size, first, first,
            Fluctuation(energy, zero, zero), path, jnp.zeros((), jnp.int32), start.state,
        )  # fmt: skip

    def _spread(self, target: LogDensity, key: jax.Array) -> jax.Array:
        """The deviation of the energy over draws of the prior, by their quartiles."""
        keys = jax.random.split(key, PROBES)
        probe = lambda k: target(self.position(self.model.sample_prior(k)))  # noqa: E731
        values = jax.lax.map(probe, keys)
        values = jnp.where(jnp.isfinite(values), values, jnp.nan)
        low, high = jnp.nanquantile(values, jnp.asarray([0.25, 0.75]))
        spread = (high - low) / 1.349  # of a Gaussian, the deviation
        return jnp.where(spread > 0, spread, 1)

    def _temperature(self, state: AnnealingState) -> jax.Array:
        if self.schedule == "adaptive":
            return state.temperature
        return temperature(self.schedule, state.step, self.plan.steps, state.first, self.coldest)

    def step(self, state: AnnealingState, batch: Batch, key: jax.Array) -> tuple[PyTree, Info]:
        target = self.log_density(batch, state.state)
        now = self._temperature(state).astype(state.first.dtype)

        def one(
            key: jax.Array, position: jax.Array, energy: jax.Array, size: jax.Array
        ) -> tuple[jax.Array, jax.Array, jax.Array]:
            flip_key, key = jax.random.split(key)
            done = Moved(position, -energy, jnp.zeros_like(energy), jnp.zeros((), bool))
            if self.flipping:
                done = metropolis_hastings(
                    flip_key, position, -energy, target, self.flip, temperature=now
                )
            if self.walks:
                done = metropolis_hastings(
                    key, done.position, done.log_density, target,
                    lambda k, w: self.layout.walk(k, w, size * self.layout.scale),
                    temperature=now,
                )  # fmt: skip
            return done.position, -done.log_density, done.rate

        keys = jax.random.split(key, self.chains)
        position, energy, rate = jax.vmap(one)(keys, state.position, state.energy, state.step_size)
        better = energy < state.best_energy
        gain = jnp.minimum(GAIN, TRACK / self.plan.steps).astype(rate.dtype)
        new = state._replace(
            position=position,
            energy=energy,
            best=jnp.where(better[:, None], position, state.best),
            best_energy=jnp.where(better, energy, state.best_energy),
            step_size=state.step_size * jnp.exp(gain * (rate - ACCEPTANCE)),
            temperature=now,
            path=self._recorded(state, position, energy, now),
            step=state.step + 1,
        )
        terms = {
            "temperature": now,
            # a start where the energy is not finite must show, even if the first step leaves it
            "energy": jnp.mean(jnp.where(jnp.isfinite(state.energy), energy, state.energy)),
            "best_energy": jnp.min(new.best_energy),
            "acceptance": jnp.mean(rate),
        }
        if self.walks:
            terms["step_size"] = jnp.mean(new.step_size)
        return self._cool(new) if self.schedule == "adaptive" else new, Info(terms)

    def _recorded(
        self, state: AnnealingState, position: jax.Array, energy: jax.Array, now: jax.Array
    ) -> dict[str, jax.Array]:
        """The path with this step, where it is one of those it has."""
        steps = jnp.maximum(self.plan.steps, 1).astype(jnp.result_type(float))
        row = jnp.floor(state.step * (self.rows / steps)).astype(jnp.int32)
        row = jnp.where(row == jnp.floor((state.step - 1) * (self.rows / steps)), self.rows, row)
        path = state.path
        return {
            "position": path["position"].at[:, row].set(position, mode="drop"),
            "energy": path["energy"].at[:, row].set(energy, mode="drop"),
            "temperature": path["temperature"].at[row].set(now, mode="drop"),
            "step": path["step"].at[row].set(state.step, mode="drop"),
        }

    def _cool(self, state: AnnealingState) -> AnnealingState:
        """The next temperature of the adaptive schedule; ``state.step`` is the next step."""
        mean, variance, pace = state.fluctuation
        apart = state.energy - mean
        variance += (jnp.mean(jnp.square(apart)) - variance) / WINDOW
        mean = mean + apart / WINDOW
        now, deviation = state.temperature, jnp.sqrt(variance)
        speed = jnp.where(deviation > 0, now / deviation, pace)
        early = state.step <= WINDOW  # no variance is known yet
        since = jnp.maximum(state.step - WINDOW, 1)
        pace = jnp.where(early, pace, pace + (speed - pace) / since)
        relative = jnp.where(early | (pace <= 0), 1, speed / jnp.where(pace > 0, pace, 1))
        share = jnp.clip(relative, *PACES) / jnp.maximum(self.plan.steps - state.step, 1)
        following = now * (self.coldest / now) ** jnp.minimum(share, 1)
        return state._replace(
            temperature=following.astype(now.dtype),
            fluctuation=Fluctuation(mean, variance, pace),
        )

    def _stuck(self, history: History) -> str | None:
        # cold chains rest, and should; hot ones must move
        hot = history["acceptance"][: (len(history["acceptance"]) + 1) // 2]
        if np.mean(hot) >= STILL:
            return None
        return (
            f"no chain moves, not even while hot (mean acceptance {np.mean(hot):.2g}): raise "
            "start_temperature, and check the scale of the noise"
        )

    def finish(self, state: AnnealingState, draws: Draw | None) -> Posterior:
        winner = int(jnp.argmin(state.best_energy))
        steps = np.asarray(state.path["step"])
        rows = np.argsort(steps)[np.sum(steps < 0) :]  # those not there yet come first
        path = {
            "parameters": jax.vmap(self.parameters)(state.path["position"][winner, rows]),
            "energy": state.path["energy"][winner, rows],
            "temperature": state.path["temperature"][rows],
            "step": state.path["step"][rows],
        }
        return Point(
            self.model, state.state, self.plan.targets,
            point=self.parameters(state.best[winner]), path=path if self.rows else None,
        )  # fmt: skip


def temperature(
    schedule: str, step: PyTree, steps: PyTree, start: PyTree, end: PyTree
) -> jax.Array:
    """The temperature of a step (0, 1, …) of the two schedules that are set beforehand."""
    if schedule == "geometric":
        return start * (end / start) ** (step / jnp.maximum(steps - 1, 1))
    return start * jnp.log(2.0) / jnp.log(step + 2.0)


class SimulatedAnnealing(Method):
    r"""Simulated annealing: the best point found while Metropolis chains cool down.

    Schedules, from T₀ = ``start_temperature`` to T₁ = ``end_temperature`` in S = ``steps`` steps:

    - ``"geometric"``: T_t = T₀ (T₁ / T₀)^(t / (S−1)).
    - ``"logarithmic"``: T_t = T₀ ln 2 / ln(t + 2), slow enough for a guarantee where T₀ is larger
      than the deepest trap (Geman and Geman 1984), and so slow that it takes no T₁: choose T₀ low.
    - ``"adaptive"``: T_{t+1} = T_t (T₁ / T_t)^(r / (S−t)), geometric but for the pace r: T / σ_E
      relative to its mean so far, σ_E² the variance of the chains' energy over the last steps.
      It cools slowly where the energy fluctuates much: near a transition, where chains must
      decide between modes.

    The posterior is a point: the best one over all chains and steps. It is not polished; a gradient
    method started from it (``px.fit(…, px.MaximumAPosteriori(), init=annealed)``) finds the last
    digits, and ``px.NUTS`` or any other can start from it as well. ``history`` has temperature
    and energies step by step, ``posterior.path`` the way of the chain that won: ``parameters``
    with a leading axis, ``energy``, ``temperature`` and ``step``, each with ``path`` entries.
    Weights with a ``px.priors.Grid`` move by flips.

    Args:
        chains: chains that run side by side, all at the same temperature.
        schedule: ``"geometric"``, ``"logarithmic"`` or ``"adaptive"``.
        start_temperature: T₀ (default: the deviation of the energy over draws of the prior, so
            that at first almost everything is accepted).
        end_temperature: T₁ (default: 0.02 / number of weights, at which a chain in a quadratic
            mode is 0.01 nat above it).
        path: how many states of the way to keep, evenly spread over the steps.
        flips: discrete weights that change at a time.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(-1, 1, 8).astype("float32")[:, None]
        >>> network = px.networks.MLP(1, 1, (2,), key=0)
        >>> model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(noise=0.5))
        >>> annealed = px.fit(model, (x, x), px.SimulatedAnnealing(), steps=200, key=0)
        >>> bool(annealed.history["temperature"][-1] < annealed.history["temperature"][0])
        True
        >>> annealed.path["energy"].shape
        (100,)

    Reference:
        Kirkpatrick, Gelatt and Vecchi, *Optimization by simulated annealing*, Science 1983;
        Geman and Geman, *Stochastic relaxation*, PAMI 1984; for the adaptive pace Salamon et
        al., *Simulated annealing with constant thermodynamic speed*, Comput. Phys. Commun. 1988.
    """

    chains: Copies = 8
    schedule: Literal["geometric", "logarithmic", "adaptive"] = "geometric"
    start_temperature: Positive | None = None
    end_temperature: Positive | None = None
    path: Whole = 100
    flips: Whole = 1

    needs = Needs("steps", steps=10_000, all_data=True, discrete=True)

    def __check_init__(self) -> None:
        check_settings(self)
        start, end = self.start_temperature, self.end_temperature
        if end is not None and self.schedule == "logarithmic":
            raise ValueError(
                "end_temperature: the logarithmic schedule has none; leave it out, or take "
                "schedule='geometric'"
            )
        if start is not None and end is not None and start < end:
            raise ValueError(f"start_temperature={start} must not be below end_temperature={end}")

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        start = None if self.start_temperature is None else np.asarray(self.start_temperature)
        end = self.end_temperature or 0.02 / tree_size(model.parameters)
        if start is not None:
            end = min(end, float(start))
        return [
            AnnealingPhase(
                model, plan, self.chains, layout(model, self.flips), int(self.flips),
                self.schedule, start, np.asarray(end), self.path,
            )
        ]  # fmt: skip

r"""Hamiltonian Monte Carlo (Duane et al. 1987; Neal 2011), and NUTS (Hoffman and Gelman 2014).

A momentum is drawn and the pair moves along H(w, r) = −log π(w) + ½ rᵀ M⁻¹ r by leapfrog steps;
what the integrator gets wrong in H is made good by accepting with probability min(1, e^−ΔH).

Two phases: warm-up, in which step size (dual averaging) and metric M (Stan's expanding windows)
adapt step by step, and sampling with both fixed. blackjax has the kernels.
"""

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..._util.memory import refuse_beyond_memory
from ..._util.tree import tree_size
from ...data import Batch, Data
from ...model import Model
from ..base import Info, Phase, Plan, Start, with_arrays
from ..settings import Copies, Count, Fraction, Whole
from .adaptation import WindowPhase, Windows, tuned_step_size, window_schedule
from .base import ChainMethod, ChainPhase, DrawingPhase, trajectory_length


class ChainState(NamedTuple):
    """All chains: positions with their densities, adaptation, the network's state."""

    hmc: PyTree
    step_size: jax.Array
    inverse_mass: jax.Array
    adaptation: PyTree
    step: jax.Array
    state: PyTree


class _Hamiltonian(ChainPhase):
    """What warm-up and sampling share: the transition, by either kernel."""

    dense: bool = eqx.field(static=True)
    max_doublings: int | None = eqx.field(static=True)  # None: trajectories of a set length
    leapfrog_steps: PyTree  # None: as many as NUTS finds

    def _transition(self, state: ChainState, batch: Batch, key: jax.Array) -> PyTree:
        import blackjax

        log_density = self.log_density(batch, state.state)
        length_key, key = jax.random.split(key)
        if self.max_doublings is None:
            kernel = blackjax.hmc.build_kernel()
            length: PyTree = trajectory_length(length_key, self.leapfrog_steps)
        else:
            kernel, length = blackjax.nuts.build_kernel(), self.max_doublings

        keys = jax.random.split(key, self.chains)
        return jax.vmap(lambda key, hmc, *tuned: kernel(key, hmc, log_density, *tuned, length))(
            keys, state.hmc, state.step_size, state.inverse_mass
        )

    def _terms(self, state: ChainState, info: PyTree) -> dict[str, jax.Array]:
        return {
            # finite from the second state on, so it shows a start where the density is not
            "log_density": jnp.mean(state.hmc.logdensity),
            "acceptance": jnp.mean(info.acceptance_rate),
            "step_size": jnp.mean(state.step_size),
            "divergences": jnp.sum(info.is_divergent).astype(jnp.result_type(float)),
        }

    def _positions(self, state: ChainState) -> jax.Array:
        return state.hmc.position


class WarmUp(_Hamiltonian, WindowPhase):
    """Step size and metric adapt; no state is a draw."""

    def _windows(self) -> Windows:
        return Windows(self.target, self.dense)

    def init(self, start: Start, data: Data | None, key: jax.Array) -> ChainState:
        import blackjax

        assert data is not None
        log_density = self.log_density(data.everything(), start.state)

        def one(position: jax.Array) -> PyTree:
            hmc = blackjax.nuts.init(position, log_density)
            step = jnp.asarray(0.1, position.dtype)
            adaptation = self._windows().begin(position.size, step)
            return hmc, step, adaptation[0].inverse_mass_matrix, adaptation

        hmc, step_size, inverse, adaptation = jax.vmap(one)(self.starts(start, key))
        zero = jnp.zeros((), jnp.int32)
        return ChainState(hmc, step_size, inverse, adaptation, zero, start.state)

    def step(self, state: ChainState, batch: Batch, key: jax.Array) -> tuple[ChainState, Info]:
        hmc, info = self._transition(state, batch, key)
        slow, ends = self.schedule[state.step] == 1

        step_size, inverse, adaptation = jax.vmap(
            lambda tuning, position, rate, inverse: self._windows().update(
                tuning, position, rate, (slow, ends), inverse
            )
        )(state.adaptation, hmc.position, info.acceptance_rate, state.inverse_mass)
        new = ChainState(hmc, step_size, inverse, adaptation, state.step + 1, state.state)
        return new, Info(self._terms(new, info))


class Sampling(_Hamiltonian, DrawingPhase):
    """Step size and metric are fixed; every state is a draw."""

    def init(self, start: Start, data: Data | None, key: jax.Array) -> ChainState:
        warm: ChainState = start.tuned
        return warm._replace(step_size=tuned_step_size(warm.adaptation))

    def step(self, state: ChainState, batch: Batch, key: jax.Array) -> tuple[ChainState, Info]:
        hmc, info = self._transition(state, batch, key)
        new = state._replace(hmc=hmc, step=state.step + 1)
        stats = {
            "diverging": info.is_divergent,
            "energy": self._energy(state, hmc, info),
            "acceptance_rate": info.acceptance_rate,
            "lp": hmc.logdensity,
            "n_steps": info.num_integration_steps,
        }
        if self.max_doublings is not None:
            expansions = info.num_trajectory_expansions
            stats["reached_max_treedepth"] = expansions >= self.max_doublings
        return new, Info(self._terms(new, info), self.draw(hmc.position, stats))

    def _energy(self, state: ChainState, hmc: PyTree, info: PyTree) -> jax.Array:
        """H of the states that remain: HMC's kernel gives that of a rejected end as well."""
        if self.max_doublings is not None:
            return info.energy
        r, inverse = info.momentum, state.inverse_mass
        velocity = jnp.einsum("cij,cj->ci", inverse, r) if self.dense else inverse * r
        stayed = 0.5 * jnp.sum(r * velocity, axis=1) - hmc.logdensity
        return jnp.where(info.is_accepted, info.energy, stayed)


class HMC(ChainMethod):
    r"""Hamiltonian Monte Carlo with trajectories of a set length, exact in the limit, full batch.

    A trajectory has between half and one and a half times ``leapfrog_steps`` steps, another
    number each time. Choose NUTS where you do not know how long it should be.

    Args:
        chains: chains that run side by side.
        warmup: steps of adaptation, not retained.
        leapfrog_steps: mean number of leapfrog steps, that is gradients, for a draw.
        target_acceptance: what the step size is tuned to.
        metric: ``"diagonal"`` or ``"dense"`` (for few weights: it has their number squared).

    Example:
        >>> import posterax as px
        >>> px.HMC(leapfrog_steps=32).leapfrog_steps
        32

    Reference:
        Neal, *MCMC using Hamiltonian dynamics*, Handbook of Markov Chain Monte Carlo, 2011.
    """

    chains: Copies = 4
    warmup: Whole = 500
    leapfrog_steps: Count = 32
    target_acceptance: Fraction = 0.8
    metric: Literal["diagonal", "dense"] = "diagonal"

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        return _phases(self, model, plan, None, with_arrays(self, model).leapfrog_steps)


class NUTS(ChainMethod):
    """The No-U-Turn sampler, exact in the limit, full batch.

    Hamiltonian Monte Carlo whose trajectories double until they turn back. ``steps`` draws are
    retained per chain after ``warmup``.

    Args:
        chains: chains that run side by side.
        warmup: steps of adaptation, not retained.
        target_acceptance: what the step size is tuned to.
        max_doublings: the trajectory has at most 2^max_doublings steps.
        metric: ``"diagonal"`` or ``"dense"`` (for few weights: it has their number squared).

    Example:
        >>> import posterax as px
        >>> px.NUTS(chains=2, warmup=200).chains
        2

    Reference:
        Hoffman and Gelman, *The No-U-Turn sampler*, JMLR 2014; with multinomial sampling along
        the trajectory (Betancourt 2017).
    """

    chains: Copies = 4
    warmup: Whole = 500
    target_acceptance: Fraction = 0.8
    max_doublings: Whole = 8
    metric: Literal["diagonal", "dense"] = "diagonal"

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        return _phases(self, model, plan, self.max_doublings, None)


def _phases(
    method: HMC | NUTS, model: Model, plan: Plan, doublings: int | None, leaps: PyTree
) -> list[Phase]:
    dense = method.metric == "dense"
    if dense:
        weights = tree_size(model.parameters)
        size = 4 * method.chains * weights**2 * jnp.zeros(()).dtype.itemsize
        refuse_beyond_memory(f"metric='dense' for {weights:,} weights", size)
    chains, kernel = (model, plan, method.chains), (dense, doublings, leaps)
    schedule = jnp.asarray(window_schedule(method.warmup))
    target = jnp.asarray(with_arrays(method, model).target_acceptance)
    return [WarmUp(*chains, schedule, target, *kernel), Sampling(*chains, *kernel)]

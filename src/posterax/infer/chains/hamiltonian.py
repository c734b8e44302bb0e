r"""Hamiltonian Monte Carlo (Duane et al. 1987; Neal 2011), and NUTS (Hoffman and Gelman 2014).

A momentum is drawn and the pair moves along H(w, r) = −log π(w) + ½ rᵀ M⁻¹ r by leapfrog steps;
what the integrator gets wrong in H is made good by accepting with probability min(1, e^−ΔH).

Two phases: warm-up, in which step size (dual averaging) and metric M (Stan's expanding windows)
adapt step by step, and sampling with both fixed. blackjax has the kernels.
"""

import warnings
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.checks import fraction, one_of
from ..._util.memory import refuse_beyond_memory
from ..._util.tree import tree_size
from ...data import Batch, Data
from ...model import Model
from ...posteriors import Posterior
from ..base import Count, Draw, Info, Phase, Plan, Start, with_arrays
from .adaptation import Windows, window_schedule
from .base import ChainMethod, ChainPhase, DrawingPhase, WarmUpPhase, check_chains


class ChainState(NamedTuple):
    """All chains: positions with their densities, adaptation, the network's state."""

    hmc: Any
    step_size: jax.Array
    inverse_mass: jax.Array
    adaptation: Any
    step: jax.Array
    state: Any


class _Hamiltonian(ChainPhase):
    """What warm-up and sampling share: the transition, by either kernel."""

    dense: bool = eqx.field(static=True)
    max_doublings: int | None = eqx.field(static=True)  # None: trajectories of a set length
    leapfrog_steps: Any  # None: as many as NUTS finds

    def _transition(self, state: ChainState, batch: Batch, key: jax.Array) -> Any:
        import blackjax

        log_density = self.log_density(batch, state.state)
        length_key, key = jax.random.split(key)
        if self.max_doublings is None:
            kernel = blackjax.hmc.build_kernel()
            # of another length every time, or a period of the dynamics could trap a chain; of
            # the same one for all chains, which then wait for none among them
            least, most = self.leapfrog_steps // 2 + 1, 3 * self.leapfrog_steps // 2 + 1
            length: Any = jax.random.randint(length_key, (), least, jnp.maximum(most, least + 1))
        else:
            kernel, length = blackjax.nuts.build_kernel(), self.max_doublings

        def one(key: jax.Array, hmc: Any, step_size: jax.Array, inverse_mass: jax.Array) -> Any:
            return kernel(key, hmc, log_density, step_size, inverse_mass, length)

        keys = jax.random.split(key, self.chains)
        return jax.vmap(one)(keys, state.hmc, state.step_size, state.inverse_mass)

    def _terms(self, state: ChainState, info: Any) -> dict[str, jax.Array]:
        return {
            # finite from the second state on, so it shows a start where the density is not
            "log_density": jnp.mean(state.hmc.logdensity),
            "acceptance": jnp.mean(info.acceptance_rate),
            "step_size": jnp.mean(state.step_size),
            "divergences": jnp.sum(info.is_divergent).astype(jnp.result_type(float)),
        }

    def _positions(self, state: ChainState) -> jax.Array:
        return state.hmc.position


class WarmUp(_Hamiltonian, WarmUpPhase):
    """Step size and metric adapt; no state is a draw."""

    schedule: Any  # (steps, 2): slow window or not, end of a window or not
    target: Any

    title: ClassVar[str] = "warming up"

    def length(self) -> int:
        return len(self.schedule)

    def _windows(self) -> Windows:
        return Windows(self.target, self.dense)

    def init(self, start: Start, data: Data | None, key: jax.Array) -> ChainState:
        import blackjax

        assert data is not None
        log_density = self.log_density(data.everything(), start.state)

        def one(position: jax.Array) -> Any:
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

        def adapt(adaptation: Any, position: jax.Array, rate: jax.Array, inverse: Any) -> Any:
            return self._windows().update(adaptation, position, rate, (slow, ends), inverse)

        step_size, inverse, adaptation = jax.vmap(adapt)(
            state.adaptation, hmc.position, info.acceptance_rate, state.inverse_mass
        )
        new = ChainState(hmc, step_size, inverse, adaptation, state.step + 1, state.state)
        return new, Info(self._terms(new, info))


class Sampling(_Hamiltonian, DrawingPhase):
    """Step size and metric are fixed; every state is a draw."""

    title: ClassVar[str] = "sampling"

    def init(self, start: Start, data: Data | None, key: jax.Array) -> ChainState:
        warm: ChainState = start.tuned
        return warm._replace(step_size=jnp.exp(warm.adaptation[1].log_step_size_avg))

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
            deepest = info.num_trajectory_expansions >= self.max_doublings
            stats["reached_max_treedepth"] = deepest
        return new, Info(self._terms(new, info), self.draw(hmc.position, stats))

    def _energy(self, state: ChainState, hmc: Any, info: Any) -> jax.Array:
        """H of the states that are kept: HMC's kernel gives that of a rejected end as well."""
        if self.max_doublings is not None:
            return info.energy
        r, inverse = info.momentum, state.inverse_mass
        velocity = jnp.einsum("cij,cj->ci", inverse, r) if self.dense else inverse * r
        stayed = 0.5 * jnp.sum(r * velocity, axis=1) - hmc.logdensity
        return jnp.where(info.is_accepted, info.energy, stayed)

    def finish(self, state: ChainState, draws: Draw | None) -> Posterior:
        assert draws is not None
        explain_divergences(np.asarray(draws.stats["diverging"]))
        return self.as_draws(state.state, draws)


def explain_divergences(
    diverging: np.ndarray, advice: str = "Raise target_acceptance (0.95, then 0.99)"
) -> None:
    """Warn where trajectories diverged: what it means, and what to change."""
    count, share = int(diverging.sum()), float(diverging.mean())
    if count == 0:
        return
    where = ", ".join(f"{int(c)}" for c in diverging.sum(1))
    warnings.warn(
        f"{count} of {diverging.size} transitions ({share:.1%}; by chain: {where}) diverged: the "
        "integrator lost the energy where the density curves too strongly for its step, and "
        f"chains avoid such places, so the posterior is biased there. {advice}, take a longer "
        "warmup, or use a prior or noise less close to zero",
        UserWarning,
        stacklevel=2,
    )


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

    chains: int = 4
    warmup: int = 500
    leapfrog_steps: Count = 32
    target_acceptance: float = 0.8
    metric: Literal["diagonal", "dense"] = "diagonal"

    def __check_init__(self) -> None:
        check_chains(self, "warmup", "leapfrog_steps")
        fraction("target_acceptance", self.target_acceptance)
        one_of("metric", self.metric, ("diagonal", "dense"))

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        leaps = with_arrays(self, model).leapfrog_steps
        return _phases(self, model, plan, None, leaps)


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

    chains: int = 4
    warmup: int = 500
    target_acceptance: float = 0.8
    max_doublings: int = 8
    metric: Literal["diagonal", "dense"] = "diagonal"

    def __check_init__(self) -> None:
        check_chains(self, "warmup", "max_doublings")
        fraction("target_acceptance", self.target_acceptance)
        one_of("metric", self.metric, ("diagonal", "dense"))

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        return _phases(self, model, plan, self.max_doublings, None)


def _phases(
    method: "HMC | NUTS", model: Model, plan: Plan, max_doublings: int | None, leaps: Any
) -> list[Phase]:
    dense = method.metric == "dense"
    if dense:
        weights = tree_size(model.parameters)
        size = 4 * method.chains * weights**2 * jnp.zeros(()).dtype.itemsize
        refuse_beyond_memory(f"metric='dense' for {weights:,} weights", size)
    common = (model, plan, method.chains, dense, max_doublings, leaps)
    target = with_arrays(method, model).target_acceptance
    return [WarmUp(*common, jnp.asarray(window_schedule(method.warmup)), target), Sampling(*common)]

r"""Hamiltonian Monte Carlo without U-turns (NUTS; Hoffman and Gelman 2014), by blackjax.

Two phases: warm-up, in which step size (dual averaging) and diagonal metric (Stan's expanding
windows) adapt step by step, and sampling with both fixed. Chains run side by side under ``vmap``.
"""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from .._checks import whole
from ..data import Batch, Data
from ..model import Model, Parameters
from ..posteriors import Draws, Posterior
from .base import Draw, Info, Method, Phase, Plan


class ChainState(NamedTuple):
    """All chains: positions with their densities, adaptation, the network's state."""

    hmc: Any
    step_size: jax.Array
    inverse_mass: jax.Array
    adaptation: Any
    step: jax.Array
    state: Any


class _Nuts(Phase):
    """What warm-up and sampling share."""

    chains: int = eqx.field(static=True)
    max_doublings: int = eqx.field(static=True)

    full_batch: ClassVar[bool] = True

    def _log_density(self, batch: Batch, state: Any) -> Any:
        def log_density(position: jax.Array) -> jax.Array:
            params = self._parameters(position)
            likelihood = self.model.log_likelihood(
                params, batch.x, batch.y, batch.weight, state=state
            )
            return (self.model.log_prior(params) + likelihood).astype(position.dtype)

        return log_density

    def _position(self, params: Parameters) -> jax.Array:
        # blackjax keeps its own state in JAX's default precision, whatever the weights'
        return ravel_pytree(params)[0].astype(jnp.result_type(float))

    def _parameters(self, position: jax.Array) -> Parameters:
        flat, unravel = ravel_pytree(self.model.parameters)
        return unravel(position.astype(flat.dtype))

    def _transition(self, state: ChainState, batch: Batch, key: jax.Array) -> Any:
        import blackjax

        kernel = blackjax.nuts.build_kernel()
        log_density = self._log_density(batch, state.state)

        def one(key: jax.Array, hmc: Any, step_size: jax.Array, inverse_mass: jax.Array) -> Any:
            return kernel(key, hmc, log_density, step_size, inverse_mass, self.max_doublings)

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

    def blame(self, state: ChainState, term: str) -> str:
        unravel = ravel_pytree(self.model.parameters)[1]
        prior = jax.vmap(lambda position: self.model.log_prior(unravel(position)))(
            state.hmc.position
        )
        part = "likelihood" if bool(jnp.all(jnp.isfinite(prior))) else "prior"
        return (
            f"{part}: the log density is not finite where a chain starts; check the scale of the "
            "data, or give init="
        )


class WarmUp(_Nuts):
    """Step size and metric adapt; nothing is kept."""

    schedule: Any  # (steps, 2): slow window or not, end of a window or not
    target: Any

    title: ClassVar[str] = "warming up"

    def length(self) -> int:
        return len(self.schedule)

    def _parts(self) -> Any:
        from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
        from blackjax.adaptation.step_size import dual_averaging_adaptation

        return mass_matrix_adaptation(True), dual_averaging_adaptation(self.target)

    def init(self, previous: Any, data: Data | None, key: jax.Array) -> ChainState:
        import blackjax

        assert data is not None
        log_density = self._log_density(data.everything(), previous.state)
        metric, dual = self._parts()

        def one(key: jax.Array) -> Any:
            params = previous.parameters if previous.given else self.model.init(key)
            position = self._position(params)
            jitter = 0.01 * jax.random.normal(key, position.shape, position.dtype)
            hmc = blackjax.nuts.init(position + jitter, log_density)
            step = jnp.asarray(0.1, position.dtype)
            imm = metric[0](position.size)
            return hmc, step, imm.inverse_mass_matrix, (imm, dual[0](step))

        hmc, step_size, inverse, adaptation = jax.vmap(one)(jax.random.split(key, self.chains))
        zero = jnp.zeros((), jnp.int32)
        return ChainState(hmc, step_size, inverse, adaptation, zero, previous.state)

    def step(self, state: ChainState, batch: Batch, key: jax.Array) -> tuple[ChainState, Info]:
        hmc, info = self._transition(state, batch, key)
        slow, ends = self.schedule[state.step] == 1
        metric, dual = self._parts()

        def adapt(position: jax.Array, rate: jax.Array, inverse: jax.Array, parts: Any) -> Any:
            imm, ss = parts
            ss = dual[1](ss, rate)
            imm = jax.lax.cond(slow, lambda: metric[1](imm, position), lambda: imm)

            def close() -> Any:
                new = metric[2](imm)
                return new, dual[0](dual[2](ss)), new.inverse_mass_matrix

            imm, ss, inverse = jax.lax.cond(ends, close, lambda: (imm, ss, inverse))
            return jnp.exp(ss.log_step_size), inverse, (imm, ss)

        step_size, inverse, adaptation = jax.vmap(adapt)(
            hmc.position, info.acceptance_rate, state.inverse_mass, state.adaptation
        )
        new = ChainState(hmc, step_size, inverse, adaptation, state.step + 1, state.state)
        return new, Info(self._terms(new, info))


class Sampling(_Nuts):
    """Step size and metric are fixed; every state is a draw."""

    title: ClassVar[str] = "sampling"
    keeps_draws: ClassVar[bool] = True

    def init(self, previous: ChainState, data: Data | None, key: jax.Array) -> ChainState:
        step_size = jnp.exp(previous.adaptation[1].log_step_size_avg)
        return previous._replace(step_size=step_size)

    def step(self, state: ChainState, batch: Batch, key: jax.Array) -> tuple[ChainState, Info]:
        hmc, info = self._transition(state, batch, key)
        new = state._replace(hmc=hmc, step=state.step + 1)
        params = jax.vmap(self._parameters)(hmc.position)
        stats = {
            "diverging": info.is_divergent,
            "energy": info.energy,
            "acceptance_rate": info.acceptance_rate,
            "lp": hmc.logdensity,
            "n_steps": info.num_integration_steps,
        }
        return new, Info(self._terms(new, info), Draw(params, stats))

    def finish(self, state: ChainState, draws: Draw | None) -> Posterior:
        assert draws is not None
        return Draws(
            self.model, state.state, self.plan.targets, draws=draws.parameters, stats=draws.stats
        )


class NUTS(Method):
    """The No-U-Turn sampler, exact in the limit, full batch.

    ``steps`` draws are retained per chain after ``warmup``.

    Args:
        chains: chains that run side by side.
        warmup: steps of adaptation, not retained.
        target_acceptance: what the step size is tuned to.
        max_doublings: the trajectory has at most 2^max_doublings steps.

    Example:
        >>> import posterax as px
        >>> px.NUTS(chains=2, warmup=200).chains
        2
    """

    chains: int = 4
    warmup: int = 500
    target_acceptance: float = 0.8
    max_doublings: int = 8

    counts: ClassVar[Any] = "steps"
    full_batch: ClassVar[bool] = True
    takes_points: ClassVar[bool] = False

    def __check_init__(self) -> None:
        for name in ("chains", "warmup", "max_doublings"):
            whole(name, getattr(self, name))
        if not 0 < self.target_acceptance < 1:
            raise ValueError(
                f"target_acceptance must lie between 0 and 1, got {self.target_acceptance}"
            )

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        from blackjax.adaptation.staged_adaptation import build_schedule

        schedule = np.asarray(build_schedule(self.warmup), np.int32).reshape(-1, 2)
        target = np.asarray(self.target_acceptance)
        common = (model, plan, self.chains, self.max_doublings)
        return [WarmUp(*common, jnp.asarray(schedule), target), Sampling(*common)]

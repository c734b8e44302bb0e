r"""Importance sampling: candidates from the prior, weighted by their likelihood.

E[F(w) | D] ≈ Σ wᵢ F(cᵢ) / Σ wᵢ,  cᵢ ~ p(w),  wᵢ = p(D | cᵢ)
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from .._checks import whole
from ..data import Batch, Data
from ..model import Model
from ..posteriors import Draws, Posterior
from .base import Draw, Info, Method, Phase, Plan


class CandidatePhase(Phase):
    """Each step draws one candidate per chain from the prior and weighs it."""

    chains: int = eqx.field(static=True)

    title: ClassVar[str] = "weighing candidates"
    full_batch: ClassVar[bool] = True
    keeps_draws: ClassVar[bool] = True

    def init(self, previous: Any, data: Data | None, key: jax.Array) -> Any:
        # the state is the network's own and the largest log weight so far
        return previous.state, jnp.asarray(-jnp.inf)

    def step(self, state: Any, batch: Batch, key: jax.Array) -> tuple[Any, Info]:
        network_state, best = state

        def one(key: jax.Array) -> Any:
            params = self.model.sample_prior(key)
            log_weight = self.model.log_likelihood(
                params, batch.x, batch.y, batch.weight, state=network_state
            )
            # a candidate that overflows the network explains nothing
            return params, jnp.where(jnp.isnan(log_weight), -jnp.inf, log_weight)

        params, log_weight = jax.vmap(one)(jax.random.split(key, self.chains))
        best = jnp.maximum(best, jnp.max(log_weight))
        shown = jnp.maximum(best, jnp.finfo(best.dtype).min)
        info = Info({"best_log_likelihood": shown}, Draw(params, {"log_weight": log_weight}))
        return (network_state, best), info

    def finish(self, state: Any, draws: Draw | None) -> Posterior:
        assert draws is not None
        if not bool(jnp.any(jnp.isfinite(draws.stats["log_weight"]))):
            raise FloatingPointError(
                "no candidate explains the data: the likelihood is 0 or not finite at every one; "
                "check the scale of the data, or use px.NUTS or px.BayesByBackprop"
            )
        return Draws(
            self.model, state[0], self.plan.targets,
            draws=draws.parameters, log_weights=draws.stats["log_weight"], stats=draws.stats,
        )  # fmt: skip


class ImportanceSampling(Method):
    """Self-normalised importance sampling with the prior as proposal.

    ``steps`` candidates are drawn in each of ``chains`` parallel streams. Only for few weights:
    candidates blindly drawn rarely meet the posterior of a network.

    Args:
        chains: candidates weighed side by side in each step.

    Example:
        >>> import posterax as px
        >>> px.ImportanceSampling(chains=128)
        ImportanceSampling(chains=128)
    """

    chains: int = 64

    counts: ClassVar[Any] = "steps"
    full_batch: ClassVar[bool] = True
    takes_points: ClassVar[bool] = False
    takes_start: ClassVar[bool] = False

    def __check_init__(self) -> None:
        whole("chains", self.chains)

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        return [CandidatePhase(model, plan, self.chains)]

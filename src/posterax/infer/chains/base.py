r"""What methods with Markov chains share: the target, where chains start, and when to complain.

All chains of a fit run side by side under ``vmap``, and ``fit`` lays them over the devices.
A chain's position is one flat vector; the target is the log joint density,

    log π(w) = log p(w) + M · Σ_batch weightₙ log p(yₙ | xₙ, w)

with M = 1 where a step sees all data and the number of minibatches where it sees one of them.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from ..._util.checks import whole_number
from ...data import Batch
from ...model import Parameters
from ...posteriors import Draws, Posterior
from ..base import Draw, History, Method, Needs, Phase, Start

JITTER = 0.01  # between chains that would start at the very same point
ENOUGH = 100  # steps of a phase before it is judged
STILL = 1e-4  # a mean acceptance rate below which chains do not move


class ChainPhase(Phase):
    """Chains side by side; subclasses add the kernel. States have a leading axis of chains."""

    chains: int = eqx.field(static=True)

    axis: ClassVar[str] = "chains"

    # -- the target

    def log_density(self, batch: Batch, state: Any) -> Callable[[jax.Array], jax.Array]:
        """log π of a flat position, given a batch and the network's state."""

        def log_density(position: jax.Array) -> jax.Array:
            params = self.parameters(position)
            likelihood = self.model.log_likelihood(
                params, batch.x, batch.y, batch.weight, state=state
            )
            log_joint = self.model.log_prior(params) + self.plan.batches * likelihood
            return log_joint.astype(position.dtype)

        return log_density

    def position(self, params: Parameters) -> jax.Array:
        """Parameters as one vector, in JAX's default precision, which blackjax keeps its own in."""
        return ravel_pytree(params)[0].astype(jnp.result_type(float))

    def parameters(self, position: jax.Array) -> Parameters:
        """The inverse of ``position``."""
        flat, unravel = ravel_pytree(self.model.parameters)
        return unravel(position.astype(flat.dtype))

    # -- where chains start

    def starts(self, start: Start, key: jax.Array) -> jax.Array:
        """A position for every chain, (chains, weights).

        From an earlier posterior each chain gets a draw of its own (an ensemble's members in
        turn), and without any a fresh initialisation of the network.
        """
        draw_key, jitter_key = jax.random.split(key)
        positions = self._candidates(start, draw_key)
        turns = jnp.arange(self.chains) % len(positions)
        noise = jax.random.normal(jitter_key, (self.chains, positions.shape[1]), positions.dtype)
        return positions[turns] + (JITTER * noise if len(positions) < self.chains else 0)

    def _candidates(self, start: Start, key: jax.Array) -> jax.Array:
        posterior = start.posterior
        if posterior is not None:
            ids = posterior.particles(key, self.chains).ids
            return jax.vmap(lambda i: self.position(posterior.parameters(i)))(ids)
        if start.given:
            return self.position(start.parameters)[None]
        keys = jax.random.split(key, self.chains)
        return jax.vmap(lambda k: self.position(self.model.init(k)))(keys)

    def hand_over(self, state: Any) -> Start:
        """All chains, and everything that was tuned for them."""
        parameters = jax.vmap(self.parameters)(self._positions(state))
        return Start(parameters, state.state, None, given=True, tuned=state)

    # -- what becomes of them

    def draw(self, position: jax.Array, stats: dict[str, jax.Array]) -> Draw:
        """A retained state of all chains."""
        return Draw(jax.vmap(self.parameters)(position), stats)

    def as_draws(self, state: Any, draws: Draw | None, **more: Any) -> Posterior:
        """The posterior of the draws; ``state`` is the network's."""
        assert draws is not None
        return Draws(
            self.model, state, self.plan.targets,
            draws=draws.parameters, stats=draws.stats, chained=True, **more,
        )  # fmt: skip

    def explain(self, state: Any, history: History, term: str | None = None) -> str | None:
        if term is None:
            return self._stuck(history)
        positions = self._positions(state)
        prior = jax.vmap(lambda p: self.model.log_prior(self.parameters(p)))(positions)
        part = "likelihood" if bool(jnp.all(jnp.isfinite(prior))) else "prior"
        return (
            f"{part}: the log density is not finite where a chain is; check the scale of the data, "
            "start elsewhere with init=, or make steps smaller"
        )

    def _positions(self, state: Any) -> jax.Array:
        """The chains' positions within the phase's state."""
        raise NotImplementedError

    def _stuck(self, history: History) -> str | None:
        """Why chains that ran to their end are of no use."""
        if len(next(iter(history.values()))) < ENOUGH:
            return None
        half = {name: values[len(values) // 2 :] for name, values in history.items()}
        if "divergences" in half and np.all(half["divergences"] >= self.chains):
            return (
                "every transition of every chain diverged: the density is too steep for the step "
                "size. Raise target_acceptance and warmup, start from "
                "init=px.fit(…, px.MaximumAPosteriori()), and check the scale of the data"
            )
        if "acceptance" in half and np.mean(half["acceptance"]) < STILL:
            return (
                "no chain moves: almost every proposal is rejected (mean acceptance "
                f"{np.mean(half['acceptance']):.2g}). Take a longer warmup or smaller steps, "
                "start near the data's mode with init=px.fit(…, px.MaximumAPosteriori()), and "
                "check the scale of the data and of the noise"
            )
        return None


class WarmUpPhase(ChainPhase):
    """Chains that adapt; nothing of it is a posterior, and no fit lengthens it."""

    finishes: ClassVar[Any] = "at the end"
    lengthens: ClassVar[bool] = False


class DrawingPhase(ChainPhase):
    """Chains of which every state is a draw."""

    finishes: ClassVar[Any] = "at the end"

    def retained(self, steps: Any, thin: int) -> Any:
        return steps // thin


NO_POINTS = (
    "samples, and cannot train weights that have no prior: give the model rest='frozen', trained "
    "before if need be"
)


class ChainMethod(Method):
    """Methods whose ``steps`` are draws retained per chain."""

    @property
    def needs(self) -> Needs:
        return Needs("steps", all_data=True, no_points=NO_POINTS)


def check_chains(method: Any, *names: str) -> None:
    """Refuse counts that are no positive whole numbers."""
    for name in ("chains", *names):
        whole_number(name, getattr(method, name))

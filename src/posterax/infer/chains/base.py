r"""What methods with Markov chains share: the target, where chains start, and when to complain.

All chains of a fit run side by side under ``vmap``, and ``fit`` lays them over the devices.
A chain's position is one flat vector; the target is the log joint density,

    log π(w) = log p(w) + M · Σ_batch weightₙ log p(yₙ | xₙ, w)

with M = 1 where a step sees all data and the number of minibatches where it sees one of them.
"""

import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from ...data import Batch, without_fold
from ...model import Parameters
from ...posteriors import Draws, Posterior
from ..base import Draw, History, Method, Needs, Phase, Start
from ..objective import log_likelihood

LogDensity = Callable[[jax.Array], jax.Array]  # of a flat position

JITTER = 0.01  # between chains that would start at the very same point
ENOUGH = 100  # steps of a phase before it is judged
STILL = 1e-4  # a mean acceptance rate below which chains do not move


class ChainPhase(Phase):
    """Chains side by side; subclasses add the kernel. States have a leading axis of chains."""

    chains: int = eqx.field(static=True)

    axis: ClassVar[str] = "chains"
    # what diverges, and what to change where all do
    divergence: ClassVar[tuple[str, str]] = ("transition", "Raise target_acceptance and warmup")

    # -- the target

    @property
    def folds(self) -> int:
        """Of how many folds of the rows each chain leaves out one; 0 for none."""
        return getattr(getattr(self, "method", None), "folds", 0)

    def log_density(self, batch: Batch, state: PyTree, chain: Any = None) -> LogDensity:
        """log π of a flat position, given a batch and the network's state.

        ``chain`` is its number, for methods whose chains leave out a fold of the rows each.
        """
        if self.folds:
            batch = without_fold(batch, chain, self.folds)

        def log_density(position: jax.Array) -> jax.Array:
            params = self.parameters(position)
            likelihood = log_likelihood(self.model, params, batch, state)
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

    def hand_over(self, state: PyTree) -> Start:
        """All chains, and everything that was tuned for them."""
        parameters = jax.vmap(self.parameters)(self._positions(state))
        return Start(parameters, state.state, None, given=True, tuned=state)

    # -- what becomes of them

    def draw(self, position: jax.Array, stats: dict[str, jax.Array]) -> Draw:
        """A retained state of all chains."""
        return Draw(jax.vmap(self.parameters)(position), stats)

    def as_draws(self, state: PyTree, draws: Draw | None, **more: Any) -> Posterior:
        """The posterior of the draws; ``state`` is the network's."""
        assert draws is not None
        return Draws(
            self.model, state, self.plan.targets,
            draws=draws.parameters, stats=draws.stats, chained=True, **more,
        )  # fmt: skip

    def explain(self, state: PyTree, history: History, term: str | None = None) -> str | None:
        if term is None:
            return self._stuck(history)
        positions = self._positions(state)
        prior = jax.vmap(lambda p: self.model.log_prior(self.parameters(p)))(positions)
        part = "likelihood" if bool(jnp.all(jnp.isfinite(prior))) else "prior"
        return (
            f"{part}: the log density is not finite where a chain is; check the scale of the data, "
            "start elsewhere with init=, or make steps smaller"
        )

    def _positions(self, state: PyTree) -> jax.Array:
        """The chains' positions within the phase's state."""
        return state.position

    def _stuck(self, history: History) -> str | None:
        """Why chains that ran to their end are of no use."""
        if min(map(len, history.values()), default=0) < ENOUGH:
            return None
        half = {name: values[len(values) // 2 :] for name, values in history.items()}
        if "divergences" in half and np.all(half["divergences"] >= self.chains):
            what, remedy = self.divergence
            return (
                f"every {what} of every chain diverged: the density is too steep there, or not "
                f"finite. {remedy}, or start from init=px.fit(…, px.MaximumAPosteriori())"
            )
        if "acceptance" in half and np.mean(half["acceptance"]) < STILL:
            return (
                "no chain moves: almost every proposal is rejected (mean acceptance "
                f"{np.mean(half['acceptance']):.2g}). Take a longer warmup or smaller steps, or "
                "start from init=px.fit(…, px.MaximumAPosteriori())"
            )
        return None


class WarmUpPhase(ChainPhase):
    """Chains that adapt; nothing of it is a posterior, and no fit lengthens it."""

    title: ClassVar[str] = "warming up"
    finishes: ClassVar[Any] = "at the end"
    lengthens: ClassVar[bool] = False


class DrawingPhase(ChainPhase):
    """Chains of which every state is a draw."""

    title: ClassVar[str] = "sampling"
    finishes: ClassVar[Any] = "at the end"
    # what to change where trajectories diverge
    advice: ClassVar[str] = "Raise target_acceptance (0.95, then 0.99)"

    def retained(self, steps: PyTree, thin: int) -> PyTree:
        return steps // thin

    def finish(self, state: PyTree, draws: Draw | None) -> Posterior:
        assert draws is not None
        if "diverging" in draws.stats:
            explain_divergences(np.asarray(draws.stats["diverging"]), self.advice)
        return self.as_draws(state.state, draws)


def trajectory_length(key: jax.Array, mean: jax.Array) -> jax.Array:
    """A number of integrator steps, between half and one and a half times ``mean``.

    It is another one every time, or a period of the dynamics could trap a chain; and the same for
    all chains, which then wait for none among them.
    """
    least, most = mean // 2 + 1, 3 * mean // 2 + 1
    return jax.random.randint(key, (), least, jnp.maximum(most, least + 1))


def explain_divergences(diverging: np.ndarray, advice: str) -> None:
    """Warn where trajectories diverged: what it means, and what to change."""
    if not diverging.any():
        return
    where = ", ".join(f"{int(c)}" for c in diverging.sum(1))
    warnings.warn(
        f"{diverging.sum()} of {diverging.size} transitions ({diverging.mean():.1%}; by chain: "
        f"{where}) diverged: the integrator lost the energy where the density curves too strongly "
        "for its step, and chains avoid such places, so the posterior is biased there. "
        f"{advice}, take a longer warmup, or use a prior or noise less close to zero",
        UserWarning,
        stacklevel=2,
    )


NO_POINTS = "samples, and cannot train weights that have no prior: give the model rest='frozen'"


class ChainMethod(Method):
    """Methods whose ``steps`` are draws retained per chain."""

    needs = Needs("steps", all_data=True, no_points=NO_POINTS)

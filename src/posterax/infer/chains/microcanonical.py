r"""Microcanonical Langevin Monte Carlo (Robnik et al. 2023), unadjusted and adjusted.

The momentum has a fixed norm and only its direction u moves, with the gradient and with noise:

    dw = M^-½ u dt,   du = (1 − u uᵀ) (M^-½ ∇log π(w) dt / (d − 1) + η dW),   |u| = 1

Weights along a path are then distributed as π. Every step ε of the integrator (velocity Verlet:
one gradient) misses the energy by a little, and L is the distance after which the noise has
turned u around. Phases: a network is trained for every chain; metric, L and ε are tuned; then
the chains sample. blackjax has the kernels.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..._util.noise import noise_key
from ..._util.tree import tree_size
from ...data import Batch, Data
from ...model import Model
from ..base import Info, Phase, Plan, Start, with_arrays
from ..settings import (
    Copies,
    Count,
    CountOrZero,
    Flag,
    Folds,
    Fraction,
    Positive,
    check_folds,
    check_settings,
)
from .base import ChainMethod, ChainPhase, DrawingPhase, WarmUpPhase, trajectory_length
from .microcanonical_tuning import ChainState, Microcanonical, Training, Tuning

TRAJECTORIES = 20  # steps of tuning that make room for one of adjusting


class Trajectories(Microcanonical):
    """Trajectories of the integrator, each accepted or not."""

    divergence: ClassVar[tuple[str, str]] = ChainPhase.divergence

    def _transition(self, state: ChainState, batch: Batch, key: jax.Array) -> PyTree:
        """A trajectory of random length, accepted or not."""
        from blackjax.mcmc import adjusted_mclmc, integrators

        kernel = adjusted_mclmc.build_kernel(integrators.isokinetic_velocity_verlet)
        length_key, key = jax.random.split(key)
        steps = trajectory_length(length_key, state.between)

        def one(
            number: jax.Array, key: jax.Array, chain: PyTree, step_size: jax.Array,
            inverse: jax.Array,
        ) -> PyTree:  # fmt: skip
            log_density = self.log_density(batch, state.state, number)
            return kernel(key, chain, log_density, step_size, (steps,), inverse)

        keys = jax.random.split(key, self.chains)
        tuned = state.step_size, state.inverse_mass
        return jax.vmap(one)(jnp.arange(self.chains), keys, state.chain, *tuned)


class Adjusting(Trajectories, WarmUpPhase):
    """Step size for the acceptance rate, by dual averaging over trajectories."""

    title: ClassVar[str] = "adjusting"

    def length(self) -> int:
        return max(1, int(self.method.warmup) // TRAJECTORIES)

    def _dual(self) -> PyTree:
        from blackjax.adaptation.step_size import dual_averaging_adaptation

        return dual_averaging_adaptation(self.method.target_acceptance)

    def init(self, start: Start, data: Data | None, key: jax.Array) -> ChainState:
        from blackjax.mcmc.hmc import HMCState

        tuned: ChainState = start.tuned
        old = tuned.chain
        chain = HMCState(old.position, old.logdensity, old.logdensity_grad)
        dual = jax.vmap(self._dual()[0])(tuned.step_size)
        return tuned._replace(chain=chain, adaptation=dual, step=jnp.zeros((), jnp.int32))

    def step(self, state: ChainState, batch: Batch, key: jax.Array) -> tuple[ChainState, Info]:
        chain, info = self._transition(state, batch, key)
        dual = jax.vmap(self._dual()[1])(state.adaptation, info.acceptance_rate)
        # a trajectory keeps its length in w while its steps change in size
        step_size = jnp.exp(dual.log_step_size)
        between = self._between(state.length, jnp.exp(dual.log_step_size_avg))
        new = state._replace(
            chain=chain, step_size=step_size, between=between, adaptation=dual, step=state.step + 1
        )
        return new, Info(self._terms(new, info.is_divergent, acceptance=info.acceptance_rate))


class Sampling(Microcanonical, DrawingPhase):
    """Nothing adapts any more; every ``between`` steps of the integrator are a draw."""

    advice: ClassVar[str] = "Lower energy_error (tenfold)"

    def init(self, start: Start, data: Data | None, key: jax.Array) -> ChainState:
        tuned: ChainState = start.tuned
        return tuned._replace(adaptation=None, step=jnp.zeros((), jnp.int32))

    def step(self, state: ChainState, batch: Batch, key: jax.Array) -> tuple[ChainState, Info]:
        noise = noise_key(key)

        def more(i: jax.Array, carry: PyTree) -> PyTree:
            state, change, square, diverging = carry
            chain, error, back = self._move(state, batch, jax.random.fold_in(noise, i))
            state = state._replace(chain=chain)
            return state, change + error, square + jnp.square(error), diverging | back

        zeros = jnp.zeros_like(state.step_size)
        carry = (state, zeros, zeros, jnp.zeros(self.chains, bool))
        state, change, square, diverging = jax.lax.fori_loop(0, state.between, more, carry)
        new = state._replace(step=state.step + 1)
        stats = {
            "diverging": diverging,
            "energy_change": change,
            "lp": new.chain.logdensity,
            "n_steps": jnp.full(self.chains, new.between),
            "step_size": new.step_size,
        }
        error = square / (new.between * new.chain.position.shape[1])
        terms = self._terms(new, diverging, energy_error=error)
        return new, Info(terms, self.draw(new.chain.position, stats))


class AdjustedSampling(Trajectories, DrawingPhase):
    """Trajectories of tuned steps; every state is a draw."""

    def init(self, start: Start, data: Data | None, key: jax.Array) -> ChainState:
        tuned: ChainState = start.tuned
        step_size = jnp.exp(tuned.adaptation.log_step_size_avg)
        return tuned._replace(step_size=step_size, adaptation=None)

    def step(self, state: ChainState, batch: Batch, key: jax.Array) -> tuple[ChainState, Info]:
        chain, info = self._transition(state, batch, key)
        new = state._replace(chain=chain, step=state.step + 1)
        stats = {
            "diverging": info.is_divergent,
            "acceptance_rate": info.acceptance_rate,
            "lp": chain.logdensity,
            "n_steps": jnp.full(self.chains, info.num_integration_steps[0]),
            "step_size": new.step_size,
        }
        terms = self._terms(new, info.is_divergent, acceptance=info.acceptance_rate)
        return new, Info(terms, self.draw(chain.position, stats))


class MCLMC(ChainMethod):
    r"""Microcanonical Langevin Monte Carlo: the recommended sampler for networks, full batch.

    Chains start from networks trained for a short while, one each (``init`` skips that), tune
    themselves and sample. Without adjustment every step counts and none is rejected, which in
    many dimensions is several times as fast as Hamiltonian Monte Carlo; the price is a bias that
    falls with ``energy_error``. ``steps`` draws are retained per chain, each about L / ε
    integrator steps after the one before, so that draws are not nearly the same.

    Not for: weights that take finitely many values (``px.Metropolis``, ``px.Enumeration``); few
    weights, or where the bias matters (``adjusted=True``, ``px.NUTS``); posteriors of separate
    modes or the evidence (``px.SMC``); data too large for a pass at each step (``px.SGLD``,
    ``px.SGHMC``).

    Args:
        chains: chains that run side by side.
        warmup: integrator steps, that is gradients, in which metric, L and step size are tuned.
        ensemble_steps: steps of Adam that train each chain's start; 0 for none.
        learning_rate: of Adam, falling to zero by a cosine.
        energy_error: E[ΔE²] per weight and integrator step that the step size ε is tuned to;
            ε goes with its sixth root, and the bias with ε².
        adjusted: accept or reject whole trajectories: exact in the limit, no Langevin noise.
        target_acceptance: what an adjusted chain's step size is tuned to.
        steps_between: integrator steps of a draw, or of an adjusted trajectory on average;
            ``None``: about L / ε, as tuned.
        folds: K above 1: chain c does not see the rows whose number leaves the remainder c mod K
            when divided by K, and so predicts them as it will predict new ones.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(-1, 1, 20)[:, None].astype("float32")
        >>> network = px.networks.MLP(1, 1, (4,), key=0)
        >>> model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
        >>> method = px.MCLMC(chains=2, warmup=200, ensemble_steps=50)
        >>> posterior = px.fit(model, (x, x[:, 0] ** 2), method, steps=20, key=0)
        >>> posterior.stats["lp"].shape
        (2, 20)

    Reference:
        Robnik, De Luca, Silverstein and Seljak, *Microcanonical Hamiltonian Monte Carlo*, JMLR
        2023; Robnik and Seljak, *Fluctuation without dissipation: microcanonical Langevin Monte
        Carlo*, AABI 2024; adjusted: Robnik, Cohn-Gordon and Seljak, *Metropolis adjusted
        microcanonical Hamiltonian Monte Carlo*, 2025; from an ensemble: Sommer, Robnik, Nozadze,
        Seljak and Rügamer, *Microcanonical Langevin ensembles: advancing the sampling of
        Bayesian neural networks*, ICLR 2025. Departures: the metric and, but for chains that
        need less, the step size are common to all chains; L is √d in the metric's units rather
        than fitted to autocorrelations, and draws are thinned by it.
    """

    chains: Copies = 4
    warmup: Count = 3000
    ensemble_steps: CountOrZero = 500
    learning_rate: Positive = 1e-2
    energy_error: Positive = 5e-4
    adjusted: Flag = False
    target_acceptance: Fraction = 0.9
    steps_between: Count | None = None
    folds: Folds = 0

    def __check_init__(self) -> None:
        check_settings(self)
        check_folds(self.folds, "chains", self.chains)

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        if tree_size(model.parameters) < 2:
            raise ValueError(
                "model: MCLMC needs two weights or more, and this has one weight only; use px.NUTS"
            )
        method = with_arrays(self, model)
        common = (model, plan, self.chains, method)
        phases: list[Phase] = [Tuning(*common)]
        if self.ensemble_steps:
            training = dataclasses.replace(plan, steps=jnp.asarray(self.ensemble_steps, jnp.int32))
            phases.insert(0, Training(model, training, self.chains, method))
        if self.adjusted:
            return [*phases, Adjusting(*common), AdjustedSampling(*common)]
        return [*phases, Sampling(*common)]

r"""Adaptive tempered sequential Monte Carlo (Del Moral, Doucet and Jasra 2006).

Particles start as draws from the prior and follow

    π_λ(w) ∝ p(w) p(D | w)^λ,    λ from 0 to 1,

in steps. Each step takes the largest λ' that leaves an effective sample size of ``target_ess``,
weighs the particles by p(D | w)^(λ' − λ), resamples, and moves every particle by Hamiltonian Monte
Carlo that leaves π_λ' as it is. The mean weights multiply to the evidence,

    p(D) ≈ Π_λ (1/n) Σᵢ p(D | wᵢ)^(λ' − λ).

Groups of particles know nothing of one another: their spread is the error. blackjax has the search
for λ', resampling and the moves; step size and metric adapt to the particles.
"""

import warnings
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import PyTree

from ..._util.checks import whole_number
from ...data import Batch, Data
from ...model import Model
from ...posteriors import Evidence, Posterior
from ..base import Draw, History, Info, Method, Needs, Phase, Plan, Start, with_arrays
from ..objective import log_likelihood
from ..settings import Copies, Count, Fraction, Several, Whole, check_settings
from .base import NO_POINTS, ChainPhase, LogDensity

LENGTH = 1.5  # of a trajectory, in deviations of the particles: about a quarter of a turn


class ParticleState(NamedTuple):
    """All groups: positions (group, particle, weight) with their log likelihoods, and λ."""

    position: jax.Array
    log_likelihood: jax.Array
    temperature: jax.Array
    log_evidence: jax.Array
    step_size: jax.Array
    state: PyTree


class Tempering(ChainPhase):
    """A step is a temperature; what chains are elsewhere, groups of particles are here."""

    particles: int = eqx.field(static=True)  # in a group
    method: "SMC"

    title: ClassVar[str] = "tempering"

    def length(self) -> int:
        return int(self.method.temperatures)

    def done(self, state: ParticleState) -> jax.Array:
        return jnp.all(state.temperature >= 1)

    # -- densities

    def _parts(self, batch: Batch, state: PyTree) -> tuple[LogDensity, LogDensity]:
        """log p(w) and log p(D | w) of a flat position."""

        def log_prior(w: jax.Array) -> jax.Array:
            return self.model.log_prior(self.parameters(w)).astype(w.dtype)

        def of_data(w: jax.Array) -> jax.Array:
            value = log_likelihood(self.model, self.parameters(w), batch, state).astype(w.dtype)
            # a particle that overflows the network explains nothing
            return jnp.where(jnp.isnan(value), -jnp.inf, value)

        return log_prior, of_data

    # -- steps

    def init(self, start: Start, data: Data | None, key: jax.Array) -> ParticleState:
        assert data is not None
        keys = jax.random.split(key, (self.chains, self.particles))
        from_prior = lambda k: self.position(self.model.sample_prior(k))  # noqa: E731
        w = jax.vmap(jax.vmap(from_prior))(keys)
        _, of_data = self._parts(data.everything(), start.state)
        zero = jnp.zeros((self.chains,), w.dtype)
        step_size = zero + 0.5 * w.shape[-1] ** -0.25
        values = jax.vmap(jax.vmap(of_data))(w)
        return ParticleState(w, values, zero, zero, step_size, start.state)

    def step(self, state: ParticleState, batch: Batch, key: jax.Array) -> tuple[PyTree, Info]:
        from blackjax.smc import resampling
        from blackjax.smc.ess import log_ess

        log_prior, of_data = self._parts(batch, state.state)
        group_key, turn_key = jax.random.split(key)
        # of another length every time, and of the same for all, which then wait for none among them
        turns = jax.random.uniform(turn_key, (self.method.mutation_steps,), minval=0.5, maxval=1.5)
        leaps = jnp.ceil(LENGTH * turns / jnp.mean(state.step_size)).astype(jnp.int32)
        leaps = jnp.clip(leaps, 1, self.method.max_leapfrog_steps)

        def one(
            key: jax.Array, w: jax.Array, values: jax.Array, old: jax.Array, size: jax.Array
        ) -> PyTree:
            resample_key, move_key = jax.random.split(key)
            new = self._next(values, old)
            log_weights = jnp.where(new > old, (new - old) * values, 0.0)
            total = logsumexp(log_weights)
            shares = jnp.exp(log_weights - total)
            picked = resampling.systematic(resample_key, shares, self.particles)

            def tempered(w: jax.Array) -> jax.Array:
                return log_prior(w) + new * of_data(w)

            w, size, rate = self.mutate(move_key, w[picked], tempered, size, leaps)
            ratio = total - jnp.log(self.particles)
            ess = jnp.exp(log_ess(log_weights))
            return w, jax.vmap(of_data)(w), new, ratio, size, ess, rate

        keys = jax.random.split(group_key, self.chains)
        w, values, new, ratio, size, ess, rate = jax.vmap(one)(
            keys, state.position, state.log_likelihood, state.temperature, state.step_size
        )
        evidence = state.log_evidence + ratio
        terms = {
            "temperature": jnp.min(new),
            "ess": jnp.sum(ess),
            "acceptance": jnp.mean(rate),
            "step_size": jnp.mean(size),
            "log_evidence": logsumexp(evidence) - jnp.log(self.chains),
        }
        return ParticleState(w, values, new, evidence, size, state.state), Info(terms)

    def _next(self, values: jax.Array, old: jax.Array) -> jax.Array:
        """The largest λ up to 1 that leaves the wanted effective sample size."""
        from blackjax.smc.ess import log_ess
        from blackjax.smc.solver import dichotomy

        rest = 1 - old
        alive = jnp.isfinite(values)  # others have no weight at any λ; where none is, λ is NaN
        wanted = jnp.log(self.method.target_ess * jnp.sum(alive)).astype(values.dtype)
        above = values - jnp.max(values)

        def left(delta: jax.Array) -> jax.Array:
            return log_ess(jnp.where(alive, delta * above, -jnp.inf)) - wanted

        delta = dichotomy(left, jnp.zeros_like(old), rest)
        return jnp.where(delta >= rest, jnp.ones_like(old), old + delta)

    def mutate(
        self, key: jax.Array, w: jax.Array, target: LogDensity, size: jax.Array, leaps: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Hamiltonian moves of a group: positions, the step size they led to, and acceptance."""
        import blackjax

        kernel, n = blackjax.hmc.build_kernel(), self.particles
        # shrunk as in Stan, so that few particles, or copies of one, still move
        inverse_mass = n / (n + 5) * jnp.var(w, 0) + 5e-3 / (n + 5)

        def move(carry: PyTree, given: PyTree) -> tuple[PyTree, jax.Array]:
            (hmc, size), (key, leaps) = carry, given
            hmc, info = jax.vmap(lambda k, s: kernel(k, s, target, size, inverse_mass, leaps))(
                jax.random.split(key, n), hmc
            )
            rate = jnp.mean(info.acceptance_rate)
            return (hmc, size * jnp.exp(rate - self.method.target_acceptance)), rate

        start = jax.vmap(lambda w: blackjax.hmc.init(w, target))(w)
        keys = jax.random.split(key, self.method.mutation_steps)
        (hmc, size), rates = jax.lax.scan(move, (start, size), (keys, leaps))
        return hmc.position, size, jnp.mean(rates)

    # -- endings

    def _positions(self, state: ParticleState) -> jax.Array:
        return state.position.reshape(-1, state.position.shape[-1])

    def explain(self, state: PyTree, history: History, term: str | None = None) -> str | None:
        if term is None:
            return self._stuck(history)
        return (
            "no particle explains the data: the likelihood is 0 or not finite at every one. Check "
            "the scale of the data and of the noise"
        )

    def _stuck(self, history: History) -> str | None:
        temperatures = history["temperature"]
        if temperatures[-1] < 1:
            return (
                f"after {len(temperatures)} temperatures λ is {temperatures[-1]:.3g}, not 1. Raise "
                "temperatures, or take more particles or mutation_steps"
            )
        return super()._stuck(history)

    def finish(self, state: ParticleState, draws: Draw | None) -> Posterior:
        evidence = None
        if bool(self.done(state)):
            evidence = combine(np.asarray(state.log_evidence, np.float64))
        else:
            warnings.warn(
                f"stopped at a temperature of {float(jnp.min(state.temperature)):.3g}: particles "
                "are not of the posterior but of prior × likelihood^temperature",
                UserWarning,
                stacklevel=2,
            )
        params = jax.vmap(jax.vmap(self.parameters))(state.position)
        log_prior = jax.vmap(jax.vmap(self.model.log_prior))(params)
        stats = {"lp": log_prior + state.log_likelihood}
        # particles that share an ancestor lie side by side, so dependence is that of a chain
        return self.as_draws(state.state, Draw(params, stats), evidence=evidence)


def combine(log_evidence: np.ndarray) -> Evidence:
    """The log of the groups' mean evidence, with the standard error from their spread."""
    value = float(np.logaddexp.reduce(log_evidence) - np.log(len(log_evidence)))
    ratios = np.exp(log_evidence - value)
    return Evidence(value, float(ratios.std(ddof=1) / np.sqrt(len(ratios))))


class SMC(Method):
    r"""Adaptive tempered sequential Monte Carlo, for posteriors with several modes; full batch.

    π_λ(w) ∝ p(w) p(D | w)^λ from the prior (λ = 0) to the posterior (λ = 1), each step as large as
    an effective sample size of ``target_ess`` allows. Modes keep the particles they deserve, where
    a chain stays in one, and ``posterior.log_evidence`` estimates ln p(D) with its standard error,
    from the spread between groups. ``fit`` takes neither ``steps`` nor ``epochs``.

    A step costs mutation_steps trajectories of all particles on all data: for networks of up to
    some hundred weights. For an evidence to a tenth of a nat take about 4,000 particles, or
    ``target_ess=0.8``.

    Args:
        particles: in all groups together.
        groups: sets of particles that know nothing of one another, at least 2.
        mutation_steps: Hamiltonian trajectories of each particle at each temperature.
        target_ess: the fraction of a group's particles that weights may leave effective; more of
            it makes more temperatures.
        target_acceptance: what the step size is tuned to.
        max_leapfrog_steps: of a trajectory.
        temperatures: at most; a fit that needs more is refused.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(0, 1, 8)[:, None].astype("float32")
        >>> network = {"w": np.zeros((1, 1), "float32")}, lambda p, x: x @ p["w"]
        >>> model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.5))
        >>> posterior = px.fit(model, (x, 0.5 * x), px.SMC(particles=200), key=0)
        >>> posterior.shape
        (4, 50)
        >>> value, error, kind = posterior.log_evidence
        >>> round(value)
        -3

    Reference:
        Del Moral, Doucet and Jasra, *Sequential Monte Carlo samplers*, JRSS B 2006; the choice of
        λ by effective sample size from Jasra, Stephens, Doucet and Tsagaris, *Inference for
        Lévy-driven stochastic volatility models via adaptive sequential Monte Carlo*, 2011; the
        adaptation of Hamiltonian moves from Buchholz, Chopin and Jacob, *Adaptive tuning of
        Hamiltonian Monte Carlo within sequential Monte Carlo*, Bayesian Analysis 2021.
    """

    particles: Copies = 1000
    groups: Several = 4
    mutation_steps: Whole = 5
    target_ess: Fraction = 0.5
    target_acceptance: Fraction = 0.8
    max_leapfrog_steps: Count = 32
    temperatures: Count = 200

    needs = Needs(
        "nothing", all_data=True, no_start="starts from the prior; leave init out",
        no_points=NO_POINTS,
    )  # fmt: skip

    def __check_init__(self) -> None:
        check_settings(self)
        whole_number("particles", self.particles, least=2 * self.groups)
        if self.particles % self.groups:
            raise ValueError(
                f"particles={self.particles} must be a multiple of groups={self.groups}"
            )

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        particles = self.particles // self.groups
        return [Tempering(model, plan, self.groups, particles, with_arrays(self, model))]

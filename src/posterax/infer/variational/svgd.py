r"""Stein variational gradient descent (Liu and Wang 2016): networks that repel one another.

n particles follow the gradient of the log joint, averaged over neighbours, and keep apart,

    wᵢ ← wᵢ + ε φ(wᵢ) / N,    φ(w) = 1/n Σⱼ k(wⱼ, w) ∇log π(wⱼ) + ∇_{wⱼ} k(wⱼ, w),

with k(w, w′) = exp(−‖w − w′‖²/h). It is blackjax's step (``blackjax.vi.svgd``), written with the
n × n matrix of the kernel, K, as φ = (K ∇ + 2/h (diag(K 1) − K) W)/n: no array of n × n × weights,
and each particle's gradient comes with its NLL and its network's state. The factor 1/N makes rates
those of the objective per data point.
"""

from typing import Annotated, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from ...data import Batch, Data
from ...model import Model
from ...posteriors import Draws, Posterior
from ...priors import is_flat, is_prior
from ..base import Draw, Info, Method, Phase, Plan, Start, with_arrays
from ..chains.base import JITTER, ChainPhase
from ..objective import DescentPhase, batch_nll, mean_nll, need_prior
from ..settings import Optimizer, Positive, Rate, Schedule, Several


class ParticleState(NamedTuple):
    """All particles: positions (particle, weight), the networks' states, the optimiser's."""

    position: jax.Array
    state: PyTree
    optimizer: PyTree


class SteinPhase(ChainPhase, DescentPhase):
    """Steps of all particles, each of which is a chain for the starts."""

    title: ClassVar[str] = "moving particles"
    explain = Phase.explain  # not that of chains, which do not descend

    def init(self, start: Start, data: Data | None, key: jax.Array) -> ParticleState:
        start_key, jitter_key = jax.random.split(key)
        position = self.starts(start, start_key)
        if not start.given:  # a network of constants would start them all in one place, for ever
            noise = jax.random.normal(jitter_key, position.shape, position.dtype)
            position = position + JITTER * noise
        state = self._states(start, start_key)
        return ParticleState(position, state, self._optimizer().init(position))

    def _states(self, start: Start, key: jax.Array) -> PyTree:
        """Every particle's running averages: those of the draw whose weights ``starts`` took."""
        posterior, like = start.posterior, start.state
        if posterior is None:
            return jax.tree.map(lambda a: jnp.broadcast_to(a, (self.chains, *jnp.shape(a))), like)
        ids = posterior.particles(jax.random.split(key)[0], self.chains).ids
        states = jax.vmap(posterior.network_state)(ids)
        turns = jnp.arange(self.chains) % len(jax.tree.leaves(ids)[0])
        return jax.tree.map(lambda a, b: a[turns].astype(b.dtype), states, like)

    def step(self, state: ParticleState, batch: Batch, key: jax.Array) -> tuple[PyTree, Info]:
        n, m = self.plan.total, self.plan.batches

        def objective(position: jax.Array, network_state: PyTree, key: jax.Array) -> PyTree:
            params = self.parameters(position)
            nll, network_state = batch_nll(self.model, params, network_state, batch, key)
            loss = (m * nll - self.model.log_prior(params)) / n
            return loss.astype(position.dtype), (nll, network_state)

        descend = jax.vmap(jax.grad(objective, has_aux=True))
        keys = jax.random.split(key, self.chains)
        gradients, (nll, network_state) = descend(state.position, state.state, keys)
        descent, bandwidth = self.direction(state.position, gradients)
        position, optimizer = self._descend(state.position, descent, state.optimizer)
        terms = {"nll": jnp.mean(mean_nll(nll, batch)), "bandwidth": bandwidth}
        return ParticleState(position, network_state, optimizer), Info(terms)

    def direction(self, w: jax.Array, gradients: jax.Array) -> tuple[jax.Array, jax.Array]:
        """−φ/N of all particles, from the gradients of −log π/N; and the kernel's bandwidth.

        Weights that are points have no distribution to fill: they are no part of the kernel, and
        each particle trains its own, as the members of an ensemble do.
        """
        random = self._random()
        within = jnp.where(random, w, 0)
        distances = jnp.sum(jnp.square(within[:, None] - within[None]), axis=-1)
        h = self.method.bandwidth
        if isinstance(h, str):  # "median"
            pairs = distances[jnp.tril_indices(self.chains, -1)]
            h = jnp.square(jnp.median(jnp.sqrt(pairs))) / jnp.log(self.chains)
            h = jnp.where(h > 0, h, 1.0)  # all in one place: nothing to tell them apart by
        h = jnp.asarray(h, w.dtype)
        kernel = jnp.exp(-distances / h)
        centred = within - jnp.mean(within, axis=0)  # differences alone count: less is lost so
        apart = jnp.sum(kernel, axis=1, keepdims=True) * centred - kernel @ centred
        descent = kernel @ gradients - 2 / (h * self.plan.total).astype(w.dtype) * apart
        return jnp.where(random, descent / self.chains, gradients), h

    def _random(self) -> jax.Array:
        """Which weights of a position have a prior."""
        each = jax.tree.map(
            lambda prior, a: jnp.full(a.shape, not is_flat(prior)),
            self.model.priors, self.model.parameters, is_leaf=is_prior,
        )  # fmt: skip
        return ravel_pytree(each)[0].astype(bool)

    def finish(self, state: ParticleState, draws: Draw | None) -> Posterior:
        params = jax.vmap(self.parameters)(state.position)
        params, network_state = jax.tree.map(lambda a: a[None], (params, state.state))
        return Draws(self.model, network_state, self.plan.targets, draws=params, own_state=True)


class SVGD(Method):
    r"""Stein variational gradient descent: an ensemble whose members repel one another.

    wᵢ ← wᵢ + ε φ(wᵢ)/N,    φ(w) = 1/n Σⱼ k(wⱼ, w) ∇log π(wⱼ) + ∇_{wⱼ} k(wⱼ, w)

    The first term drives every particle towards probable weights, the second keeps them apart, so
    that they spread over the posterior instead of all falling into its mode. In few dimensions
    they do; with a number of weights far above that of particles the distances are all alike, and
    the particles' spread is far too small (Ba et al. 2022).

    Particles start at fresh initialisations of the network, or around what ``init=`` gives: draws
    of an earlier posterior, or jitter around a network.

    Args:
        particles: number of networks; work grows with it, and a matrix of particles by particles.
        learning_rate: the step size of Adam, or an optax schedule.
        schedule: ``"cosine"`` (the rate falls to zero over the fit), ``"hold"`` (in its second
            half) or ``"constant"``.
        optimizer: any optax transformation instead of Adam.
        bandwidth: h of the kernel exp(−‖w − w′‖²/h): ``"median"``, the squared median distance
            between particles divided by log n at each step, or a number.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(-1, 1, 32)[:, None].astype("float32")
        >>> network = px.networks.MLP(1, 1, (8,), key=0)
        >>> model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
        >>> posterior = px.fit(model, (x, x), px.SVGD(particles=10), steps=20, key=0)
        >>> posterior.shape
        (1, 10)

    Reference:
        Liu and Wang, *Stein variational gradient descent: a general purpose Bayesian inference
        algorithm*, NeurIPS 2016. Ba, Erdogdu, Ghassemi, Sun, Suzuki, Wu and Zhang, *Understanding
        the variance collapse of SVGD in high dimensions*, ICLR 2022.
    """

    particles: Annotated[Several, "copies"] = 20
    learning_rate: Rate = 1e-3
    schedule: Schedule = "cosine"
    optimizer: Optimizer = None
    bandwidth: Positive | Literal["median"] = "median"

    def __check_init__(self) -> None:
        if isinstance(self.bandwidth, str) and self.bandwidth != "median":
            raise ValueError(f"bandwidth must be 'median' or a number, got {self.bandwidth!r}")

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        need_prior(model, "SVGD", "px.DeepEnsemble")
        return [SteinPhase(model, plan, with_arrays(self, model), self.particles)]

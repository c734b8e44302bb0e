r"""Stochastic-gradient Markov chains: minibatches, no Metropolis test, a bias that steps shrink.

Langevin dynamics (Welling and Teh 2011) is gradient ascent on the log joint with noise of just
the size that makes it a sampler,

    w ← w + ε ∇log π(w) + √(2ε) ξ,    ξ ~ N(0, 1),    ε = learning rate / N,

where a minibatch estimates the gradient. Hamiltonian dynamics with friction α (Chen et al. 2014)
adds a velocity,

    w ← w + v,    v ← (1 − α) v + ε ∇log π(w) + √(2αε) ξ.

With the learning rate of the objective per data point, (−log π)/N, steps are those of gradient
descent with the same rate, whatever N. blackjax has both integrators. All chains see the same
minibatch. One phase does it all, since a cyclical schedule burns in at the start of every cycle.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...data import Batch, Data
from ...model import Model
from ..base import History, Info, Method, Needs, Phase, Plan, Start, with_arrays
from ..settings import Copies, Count, FractionOrZero, Positive, check_settings
from .base import NO_POINTS, DrawingPhase

POWER = 0.55  # of the polynomial schedule, γ of Welling and Teh: above ½
DECAY, FLOOR = 0.99, 1e-5  # of RMSprop: α and λ of Li et al.
FALL = 100  # it divides the rate by (1 + FALL)^POWER, about 13, from first to last step


class NoisyState(NamedTuple):
    """All chains: positions, momenta (SGHMC), mean squared gradients (RMSprop), step, network."""

    position: jax.Array
    momentum: PyTree
    squares: PyTree
    step: jax.Array
    state: PyTree


class NoisyPhase(DrawingPhase):
    """Noisy gradient steps; draws are of the sampling part of each cycle only."""

    method: "SGLD | SGHMC"

    # -- which steps leave a draw

    def _cycle(self, xp: Any) -> tuple[Any, Any, Any]:
        """Steps of a cycle, those at its start that burn in, and steps from a draw to the next.

        Without a cyclical schedule all steps are one cycle, and a fit that continues another has
        burnt in already.
        """
        method: Any = self.method
        given = (self.plan.before, method.cycles, method.keep)
        before, cycles, keep = (xp.asarray(n) for n in given)
        new = xp.asarray(self.plan.steps) - before
        length = -(-new // cycles)
        # in the same precision for numpy and JAX, which must agree
        burn = xp.asarray(method.burn_in).astype(xp.float32) * length.astype(xp.float32)
        burn = xp.minimum(xp.floor(burn).astype(xp.int32), length - 1)
        if method.schedule != "cyclical":
            burn = xp.where(before > 0, 0, burn)
        sampling = (length - burn) * (-(-new // length))
        return length, burn, -(-sampling // keep)

    def retained(self, steps: PyTree, thin: int) -> PyTree:
        # the last step of a cycle, that with the smallest rate, always leaves one
        xp: Any = jnp if isinstance(steps, jax.Array) else np
        length, burn, every = self._cycle(xp)
        every = every * thin
        full, at = xp.divmod(xp.maximum(steps - xp.asarray(self.plan.before), 0), length)
        each = (length - 1 - burn) // every + 1
        later = (length - 1 - at) // every + 1  # draws of this cycle that are still to come
        return full * each + xp.where(at > burn, each - later, 0)

    # -- steps

    def _now(self, step: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Learning rate, and temperature: none while a cycle explores."""
        length, burn, _ = self._cycle(jnp)
        first: Any = self.method.learning_rate
        if self.method.schedule == "cyclical":
            at = (step - self.plan.before) % length
            rate = first * 0.5 * (1 + jnp.cos(jnp.pi * at / length))
            return rate, jnp.where(at < burn, 0.0, 1.0)
        if self.method.schedule == "polynomial":
            part = step / jnp.maximum(self.plan.steps, 1)
            return first * (1 + FALL * part) ** -POWER, jnp.ones(())
        return jnp.asarray(first), jnp.ones(())

    @property
    def friction(self) -> jax.Array | None:
        """α; ``None``: overdamped, that is SGLD."""
        return getattr(self.method, "friction", None)

    def init(self, start: Start, data: Data | None, key: jax.Array) -> NoisyState:
        start_key, momentum_key = jax.random.split(key)
        position = self.starts(start, start_key)
        momentum = None
        if self.friction is not None:
            momentum = jax.random.normal(momentum_key, position.shape, position.dtype)
        squares = jnp.zeros_like(position) if self.method.preconditioner else None
        return NoisyState(position, momentum, squares, jnp.zeros((), jnp.int32), start.state)

    def step(self, state: NoisyState, batch: Batch, key: jax.Array) -> tuple[NoisyState, Info]:
        from blackjax.sgmcmc import diffusions

        log_density = self.log_density(batch, state.state)
        rate, temperature = self._now(state.step)
        mass = self.plan.batches * jnp.sum(batch.weight)

        def one(key: jax.Array, w: jax.Array, momentum: PyTree, squares: PyTree) -> PyTree:
            leap, at = self._leap(rate, squares, state.step), w
            if self.friction is not None:  # a gradient of where the velocity leads, as in the paper
                at = w + leap * momentum
            value, gradient = jax.value_and_grad(log_density)(at)
            nll = (self.model.log_prior(self.parameters(at)) - value) / jnp.where(mass > 0, mass, 1)
            if squares is not None:
                fresh = jnp.square(gradient / self.plan.total)
                squares = DECAY * squares + (1 - DECAY) * fresh
            if self.friction is None:
                size = self._leap(rate, squares, state.step + 1) ** 2
                w = diffusions.overdamped_langevin()(key, w, gradient, size, temperature)
            else:
                dynamics = diffusions.sghmc(self.friction / leap)
                w, momentum = dynamics(key, w, momentum, gradient, leap, temperature)
            return w, momentum, squares, nll

        keys = jax.random.split(key, self.chains)
        w, momentum, squares, nll = jax.vmap(one)(
            keys, state.position, state.momentum, state.squares
        )
        new = NoisyState(w, momentum, squares, state.step + 1, state.state)
        terms = {"nll": jnp.mean(nll), "learning_rate": rate}
        stats = {"learning_rate": jnp.broadcast_to(rate, nll.shape)}
        return new, Info(terms, self.draw(w, stats))

    def _leap(self, rate: jax.Array, squares: PyTree, count: jax.Array) -> jax.Array:
        """√ε, for each weight its own where there is a preconditioner.

        ``squares`` average, from 0 on, ``count`` squared gradients of the objective per point.
        """
        if squares is None:
            return jnp.sqrt(rate / self.plan.total)
        scale = FLOOR + jnp.sqrt(squares / (1 - DECAY ** jnp.maximum(count, 1)))
        return jnp.sqrt(rate / self.plan.total / jnp.where(count > 0, scale, 1.0))

    # -- endings

    def explain(self, state: NoisyState, history: History, term: str | None = None) -> str | None:
        if term is None:
            return None
        return (
            f"{term}: noisy gradient steps have run away. Lower learning_rate (to a tenth), or "
            "start from init=px.fit(…, px.MaximumAPosteriori())"
        )


class _StochasticGradient(Method):
    """What both methods share."""

    needs = Needs(no_points=NO_POINTS)

    def __check_init__(self) -> None:
        check_settings(self)
        method: Any = self
        if method.cycles > 1 and method.schedule != "cyclical":
            raise ValueError(f"cycles={method.cycles} needs schedule='cyclical'")

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        method: Any = self
        if method.schedule == "cyclical" and int(plan.steps) < 2 * method.cycles:
            raise ValueError(
                f"cycles={method.cycles} are too many for {int(plan.steps)} steps: a cycle has 2 "
                "or more; take more epochs or fewer cycles"
            )
        return [NoisyPhase(model, plan, method.chains, with_arrays(method, model))]


class SGLD(_StochasticGradient):
    r"""Stochastic-gradient Langevin dynamics: a sampler at the price of gradient descent.

    w ← w + ε G ∇log π(w) + √(2εG) ξ,    ε = learning rate / N,    G = 1 or RMSprop's

    For minibatches, and for data larger than memory. There is no Metropolis test, so the posterior
    is biased: full batches widen a direction of curvature a by 1 / √(1 − εa/2), and minibatches by
    the noise of their gradients. Both shrink with the learning rate, while chains take longer;
    where all data fits into a step, px.NUTS or px.MCLMC has no such bias or less of it.

    ``epochs`` (or ``steps``) are all steps, burn-in and all. About ``keep`` draws per chain stay,
    evenly spread over what comes after; ``fit(thin=…)`` keeps one in so many of those.

    Args:
        learning_rate: of the objective per data point, like that of gradient descent: below
            2 / (its largest curvature), or steps run away.
        chains: chains that run side by side, on the same minibatches.
        burn_in: fraction of the steps, or of each cycle, at the start, from which nothing is kept.
        schedule: ``"constant"``; ``"polynomial"``, falling as t^−0.55 to a thirteenth; or
            ``"cyclical"``: cosines from the full rate to 0, each of which explores without noise
            while it burns in and then samples, to find several modes (Zhang et al. 2020).
        cycles: of the cyclical schedule.
        preconditioner: ``"rmsprop"`` gives each weight a step by its gradients' size (Li et al.
            2016). The term Γ, for how G changes with w, is neglected, as they advise.
        keep: about so many draws are kept of each chain.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(0, 1, 50)[:, None].astype("float32")
        >>> network = px.networks.MLP(1, 1, (8,), key=0)
        >>> model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
        >>> posterior = px.fit(model, (x, x), px.SGLD(keep=20), steps=200, batch_size=10, key=0)
        >>> posterior.shape
        (4, 20)

    Reference:
        Welling and Teh, *Bayesian learning via stochastic gradient Langevin dynamics*, ICML 2011.
        Li, Chen, Carlson and Carin, *Preconditioned stochastic gradient Langevin dynamics for deep
        neural networks*, AAAI 2016. Zhang, Li, Zhang, Chen and Wilson, *Cyclical stochastic
        gradient MCMC for Bayesian deep learning*, ICLR 2020.
    """

    learning_rate: Positive = 1e-3
    chains: Copies = 4
    burn_in: FractionOrZero = 0.5
    schedule: Literal["constant", "polynomial", "cyclical"] = "constant"
    cycles: Count = 1
    preconditioner: Literal["rmsprop"] | None = None
    keep: Count = 100


class SGHMC(_StochasticGradient):
    r"""Stochastic-gradient Hamiltonian Monte Carlo: SGLD with momentum, which gets farther.

    w ← w + v,    v ← (1 − α) v + εG ∇log π(w) + √(2αεG) ξ,    ε = learning rate / N

    As SGD with momentum 1 − α. The noise that minibatches add is not subtracted (β̂ = 0 in the
    paper): a smaller learning rate makes it vanish.

    Args:
        learning_rate: of the objective per data point, like that of SGD with momentum.
        friction: α, from 0 to 1; 1 is Langevin dynamics.
        chains: chains that run side by side, on the same minibatches.
        burn_in: fraction of the steps, or of each cycle, at the start, from which nothing is kept.
        schedule: ``"constant"``, ``"polynomial"`` or ``"cyclical"``, as in px.SGLD.
        cycles: of the cyclical schedule.
        preconditioner: ``"rmsprop"``, as in px.SGLD, or ``None``.
        keep: about so many draws are kept of each chain.

    Example:
        >>> import posterax as px
        >>> px.SGHMC(schedule="cyclical", cycles=4).cycles
        4

    Reference:
        Chen, Fox and Guestrin, *Stochastic gradient Hamiltonian Monte Carlo*, ICML 2014.
    """

    learning_rate: Positive = 1e-3
    friction: float = 0.1
    chains: Copies = 4
    burn_in: FractionOrZero = 0.5
    schedule: Literal["constant", "polynomial", "cyclical"] = "constant"
    cycles: Count = 1
    preconditioner: Literal["rmsprop"] | None = None
    keep: Count = 100

    def __check_init__(self) -> None:
        if not 0 < self.friction <= 1:
            raise ValueError(f"friction must lie above 0 and not above 1, got {self.friction}")

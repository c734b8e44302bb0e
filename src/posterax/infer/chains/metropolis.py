r"""Metropolis and Hastings: propose, and accept by the ratio of densities.

    α = min(1, π(w') q(w | w') / (π(w) q(w' | w)))

The state is repeated where a proposal is rejected. A random walk w' = w + ε s ∘ n, n ~ N(0, 1), is
symmetric, and q cancels; a Langevin proposal follows the gradient, and q does not.

Two phases: warm-up, in which step size ε (dual averaging) and scales s adapt, and sampling with
both fixed. blackjax has the kernels.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..._util.checks import one_of
from ..._util.tree import tree_size
from ...data import Batch, Data
from ...model import Model
from ..base import History, Info, Phase, Plan, Start
from ..settings import Copies, Fraction, Whole
from .adaptation import WindowPhase, Windows, tuned_step_size, window_schedule
from .base import ChainMethod, DrawingPhase, LogDensity
from .moves import Moved, MovePhase, finite_or_impossible, layout, metropolis_hastings, moved

OPTIMAL = {"random_walk": 0.234, "langevin": 0.574}  # acceptance, for many weights
GAMMA = 0.5  # of dual averaging: an acceptance of single proposals is noisier than a trajectory's


class Proposal(NamedTuple):
    """A proposal of one's own as a pair."""

    sample: Callable[..., jax.Array]
    log_prob: Callable[..., jax.Array] | None = None


class WalkState(NamedTuple):
    """All chains: positions with their densities, tuning, the network's state."""

    position: jax.Array
    log_density: jax.Array
    gradient: PyTree  # of the real weights, for the Langevin proposal
    step_size: jax.Array
    scale: jax.Array
    adaptation: PyTree
    step: jax.Array
    state: PyTree


class _Walk(MovePhase):
    """What warm-up and sampling share: flips of discrete weights, then a move of the real ones."""

    kind: str = eqx.field(static=True)  # "random_walk", "langevin" or "own"
    own: Any

    @property
    def tunes(self) -> bool:
        """Whether there is a step size."""
        return self.kind != "own" and self.walks

    def _transition(
        self, state: WalkState, batch: Batch, key: jax.Array
    ) -> tuple[WalkState, dict[str, Moved]]:
        """All chains after one step, and what came of each kind of move."""
        target = self.log_density(batch, state.state)

        def one(key: jax.Array, chain: PyTree) -> tuple[PyTree, dict[str, Moved]]:
            position, value, gradient, step, scale = chain
            flip_key, key = jax.random.split(key)
            moves = {}
            if self.flipping and self.kind != "own":
                moves["flip"] = metropolis_hastings(flip_key, position, value, target, self.flip)
                position, value = moves["flip"][:2]
            if self.kind == "own":
                propose, log_q = self.own.sample, getattr(self.own, "log_prob", None)
                moves["move"] = metropolis_hastings(key, position, value, target, propose, log_q)
            elif self.walks and self.kind == "langevin":
                chain = position, value, gradient, step, scale
                moves["move"], gradient = self._langevin(key, chain, target)
            elif self.walks:
                walk = lambda k, w: self.layout.walk(k, w, step * scale)  # noqa: E731
                moves["move"] = metropolis_hastings(key, position, value, target, walk)
            return (*_last(moves)[:2], gradient), moves

        keys = jax.random.split(key, self.chains)
        (position, value, gradient), moves = jax.vmap(one)(keys, state[:5])
        new = state._replace(
            position=position, log_density=value, gradient=gradient, step=state.step + 1
        )
        return new, moves

    def _langevin(
        self, key: jax.Array, chain: PyTree, target: LogDensity
    ) -> tuple[Moved, jax.Array]:
        """w' = w + ½ ε² s² ∘ ∇log π(w) + ε s ∘ n: Langevin in the coordinates z = w / s."""
        import blackjax

        position, value, gradient, step, scale = chain

        def scaled(z: jax.Array) -> jax.Array:
            return finite_or_impossible(target(self.layout.put(position, z * scale)))

        z = self.layout.real(position) / scale
        if self.flipping:  # a flip may have changed it
            gradient = jax.grad(scaled)(z) / scale
        before = blackjax.mcmc.mala.MALAState(z, value, gradient * scale)
        after, info = blackjax.mala.build_kernel()(key, before, scaled, 0.5 * step**2)
        done = moved(info, z, value, after.position, after.logdensity)
        there = self.layout.put(position, done.position * scale)
        gradient = jnp.where(done.accepted, after.logdensity_grad / scale, gradient)
        return done._replace(position=jnp.where(done.accepted, there, position)), gradient

    def _terms(
        self, before: WalkState, after: WalkState, moves: dict[str, Moved]
    ) -> dict[str, jax.Array]:
        # a start where the density is not finite must show, even if the first step leaves it
        old, new = before.log_density, after.log_density
        terms = {
            "log_density": jnp.mean(jnp.where(jnp.isfinite(old), new, old)),
            "acceptance": jnp.mean(_last(moves).rate),
        }
        if len(moves) == 2:
            terms["flip_acceptance"] = jnp.mean(moves["flip"].rate)
        return terms | ({"step_size": jnp.mean(after.step_size)} if self.tunes else {})

    def _stuck(self, history: History) -> str | None:
        why = super()._stuck(history)
        if why is None or self.walks:
            return why
        return (
            f"{why}. Should one state of the discrete weights hold all the probability, "
            "px.Enumeration shows it"
        )


def _last(moves: dict[str, Moved]) -> Moved:
    """The move of the real weights; where there are none, that of the discrete ones."""
    return moves["move"] if "move" in moves else moves["flip"]


class WarmUp(_Walk, WindowPhase):
    """Step size and scales adapt; no state is a draw."""

    def _windows(self) -> Windows:
        return Windows(self.target, gamma=GAMMA)

    def _first_step(self) -> jax.Array:
        """Dual averaging draws towards ten times its first step: the best one for a Gaussian."""
        return jnp.asarray(0.238 / np.sqrt(max(len(self.layout.continuous), 1)))

    def init(self, start: Start, data: Data | None, key: jax.Array) -> WalkState:
        assert data is not None
        target = self.log_density(data.everything(), start.state)

        def one(position: jax.Array) -> PyTree:
            value, gradient = target(position), None
            if self.kind == "langevin" and self.walks:
                put = lambda real: target(self.layout.put(position, real))  # noqa: E731
                value, gradient = jax.value_and_grad(put)(self.layout.real(position))
            step = self._first_step().astype(position.dtype)
            count = len(self.layout.continuous)
            tuning = self._windows().begin(count, step) if self.tunes else None
            return value, gradient, step, self.layout.scale.astype(position.dtype), tuning

        positions = self.starts(start, key)
        value, gradient, step, scale, tuning = jax.vmap(one)(positions)
        zero = jnp.zeros((), jnp.int32)
        return WalkState(positions, value, gradient, step, scale, tuning, zero, start.state)

    def step(self, state: WalkState, batch: Batch, key: jax.Array) -> tuple[WalkState, Info]:
        new, moves = self._transition(state, batch, key)
        if self.tunes:
            new = self._adapt(new, moves["move"].rate, state.step)
        return new, Info(self._terms(state, new, moves))

    def _adapt(self, state: WalkState, rate: jax.Array, step: jax.Array) -> WalkState:
        slow, ends = self.schedule[step] == 1

        def one(
            adaptation: PyTree, position: jax.Array, rate: jax.Array, scale: jax.Array
        ) -> PyTree:
            return self._windows().update(
                adaptation, self.layout.real(position), rate, (slow, ends), scale,
                read=jnp.sqrt, restart=self._first_step().astype(scale.dtype),
            )  # fmt: skip

        step_size, scale, parts = jax.vmap(one)(state.adaptation, state.position, rate, state.scale)
        return state._replace(step_size=step_size, scale=scale, adaptation=parts)


class Sampling(_Walk, DrawingPhase):
    """The proposal is fixed; every state is a draw, a repeated one too."""

    def init(self, start: Start, data: Data | None, key: jax.Array) -> WalkState:
        warm: WalkState = start.tuned
        return warm._replace(step_size=tuned_step_size(warm.adaptation)) if self.tunes else warm

    def step(self, state: WalkState, batch: Batch, key: jax.Array) -> tuple[WalkState, Info]:
        new, moves = self._transition(state, batch, key)
        main = _last(moves)
        stats = {"acceptance_rate": main.rate, "accepted": main.accepted, "lp": new.log_density}
        if len(moves) == 2:
            flip = moves["flip"]
            stats |= {"flip_acceptance_rate": flip.rate, "flip_accepted": flip.accepted}
        return new, Info(self._terms(state, new, moves), self.draw(new.position, stats))


class Metropolis(ChainMethod):
    r"""Metropolis–Hastings chains, exact in the limit, full batch.

    A step of the random walk costs one evaluation of the density and moves little: draws are
    strongly correlated, and ``px.fit(…, thin=…)`` keeps memory down. It is the method for discrete
    weights (``px.priors.Grid``) and for densities without a gradient; for others take ``px.NUTS``.
    Discrete weights move by flips: ``flips`` of them, chosen at random, take another of their
    values, accepted or not by themselves; real weights, where there are some too, move after that.

    A proposal of your own has ``sample(key, w) → w'`` and ``log_prob(w', w)``, the log density
    of w' given w, or is a pair of such functions; w is the flat vector of all weights
    (``jax.flatten_util.ravel_pytree``), discrete ones as well. Without ``log_prob`` (``None``) it
    must be symmetric. Nothing of it is tuned.

    Args:
        chains: chains that run side by side.
        warmup: steps of adaptation, not retained.
        proposal: ``"random_walk"``, ``"langevin"`` (drifts along the gradient: MALA), or your own.
        target_acceptance: what the step size is tuned to (default: 0.234 for the random walk,
            0.574 for Langevin).
        flips: discrete weights that change at a time.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(-1, 1, 8).astype("float32")[:, None]
        >>> network = px.networks.MLP(1, 1, (2,), key=0)
        >>> model = px.Model(network, px.priors.Grid([-1.0, 1.0]), px.likelihoods.Gaussian(0.5))
        >>> posterior = px.fit(model, (x, x), px.Metropolis(warmup=50), steps=100, key=0)
        >>> sorted({float(w) for w in np.ravel(posterior.draws.network.layers[0].weight)})
        [-1.0, 1.0]

    Reference:
        Metropolis et al., *Equation of state calculations by fast computing machines*, J. Chem.
        Phys. 1953; Hastings, *Monte Carlo sampling methods using Markov chains*, Biometrika 1970;
        Roberts and Rosenthal, *Optimal scaling for various Metropolis–Hastings algorithms*,
        Statistical Science 2001.
    """

    chains: Copies = 4
    warmup: Whole = 1000
    proposal: Any = "random_walk"
    target_acceptance: Fraction | None = None
    flips: Whole = 1

    needs = ChainMethod.needs._replace(discrete=True)

    def __check_init__(self) -> None:
        if isinstance(self.proposal, str):
            one_of("proposal", self.proposal, tuple(OPTIMAL))
        else:
            _own(self.proposal)

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        kind = self.proposal if isinstance(self.proposal, str) else "own"
        own = _own(self.proposal) if kind == "own" else None
        if own is not None:
            _check_own(own, tree_size(model.parameters))
        # scales in the first half; then the step size has as long again to settle
        first = self.warmup // 2
        schedule = np.zeros((self.warmup, 2), np.int32)
        schedule[:first] = window_schedule(first)
        target = self.target_acceptance or OPTIMAL.get(kind, 0.5)
        chains = (model, plan, self.chains)
        moves: Any = (layout(model, self.flips), int(self.flips), kind, own)
        warm = WarmUp(*chains, jnp.asarray(schedule), jnp.asarray(target), *moves)
        return [warm, Sampling(*chains, *moves)]


def _own(proposal: Any) -> Any:
    """A proposal of the user's own, a pair made an object."""
    if type(proposal) in (tuple, list) and len(proposal) == 2:
        proposal = Proposal(*proposal)
    log_prob = getattr(proposal, "log_prob", None)
    if not callable(getattr(proposal, "sample", None)) or not (
        log_prob is None or callable(log_prob)
    ):
        raise TypeError(
            "proposal must be 'random_walk', 'langevin', an object with sample(key, w) and "
            f"log_prob(new, old), or a pair of such functions, got {proposal!r}"
        )
    return proposal


def _check_own(own: Any, size: int) -> None:
    """Try it on shapes, so that a misfit is told by name."""
    w = jax.ShapeDtypeStruct((size,), jnp.result_type(float))
    new = eqx.filter_eval_shape(own.sample, jax.random.key(0), w)
    if getattr(new, "shape", None) != w.shape:
        raise ValueError(f"proposal: sample must return a vector of all {size} weights, got {new}")
    if getattr(own, "log_prob", None) is not None:
        value = eqx.filter_eval_shape(own.log_prob, w, w)
        if getattr(value, "shape", None) != ():
            raise ValueError(f"proposal: log_prob must return one number, got {value}")

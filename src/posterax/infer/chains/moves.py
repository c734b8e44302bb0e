r"""Single moves of Metropolis and Hastings: a walk for real weights, flips for discrete ones.

A move w → w' from a proposal q is accepted with probability

    min(1, (π(w') / π(w))^(1/T) · q(w | w') / q(w' | w))

at temperature T (1 for sampling); otherwise the chain stays where it is, and counts that again.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import PyTree

from ...model import Model
from ...priors import Prior, is_prior
from ..base import Start
from .base import ChainPhase, LogDensity


class Moved(NamedTuple):
    """A chain after one move: where it is, how probable the move was, whether it was made."""

    position: jax.Array
    log_density: jax.Array
    rate: jax.Array
    accepted: jax.Array


def metropolis_hastings(
    key: jax.Array,
    position: jax.Array,
    log_density: jax.Array,
    target: LogDensity,
    propose: Callable[[jax.Array, jax.Array], jax.Array],
    log_q: Callable[[jax.Array, jax.Array], jax.Array] | None = None,
    temperature: ArrayLike = 1.0,
) -> Moved:
    """One move: ``propose(key, w)`` gives w', ``log_q(w', w)`` its density (None: symmetric)."""
    from blackjax.mcmc.random_walk import RWState, build_rmh

    def tempered(w: jax.Array) -> jax.Array:
        return finite_or_impossible(target(w) / temperature)

    # blackjax asks for the density of going from its first argument to its second
    correction = None if log_q is None else lambda old, new: log_q(new.position, old.position)
    state = RWState(position, log_density / temperature)
    new, info = build_rmh()(key, state, tempered, propose, correction)
    return moved(info, position, log_density, new.position, new.logdensity * temperature)


def moved(
    info: PyTree, old: jax.Array, old_density: jax.Array, new: jax.Array, new_density: jax.Array
) -> Moved:
    """What a kernel of blackjax did; a step lost in rounding counts as a rejected one.

    Else a step size could shrink without end and every step be called accepted.
    """
    accepted = info.is_accepted & jnp.any(new != old)
    rate = jnp.where(info.is_accepted & ~accepted, 0, info.acceptance_rate)
    return Moved(
        jnp.where(accepted, new, old),  # the very same bits where nothing moved
        jnp.where(accepted, new_density, old_density),
        rate.astype(old_density.dtype),
        accepted,
    )


def finite_or_impossible(log_density: jax.Array) -> jax.Array:
    """−∞ for whatever is not finite: a proposal that overflows the network is rejected."""
    return jnp.where(jnp.isfinite(log_density), log_density, -jnp.inf)


class Layout(eqx.Module):
    """Which entries of a flat position are real, which discrete, and the values of these."""

    continuous: jax.Array  # (C,) indices into the position
    discrete: jax.Array  # (D,) indices into the position
    values: jax.Array  # (D, K), filled up with ∞
    counts: jax.Array  # (D,) how many values there are
    scale: jax.Array  # (C,) deviations of the real weights under the prior, 1 where unknown

    def walk(self, key: jax.Array, position: jax.Array, sigma: jax.Array) -> jax.Array:
        """Gaussian steps of all real weights, with deviations ``sigma``."""
        from blackjax.mcmc.random_walk import normal

        step = normal(sigma)(key, self.real(position))
        return self.put(position, step, add=True)

    def real(self, position: jax.Array) -> jax.Array:
        """The real weights of a position."""
        return position[self.continuous] if len(self.discrete) else position

    def put(self, position: jax.Array, real: jax.Array, *, add: bool = False) -> jax.Array:
        """The position with other real weights."""
        if not len(self.discrete):
            return position + real if add else real
        at = position.at[self.continuous]
        return at.add(real) if add else at.set(real)

    def flip(self, key: jax.Array, position: jax.Array, flips: int) -> jax.Array:
        """Some discrete weights, chosen at random, each at another of its values: symmetric."""
        # uniform numbers, scaled: integers and permutations take long to compile
        which_key, value_key = jax.random.split(key)
        count = len(self.discrete)
        if flips == 1:
            chosen = _integer(jax.random.uniform(which_key, (1,)), count)
        else:  # without replacement
            chosen = jax.lax.top_k(jax.random.uniform(which_key, (count,)), flips)[1]
        now, counts = self._index(position)[chosen], self.counts[chosen]
        shift = 1 + _integer(jax.random.uniform(value_key, (flips,)), counts - 1)
        new = self.values[chosen, (now + shift) % counts]
        return position.at[self.discrete[chosen]].set(new)

    def snap(self, position: jax.Array) -> jax.Array:
        """Every discrete weight at the value it is nearest to."""
        if not len(self.discrete):
            return position
        nearest = self.values[jnp.arange(len(self.discrete)), self._index(position)]
        return position.at[self.discrete].set(nearest)

    def _index(self, position: jax.Array) -> jax.Array:
        return jnp.argmin(jnp.abs(self.values - position[self.discrete][:, None]), axis=1)


def _integer(uniform: jax.Array, below: ArrayLike) -> jax.Array:
    """0, 1, …, below − 1 from uniform numbers; the product may round up to its bound."""
    return jnp.minimum((uniform * below).astype(jnp.int32), below - 1)


def layout(model: Model, flips: int) -> Layout:
    """The layout of a model's flat positions, of which ``flips`` discrete ones move at a time."""
    priors = jax.tree.leaves(model.priors, is_leaf=is_prior)
    pairs = list(zip(priors, jax.tree.leaves(model.parameters), strict=True))
    is_discrete = np.concatenate([np.full(np.size(w), prior.discrete) for prior, w in pairs])
    grids = [
        np.asarray(prior.values, np.float64)
        for prior, w in pairs
        if prior.discrete
        for _ in range(np.size(w))
    ]
    if 0 < len(grids) < flips:
        raise ValueError(f"flips={flips}, but the model has {len(grids)} discrete weights")
    values = np.full((len(grids), max(map(len, grids), default=0)), np.inf)
    for row, grid in zip(values, grids, strict=True):
        row[: len(grid)] = grid
    scales = [_deviation(prior, np.shape(w)) for prior, w in pairs]
    dtype = jnp.result_type(float)
    return Layout(
        jnp.asarray(np.flatnonzero(~is_discrete), jnp.int32),
        jnp.asarray(np.flatnonzero(is_discrete), jnp.int32),
        jnp.asarray(values, dtype),
        jnp.asarray([len(grid) for grid in grids], jnp.int32),
        jnp.asarray(np.concatenate(scales)[~is_discrete], dtype),
    )


def _deviation(prior: Prior, shape: tuple[int, ...]) -> np.ndarray:
    """The prior's deviation for every weight of an array, flat."""
    known = prior.deviation()
    return np.broadcast_to(1.0 if known is None else np.asarray(known), shape).ravel()


class MovePhase(ChainPhase):
    """Chains of single moves; discrete weights start, and stay, on their values."""

    layout: Layout
    flips: int = eqx.field(static=True)

    @property
    def walks(self) -> bool:
        """Whether there are real weights."""
        return len(self.layout.continuous) > 0

    @property
    def flipping(self) -> bool:
        """Whether there are discrete weights."""
        return len(self.layout.discrete) > 0

    def starts(self, start: Start, key: jax.Array) -> jax.Array:
        key, grid_key = jax.random.split(key)
        positions = super().starts(start, key)
        if not self.flipping:
            return positions
        # the network's own initialisation knows of no grid
        if start.posterior is None and not start.given:
            keys = jax.random.split(grid_key, self.chains)
            drawn = jax.vmap(lambda k: self.position(self.model.sample_prior(k)))(keys)
            at = self.layout.discrete
            positions = positions.at[:, at].set(drawn[:, at])
        return jax.vmap(self.layout.snap)(positions)

    def flip(self, key: jax.Array, w: jax.Array) -> jax.Array:
        """A proposal for the discrete weights."""
        return self.layout.flip(key, w, self.flips)

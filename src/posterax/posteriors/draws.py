"""Posteriors made of stored draws: chains, ensembles, weighted candidates, and a single point."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..model import Parameters
from ..predictive import Particles
from .base import Posterior


class Draws(Posterior):
    """Draws with axes (chain, draw, …), each with a weight where they are not equal.

    ``log_weights`` (chain, draw) is ``None`` for equally weighted draws; ``stats`` holds what a
    sampler reports about every draw.
    """

    draws: Parameters
    log_weights: Any = None
    stats: Any = None
    own_state: bool = eqx.field(static=True, default=False)  # a network state for every draw

    @property
    def shape(self) -> tuple[int, int]:
        """(chains, draws per chain)."""
        chains, draws = jax.tree.leaves(self.draws)[0].shape[:2]
        return chains, draws

    def particles(self, key: jax.Array, samples: int | None) -> Particles:
        total = int(np.prod(self.shape))
        if samples is None or samples >= total:
            index = jnp.arange(total)
        else:  # evenly spread over chains and time
            index = jnp.asarray(np.linspace(0, total - 1, samples).round().astype(np.int32))
        if self.log_weights is None:
            return Particles(index, jnp.full((len(index),), 1 / len(index)))
        if len(index) < total:  # thinning weighted draws would lose the heavy ones
            p = jax.nn.softmax(jnp.ravel(self.log_weights))
            index = jax.random.choice(key, total, (len(index),), p=p)
            return Particles(index, jnp.full((len(index),), 1 / len(index)))
        return Particles(index, jax.nn.softmax(jnp.ravel(self.log_weights)))

    def parameters(self, identity: Any) -> Parameters:
        return self._pick(self.draws, identity)

    def network_state(self, identity: Any) -> Any:
        return self._pick(self.state, identity) if self.own_state else self.state

    def _pick(self, tree: Any, identity: Any) -> Any:
        per_chain = self.shape[1]
        return jax.tree.map(lambda a: a[identity // per_chain, identity % per_chain], tree)

    def moments(self) -> tuple[Parameters, Parameters]:
        weights = self.particles(jax.random.key(0), None).weights
        flat = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), self.draws)
        mean = jax.tree.map(lambda a: jnp.tensordot(weights.astype(a.dtype), a, axes=1), flat)
        std = jax.tree.map(
            lambda a, m: jnp.sqrt(
                jnp.tensordot(weights.astype(a.dtype), jnp.square(a - m), axes=1)
            ),
            flat, mean,
        )  # fmt: skip
        return mean, std


class Point(Posterior):
    """A point estimate seen as a posterior: all mass on one set of parameters."""

    point: Parameters

    def particles(self, key: jax.Array, samples: int | None) -> Particles:
        # every sample would be the same network again
        return Particles(jnp.zeros((1,), jnp.int32), jnp.ones((1,)))

    def parameters(self, identity: Any) -> Parameters:
        return self.point

    def moments(self) -> tuple[Parameters, Parameters]:
        return self.point, jax.tree.map(jnp.zeros_like, self.point)

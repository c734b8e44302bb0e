"""Posteriors made of stored draws: chains, ensembles, weighted candidates, and a single point."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._util.checks import whole_number
from .._util.keys import KeyLike
from .._util.tree import named_leaves, plain
from ..model import Parameters
from ..predictive import Particles
from .base import Posterior, evaluate_each


class Draws(Posterior):
    """Draws with axes (chain, draw, …), each with a weight where they are not equal.

    ``log_weights`` (chain, draw) is ``None`` for equally weighted draws; ``stats`` holds what a
    sampler reports about every draw. Draws are ``chained`` where each depends on the one before.
    """

    draws: Parameters
    log_weights: Any = None
    stats: Any = None
    own_state: bool = eqx.field(static=True, default=False)  # a network state for every draw
    chained: bool = eqx.field(static=True, default=False)  # draws of a chain follow one another

    @property
    def shape(self) -> tuple[int, int]:
        """(chains, draws per chain)."""
        chains, draws = jax.tree.leaves(self.draws)[0].shape[:2]
        return chains, draws

    @property
    def members(self) -> int:
        return self.shape[1] if self.own_state else 0

    def member(self, index: Any) -> "Point":
        params, state = self.parameters(index), self.network_state(index)
        return Point(self.model, state, self.targets, point=params)

    def _sizes(self) -> dict[str, int]:
        chains, draws = self.shape
        return {"chains": chains, "draws": draws} if self.chained else {"draws": chains * draws}

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

    def parameters(self, identity: PyTree) -> Parameters:
        return self._pick(self.draws, identity)

    def network_state(self, identity: PyTree) -> Any:
        return self._pick(self.state, identity) if self.own_state else self.state

    def _pick(self, tree: PyTree, identity: PyTree) -> Any:
        per_chain = self.shape[1]
        return jax.tree.map(lambda a: a[identity // per_chain, identity % per_chain], tree)

    def moments(self) -> tuple[Parameters, Parameters]:
        weights = self.particles(jax.random.key(0), None).weights
        flat = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), self.draws)
        average = lambda a: jnp.tensordot(weights.astype(a.dtype), a, axes=1)  # noqa: E731
        mean = jax.tree.map(average, flat)
        return mean, jax.tree.map(lambda a, m: jnp.sqrt(average(jnp.square(a - m))), flat, mean)

    def expectation(
        self, function: Callable[[Parameters], Any], *, samples: int | None = None, key: KeyLike = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        if not self.chained or self.log_weights is not None:
            return super().expectation(function, samples=samples, key=key)
        chains, length = self.shape
        wanted = length if samples is None else -(-whole_number("samples", samples) // chains)
        # the same times in every chain, so that what is left are still chains
        time = np.linspace(0, length - 1, min(length, wanted)).round().astype(np.int32)
        ids = np.add.outer(np.arange(chains, dtype=np.int32) * length, time)
        values = np.asarray(evaluate_each(function, self.bare(), jnp.asarray(ids.ravel())))
        values = values.reshape(*ids.shape, *values.shape[1:]).astype(np.float64)
        from ..diagnostics.chain_statistics import mcse  # a leaf, in a room that stands above

        return np.asarray(values.mean((0, 1))), mcse(values)

    def to_arviz(self) -> Any:
        """The draws as ArviZ has them: a ``DataTree`` with ``posterior`` and ``sample_stats``.

        Parameters go by the names of ``model.summary()``, what the sampler reports about every
        draw by ArviZ's names (``diverging``, ``energy``, ``lp``, …); weighted draws have their
        ``log_weights`` in ``sample_stats``.

        Example:
            >>> import numpy as np
            >>> import posterax as px
            >>> x = np.linspace(-1, 1, 16)[:, None].astype("float32")
            >>> model = px.Model(
            ...     px.networks.MLP(1, 1, (), key=0),
            ...     px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.3),
            ... )
            >>> posterior = px.fit(model, (x, x[:, 0]), px.NUTS(warmup=50), steps=8, key=0)
            >>> tree = posterior.to_arviz()
            >>> dict(tree.posterior["network.layers.0.weight"].sizes)["draw"]
            8
            >>> "energy" in tree.sample_stats
            True
        """
        import arviz_base

        from .._version import __version__

        stats = {} if self.stats is None else named_leaves(self.stats)
        if self.log_weights is not None:
            stats["log_weights"] = self.log_weights
        groups = {"posterior": named_leaves(self.draws), "sample_stats": stats}
        about = {"inference_library": "posterax", "inference_library_version": __version__}
        return arviz_base.from_dict(
            {
                # a slash would be a group of its own
                group: {name.replace("/", "."): plain(a) for name, a in leaves.items()}
                for group, leaves in groups.items()
                if leaves
            },
            attrs={"posterior": about},
        )


class Point(Posterior):
    """A point estimate seen as a posterior: all mass on one set of parameters."""

    centred: ClassVar[bool] = True

    point: Parameters
    path: Any = None  # the way there, where the method tells it (annealing)

    def mixture(self) -> Draws:
        draws, state = jax.tree.map(lambda a: a[None], (self.point, self.state))
        return Draws(self.model, state, self.targets, draws=draws, own_state=True)

    def particles(self, key: jax.Array, samples: int | None) -> Particles:
        # every sample would be the same network again
        return Particles(jnp.zeros((1,), jnp.int32), jnp.ones((1,)))

    def parameters(self, identity: PyTree) -> Parameters:
        return self.point

    def moments(self) -> tuple[Parameters, Parameters]:
        return self.point, jax.tree.map(jnp.zeros_like, self.point)

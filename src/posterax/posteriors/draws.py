"""Posteriors made of stored draws: chains, ensembles, weighted candidates, and a single point."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from numpy.typing import ArrayLike

from .._util.tree import named_leaves, plain
from ..model import Parameters
from ..predictive import Particles
from .base import Estimate, Evidence, Posterior, Summary, evaluate_each, weighted_mean


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

    def fold(self, index: Any, folds: int) -> "Draws":
        axis = 0 if self.chained else 1
        draws = every(self.draws, index, folds, axis)
        state = every(self.state, index, folds, axis) if self.own_state else self.state
        same = {"own_state": self.own_state, "chained": self.chained}
        return Draws(self.model, state, self.targets, draws=draws, **same)

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
            return Particles.equal(index)
        weights = jax.nn.softmax(jnp.ravel(self.log_weights))
        if len(index) < total:  # thinning weighted draws would lose the heavy ones
            return Particles.equal(jax.random.choice(key, total, (len(index),), p=weights))
        return Particles(index, weights)

    def most(self, samples: int) -> int:
        return min(samples, int(np.prod(self.shape)))

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

    def _expectation(self, function: Summary, samples: int | None, key: jax.Array) -> Estimate:
        if not self.chained or self.log_weights is not None:
            return super()._expectation(function, samples, key)
        chains, length = self.shape
        wanted = length if samples is None else -(-samples // chains)
        # the same times in every chain, so that what is left are still chains
        time = np.linspace(0, length - 1, min(length, wanted)).round().astype(np.int32)
        ids = np.add.outer(np.arange(chains, dtype=np.int32) * length, time)
        values = np.asarray(evaluate_each(function, self.bare(), jnp.asarray(ids.ravel())))
        values = values.reshape(*ids.shape, *values.shape[1:]).astype(np.float64)
        from ..diagnostics.chain_statistics import mcse  # in a room that stands above

        return np.asarray(values.mean((0, 1))), mcse(values)

    def to_arviz(self) -> Any:
        """The draws as ArviZ has them: a ``DataTree`` with ``posterior`` and ``sample_stats``.

        Parameters go by the names of ``model.summary()``, what the sampler reports about every
        draw by ArviZ's names (``diverging``, ``energy``, ``lp``, …); weighted draws have their
        ``log_weights`` in ``sample_stats``.

        Example:
            >>> import numpy as np
            >>> import posterax as px
            >>> x = np.linspace(-1, 1, 16, dtype="float32")[:, None]
            >>> line = px.networks.MLP(1, 1, (), key=0)
            >>> model = px.Model(line, likelihood=px.likelihoods.Gaussian(0.3))
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
        arrays = {
            # a slash would be a group of its own
            group: {name.replace("/", "."): plain(a) for name, a in leaves.items()}
            for group, leaves in groups.items()
            if leaves
        }
        about = {"inference_library": "posterax", "inference_library_version": __version__}
        return arviz_base.from_dict(arrays, attrs={"posterior": about})


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

    def most(self, samples: int) -> int:
        return 1

    def parameters(self, identity: PyTree) -> Parameters:
        return self.point

    def moments(self) -> tuple[Parameters, Parameters]:
        return self.point, jax.tree.map(jnp.zeros_like, self.point)


class WeightedDraws(Draws):
    r"""Independent candidates with weights, (chain, draw); made by ``px.ImportanceSampling``.

    Σ vᵢ F(cᵢ) with vᵢ = wᵢ / Σ w estimates E[F(w) | D]. ``log_weights`` are normalised, and Pareto
    smoothed where the method was asked to; ``stats["log_weight"]`` holds log p(D, c) − log q(c) as
    it was. ``khat`` is the shape of the weights' tail (NaN where it cannot be found, and on a
    grid); ``log_normaliser`` is log p(D) where the user knew it, and makes ``expectation`` the
    plain, unbiased mean of w F.
    """

    khat: Any = None
    log_normaliser: Any = None

    @property
    def effective_sample_size(self) -> float:
        """(Σ w)² / Σ w²: how many equally weighted draws tell as much."""
        return effective(self.log_weights)

    def _expectation(self, function: Summary, samples: int | None, key: jax.Array) -> Estimate:
        if samples is not None:
            return super()._expectation(function, samples, key)
        count, known = int(np.prod(self.shape)), self.log_normaliser is not None
        values = np.asarray(evaluate_each(function, self.bare(), jnp.arange(count)), np.float64)
        if known:
            raw = np.asarray(self.stats["log_weight"], np.float64).ravel()
            w = np.exp(raw - float(self.log_normaliser)) / count
        else:
            w = np.exp(normalised(self.log_weights)).ravel()
        # what has no weight may have no value either
        used = np.expand_dims(w > 0, tuple(range(1, values.ndim)))
        values = np.where(used, values, 0)
        if not known:
            return weighted_mean(w, values)
        each = count * w.reshape(used.shape) * values
        return np.tensordot(w, values, axes=1), each.std(axis=0, ddof=1) / np.sqrt(count)


def every(tree: PyTree, index: Any, folds: int, axis: int = 0) -> Any:
    """Of the entries along an axis those whose number leaves this remainder.

    Example:
        >>> import numpy as np
        >>> from posterax.posteriors.draws import every
        >>> every(np.arange(6), 1, 3).tolist()
        [1, 4]
    """

    def take(a: jax.Array) -> jax.Array:
        apart = a.reshape(*a.shape[:axis], -1, folds, *a.shape[axis + 1 :])
        return jnp.take(apart, index, axis=axis + 1)

    return jax.tree.map(take, tree)


def normalised(log_weights: ArrayLike) -> np.ndarray:
    """Log weights whose exponentials sum to one, in float64."""
    raw = np.asarray(log_weights, np.float64)
    return raw - raw.max() - np.log(np.sum(np.exp(raw - raw.max())))


def effective(log_weights: ArrayLike) -> float:
    """The effective sample size of draws with these log weights.

    Example:
        >>> import numpy as np
        >>> from posterax.posteriors.draws import effective
        >>> round(effective(np.log([0.5, 0.5, 1e-9])), 3)
        2.0
    """
    return float(1 / np.sum(np.exp(2 * normalised(log_weights))))


def evidence_of(log_weights: np.ndarray) -> Evidence:
    """log of the mean weight, and its standard error by the delta method."""
    raw = np.asarray(log_weights, np.float64).ravel()
    best, n = raw.max(), raw.size
    w = np.exp(raw - best)
    error = w.std(ddof=1) / (np.sqrt(n) * w.mean()) if n > 1 else np.inf
    return Evidence(float(best + np.log(w.mean())), float(error))


def pareto_smooth(
    log_weights: np.ndarray, relative_efficiency: float = 1.0
) -> tuple[np.ndarray, float]:
    """Log weights with a smoothed tail, normalised, and k-hat; both by arviz-stats.

    The largest weights follow a generalised Pareto distribution, whose shape k tells how heavy
    their tail is: 1/k moments are finite. Replaced by the quantiles of that distribution, they no
    longer depend on which single candidate happened to come (Vehtari et al. 2024).

    ``relative_efficiency`` is the effective share of the draws, where they depend on one another.
    NaN, and weights as they are, where the tail says nothing: below 25 candidates, or where the
    largest weights are all the same or nothing beside the very largest.
    """
    raw = np.asarray(log_weights, np.float64)
    plain = normalised(raw)
    if raw.size < 25:
        return plain, np.nan
    from arviz_stats.base import array_stats

    with np.errstate(all="ignore"):
        try:
            smooth, khat = array_stats.psislw(-raw.ravel(), r_eff=relative_efficiency)
        except ValueError:  # all tail values are the same
            return plain, np.nan
    if not np.isfinite(khat) or np.any(np.isnan(smooth)):
        return plain, np.nan
    return smooth.reshape(raw.shape), float(khat)

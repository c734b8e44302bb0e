r"""The factors that a factorised q is made of: q(w) = ∏ᵢ qᵢ(wᵢ), array by array of the weights.

A family says what an array's factors are. It needs no more than draws and a log density:

    init(prior, w)              → variational parameters, any tree of float arrays
    sample(key, variational)    → the array of weights
    log_prob(variational, w)    → log qᵢ(wᵢ) of every weight, shaped like w

``init`` is given the array's prior and the weights to start from. The weights must be independent
of each other under q; they may share variational parameters.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .._util.noise import noise_key, standard_normal
from .._util.special import softplus
from .._util.tree import named_leaves
from ..model import Model, Parameters
from ..priors import Grid, PerWeight, Prior, is_flat, is_grid, is_prior
from ..priors.base import normal_log_prob
from .base import Posterior


@runtime_checkable
class OwnFamily(Protocol):
    """What ``px.BlackBoxVI(family=…)`` takes: a distribution with draws and a log density."""

    def init(self, prior: Prior, w: jax.Array) -> Any:
        """Variational parameters to start from."""

    def sample(self, key: jax.Array, variational: PyTree) -> jax.Array:
        """A draw of the array of weights."""

    def log_prob(self, variational: PyTree, w: jax.Array) -> jax.Array:
        """log qᵢ(wᵢ), shaped like ``w``."""


class Factor(eqx.Module):
    """A family as posterax uses it: its variational parameters are a dictionary."""

    def sample(self, key: jax.Array, v: dict[str, Any]) -> jax.Array:
        """A draw of the array."""
        raise NotImplementedError

    def log_prob(self, v: dict[str, Any], w: jax.Array) -> jax.Array:
        """log qᵢ(wᵢ), shaped like the array."""
        raise NotImplementedError

    def kl(self, prior: Prior, v: dict[str, Any]) -> jax.Array | None:
        """KL(q ‖ prior), an array to sum; ``None`` where there is no closed form."""
        return None

    def moments(self, v: dict[str, Any]) -> tuple[jax.Array, jax.Array]:
        """Means and deviations."""
        raise NotImplementedError


class PointFactor(Factor):
    """A weight without a prior, and so without a spread."""

    def sample(self, key: jax.Array, v: dict[str, Any]) -> jax.Array:
        return v["mu"]

    def log_prob(self, v: dict[str, Any], w: jax.Array) -> jax.Array:
        return jnp.zeros_like(w)

    def moments(self, v: dict[str, Any]) -> tuple[jax.Array, jax.Array]:
        return v["mu"], jnp.zeros_like(v["mu"])


class GaussianFactor(Factor):
    """N(μ, σ²) with σ = softplus(ρ)."""

    def sample(self, key: jax.Array, v: dict[str, Any]) -> jax.Array:
        mu = v["mu"]
        return mu + softplus(v["rho"]) * standard_normal(noise_key(key), mu.shape, mu.dtype)

    def log_prob(self, v: dict[str, Any], w: jax.Array) -> jax.Array:
        return normal_log_prob(w, v["mu"], softplus(v["rho"]))

    def kl(self, prior: Prior, v: dict[str, Any]) -> jax.Array | None:
        return prior.kl_from_gaussian(v["mu"], softplus(v["rho"]))

    def moments(self, v: dict[str, Any]) -> tuple[jax.Array, jax.Array]:
        return v["mu"], softplus(v["rho"])


class CategoricalFactor(Factor):
    """P(w = vₖ) ∝ exp(ℓₖ) over the values of a grid; two values make it Bernoulli.

    The first value's logit is 0, so that nothing is said twice; the others are on an axis in
    front, K − 1 long.
    """

    grid: Grid

    def log_probs(self, v: dict[str, Any]) -> jax.Array:
        """(K, …): the log probability of every value."""
        logits = v["logits"]
        return jax.nn.log_softmax(jnp.concatenate([jnp.zeros_like(logits[:1]), logits]), axis=0)

    def sample(self, key: jax.Array, v: dict[str, Any]) -> jax.Array:
        index = jax.random.categorical(key, self.log_probs(v), axis=0)
        return self.grid.value(index, v["logits"].dtype)

    def log_prob(self, v: dict[str, Any], w: jax.Array) -> jax.Array:
        index = self.grid.index(w)[None]
        log_prob = jnp.take_along_axis(self.log_probs(v), index, axis=0)[0]
        return jnp.where(self.grid.contains(w), log_prob, -jnp.inf)

    def kl(self, prior: Prior, v: dict[str, Any]) -> jax.Array | None:
        log_q = self.log_probs(v)
        values = jnp.asarray(self.grid.values, log_q.dtype)
        log_p = prior.log_prob(values).reshape(-1, *[1] * (log_q.ndim - 1))
        return jnp.sum(jnp.exp(log_q) * (log_q - log_p), axis=0)

    def moments(self, v: dict[str, Any]) -> tuple[jax.Array, jax.Array]:
        probs = jnp.exp(self.log_probs(v))
        values = jnp.asarray(self.grid.values, probs.dtype)
        mean = jnp.tensordot(values, probs, axes=1)
        away = values.reshape(-1, *[1] * mean.ndim) - mean
        return mean, jnp.sqrt(jnp.sum(probs * jnp.square(away), axis=0))

    def logits(self, probs: jax.Array) -> jax.Array:
        """The logits of probabilities (…, K), none of which may be 0."""
        log_probs = jnp.moveaxis(jnp.log(probs), -1, 0)
        return log_probs[1:] - log_probs[:1]


class OwnFactor(Factor):
    """A family of the user's own; moments are those of 4096 draws unless it knows them."""

    family: Any

    def sample(self, key: jax.Array, v: dict[str, Any]) -> jax.Array:
        return self.family.sample(key, v["own"])

    def log_prob(self, v: dict[str, Any], w: jax.Array) -> jax.Array:
        return self.family.log_prob(v["own"], w)

    def moments(self, v: dict[str, Any]) -> tuple[jax.Array, jax.Array]:
        if hasattr(self.family, "moments"):
            return self.family.moments(v["own"])
        keys = jax.random.split(jax.random.key(0), 4096)
        draws = jax.vmap(lambda key: self.family.sample(key, v["own"]))(keys)
        return jnp.mean(draws, 0), jnp.std(draws, 0)


def factors(model: Model, family: Any) -> list[Factor]:
    """The factor of every array of the parameters, in order.

    With ``"auto"`` the prior decides: weights on a grid are categorical, all others Gaussian.
    What has no prior is a point whatever the family.
    """

    def one(prior: Prior) -> Factor:
        if is_flat(prior):
            return PointFactor()
        if family != "auto":
            return OwnFactor(family)
        return CategoricalFactor(prior) if isinstance(prior, Grid) else GaussianFactor()

    return [one(prior) for prior in model.prior_of_each()]


def by_array(model: Model, variational: dict[str, Any]) -> list[dict[str, Any]]:
    """For every array its own variational parameters, from a dictionary of trees."""
    treedef: Any = jax.tree.structure(model.priors, is_leaf=is_prior)
    flat = {name: treedef.flatten_up_to(tree) for name, tree in variational.items()}
    return [
        {name: parts[i] for name, parts in flat.items() if parts[i] is not None}
        for i in range(treedef.num_leaves)
    ]


def by_name(model: Model, nodes: list[dict[str, Any]], names: Any) -> dict[str, Any]:
    """The inverse: trees like the parameters, ``None`` where an array has no such thing."""
    return {name: model.tree_of(node.get(name) for node in nodes) for name in names}


def draw(model: Model, family: Any, variational: dict[str, Any], key: jax.Array) -> Parameters:
    """One draw of all parameters; every array has a key of its own."""
    likes = jax.tree.leaves(model.parameters)
    parts = zip(factors(model, family), by_array(model, variational), likes, strict=True)
    return model.tree_of(
        factor.sample(jax.random.fold_in(key, i), v).astype(like.dtype)
        for i, (factor, v, like) in enumerate(parts)
    )


def each(
    model: Model, family: Any, variational: dict[str, Any], function: Callable[..., Any]
) -> list[Any]:
    """``function(factor, variational parameters)`` of every array."""
    nodes = by_array(model, variational)
    return [function(f, v) for f, v in zip(factors(model, family), nodes, strict=True)]


def has_grids(model: Model) -> bool:
    """Whether some weights take finitely many values."""
    return any(is_grid(prior) for prior in model.prior_of_each())


def check_hashable(family: Any) -> None:
    """Refuse a family that compiled code cannot be kept under."""
    arrays = jax.tree.leaves(family)  # of an Equinox module; any other object is one leaf
    try:
        hash((jax.tree.structure(family), *(a for a in arrays if not eqx.is_array_like(a))))
    except TypeError as error:
        raise TypeError(
            f"family must be hashable: write @dataclass(frozen=True) ({error})"
        ) from error


def check_family(family: Any, model: Model) -> None:
    """Refuse a family whose draws or log densities have another shape than the weights."""
    weights = named_leaves(model.parameters).items()
    for (name, w), prior in zip(weights, model.prior_of_each(), strict=True):
        if is_flat(prior):
            continue
        v = eqx.filter_eval_shape(family.init, prior, w)
        if not jax.tree.leaves(v):
            raise ValueError(f"family: init gives no variational parameters for {name}")
        drawn = eqx.filter_eval_shape(family.sample, jax.random.key(0), v)
        if drawn.shape != w.shape:
            raise ValueError(f"family: a draw of {name} has shape {drawn.shape}, not {w.shape}")
        log_q = eqx.filter_eval_shape(family.log_prob, v, drawn)
        if log_q.shape != w.shape:
            raise ValueError(
                f"family: log_prob of {name} has shape {log_q.shape}, not {w.shape}: it is the log "
                "density of each weight, not their sum"
            )


class Gridded(Posterior):
    """A posterior of weights on a grid, or of some: it is no Gaussian prior for the next data."""

    def marginals(self) -> Parameters:
        """P(wᵢ = vₖ) of every weight on a grid, the values on a last axis."""
        raise NotImplementedError

    def as_prior(self) -> PerWeight:
        if has_grids(self.model):
            raise ValueError(
                f"{type(self).__name__}: weights on a grid are not Gaussian, so this posterior is "
                "no prior for the next data: fit all data together, or read posterior.marginals()"
            )
        return super().as_prior()


class Factorized(Gridded):
    r"""q(w) = ∏ᵢ qᵢ(wᵢ), categorical where weights are on a grid; made by ``px.BlackBoxVI``.

    ``variational`` is a dictionary of trees like the model's parameters, each with ``None`` where
    an array has no such thing: ``mu`` and ``rho`` of Gaussian factors (``mu`` also of points) and
    ``logits`` of categorical ones, or ``own`` where the family is the user's. Where all factors
    are Gaussian, ``MeanFieldGaussian`` is the posterior instead.
    """

    family: Any
    variational: dict[str, Any]

    def parameters(self, identity: PyTree) -> Parameters:
        return draw(self.model, self.family, self.variational, identity)

    def log_prob(self, parameters: Parameters) -> jax.Array:
        """Σᵢ log qᵢ(wᵢ) over all parameters that are not points; −∞ off the grid."""
        weights = iter(jax.tree.leaves(parameters))
        terms = self._each(lambda factor, v: jnp.sum(factor.log_prob(v, next(weights))))
        return jax.tree.reduce(jnp.add, terms)

    def _each(self, function: Any) -> list[Any]:
        return each(self.model, self.family, self.variational, function)

    def marginals(self) -> Parameters:
        """P(wᵢ = vₖ) of every weight on a grid, the values on a last axis; ``None`` for others.

        Example:
            >>> import numpy as np
            >>> import posterax as px
            >>> network = {"slope": np.ones((1, 1), "float32")}, lambda p, x: x @ p["slope"]
            >>> model = px.Model(network, px.priors.Grid([0, 1]), px.likelihoods.Gaussian(1.0))
            >>> x = np.ones((3, 1), "float32")
            >>> posterior = px.fit(model, (x, x), px.BlackBoxVI(), steps=10)
            >>> posterior.marginals().network["slope"].shape
            (1, 1, 2)
        """

        def probs(factor: Any, v: dict[str, Any]) -> jax.Array | None:
            if not isinstance(factor, CategoricalFactor):
                return None
            return jnp.moveaxis(jnp.exp(factor.log_probs(v)), 0, -1)

        return self.model.tree_of(self._each(probs))

    def moments(self) -> tuple[Parameters, Parameters]:
        mean, std = zip(*self._each(lambda factor, v: factor.moments(v)), strict=True)
        return self.model.tree_of(mean), self.model.tree_of(std)

    def save(self, path: str | Path) -> None:
        if self.family != "auto":
            name = type(self.family).__name__
            raise ValueError(
                f"save: the family {name} is code of your own: keep posterior.variational, or draws"
            )
        super().save(path)

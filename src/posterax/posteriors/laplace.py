"""The Gaussian posterior of the Laplace approximation."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._util.noise import noise_key, standard_normal
from .._util.tree import named_leaves
from ..model import Parameters
from ..priors import Gaussian, is_prior
from ..priors.base import LOG_2PI
from ..program.compiled import compiled
from .base import Posterior
from .correlated import refuse_large_covariance
from .symmetric import Symmetric, in_pairs


class Part(NamedTuple):
    """A block of weights: which, and its arrays."""

    names: list[str]
    arrays: dict[str, Any]


class LaplaceGaussian(Symmetric):
    r"""q(w) = N(w | w*, (H + P)⁻¹) in blocks, each δ = scale ∘ U (deviation ∘ ε).

    U holds the eigenvectors of the block's curvature, whitened by the prior: a matrix (``basis``),
    a product of two (``inputs`` and ``outputs``, for a weight read as inputs × outputs by its axes
    in ``order``), or none. Weights of no block are points.

    ``mu`` is w*; ``blocks`` are dictionaries of arrays, with the names of their weights in
    ``leaves``. ``linearised`` predictions are f(x; w*) + J(x) δ, with J = ∂f/∂w at w*: those of the
    linear model whose posterior q is. ``prior_factors`` are what the prior's precision was
    multiplied by, for all weights (``"all"``) or by name; ``model`` has the prior as it was given,
    and ``priors_of`` the one that q is of.
    """

    blocks: dict[str, dict[str, Any]]
    linearised: bool
    prior_factors: dict[str, Any]

    # -- draws

    def deviation(self, key: jax.Array) -> Parameters:
        noise, by_name = noise_key(key), dict[str, jax.Array]()
        for i, part in enumerate(self.parts()):
            d = part.arrays["deviation"]
            white = standard_normal(jax.random.fold_in(noise, i), d.shape, d.dtype)
            by_name |= self._split(part, _coloured(part.arrays, d * white))
        return self._tree(by_name)

    def evaluate(self, ids: PyTree, x: PyTree) -> tuple[jax.Array, Any]:
        if not self.linearised:
            return super().evaluate(ids, x)
        random, points = eqx.partition(self.mu, self._random(ids.key[0]))

        def network(weights: PyTree) -> jax.Array:
            own = Parameters(eqx.combine(weights, points.network), None)
            return self.model.apply(own, self.state, x, None, training=False)[0]

        centre, tangent = jax.linearize(network, random.network)

        def sides(key: jax.Array) -> Any:
            step = self.deviation(key)
            moved = tangent(step.network)

            def side(sign: float) -> tuple[jax.Array, Any]:
                own = jax.tree.map(lambda m, d: m + sign * d, random.likelihood, step.likelihood)
                return centre + sign * moved, eqx.combine(own, points.likelihood)

            return side

        return in_pairs(sides, ids, x)

    # -- moments and density

    def moments(self) -> tuple[Parameters, Parameters]:
        std: dict[str, jax.Array] = {}
        for part in self.parts():
            std |= self._split(part, jnp.sqrt(_variances(part.arrays)))
        return self.mu, self._or_zero(self._tree(std))

    def covariance(self) -> jax.Array:
        """(D, D) over all parameters that have a prior, in tree order; 0 for those of no block."""
        instead = "moments() gives the deviations"
        refuse_large_covariance(self.model, "covariance()", instead, matrices=2)
        return _covariance(self.bare())

    def log_prob(self, parameters: Parameters) -> jax.Array:
        """log N(w | w*, (H + P)⁻¹) of the parameters that are no points."""
        given, centre = named_leaves(parameters), named_leaves(self.mu)
        total = jnp.zeros(())
        for part in self.parts():
            away = [given[name] - centre[name] for name in part.names]
            white, log_scale = _whitened(part.arrays, away)
            d = part.arrays["deviation"]
            total -= 0.5 * (jnp.sum(jnp.square(white / d)) + LOG_2PI * d.size)
            total -= jnp.sum(jnp.log(d)) + log_scale
        return total

    def entropy(self) -> jax.Array:
        size = sum(part.arrays["deviation"].size for part in self.parts())
        # the density at its top is all but the half that a square has on average
        return 0.5 * size - self.log_prob(self.mu)

    def no_evidence(self) -> str:
        priors = named_leaves(self.model.priors, is_leaf=is_prior)
        for name in (name for part in self.parts() for name in part.names):
            if not isinstance(priors[name], Gaussian):
                kind = type(priors[name]).__name__
                return f"it needs Gaussian priors, and that of {name} is {kind}"
        again = "px.fit(…, px.Laplace(train=False), init=posterior) makes it anew"
        return f"the pass over the data was interrupted; {again}"

    # -- blocks and trees

    def parts(self) -> Iterator[Part]:
        """The blocks with the names of their weights."""
        for name in sorted(self.blocks):  # as JAX has it, so that noise is the same everywhere
            arrays = self.blocks[name]
            yield Part(arrays["leaves"].split("\n"), arrays)

    def _split(self, part: Part, flat: jax.Array) -> dict[str, jax.Array]:
        """What belongs to each weight of a block."""
        centre = named_leaves(self.mu)
        likes = [centre[name] for name in part.names]
        pieces = jnp.split(flat.reshape(-1), np.cumsum([like.size for like in likes])[:-1])
        shaped = (piece.reshape(like.shape) for piece, like in zip(pieces, likes, strict=True))
        return dict(zip(part.names, shaped, strict=True))

    def _tree(self, by_name: dict[str, jax.Array]) -> Parameters:
        """A tree like the parameters, ``None`` for those of no block."""
        return self.model.tree_of(by_name.get(name) for name in named_leaves(self.mu))


def priors_of(posterior: Posterior) -> Parameters:
    """The prior of each array that this posterior is of: the model's, or as Laplace tuned it."""
    priors = posterior.model.priors
    if not isinstance(posterior, LaplaceGaussian) or not posterior.prior_factors:
        return priors
    factors = dict(posterior.prior_factors)
    if "all" in factors:  # of the network's weights that are no points
        tau = factors.pop("all")
        names = (name for part in posterior.parts() for name in part.names)
        factors = {name: tau for name in names if name.startswith("network.")}
    return posterior.model.tree_of(
        Gaussian(prior.scale / jnp.sqrt(factors[name]), prior.loc) if name in factors else prior
        for name, prior in named_leaves(priors, is_leaf=is_prior).items()
    )


def _coloured(arrays: dict[str, Any], white: jax.Array) -> jax.Array:
    """scale ∘ U white, in the order of the weights."""
    if "basis" in arrays:
        return arrays["scale"] * (arrays["basis"] @ white)
    if "inputs" not in arrays:
        return white
    turned = arrays["inputs"] @ white @ arrays["outputs"].T
    scaled = arrays["input_scale"][:, None] * turned * arrays["output_scale"]
    return _in_shape(arrays, scaled)


def _variances(arrays: dict[str, Any]) -> jax.Array:
    square: Callable[[jax.Array], jax.Array] = jnp.square
    variance = square(arrays["deviation"])
    if "basis" in arrays:
        return square(arrays["scale"]) * (square(arrays["basis"]) @ variance)
    if "inputs" not in arrays:
        return variance
    turned = square(arrays["inputs"]) @ variance @ square(arrays["outputs"]).T
    scales = square(arrays["input_scale"])[:, None] * square(arrays["output_scale"])
    return _in_shape(arrays, scales * turned)


def _whitened(arrays: dict[str, Any], away: list[jax.Array]) -> tuple[jax.Array, Any]:
    """Uᵀ (away / scale), and the sum of the logarithms of the scales."""
    if "basis" in arrays:
        flat = jnp.concatenate([a.reshape(-1) for a in away])
        return arrays["basis"].T @ (flat / arrays["scale"]), jnp.sum(jnp.log(arrays["scale"]))
    if "inputs" not in arrays:
        return away[0], 0.0
    rows, columns = arrays["input_scale"], arrays["output_scale"]
    shape = (len(rows), len(columns))
    matrix = as_matrix(away[0], _order(arrays), len(rows)) / (rows[:, None] * columns)
    logs = shape[1] * jnp.sum(jnp.log(rows)) + shape[0] * jnp.sum(jnp.log(columns))
    return arrays["inputs"].T @ matrix @ arrays["outputs"], logs


def _order(arrays: dict[str, Any]) -> list[int]:
    return [int(axis) for axis in arrays["order"].split(",")]


def _in_shape(arrays: dict[str, Any], matrix: jax.Array) -> jax.Array:
    shape = [int(size) for size in arrays["shape"].split(",")]
    return as_weight(matrix, _order(arrays), shape)


def as_matrix(w: jax.Array, order: Sequence[int], inputs: int) -> jax.Array:
    """A weight as (inputs, outputs); ``order`` are its axes, those of the inputs first."""
    return w.transpose(order).reshape(inputs, -1)


def as_weight(matrix: jax.Array, order: Sequence[int], shape: Sequence[int]) -> jax.Array:
    """(inputs, outputs) in the shape of the weight."""
    return matrix.reshape([shape[axis] for axis in order]).transpose(np.argsort(order))


@compiled
def _covariance(posterior: Any) -> jax.Array:
    rows, at = {}, 0
    for name, leaf in named_leaves(posterior.model.bayesian(posterior.mu)).items():
        rows[name], at = np.arange(at, at + leaf.size), at + leaf.size
    matrix = jnp.zeros((at, at), jax.tree.leaves(posterior.mu)[0].dtype)
    for names, arrays in posterior.parts():
        deviation = arrays["deviation"]
        unit = jnp.eye(deviation.size, dtype=deviation.dtype).reshape(-1, *deviation.shape)

        def row(white: jax.Array, arrays: dict[str, Any] = arrays) -> jax.Array:
            return _coloured(arrays, arrays["deviation"] * white).reshape(-1)

        root = jax.vmap(row)(unit)
        own = np.concatenate([rows[name] for name in names])
        matrix = matrix.at[np.ix_(own, own)].set(root.T @ root)
    return matrix

r"""The evidence lower bound of a posterior as a number, with its Monte Carlo error.

    ELBO(q) = E_q[Σₙ weightₙ log p(yₙ | xₙ, w)] − KL(q ‖ p)

One compiled program serves every number of draws up to 128: draws go by in small groups and rows in
blocks, so that memory is that of a few networks on one block.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from numpy.typing import ArrayLike

from .._util.keys import KeyLike, as_key
from .._util.tree import abstract_rows
from ..data import Data, bucket, pad_rows
from ..model import Parameters
from ..networks.base import footprint
from ..posteriors import MeanFieldGaussian, Posterior
from ..posteriors.draws import effective, pareto_smooth
from ..posteriors.laplace import priors_of
from ..posteriors.scaled import mean_field_kl
from ..posteriors.symmetric import Symmetric
from ..predictive.stream import default_block_bytes
from ..priors import Hierarchical, is_prior
from ..program.compiled import compiled

ROOM = 128  # draws that one program has room for
FEW_ROWS, WIDE, NARROW = 256, 8, 2  # draws at once: more where rows are few
TAIL = 50  # draws below which k-hat says nothing
MEANS = ("value", "nll", "predictive_nll", "kl", "k_hat")  # over the members of an ensemble


class Bound(NamedTuple):
    """The ELBO of a posterior and its parts; value = −N · nll − kl.

    ``value`` is in nats over all rows and ``error`` its Monte Carlo standard error; ``nll`` is
    E_q of the NLL and ``predictive_nll`` the NLL of the mixture of the draws, both in nats a row;
    ``kl`` is KL(q ‖ p) in nats; ``k_hat`` the shape of the tail of p(D, w) / q(w), NaN below 50
    draws. Weights that are points in q do not count.
    """

    value: float
    error: float
    nll: float
    predictive_nll: float
    kl: float
    k_hat: float
    samples: int

    def plain(self) -> dict[str, Any]:
        """As a file has it: ``None`` for what is not finite."""
        return {k: v if np.isfinite(v) else None for k, v in self._asdict().items()}

    @classmethod
    def of(cls, plain: dict[str, Any]) -> "Bound":
        """The inverse of ``plain``."""
        values = [np.nan if plain[name] is None else plain[name] for name in cls._fields]
        return cls(*values)  # type: ignore[arg-type]


class Totals(NamedTuple):
    """What the draws give on some rows, draw by draw, on the host in float64."""

    log_likelihoods: np.ndarray  # Σₙ weightₙ log p(yₙ | xₙ, w)
    kl: np.ndarray  # in closed form where there is one, else log q(w) − log p(w)
    log_ratios: np.ndarray  # log p(w) − log q(w)
    predictive: float  # Σₙ weightₙ log E_q p(yₙ | xₙ, w)
    weights: np.ndarray
    apart: bool = False  # whether rows had noise of their own

    @property
    def effective(self) -> float:
        """How many of the draws count, by their weights p(D, w) / q(w)."""
        joint = self.log_likelihoods + self.log_ratios
        return effective(joint) if np.isfinite(joint).all() else 0.0


def bound(
    posterior: Posterior, data: Data, *, samples: int, key: KeyLike, apart: bool = True
) -> Bound:
    """The ELBO of a posterior with a density on rows as a fit holds them.

    Where predictions are linearised (``px.Laplace``) the likelihood is still the network's own.

    Args:
        posterior: one whose family has ``log_prob``.
        data: all rows, padded.
        samples: draws of q; the error falls with their root.
        key: an int or a JAX key; the same key gives the same draws.
        apart: for a mean-field Gaussian, whether rows have noise of their own where the network
            allows it: a far smaller error, and no k-hat, which is of draws of all weights.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> from posterax.diagnostics.bound import bound, held
        >>> x = np.linspace(-1, 1, 16)[:, None].astype("float32")
        >>> line = px.networks.MLP(1, 1, (), key=0)
        >>> model = px.Model(line, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.3))
        >>> posterior = px.fit(model, (x, x[:, 0]), px.Conjugate())
        >>> found = bound(posterior, held(posterior, x, x[:, 0]), samples=10, key=0)
        >>> abs(found.value - posterior.log_evidence.value) < 0.01  # q is the posterior
        True
    """
    totals = draw_by_draw(posterior, data, samples=samples, key=key, apart=apart)
    return bound_of(totals, float(np.sum(np.asarray(data.weight, np.float64))))


def draw_by_draw(
    posterior: Posterior, data: Data, *, samples: int, key: KeyLike, apart: bool = False
) -> Totals:
    """The parts of the bound, draw by draw; those of several parts of the data can be added."""
    posterior = unlinearised(posterior)
    apart = apart and type(posterior) is MeanFieldGaussian  # a mixture of them is not one
    ids, weights = _draws(posterior, jax.random.split(as_key(key))[0], samples)
    n = len(weights)
    rows = data.y.shape[0]
    group = WIDE if rows <= FEW_ROWS else NARROW
    room = len(jax.tree.leaves(ids)[0])
    log_weights = np.full(room, -np.inf)
    with np.errstate(divide="ignore"):
        log_weights[:n] = np.log(weights)
    blocks = -(-rows // max(1, default_block_bytes() // _bytes_per_row(posterior, data, group)))
    parts = _totals(
        posterior.bare(), dataclasses.replace(data, augment=None), ids,
        jnp.asarray(log_weights, data.weight.dtype), jnp.asarray(-(-n // group), jnp.int32),
        group, blocks, apart,
    )  # fmt: skip
    likelihoods, kl, ratios, predictive = (np.asarray(a, np.float64) for a in parts)
    return Totals(
        likelihoods.sum(-1)[:n], kl[:n], ratios[:n],
        float(predictive @ np.asarray(data.weight, np.float64)), weights, apart,
    )  # fmt: skip


def _draws(posterior: Posterior, key: jax.Array, samples: int) -> tuple[PyTree, np.ndarray]:
    """Identities that fill the room of a program, and the weights of those that count."""
    if isinstance(posterior, Symmetric) and samples <= ROOM:
        # the first of many are the same as if they were all, and no number is compiled anew
        return posterior.antithetic(key, ROOM).ids, np.full(samples, 1 / samples)
    ids, weights = posterior.antithetic(key, samples)
    n = len(weights)
    # the rest are draws that come again, and are not looked at or weigh nothing
    room = ROOM if n <= ROOM else -(-bucket(n) // WIDE) * WIDE
    ids = jax.tree.map(lambda a: a[np.arange(room) % n], ids)
    return ids, np.asarray(weights, np.float64)


def mean_bound(found: list[Bound]) -> Bound:
    """The mean over the members of an ensemble, which the ELBO of their mixture is not below."""
    if len(found) == 1:
        return found[0]
    mean: dict[str, Any] = {n: float(np.mean([getattr(b, n) for b in found])) for n in MEANS}
    error = float(np.linalg.norm([b.error for b in found])) / len(found)
    return found[0]._replace(**mean, error=error)


def bound_of(totals: Totals, rows: float) -> Bound:
    """The bound of what the draws give on all rows, whose weights sum to ``rows``."""
    likelihoods, kl, ratios, predictive, weights, apart = totals
    value, error = mean_of_pairs(likelihoods - kl, weights)
    joint, k_hat = likelihoods + ratios, float("nan")
    # rows with noise of their own are no draws of the weights, of which k-hat is
    if not apart and len(joint) >= TAIL and np.isfinite(joint).all():
        k_hat = pareto_smooth(joint)[1]
    return Bound(
        value, error, -float(weights @ likelihoods) / rows, -predictive / rows,
        float(weights @ kl), float(k_hat), len(weights),
    )  # fmt: skip


def has_density(posterior: Posterior) -> bool:
    """Whether q has a density, and so a bound."""
    return type(posterior).log_prob is not Posterior.log_prob


def unlinearised(posterior: Posterior) -> Posterior:
    """The same q with the network's own likelihood.

    p(w, D) / q(w) with a linearised likelihood would be near 1, however far off the network is.
    """
    if getattr(posterior, "linearised", False):
        return dataclasses.replace(posterior, linearised=False)  # type: ignore[call-arg]
    return posterior


def held(posterior: Posterior, x: PyTree, y: ArrayLike, weight: Any = None) -> Data:
    """Rows as a fit would hold them, once they suit the posterior."""
    predictive = posterior.predict(x, samples=1)
    targets = predictive._inner_targets(y)
    n, size = len(targets), bucket(len(targets))
    dtype = jax.tree.leaves(posterior.model.parameters)[0].dtype
    weight = np.ones(n) if weight is None else np.asarray(weight, np.float64)
    return Data(
        jax.tree.map(lambda a: jnp.asarray(pad_rows(np.asarray(a), size)), predictive._x),
        jnp.asarray(pad_rows(np.asarray(targets), size)),
        jnp.asarray(np.concatenate([weight, np.zeros(size - n)]), dtype),
        jnp.asarray(n, jnp.int32),
    )


def log_ratios(posterior: Posterior, ids: PyTree) -> np.ndarray:
    """log p(w) − log q(w) of each draw, over the weights that are no points in q."""
    return np.asarray(_log_ratios(posterior.bare(), ids), np.float64)


def mean_of_pairs(values: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """The weighted mean and its standard error, neighbours taken together.

    Draws of symmetric posteriors come in opposite pairs, of which only the means are independent.
    """
    pair = np.arange(len(values)) // 2
    mass = np.bincount(pair, weights)
    each = np.bincount(pair, weights * values) / np.where(mass > 0, mass, 1)
    mean = float(weights @ values)
    error = np.sqrt(np.sum(np.square(mass * (each - mean))) * len(mass) / max(len(mass) - 1, 1))
    return mean, float(error)


# -- the program


def _bytes_per_row(posterior: Posterior, data: Data, group: int) -> int:
    model = posterior.model
    shape, widest, _ = footprint(model.network, model.likelihood.split(abstract_rows(data.x, 1))[0])
    return 12 * group * max(int(np.prod(shape[1:])), 1) + 2 * group * widest


@compiled
def _totals(
    posterior: Posterior,
    data: Data,
    ids: PyTree,
    log_weights: jax.Array,
    groups: jax.Array,
    group: int,
    blocks: int,
    apart: bool,
) -> tuple[jax.Array, ...]:
    """Of each draw the log likelihood of every block, KL and log ratio; of each row log E p(y)."""
    rows, room, dtype = data.y.shape[0], len(log_weights), data.weight.dtype
    size = -(-rows // blocks)
    ratio = _log_ratio(posterior, ids, apart)

    def one_group(g: jax.Array, so_far: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        likelihoods, kl, ratios, predictive = so_far
        few = jax.tree.map(lambda a: _rows(a, g * group, group), ids)
        mass = _rows(log_weights, g * group, group)[:, None]

        def one_block(predictive: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
            # the last block begins early, and what it sees again does not count
            start = jnp.minimum(b * size, rows - size)
            fresh = jnp.arange(size) + start >= b * size
            x, y, weight = jax.tree.map(
                lambda a: _rows(a, start, size), (data.x, data.y, data.weight)
            )
            each = _row_by_row(posterior, few, x, y, apart)
            counts = fresh & (weight > 0)  # rows that do not may be anything
            old = _rows(predictive, start, size)
            new = jnp.logaddexp(old, jax.nn.logsumexp(mass + each, 0))
            predictive = _put(predictive, jnp.where(counts, new, old), start)
            return predictive, jnp.sum(jnp.where(counts, weight * each, 0), -1)

        predictive, sums = jax.lax.scan(one_block, predictive, jnp.arange(blocks))
        parts = zip((likelihoods, kl, ratios), (sums.T, *jax.lax.map(ratio, few)), strict=True)
        return *(_put(whole, part, g * group) for whole, part in parts), predictive

    nothing = jnp.zeros(room, dtype)
    start = jnp.zeros((room, blocks), dtype), nothing, nothing, jnp.full(rows, -jnp.inf, dtype)
    likelihoods, kl, ratios, predictive = jax.lax.fori_loop(0, groups, one_group, start)
    return likelihoods, kl, ratios, jnp.where(data.weight > 0, predictive, 0)


def _rows(a: jax.Array, start: jax.Array, size: int) -> jax.Array:
    return jax.lax.dynamic_slice_in_dim(a, start, size)


def _put(a: jax.Array, part: jax.Array, start: jax.Array) -> jax.Array:
    return jax.lax.dynamic_update_slice_in_dim(a, part.astype(a.dtype), start, 0)


def _row_by_row(posterior: Any, ids: PyTree, x: PyTree, y: jax.Array, apart: bool) -> jax.Array:
    """log p(yₙ | xₙ, w) of each draw, (draws, rows)."""
    outputs, own = (posterior.evaluate_apart if apart else posterior.evaluate)(ids, x)
    return jax.vmap(lambda f, own: posterior.model.likelihood_of(Parameters(None, own), f, x, y))(
        outputs, own
    )


def _log_ratio(posterior: Posterior, ids: PyTree, apart: bool = False) -> Any:
    """A function of an identity: KL(q ‖ p), or an estimate, and log p(w) − log q(w).

    Rows with noise of their own are no draw w: their KL stands alone, with a ratio of 0.
    """
    priors = priors_of(posterior)
    random = jax.tree.map(lambda _: True, priors, is_leaf=is_prior)
    if isinstance(posterior, Symmetric):
        random = posterior._random(jax.tree.map(lambda a: a[0], ids).key)

    # the closed form of a hierarchy is that of weights and scales together, a looser bound
    each = jax.tree.leaves(priors, is_leaf=is_prior)
    closed = not any(isinstance(prior, Hierarchical) for prior in each)

    def one(identity: PyTree) -> tuple[jax.Array, jax.Array]:
        w: Parameters = posterior.parameters(identity)
        kl = None
        if isinstance(posterior, MeanFieldGaussian):
            sigma = jax.tree.map(posterior._deviation_of, posterior.rho)
            kl = mean_field_kl(priors, posterior.mu, sigma, w, closed=closed)
            if apart:
                return kl, jnp.zeros_like(kl)
        log_prior = jax.tree.map(
            lambda prior, value, r: jnp.sum(prior.log_prob(value)) if r else 0.0,
            priors, w, random, is_leaf=is_prior,
        )  # fmt: skip
        ratio = jax.tree.reduce(jnp.add, log_prior) - posterior.log_prob(w)
        return -ratio if kl is None else kl, ratio

    return one


@compiled
def _log_ratios(posterior: Posterior, ids: PyTree) -> jax.Array:
    return jax.lax.map(_log_ratio(posterior, ids), ids)[1]

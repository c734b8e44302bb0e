"""Single weights of a posterior: which of them, and how each is distributed."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.keys import as_key
from .._util.tree import named_leaves, plain
from ..networks.parts import Where, select
from ..posteriors import (
    Draws,
    Enumerated,
    FullGaussian,
    LaplaceGaussian,
    LowRankGaussian,
    MeanFieldGaussian,
    Point,
    Posterior,
)
from ..posteriors.base import evaluate_each
from ..priors import Prior
from .quantities import parse

GAUSSIAN = (MeanFieldGaussian, FullGaussian, LowRankGaussian, LaplaceGaussian)
STORED = (Draws, Enumerated, Point)
DRAWN = 4000  # draws behind a density that has no formula
SHOWN = 5  # weights that are drawn where none are named


class Weight(NamedTuple):
    """One entry of an array of weights."""

    array: str
    place: tuple[int, ...]

    @property
    def name(self) -> str:
        """In two short lines: names of large networks are long."""
        inside = ", ".join(map(str, self.place))
        return self.array.removeprefix("network.") + (f"\n[{inside}]" if self.place else "")


class Marginal(NamedTuple):
    """The distribution of one weight: a Gaussian (without values), or weighted draws."""

    mean: float
    std: float
    values: np.ndarray
    weights: np.ndarray

    def density(self, at: np.ndarray) -> np.ndarray:
        from scipy import stats

        if not len(self.values):
            return stats.norm(self.mean, self.std).pdf(at)
        return stats.gaussian_kde(self.values, weights=self.weights)(at)

    def reach(self) -> tuple[float, float]:
        """From where to where there is something to see."""
        if not len(self.values):
            return self.mean - 4 * self.std, self.mean + 4 * self.std
        return float(self.values.min()), float(self.values.max())


# -- which weights


def _arrays(posterior: Posterior, where: Where | None) -> list[str]:
    """Names of arrays that have a prior, of those that ``where`` chooses."""
    names = list(named_leaves(posterior.model.bayesian(posterior.model.parameters)))
    if where is None:
        return names
    chosen = select(posterior.model.parameters.network, where)
    kept = {f"network.{name}" for name, yes in named_leaves(chosen).items() if yes}
    return [name for name in names if name in kept]


def moments_by_name(
    posterior: Posterior, where: Where | None
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    names = _arrays(posterior, where)
    trees = [named_leaves(tree) for tree in _moments(posterior)]
    mean, std = ({n: plain(tree[n]).astype(np.float64) for n in names} for tree in trees)
    return mean, std


def _moments(posterior: Posterior) -> Any:
    # one program in the place of one for each operation of softplus and each shape
    if isinstance(posterior, MeanFieldGaussian):
        return _compiled_moments(posterior.bare())
    return posterior.moments()


@eqx.filter_jit
def _compiled_moments(posterior: Posterior) -> Any:
    return posterior.moments()


def default_weights(posterior: Posterior, where: Where | None) -> list[Weight]:
    mean, std = moments_by_name(posterior, where)
    if not mean:
        raise ValueError(f"where={where!r} leaves no weight that has a prior")
    flat = [(name, place) for name, a in mean.items() for place in range(a.size)]
    mu, sigma = (np.concatenate([np.ravel(a) for a in part.values()]) for part in (mean, std))
    order = np.argsort(-np.abs(mu) / np.maximum(sigma, 1e-300), kind="stable")
    few = np.unique(np.linspace(0, len(order) - 1, min(len(order), SHOWN)).round().astype(int))
    named = [flat[i] for i in order[few]]
    return [
        Weight(name, tuple(int(i) for i in np.unravel_index(place, mean[name].shape)))
        for name, place in named
    ]


def named_weight(posterior: Posterior, of: str) -> Weight:
    leaves = named_leaves(posterior.model.parameters)
    array, place = parse(of)
    array = array if array in leaves else f"network.{array}"
    shape = np.shape(leaves[array]) if array in leaves else ()
    inside = len(place) == len(shape) and all(i < n for i, n in zip(place, shape, strict=True))
    if array not in leaves or not inside:
        known = ", ".join(f"{name} {np.shape(leaf)}" for name, leaf in leaves.items())
        raise ValueError(
            f"of: no weight {of!r}; one is named with its place, as in {next(iter(leaves))}[0, 0]. "
            f"Arrays: {known}"
        )
    return Weight(array, place)


# -- their distributions


def marginals(posterior: Posterior, chosen: list[Weight], key: int) -> list[Marginal]:
    none = np.zeros(0)
    if isinstance(posterior, GAUSSIAN):
        arrays = {w.array for w in chosen}
        trees = [named_leaves(tree) for tree in _moments(posterior)]
        mean, std = ({name: plain(tree[name]) for name in arrays} for tree in trees)
        return [
            Marginal(float(mean[w.array][w.place]), float(std[w.array][w.place]), none, none)
            for w in chosen
        ]

    def pick(params: Any) -> jax.Array:
        leaves = named_leaves(params)
        return jnp.stack([leaves[w.array][w.place] for w in chosen])

    particles = posterior.particles(as_key(key), None if isinstance(posterior, STORED) else DRAWN)
    values = plain(evaluate_each(pick, posterior.bare(), particles.ids)).astype(np.float64)
    share = np.asarray(particles.weights, np.float64)
    centre = share @ values
    spread = np.sqrt(share @ np.square(values - centre))
    columns = zip(centre, spread, values.T, strict=True)
    return [Marginal(float(m), float(s), column, share) for m, s, column in columns]


# -- their priors


def prior_of_entry(prior: Prior, shape: tuple[int, ...], place: tuple[int, ...]) -> Prior:
    """The prior of one entry, as that of an array of one: settings by entry are picked."""
    one = tuple(slice(i, i + 1) for i in place)
    return jax.tree.map(lambda a: a[one] if shape and np.shape(a) == shape else a, prior)

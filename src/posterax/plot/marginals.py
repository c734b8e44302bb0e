"""Single weights of a posterior: which of them, and how each is distributed."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._util.keys import as_key
from .._util.tree import named_leaves, plain
from ..model import Parameters
from ..networks.parts import Where
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
from ..posteriors.named_moments import moments_of, named_moments
from ..priors import Prior
from .quantities import is_inside, parse

GAUSSIAN = (MeanFieldGaussian, FullGaussian, LowRankGaussian, LaplaceGaussian)
STORED = (Draws, Enumerated, Point)
DRAWN = 4000  # draws behind a density that has no formula
SHOWN = 5  # weights that are drawn where none are named


class Weight(NamedTuple):
    """One entry of an array of weights."""

    array: str
    entry: tuple[int, ...]

    @property
    def name(self) -> str:
        """In two short lines: names of large networks are long."""
        entry = ", ".join(map(str, self.entry))
        return self.array.removeprefix("network.") + (f"\n[{entry}]" if self.entry else "")


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


def default_weights(posterior: Posterior, where: Where | None) -> list[Weight]:
    """A few, from the largest to the smallest ratio of mean to deviation."""
    mean, std = named_moments(posterior, where)
    if not mean:
        raise ValueError(f"where={where!r} leaves no weight that has a prior")
    starts = np.cumsum([0, *(a.size for a in mean.values())])
    mu, sigma = (np.concatenate([np.ravel(a) for a in part.values()]) for part in (mean, std))
    order = np.argsort(-np.abs(mu) / np.maximum(sigma, 1e-300), kind="stable")
    few = np.unique(np.linspace(0, len(order) - 1, min(len(order), SHOWN)).round().astype(int))
    chosen = []
    for i in order[few]:
        array = int(np.searchsorted(starts, i, side="right")) - 1
        name = list(mean)[array]
        index = np.unravel_index(i - starts[array], mean[name].shape)
        chosen.append(Weight(name, tuple(map(int, index))))
    return chosen


def named_weight(posterior: Posterior, of: str) -> Weight:
    """The weight of this name; one that the model does not have is refused."""
    leaves = named_leaves(posterior.model.parameters)
    array, index = parse(of)
    array = array if array in leaves else f"network.{array}"
    if array not in leaves or not is_inside(index, np.shape(leaves[array])):
        known = ", ".join(f"{name} {np.shape(leaf)}" for name, leaf in leaves.items())
        raise ValueError(
            f"of: no weight {of!r}; one is named with its place, as in {next(iter(leaves))}[0, 0]. "
            f"Arrays: {known}"
        )
    return Weight(array, index)


# -- their distributions


def marginals(posterior: Posterior, chosen: list[Weight], key: int) -> list[Marginal]:
    """The distribution of each of these weights."""
    if isinstance(posterior, GAUSSIAN):
        mean, std = (jax.tree.map(plain, named_leaves(m)) for m in moments_of(posterior))
        none = np.zeros(0)
        return [
            Marginal(float(mean[w.array][w.entry]), float(std[w.array][w.entry]), none, none)
            for w in chosen
        ]

    def pick(params: Parameters) -> jax.Array:
        leaves = named_leaves(params)
        return jnp.stack([leaves[w.array][w.entry] for w in chosen])

    particles = posterior.particles(as_key(key), None if isinstance(posterior, STORED) else DRAWN)
    values = plain(evaluate_each(pick, posterior.bare(), particles.ids)).astype(np.float64)
    share = np.asarray(particles.weights, np.float64)
    centre = share @ values
    spread = np.sqrt(share @ np.square(values - centre))
    columns = zip(centre, spread, values.T, strict=True)
    return [Marginal(float(m), float(s), column, share) for m, s, column in columns]


# -- their priors


def prior_of_entry(prior: Prior, shape: tuple[int, ...], index: tuple[int, ...]) -> Prior:
    """The prior of one entry, as that of an array of one: settings by entry are picked."""
    one = tuple(slice(i, i + 1) for i in index)
    return jax.tree.map(lambda a: a[one] if shape and np.shape(a) == shape else a, prior)

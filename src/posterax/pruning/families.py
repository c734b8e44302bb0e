"""What becomes of each family of posteriors when weights are removed.

A removed weight is the constant 0, and the others keep the distribution they have with it averaged
out: independent factors stay as they are, of a covariance the rows and columns are left out.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import PyTree
from numpy.typing import ArrayLike

from .._util.tree import named_leaves, path_name
from ..model import Parameters
from ..networks.sparse import Masks, SparseNetwork, check_masks, take
from ..posteriors import (
    Blend,
    Draws,
    FullGaussian,
    GaussianMixture,
    LaplaceGaussian,
    LowRankGaussian,
    MeanFieldGaussian,
    Point,
    Posterior,
    Record,
)

FAMILIES = (
    *(MeanFieldGaussian, GaussianMixture, Draws, Point),
    *(LowRankGaussian, FullGaussian, LaplaceGaussian),
)

# (a tree of the network's weights, axes in front, what a silent entry is) → such a tree
Change = Callable[[PyTree, int, float], PyTree]
# the same for a matrix that has a row for each random weight
Rows = Callable[[ArrayLike], jax.Array]


def removed(posterior: Posterior, masks: Masks, about: dict[str, Any]) -> Posterior:
    """The posterior of the weights that are left; ``about`` is for its record."""
    masks = check_masks(masks, posterior.model.network)
    rows = _row_mask(posterior, masks)
    fields = _fields(
        posterior, masks, lambda tree, front, _: take(tree, masks, front),
        lambda matrix: jnp.asarray(np.asarray(matrix)[rows]),
    )  # fmt: skip
    if isinstance(posterior, FullGaussian):
        # L without some rows is no longer square: R of its transpose is what it was made of
        root = np.asarray(fields["cholesky"])
        fields["cholesky"] = jnp.asarray(np.linalg.qr(root.T).R.T)
    old = posterior.record or Record()
    earlier = {k: v for k, v in pruning_record(posterior).items() if k in ("widths", "sizes")}
    settings = old.settings | {"pruning": earlier | about}
    record = Record(
        old.method, settings, old.terms, interrupted=old.interrupted, reports=old.reports
    )
    model = posterior.model.sparse(masks)
    return dataclasses.replace(posterior, model=model, record=record, evidence=None, **fields)


def pruning_record(posterior: Posterior) -> dict[str, Any]:
    """What earlier prunings have left in the record."""
    settings = posterior.record.settings if posterior.record is not None else {}
    return dict(settings.get("pruning", {}))


def original_sizes(posterior: Posterior) -> dict[str, int]:
    """How many entries each array of the network had before any pruning, by name.

    Where ``compact`` made arrays smaller, their old sizes are in the record.
    """
    network = posterior.model.network
    shapes = dict(network.shapes) if isinstance(network, SparseNetwork) else {}
    before = pruning_record(posterior).get("sizes", {})
    return {
        name: int(before.get(name, np.prod(shapes.get(name, w.shape))))
        for name, w in named_leaves(network.params).items()
    }


def silenced(posterior: Posterior, masks: Masks) -> Posterior:
    """The same posterior with a mean and deviation of 0 in place of what is removed.

    It predicts as the pruned one and has the shapes of the original: one compiled program serves
    all masks while one is looked for. (It has no density.)
    """
    rows = _row_mask(posterior, masks)

    def silence(tree: PyTree, front: int, silent: float) -> PyTree:
        def set_to(path: tuple[Any, ...], w: jax.Array) -> jax.Array:
            mask = masks.get(path_name(path))
            return w if mask is None else jnp.asarray(np.where(mask, w, np.float32(silent)))

        return jtu.tree_map_with_path(set_to, tree)

    blank = lambda a: jnp.asarray(np.asarray(a) * rows[:, None].astype(np.float32))  # noqa: E731
    return dataclasses.replace(posterior.bare(), **_fields(posterior, masks, silence, blank))


def _row_mask(posterior: Posterior, masks: Masks) -> np.ndarray:
    """Which of the random weights, as one vector in tree order, are left."""
    if not isinstance(posterior, FullGaussian | LowRankGaussian):
        return np.zeros(0, bool)
    leaves = named_leaves(posterior.model.bayesian(posterior.mu))
    every = {name.removeprefix("network."): np.ones(a.shape, bool) for name, a in leaves.items()}
    return np.concatenate([masks.get(name, mask).reshape(-1) for name, mask in every.items()])


def _fields(posterior: Posterior, masks: Masks, change: Change, rows: Rows) -> dict[str, Any]:
    """The fields of a posterior that hold something for every weight, changed."""
    check_family(posterior)

    def tree(value: Parameters, front: int = 0, silent: float = 0.0) -> Parameters:
        return value._replace(network=change(value.network, front, silent))

    nothing = -float("inf")  # softplus(−∞) = 0
    match posterior:
        case MeanFieldGaussian() | GaussianMixture():
            front = int(isinstance(posterior, GaussianMixture))  # its components
            return {"mu": tree(posterior.mu, front), "rho": tree(posterior.rho, front, nothing)}
        case Draws():
            return {"draws": tree(posterior.draws, 2)}
        case Point():
            return {"point": tree(posterior.point), "path": None}
        case LowRankGaussian():
            fields = {"mu": tree(posterior.mu), "sigma": tree(posterior.sigma)}
            return fields | {"factor": rows(posterior.factor)}
        case FullGaussian():
            return {"mu": tree(posterior.mu), "cholesky": rows(posterior.cholesky)}
        case LaplaceGaussian():
            return {"mu": tree(posterior.mu), "blocks": _blocks(posterior, masks, change)}
    raise AssertionError(type(posterior))


def check_posterior(posterior: Posterior) -> None:
    """Refuse what is no posterior."""
    if not isinstance(posterior, Posterior):
        raise TypeError(f"posterior must be a posterior, got {type(posterior).__name__}")


def check_family(posterior: Posterior) -> None:
    """Refuse a family from which no weight can be taken without changing the others."""
    check_posterior(posterior)
    if isinstance(posterior, Blend):
        raise ValueError(
            f"prune: the {len(posterior.parts)} models of a blend have no weights in common; fit "
            "one of them, with method='ivon' or 'bayes_by_backprop' (posterax fit --method ivon)"
        )
    if not isinstance(posterior, FAMILIES):
        raise ValueError(
            f"prune: {type(posterior).__name__} has no deviation of each weight alone; use "
            "px.BayesByBackprop (not radial), px.IVON, px.SWAG, px.Laplace(structure='diagonal'), "
            "an ensemble or a chain"
        )


def _blocks(posterior: LaplaceGaussian, masks: Masks, change: Change) -> dict[str, Any]:
    blocks = {}
    for name, arrays in posterior.blocks.items():
        leaves = [leaf.removeprefix("network.") for leaf in arrays["leaves"].split("\n")]
        if not any(leaf in masks for leaf in leaves):
            blocks[name] = arrays
            continue
        if "basis" in arrays or "inputs" in arrays:
            raise ValueError(
                "prune: this Laplace approximation has correlated weights, held as eigenvectors "
                "from which none can be removed; use px.Laplace(structure='diagonal')"
            )
        (leaf,) = leaves
        blocks[name] = arrays | {"deviation": change({leaf: arrays["deviation"]}, 0, 0.0)[leaf]}
    return blocks

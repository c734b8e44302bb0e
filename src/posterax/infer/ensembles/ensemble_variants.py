r"""What makes the members of an ensemble differ beside their starts: data, anchors, targets.

Bootstrap (Efron 1979): example n counts cₙ times for a member, as often as it came up among N draws
with replacement. From a stream, whose N is not known beforehand, cₙ ~ Poisson(1), the limit of
that for large N (Oza and Russell 2001).

Anchors (Pearce, Leibfried and Brintrup 2020; Osband, Aslanides and Cassirer 2018): member m has
the prior's deviations σ around a draw w⁰ₘ of its own,

    wₘ = argmin −log p(D | w) + ½ ‖(w − w⁰ₘ) / σ‖²,  w⁰ₘ ~ N(μ, σ²)

and with targets yₙ + εₙ, εₙ ~ N(0, noise² / weightₙ), besides (Bardsley et al. 2014, *randomize
then optimize*), wₘ is an exact draw from the posterior where the network is linear in w. All is
drawn once, for member and example, and stays.

Folds (Stone 1974; Wolpert 1992): member m learns from all rows but those whose number leaves the
remainder m when divided by the number of folds. So every row has members that never saw it, and
what these say of it is an honest prediction: cross-validation within one fit.
"""

import dataclasses
from math import exp, factorial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..._util.noise import noise_key, standard_normal
from ..._util.tree import named_leaves
from ...data import Batch, Data, without_fold
from ...likelihoods import Gaussian as GaussianLikelihood
from ...model import Model, Parameters
from ...priors import Gaussian, Prior, is_flat, is_prior
from ..base import Phase

# P(c ≤ k) of Poisson(1) in units of 2⁻³²; the next is 1
POISSON = [round(2**32 * exp(-1) * sum(1 / factorial(j) for j in range(k + 1))) for k in range(12)]


class Own(NamedTuple):
    """What is a member's own beside its start, ``None`` where it has no such thing."""

    anchor: Parameters | None = None  # w⁰
    counts: jax.Array | None = None  # (rows,): how often each row of the data was drawn
    key: jax.Array | None = None  # of what is drawn by an example's number
    fold: jax.Array | None = None  # the member's number, which says what rows it leaves out


class Variant(eqx.Module):
    """Which of them an ensemble uses."""

    bootstrap: bool = eqx.field(static=True, default=False)
    anchored: bool = eqx.field(static=True, default=False)
    targets: bool = eqx.field(static=True, default=False)
    folds: int = eqx.field(static=True, default=0)

    def check(self, model: Model) -> None:
        """Refuse a model that has no such anchors or targets."""
        if not self.anchored:
            return
        if not model.bayesian_size:
            raise ValueError("anchored: this model has no weights with a prior; use bootstrap=True")
        for name, prior in named_leaves(model.priors, is_leaf=is_prior).items():
            if not is_flat(prior) and not isinstance(prior, Gaussian):
                raise ValueError(
                    f"anchored: the prior of {name} is {type(prior).__name__}, and anchors need "
                    "px.priors.Gaussian; use bootstrap=True for any prior"
                )
        likelihood = model.likelihood
        known = isinstance(likelihood, GaussianLikelihood) and not isinstance(likelihood.noise, str)
        if self.targets and not known:
            raise ValueError(
                "anchored='targets' adds noise to the targets and needs its size: "
                "px.likelihoods.Gaussian(noise=a number); otherwise use anchored=True"
            )

    def draw(self, model: Model, data: Data | None, key: jax.Array, index: jax.Array) -> Own:
        """What the member of this number draws before the first step."""
        keys = jax.random.split(key, 3)
        anchor = model.bayesian(model.sample_prior(keys[0])) if self.anchored else None
        counts = None
        if self.bootstrap and data is not None:
            counts = resample(keys[1], data.weight > 0)
        by_number = self.targets or (self.bootstrap and data is None)
        fold = index if self.folds else None
        return Own(anchor, counts, keys[2] if by_number else None, fold)

    def phase(self, member: Phase, own: Own) -> Phase:
        """The member's phase, its priors around its anchor."""
        if own.anchor is None:
            return member

        def around(prior: Prior, anchor: jax.Array | None) -> Prior:
            return prior if anchor is None else Gaussian(prior.deviation(), anchor)

        priors = jax.tree.map(around, member.model.priors, own.anchor, is_leaf=is_prior)
        return eqx.tree_at(lambda p: p.model.priors, member, priors)

    def batch(self, model: Model, batch: Batch, own: Own) -> Batch:
        """A minibatch as the member sees it.

        Counts need no other N: M · Σ weightₙ cₙ nllₙ − log p(w) weighs the member's data against
        the prior as they are, and dividing all of it by the data's N only sets its scale.
        """
        if self.bootstrap:
            counts = own.counts
            counts = poisson(own.key, batch.index) if counts is None else counts[batch.index]
            batch = dataclasses.replace(batch, weight=batch.weight * counts)
        if self.folds:
            batch = without_fold(batch, own.fold, self.folds)
        if self.targets:
            shape = (-1, *[1] * (batch.y.ndim - 1))
            heavy = jnp.where(batch.weight > 0, batch.weight, 1).reshape(shape)
            likelihood: Any = model.likelihood
            noise = jnp.asarray(likelihood.noise, batch.y.dtype) / jnp.sqrt(heavy)
            batch = dataclasses.replace(batch, y=batch.y + noise * normals(own.key, batch))
        return batch


def resample(key: jax.Array, there: jax.Array) -> jax.Array:
    """How often each row comes up in as many draws with replacement as there are rows.

    Rows that are not ``there`` (padding, weight 0) are not drawn.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from posterax.infer.ensembles.ensemble_variants import resample
        >>> counts = resample(jax.random.key(0), jnp.array([True, True, True, False]))
        >>> int(counts.sum()), int(counts[3])
        (3, 0)
    """
    rows, total = jnp.argsort(~there), jnp.sum(there)
    drawn = rows[jax.random.randint(key, there.shape, 0, total)]
    counts = jnp.zeros(there.shape, jnp.uint8)  # more than 255 of one row does not happen
    return counts.at[drawn].add(jnp.arange(len(there)) < total)


def poisson(key: PyTree, index: jax.Array) -> jax.Array:
    """Poisson(1) numbers that belong to an example: the same wherever it is met.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from posterax.infer.ensembles.ensemble_variants import poisson
        >>> one, again = poisson(jax.random.key(0), jnp.array([7, 3, 7]))[::2]
        >>> bool(one == again)
        True
    """

    def bits(i: jax.Array) -> jax.Array:
        return jax.random.bits(jax.random.fold_in(noise_key(key), i), (), jnp.uint32)

    below = jax.vmap(bits)(index)[:, None] >= jnp.asarray(POISSON, jnp.uint32)
    return jnp.sum(below, -1)


def normals(key: PyTree, batch: Batch) -> jax.Array:
    """N(0, 1) numbers in the shape of the targets that belong to an example."""

    def normal(i: jax.Array) -> jax.Array:
        own = jax.random.fold_in(noise_key(key), i)
        return standard_normal(own, batch.y.shape[1:], batch.y.dtype)

    return jax.vmap(normal)(batch.index)

"""What importance sampling draws its candidates from: anything with draws and a density."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree

from ..._util.tree import named_leaves, same_structure, tree_size
from ...model import Model, Parameters
from ...posteriors import Posterior, PriorPosterior
from ...predictive import Particles, Targets
from ...priors import PerWeight, Prior, Trained, as_prior, is_flat, is_prior


class FromVector(Posterior):
    """A distribution over all parameters as one vector, in the order of ``model.summary()``."""

    distribution: dist.Distribution

    def particles(self, key: jax.Array, samples: int | None) -> Particles:
        n = 100 if samples is None else samples
        return Particles(jax.random.split(key, n), jnp.full((n,), 1 / n))

    def parameters(self, identity: Any) -> Parameters:
        flat, unravel = ravel_pytree(self.model.parameters)
        return unravel(self.distribution.sample(identity).astype(flat.dtype))

    def log_prob(self, parameters: Parameters) -> jax.Array:
        return self.distribution.log_prob(ravel_pytree(parameters)[0])


def check_proposal(proposal: Any) -> None:
    """Refuse, before there is a model, what can be no proposal."""
    if isinstance(proposal, Posterior):
        if type(proposal).log_prob is Posterior.log_prob:
            raise ValueError(f"proposal: {proposal.no_density()}")
    elif isinstance(proposal, Trained):
        raise ValueError("proposal: px.priors.Trained is for models; use px.priors.Gaussian")
    elif not (isinstance(proposal, Prior | dist.Distribution) or proposal == "prior"):
        raise TypeError(
            "proposal must be 'prior', a posterior with a density (px.BayesByBackprop gives one), "
            "one of px.priors, or a numpyro distribution of all weights as one vector, got "
            f"{proposal!r}"
        )


def as_proposal(proposal: Any, model: Model, targets: Targets) -> Posterior:
    """The proposal as a posterior of this model, checked to be a density of its parameters."""
    if isinstance(proposal, str):
        return PriorPosterior(model, model.network.state, targets)
    if isinstance(proposal, Posterior):
        found = proposal
        _check_tree(found, model)
    elif isinstance(proposal, dist.Distribution) and _shape(proposal) != ():
        return _from_vector(proposal, model, targets)
    else:
        prior = as_prior(proposal)
        own = model.priors.likelihood
        if isinstance(prior, PerWeight) and prior.loc.likelihood is not None:
            own = prior.resolve_likelihood()
        priors = model.network.resolve(prior)
        other = eqx.tree_at(lambda m: m.priors, model, Parameters(priors, own))
        found = PriorPosterior(other, model.network.state, targets)
    _check_kinds(found.model, model)
    return found


def _shape(distribution: dist.Distribution) -> tuple[int, ...]:
    return (*distribution.batch_shape, *distribution.event_shape)


def _from_vector(distribution: dist.Distribution, model: Model, targets: Targets) -> Posterior:
    size = tree_size(model.parameters)
    if _shape(distribution) != (size,):
        raise ValueError(
            f"proposal: {type(distribution).__name__} is over shape {_shape(distribution)}, and "
            f"the model has {size} parameters: it must be one vector of them, or a single number"
        )
    if distribution.batch_shape:
        distribution = distribution.to_event(1)
    names = named_leaves(model.priors, is_leaf=is_prior)
    grids = [name for name, prior in names.items() if prior.discrete]
    real = (dist.constraints.real, dist.constraints.real_vector)
    support: Any = distribution.support
    if not any(support is one or getattr(support, "base_constraint", None) is one for one in real):
        raise ValueError(
            f"proposal: {type(distribution).__name__} is not over all real numbers, so that it "
            "cannot propose every weight"
        )
    if grids:
        raise ValueError(
            f"proposal: a density never meets the grid of {grids[0]}; use 'prior', a "
            "px.priors.Grid of the same values with other probs, or a posterior of px.Enumeration"
        )
    return FromVector(model, model.network.state, targets, distribution=distribution)


def _check_tree(proposal: Posterior, model: Model) -> None:
    shapes = lambda tree: [tuple(a.shape) for a in jax.tree.leaves(tree)]  # noqa: E731
    theirs, ours = proposal.model.parameters, model.parameters
    if not same_structure(theirs, ours) or shapes(theirs) != shapes(ours):
        raise ValueError(
            f"proposal has other parameters than the model: shapes {shapes(theirs)} instead of "
            f"{shapes(ours)}"
        )
    if shapes(proposal.state) != shapes(model.network.state):
        raise ValueError(
            f"proposal: every component of {type(proposal).__name__} has a network state of its "
            "own (batch statistics), and a model has one; propose from one component"
        )


def _check_kinds(theirs: Model, ours: Model) -> None:
    """A density for each density, probabilities for probabilities, and no point."""
    proposed = named_leaves(theirs.priors, is_leaf=is_prior)
    for name, prior in named_leaves(ours.priors, is_leaf=is_prior).items():
        if is_flat(proposed[name]):
            raise ValueError(f"proposal: {name} has no density there; give it a prior")
        if proposed[name].discrete != prior.discrete:
            words = {True: "finitely many values", False: "a density"}
            raise ValueError(
                f"proposal: {name} has {words[proposed[name].discrete]} in the proposal and "
                f"{words[prior.discrete]} in the model; propose from the same kind"
            )

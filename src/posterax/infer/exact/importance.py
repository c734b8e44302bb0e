r"""Importance sampling: candidates from a proposal q, weighted by how much better the target is.

E[F(w) | D] ≈ Σ wᵢ F(cᵢ) / Σ wᵢ,  cᵢ ~ q,  wᵢ = p(D | cᵢ) p(cᵢ) / q(cᵢ),  p(D) ≈ (1/S) Σ wᵢ
"""

import numbers
import warnings
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from ..._util.tree import named_leaves, same_structure, shapes_of, tree_size
from ...data import Batch, Data
from ...model import Model, Parameters
from ...posteriors import Posterior, PriorPosterior, WeightedDraws
from ...posteriors.draws import effective, evidence_of, normalised, pareto_smooth
from ...predictive import Particles, Targets
from ...priors import PerWeight, Prior, Trained, as_prior, is_flat, is_prior
from ..base import Draw, Info, Method, Needs, Phase, Plan, Start, with_arrays
from ..chains.base import NO_POINTS
from ..objective import log_likelihood
from ..settings import Copies, Flag

RELIABLE = 0.7  # k-hat above which no practical number of candidates is enough
FEW = 10.0  # effective candidates that are too few where there is no k-hat


class CandidatePhase(Phase):
    """Each step draws one candidate per chain from the proposal and weighs it."""

    chains: int = eqx.field(static=True)
    smooth: bool = eqx.field(static=True)
    proposal: Posterior
    log_normaliser: PyTree

    title: ClassVar[str] = "weighing candidates"
    finishes: ClassVar[Any] = "at the end"

    def retained(self, steps: PyTree, thin: int) -> PyTree:
        return steps // thin

    def init(self, start: Start, data: Data | None, key: jax.Array) -> PyTree:
        # the network's state (the one that goes with the proposal) and the largest weight so far
        network_state = jax.tree.map(
            lambda a, like: jnp.asarray(a, like.dtype), self.proposal.state, start.state
        )
        return network_state, jnp.asarray(-jnp.inf)

    def step(self, state: PyTree, batch: Batch, key: jax.Array) -> tuple[PyTree, Info]:
        network_state, best = state

        def one(identity: PyTree, share: jax.Array) -> PyTree:
            params = self.proposal.parameters(identity)
            params = jax.tree.map(
                lambda a, like: a.astype(like.dtype), params, self.model.parameters
            )
            likelihood = log_likelihood(self.model, params, batch, network_state)
            # first the two that are the same where candidates come from the prior
            ratio = self.model.log_prior(params) - self.proposal.log_prob(params)
            log_weight = likelihood + ratio + jnp.log(self.chains * share)
            # a candidate that overflows the network explains nothing
            return params, jnp.where(jnp.isnan(log_weight), -jnp.inf, log_weight)

        # candidates of a mixture are spread evenly, and count as they stand for its components
        ids, shares = self.proposal.particles(key, self.chains)
        params, log_weight = jax.vmap(one)(ids, shares.astype(best.dtype))
        best = jnp.maximum(best, jnp.max(log_weight).astype(best.dtype))
        shown = jnp.maximum(best, jnp.finfo(best.dtype).min)
        info = Info({"best_log_weight": shown}, Draw(params, {"log_weight": log_weight}))
        return (network_state, best), info

    def finish(self, state: PyTree, draws: Draw | None) -> Posterior:
        assert draws is not None
        raw = np.asarray(draws.stats["log_weight"], np.float64)
        if not np.any(np.isfinite(raw)):
            raise FloatingPointError(
                "no candidate explains the data: the likelihood is 0 or not finite at every one; "
                "check the scale of the data, or use px.NUTS or px.BayesByBackprop"
            )
        # on a grid weights are bounded and come in equal ones, which no density describes
        grid = any(p.discrete for p in jax.tree.leaves(self.model.priors, is_leaf=is_prior))
        smooth, khat = (normalised(raw), np.nan) if grid else pareto_smooth(raw)
        dtype = draws.stats["log_weight"].dtype
        posterior = WeightedDraws(
            self.model, state[0], self.plan.targets,
            draws=draws.parameters,
            log_weights=jnp.asarray(smooth if self.smooth else normalised(raw), dtype),
            stats=draws.stats,
            khat=jnp.asarray(khat),
            log_normaliser=self.log_normaliser,
            evidence=evidence_of(raw),
        )  # fmt: skip
        count = effective(raw)
        if khat > RELIABLE or (np.isnan(khat) and count < FEW):
            warnings.warn(_unreliable(khat, count, raw.size, grid), stacklevel=2)
        return posterior


def _unreliable(khat: float, count: float, candidates: int, grid: bool) -> str:
    shape = "there is no k-hat" if np.isnan(khat) else f"k-hat is {khat:.2f}, above {RELIABLE}"
    chain = "px.Metropolis" if grid else "px.NUTS or px.SMC"
    return (
        f"{shape}, and {count:.1f} of {candidates:,} candidates count: a few carry every estimate. "
        "Draw them from something closer to the posterior and not narrower (proposal=a posterior "
        f"of px.BayesByBackprop, say), take more steps, or use {chain}"
    )


# -- proposals: anything with draws and a density


class FromVector(Posterior):
    """A distribution over all parameters as one vector, in the order of ``model.summary()``."""

    distribution: dist.Distribution

    def particles(self, key: jax.Array, samples: int | None) -> Particles:
        n = 100 if samples is None else samples
        return Particles(jax.random.split(key, n), jnp.full((n,), 1 / n))

    def parameters(self, identity: jax.Array) -> Parameters:
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
            "proposal must be 'prior', a posterior with a density, one of px.priors, or a numpyro "
            f"distribution of all weights as one vector, got {proposal!r}"
        )


def as_proposal(proposal: Any, model: Model, targets: Targets) -> Posterior:
    """The proposal as a posterior of this model, checked to be a density of its parameters."""
    if isinstance(proposal, str):
        return PriorPosterior(model, model.network.state, targets)
    if isinstance(proposal, Posterior):
        _check_tree(proposal, model)
        density = proposal
    elif isinstance(proposal, dist.Distribution) and _shape(proposal) != ():
        return _from_vector(proposal, model, targets)
    else:
        prior = as_prior(proposal)
        own = model.priors.likelihood
        if isinstance(prior, PerWeight) and prior.loc.likelihood is not None:
            own = prior.resolve_likelihood()
        priors = model.network.resolve(prior)
        other = eqx.tree_at(lambda m: m.priors, model, Parameters(priors, own))
        density = PriorPosterior(other, model.network.state, targets)
    _check_kinds(density.model, model)
    return density


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
    theirs, ours = proposal.model.parameters, model.parameters
    if not same_structure(theirs, ours) or shapes_of(theirs) != shapes_of(ours):
        raise ValueError(
            f"proposal has other parameters than the model: shapes {shapes_of(theirs)} instead of "
            f"{shapes_of(ours)}"
        )
    if shapes_of(proposal.state) != shapes_of(model.network.state):
        raise ValueError(
            f"proposal: every component of {type(proposal).__name__} has a network state of its "
            "own, and a model has one; propose from one component"
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


# -- the method


class ImportanceSampling(Method):
    r"""Importance sampling: draws from a proposal q, weighted by w = p(D | c) p(c) / q(c).

    The target p(D | c) p(c) lacks its normaliser p(D), so the weights are normalised by their
    own sum (self-normalised: consistent, with a bias of order 1/S):

    E[F(w) | D] ≈ Σ wᵢ F(cᵢ) / Σ wᵢ

    Where p(D) is known, as for a conjugate model, ``log_evidence=`` makes the target a
    normalised density and ``posterior.expectation`` the plain mean of wᵢ F(cᵢ) / p(D), which is
    unbiased; it is the better of the two only where F and the weights are unrelated. The mean of
    the weights themselves estimates p(D): ``posterior.log_evidence``.

    ``steps`` candidates are drawn in each of ``chains`` parallel streams. From the prior this is
    for few weights: candidates blindly drawn rarely meet the posterior of a network.
    ``posterior.khat`` and ``posterior.effective_sample_size`` tell, and a k-hat above 0.7 warns.

    Args:
        chains: candidates weighed side by side in each step.
        proposal: ``"prior"``; a posterior with a density, such as one of ``px.BayesByBackprop``;
            one of ``px.priors`` (``posterior.as_prior()`` of chains, say); or a numpyro
            distribution, of one number or of all parameters as one vector (in the order of
            ``model.summary()``).
        smooth: replace the largest weights by the quantiles of the Pareto distribution that fits
            them (not in the evidence; and not on a grid, where weights are bounded and k-hat is
            NaN).
        log_evidence: log p(D) where it is known.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(-1, 1, 20)[:, None].astype("float32")
        >>> line = ({"slope": np.zeros((1, 1), "float32")}, lambda p, x: x @ p["slope"])
        >>> model = px.Model(line, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.5))
        >>> posterior = px.fit(model, (x, x[:, 0]), px.ImportanceSampling(), steps=50, key=0)
        >>> bool(posterior.khat < 0.7)
        True
        >>> value, error, kind = posterior.log_evidence
        >>> error < 0.1
        True

    Reference:
        Vehtari, Simpson, Gelman, Yao and Gabry, *Pareto smoothed importance sampling*, JMLR 2024.
    """

    chains: Copies = 64
    proposal: Any = eqx.field(
        default="prior", converter=lambda q: q.bare() if isinstance(q, Posterior) else q
    )
    smooth: Flag = True
    log_evidence: float | None = None

    needs = Needs(
        "steps", all_data=True, discrete=True, no_points=NO_POINTS,
        no_start="has no start; to draw candidates from a posterior, give it as proposal=",
    )  # fmt: skip

    def __check_init__(self) -> None:
        check_proposal(self.proposal)
        known = self.log_evidence
        if known is not None and not (isinstance(known, numbers.Real) and np.isfinite(known)):
            raise ValueError(f"log_evidence must be finite, in nats, got {self.log_evidence!r}")

    def __repr__(self) -> str:
        # numbers of a posterior would fill pages
        own = isinstance(self.proposal, str)
        name = repr(self.proposal) if own else type(self.proposal).__name__
        return (
            f"ImportanceSampling(chains={self.chains}, proposal={name}, smooth={self.smooth}, "
            f"log_evidence={self.log_evidence})"
        )

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        known = with_arrays(self, model).log_evidence
        proposal = as_proposal(self.proposal, model, plan.targets)
        return [CandidatePhase(model, plan, self.chains, self.smooth, proposal, known)]

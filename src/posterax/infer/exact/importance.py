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

from ..._util.checks import whole_number
from ..._util.fingerprint import settings_fingerprint
from ..._util.tree import is_key
from ...data import Batch, Data
from ...model import Model
from ...posteriors import Posterior, WeightedDraws
from ...posteriors.weighted import effective, evidence_of, normalised, pareto_smooth
from ...priors import is_prior
from ..base import Draw, Info, Method, Needs, Phase, Plan, Start, with_arrays
from ..chains.base import NO_POINTS
from .proposals import as_proposal, check_proposal

RELIABLE = 0.7  # k-hat above which no practical number of candidates is enough
FEW = 10.0  # effective candidates that are too few where there is no k-hat


class CandidatePhase(Phase):
    """Each step draws one candidate per chain from the proposal and weighs it."""

    chains: int = eqx.field(static=True)
    smooth: bool = eqx.field(static=True)
    proposal: Posterior
    log_normaliser: Any

    title: ClassVar[str] = "weighing candidates"
    finishes: ClassVar[Any] = "at the end"

    def retained(self, steps: Any, thin: int) -> Any:
        return steps // thin

    def init(self, start: Start, data: Data | None, key: jax.Array) -> Any:
        # the network's state (the one that goes with the proposal) and the largest weight so far
        network_state = jax.tree.map(
            lambda a, like: jnp.asarray(a, like.dtype), self.proposal.state, start.state
        )
        return network_state, jnp.asarray(-jnp.inf)

    def step(self, state: Any, batch: Batch, key: jax.Array) -> tuple[Any, Info]:
        network_state, best = state

        def one(identity: Any, share: jax.Array) -> Any:
            params = self.proposal.parameters(identity)
            params = jax.tree.map(
                lambda a, like: a.astype(like.dtype), params, self.model.parameters
            )
            likelihood = self.model.log_likelihood(
                params, batch.x, batch.y, batch.weight, state=network_state
            )
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

    def finish(self, state: Any, draws: Draw | None) -> Posterior:
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
        f"{shape}, and {count:.1f} of {candidates:,} candidates count: a few carry every "
        "estimate, and its standard error cannot be trusted. Draw them from something closer to "
        "the posterior and not narrower (proposal=a posterior of px.BayesByBackprop, or "
        f"posterior.as_prior() of chains), take more steps, or use {chain}"
    )


def _bare(proposal: Any) -> Any:
    return proposal.bare() if isinstance(proposal, Posterior) else proposal


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

    chains: int = 64
    proposal: Any = eqx.field(default="prior", converter=_bare)
    smooth: bool = True
    log_evidence: float | None = None

    @property
    def needs(self) -> Needs:
        no_start = "has no start; to draw candidates from a posterior, give it as proposal="
        return Needs("steps", all_data=True, discrete=True, no_start=no_start, no_points=NO_POINTS)

    def __check_init__(self) -> None:
        whole_number("chains", self.chains)
        check_proposal(self.proposal)
        if not isinstance(self.smooth, bool):
            raise TypeError(f"smooth must be True or False, got {self.smooth!r}")
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

    def identity(self) -> str:
        if isinstance(self.proposal, str):
            return repr(self)
        leaves = jax.tree.leaves(eqx.filter(self.proposal, eqx.is_array_like))
        numbers = [jax.random.key_data(a) if is_key(a) else a for a in leaves]
        return f"{self!r} {settings_fingerprint([eqx.tree_pformat(self.proposal), numbers])}"

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        known = with_arrays(self, model).log_evidence
        proposal = as_proposal(self.proposal, model, plan.targets)
        return [CandidatePhase(model, plan, self.chains, self.smooth, proposal, known)]

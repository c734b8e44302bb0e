r"""The reparameterised bound for any family: automatic differentiation through w = μ ± δ(ε).

    ELBO     E_q[log p(D | w)] − KL(q ‖ p)
    IWAE     E[log (1/K) Σ_k p(D | w_k) p(w_k) / q(w_k)],  w_1 … w_K ~ q

KL(q ‖ p) = −E_q[log p] − H(q): the entropy is in closed form for every family, and the first term
for every prior of which it needs no more than what the family knows of a single weight.

Each family has means μ and raw deviations ρ, σ = softplus(ρ), and what it needs beside them. The
distribution itself (draws, log density, entropy, moments) is the posterior that the fit returns;
correlations are relative to σ, so that one learning rate fits them at any scale of weights:

    mean_field   w = μ + σ ε
    full         w = μ + L ε,              L = diag(σ) (I + A), A strictly lower triangular
    low_rank     w = μ + σ (ε + B ε′),     B with K columns
    radial       w = μ + σ ε/‖ε‖ r,        r = |N(0, 1)|, for each array
"""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from ..._util.special import softplus
from ..._util.tree import dtype_of, same_structure
from ...data import Batch, Data
from ...model import Model, Parameters
from ...posteriors import FullGaussian, LowRankGaussian, MeanFieldGaussian, Posterior, Radial
from ...posteriors.correlated import refuse_large_covariance
from ...posteriors.symmetric import Signed, Symmetric
from ...predictive import Targets
from ...priors import Gaussian, Hierarchical, Prior, is_flat, is_prior
from ...priors.base import LOG_2PI
from ..base import Draw, Info, Start
from ..objective import batch_nll, mean_nll
from .averaging import Average
from .elbo import ElboPhase, mean_state, start_moments

NETWORK = 2**31 - 2  # number of the network's own key among those of a sample, no array's

Variational = dict[str, Any]  # "mu", "rho", and a family's own arrays: what the optimiser sees
About = tuple[Model, PyTree, Targets]  # the model, the network's state, and the targets


class Family(eqx.Module):
    """A parametrised distribution over weights from which draws are a smooth function of noise."""

    posterior: ClassVar[type[Symmetric]]
    gaussian: ClassVar[bool] = True  # whether every weight by itself is Gaussian

    def check(self, model: Model) -> None:
        """Refuse a model for which the family is too large, before anything is allocated."""

    def stretch(self, size: int) -> float:
        """σ by the deviation of a weight, in an array of this many."""
        return 1.0

    def start(
        self, model: Model, before: Posterior | None, std: Parameters, key: jax.Array
    ) -> tuple[Parameters, Variational]:
        """σ to start from, 0 where it is not known, and what the family needs beside μ and ρ.

        ``std`` are the start's deviations, and ``before`` is its posterior over the same weights,
        whose correlations a family of the same kind keeps.
        """
        return jax.tree.map(lambda s: self.stretch(s.size) * s, std), {}

    def distribution(self, about: About, variational: Variational) -> Symmetric:
        """The distribution with these parameters."""
        return self.posterior(*about, **variational)

    def knows(self, prior: Prior) -> bool:
        """Whether E_q[log p(w)] is that of a Gaussian with the same means and deviations."""
        return self.gaussian or isinstance(prior, Gaussian | Hierarchical)  # second moments do


class MeanField(Family):
    """Independent Gaussians."""

    posterior: ClassVar[type[Symmetric]] = MeanFieldGaussian


class RadialFamily(Family):
    """A direction at random and the distance of one Gaussian, for each array."""

    posterior: ClassVar[type[Symmetric]] = Radial
    gaussian: ClassVar[bool] = False

    def stretch(self, size: int) -> float:
        return float(np.sqrt(size))


class Full(Family):
    """A Gaussian with all correlations."""

    # A and Adam's two moments of it, which ``fit`` also copies against non-finite numbers; L, the
    # gradient, its sums and what lies between: the most of all objectives, measured on a CPU
    matrices: ClassVar[int] = 13

    def check(self, model: Model) -> None:
        refuse_large_covariance(
            model,
            "family='full'",
            "family='low_rank' holds rank numbers for each, and where= chooses fewer weights",
            self.matrices,
        )

    def start(
        self, model: Model, before: Posterior | None, std: Parameters, key: jax.Array
    ) -> tuple[Parameters, Variational]:
        d, dtype = model.bayesian_size, ravel_pytree(std)[0].dtype
        if not isinstance(before, FullGaussian):
            return std, {"lower": jnp.zeros((d, d), dtype)}
        # the sign of a column is arbitrary, and a deviation's is not
        cholesky = before.cholesky * jnp.sign(jnp.diag(before.cholesky))
        sigma = jnp.diag(cholesky)
        return _filled(std, before.tree(sigma)), {"lower": jnp.tril(cholesky / sigma[:, None], -1)}

    def distribution(self, about: About, variational: Variational) -> Symmetric:
        sigma = softplus(ravel_pytree(variational["rho"])[0])
        lower = jnp.tril(variational["lower"], -1) + jnp.eye(len(sigma), dtype=sigma.dtype)
        cholesky = sigma[:, None] * lower
        return FullGaussian(*about, mu=variational["mu"], cholesky=cholesky)


class LowRank(Family):
    """A Gaussian with independent parts and ``rank`` common ones."""

    rank: int = eqx.field(static=True)

    def start(
        self, model: Model, before: Posterior | None, std: Parameters, key: jax.Array
    ) -> tuple[Parameters, Variational]:
        shape, dtype = (model.bayesian_size, self.rank), ravel_pytree(std)[0].dtype
        if isinstance(before, LowRankGaussian) and before.factor.shape == shape:
            sigma = ravel_pytree(before.sigma)[0]
            factor = before.factor / jnp.where(sigma > 0, sigma, 1)[:, None]
            return _filled(std, before.sigma), {"factor": factor}
        # at zero the bound is flat in B: a little of everything, within the deviations
        factor = 0.1 / np.sqrt(self.rank) * jax.random.normal(key, shape, dtype)
        flat, tree = ravel_pytree(model.bayesian(std))
        sigma = flat / jnp.sqrt(1 + jnp.sum(jnp.square(factor), axis=1))
        return _filled(std, tree(sigma)), {"factor": factor}

    def distribution(self, about: About, variational: Variational) -> Symmetric:
        sigma = jax.tree.map(softplus, variational["rho"])
        factor = ravel_pytree(sigma)[0][:, None] * variational["factor"]
        return LowRankGaussian(*about, mu=variational["mu"], sigma=sigma, factor=factor)


DISCRETE = ("bernoulli", "categorical")  # of BlackBoxVI: no draw of them is a smooth function


def make_family(name: str, rank: int) -> Family:
    """A family by name."""
    families = {"mean_field": MeanField(), "full": Full(), "radial": RadialFamily()}
    return families.get(name, LowRank(rank))


def _filled(like: Parameters, sigma: Parameters) -> Parameters:
    """With zeros where a weight is a point."""
    return jax.tree.map(lambda a, s: jnp.zeros_like(a) if s is None else s, like, sigma)


class FamilyState(NamedTuple):
    """The family's parameters, the network's and the optimiser's state, and the step."""

    variational: Variational
    state: PyTree
    optimizer: PyTree
    step: jax.Array
    average: Average | None = None


class FamilyPhase(ElboPhase):
    """Gradient descent on minus the ELBO, or the importance-weighted bound, per data point."""

    family: Family

    def init(self, start: Start, data: Data | None, key: jax.Array) -> FamilyState:
        mu, std = start_moments(start)
        before = start.posterior
        if before is not None and not same_structure(
            before.model.bayesian(mu), self.model.bayesian(mu)
        ):
            before = None  # of other weights: means and deviations are all that both have
        sigma, own = self.family.start(self.model, before, std, key)
        rho = jax.tree.map(
            lambda prior, s: self._first_rho(prior, s, self.family.stretch(s.size)),
            self.model.priors, sigma, is_leaf=is_prior,
        )  # fmt: skip
        variational = {"mu": mu, "rho": rho} | own
        optimizer, step = self._optimizer().init(variational), jnp.zeros((), jnp.int32)
        return FamilyState(variational, start.state, optimizer, step, self._no_average(variational))

    def step(self, state: FamilyState, batch: Batch, key: jax.Array) -> tuple[FamilyState, Info]:
        grads, terms, network_state = self.gradient(state, batch, key)
        variational, optimizer = self._descend(state.variational, grads, state.optimizer)
        step, average = state.step + 1, state.average
        new = FamilyState(variational, network_state, optimizer, step, average)
        return new, Info(terms)

    def report(self, state: FamilyState, key: jax.Array) -> dict[str, jax.Array]:
        q = self._distribution(state.variational)
        w = q.parameters(Signed(self._sample_keys(key)[0], jnp.ones(())))
        kl = self.kl(q, q, w, sampled=self.method.kl == "monte_carlo")
        return {"kl": kl / self.plan.total.astype(dtype_of(w))}

    def _distribution(self, variational: Variational, state: PyTree = None) -> Symmetric:
        return self.family.distribution((self.model, state, self.plan.targets), variational)

    # -- the bound and its gradient

    def loss(
        self, variational: Variational, state: PyTree, batch: Batch, key: jax.Array,
        sign: jax.Array, scales: tuple[jax.Array, jax.Array],
    ) -> tuple[jax.Array, tuple[jax.Array, PyTree]]:  # fmt: skip
        """The objective at one weight sample; the minibatch's NLL, and the network's new state."""
        method, (nll_scale, kl_scale) = self.method, scales
        q = self._distribution(variational)
        w = q.parameters(Signed(key, sign))
        nll, state = batch_nll(self.model, w, state, batch, jax.random.fold_in(key, NETWORK))
        landing = method.gradient == "sticking_the_landing"
        density = self._distribution(jax.lax.stop_gradient(variational)) if landing else q
        sampled = landing or method.objective == "iwae" or method.kl == "monte_carlo"
        kl = self.kl(q, density, w, sampled)
        return nll_scale * nll + kl_scale * kl, (nll, state)

    def kl(self, q: Symmetric, density: Symmetric, w: Parameters, sampled: bool) -> jax.Array:
        """KL(q ‖ p) as log q(w) − log p(w), or as much of it as can be in closed form."""
        if sampled:
            return density.log_prob(w) - self.model.log_prior(w)

        def cross(prior: Prior, mu: jax.Array, std: jax.Array, w: jax.Array) -> PyTree:
            if is_flat(prior):
                return 0.0
            closed = prior.kl_from_gaussian(mu, std) if self.family.knows(prior) else None
            if closed is None:
                return -jnp.sum(prior.log_prob(w))
            # what is left of a Gaussian's KL without its entropy
            return jnp.sum(closed + jnp.log(std) + 0.5 * (1 + LOG_2PI))

        terms = jax.tree.map(cross, self.model.priors, *q.moments(), w, is_leaf=is_prior)
        return jax.tree.reduce(jnp.add, terms) - q.entropy()

    def gradient(
        self, state: FamilyState, batch: Batch, key: jax.Array
    ) -> tuple[Variational, dict[str, jax.Array], PyTree]:
        r"""Σ_k v_k ∇loss_k over the weight samples, one after another in bounded memory.

        ELBO: v_k = 1/K. IWAE: v_k = w̃_k, the normalised importance weights. Where the score of
        log q is left out, the IWAE's v_k is w̃_k² (Tucker et al. 2019), or at temperature T
        (1 − T) w̃_k + T w̃_k²; and w̃_k for points, which are no parameters of q.
        """
        method, variational, n = self.method, state.variational, self.plan.total
        dtype = dtype_of(variational["mu"])
        scales = self._scales(state.step, batch, dtype)
        weighted = method.objective == "iwae"
        squares = weighted and method.gradient == "sticking_the_landing"

        def one(carry: PyTree, draw: PyTree) -> tuple[PyTree, PyTree]:
            top, mass, sums, squared, nll = carry
            (value, (more, network_state)), grads = jax.value_and_grad(self.loss, has_aux=True)(
                variational, state.state, batch, *draw, scales
            )
            log_weight = -n.astype(dtype) * value if weighted else jnp.zeros((), dtype)
            # weights relative to the largest so far, so that none of them overflows
            highest = jnp.maximum(top, log_weight)
            old, new = jnp.exp(top - highest), jnp.exp(log_weight - highest)
            sums = jax.tree.map(lambda s, g: old * s + new * g, sums, grads)
            if squares:
                squared = jax.tree.map(lambda s, g: old**2 * s + new**2 * g, squared, grads)
            return (highest, old * mass + new, sums, squared, nll + more), network_state

        zero, none = jnp.zeros((), dtype), jax.tree.map(jnp.zeros_like, variational)
        keys, signs = self._draws(key)
        first = (zero - jnp.inf, zero, none, none if squares else None, zero)
        carry, states = jax.lax.scan(one, first, (keys, signs.astype(dtype)))
        top, mass, sums, squared, nll = carry
        grads = jax.tree.map(lambda s: s / mass, sums)
        if squares:
            share = scales[1] / scales[0]
            mixed = jax.tree.map(lambda g, s: (1 - share) * g + share * s / mass**2, grads, squared)
            points = jax.tree.map(
                lambda prior, g, m: g if is_flat(prior) else m,
                self.model.priors, grads["mu"], mixed["mu"], is_leaf=is_prior,
            )  # fmt: skip
            grads = mixed | {"mu": points}
        terms = {"nll": mean_nll(nll / len(keys), batch)}
        if weighted:
            terms["bound"] = (top + jnp.log(mass) - np.log(len(keys))) / n.astype(dtype)
        return grads, terms, mean_state(states)

    def finish(self, state: FamilyState, draws: Draw | None) -> Posterior:
        return self._distribution(self._last(state.average, state.variational), state.state)

r"""The reparameterised bound for any family: automatic differentiation through w = μ ± δ(ε).

    ELBO     E_q[log p(D | w)] − KL(q ‖ p)
    IWAE     E[log (1/K) Σ_k p(D | w_k) p(w_k) / q(w_k)],  w_1 … w_K ~ q

KL(q ‖ p) = −E_q[log p] − H(q): the entropy is in closed form for every family, and the first term
for every prior of which it needs no more than what the family knows of a single weight.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ..._util.tree import dtype_of, same_structure
from ...data import Batch, Data
from ...model import Parameters
from ...posteriors import Posterior
from ...posteriors.symmetric import Signed, Symmetric
from ...priors import Prior, is_flat, is_prior
from ...priors.base import LOG_2PI
from ..base import Draw, Info, Start
from ..objective import batch_nll, mean_nll
from .elbo import ElboPhase, mean_state, start_moments
from .families import Family, Variational

NETWORK = 2**31 - 2  # number of the network's own key among those of a sample, no array's


class FamilyState(NamedTuple):
    """The family's parameters, the network's and the optimiser's state, and the step."""

    variational: Variational
    state: Any
    optimizer: Any
    step: jax.Array


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
        optimizer = self._optimizer().init(variational)
        return FamilyState(variational, start.state, optimizer, jnp.zeros((), jnp.int32))

    def step(self, state: FamilyState, batch: Batch, key: jax.Array) -> tuple[FamilyState, Info]:
        grads, terms, network_state = self.gradient(state, batch, key)
        # an optimiser's weight decay sees zeros where it would pull σ to log 2
        zeros = jax.tree.map(jnp.zeros_like, state.variational)
        decayed = zeros | {"mu": state.variational["mu"]}
        updates, optimizer = self._optimizer().update(grads, state.optimizer, decayed)
        variational = optax.apply_updates(state.variational, updates)
        return FamilyState(variational, network_state, optimizer, state.step + 1), Info(terms)

    def report(self, state: FamilyState, key: jax.Array) -> dict[str, jax.Array]:
        q = self._distribution(state.variational)
        w = q.parameters(Signed(self._sample_keys(key)[0], jnp.ones(())))
        kl = self.kl(q, q, w, sampled=self.method.kl == "monte_carlo")
        return {"kl": kl / self.plan.total.astype(dtype_of(w))}

    def _distribution(self, variational: Variational, state: Any = None) -> Symmetric:
        return self.family.distribution(self.model, state, self.plan.targets, variational)

    # -- the bound and its gradient

    def loss(
        self, variational: Variational, state: Any, batch: Batch, key: Any, sign: Any, scales: Any
    ) -> tuple[jax.Array, tuple[jax.Array, Any]]:
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

        def cross(prior: Prior, mu: jax.Array, std: jax.Array, w: jax.Array) -> Any:
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
    ) -> tuple[Variational, dict[str, jax.Array], Any]:
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

        def one(carry: Any, draw: Any) -> tuple[Any, Any]:
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

    def _rho(self, state: FamilyState) -> Parameters:
        return state.variational["rho"]

    def finish(self, state: FamilyState, draws: Draw | None) -> Posterior:
        return self._distribution(state.variational, state.state)

r"""The fast phase of mean-field variational inference: shift and scale one gradient.

    w = μ + softplus(ρ) ε,  g = ∂f/∂w:  Δμ = g + ∂f/∂μ,  Δρ = (g ε + ∂f/∂σ) σ′(ρ)

The paper's update is used as it stands: back-propagate to w once, then shift and scale for μ and
ρ, in one kernel and without automatic differentiation of q.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..._util.noise import noise_key, standard_normal_like
from ..._util.special import softplus, softplus_and_slope
from ..._util.tree import dtype_of
from ...data import Batch, Data
from ...model import Parameters
from ...posteriors import MeanFieldGaussian, Posterior
from ...posteriors.scaled import mean_field_kl
from ...priors import Prior, is_prior
from ..base import Draw, Info, Start
from ..objective import batch_nll, mean_nll
from .averaging import Average
from .elbo import ElboPhase, mean_state, start_moments
from .estimators import sampled_nll

Gradients = tuple[Parameters, Parameters | None]  # for μ and σ; the second follows from a sample's


class _Pair(NamedTuple):
    """Gradients for μ and for ρ."""

    mu: jax.Array
    rho: jax.Array | None


def _parts(pairs: PyTree) -> dict[str, Parameters]:
    """A tree of pairs as a pair of trees."""
    part = lambda i: jax.tree.map(  # noqa: E731
        lambda pair: pair[i], pairs, is_leaf=lambda node: isinstance(node, _Pair)
    )
    return {"mu": part(0), "rho": part(1)}


class VariationalState(NamedTuple):
    """Means, raw deviations, the network's and the optimiser's state, and the step.

    Where a weight is a point, its ``rho`` is ``None``: it costs what it costs without Bayes.
    """

    mu: Parameters
    rho: Parameters
    state: PyTree
    optimizer: PyTree
    step: jax.Array
    average: Average | None = None

    @property
    def variational(self) -> dict[str, Parameters]:
        """What the optimiser sees."""
        return {"mu": self.mu, "rho": self.rho}


class VariationalPhase(ElboPhase):
    """Gradient descent on minus the evidence lower bound per data point."""

    def init(self, start: Start, data: Data | None, key: jax.Array) -> VariationalState:
        mu, std = start_moments(start)
        rho = jax.tree.map(self._first_rho, self.model.priors, std, is_leaf=is_prior)
        variational = {"mu": mu, "rho": rho}
        optimizer, step = self._optimizer().init(variational), jnp.zeros((), jnp.int32)
        average = self._no_average(variational)
        return VariationalState(mu, rho, start.state, optimizer, step, average)

    def step(self, state: VariationalState, batch: Batch, key: jax.Array) -> tuple[PyTree, Info]:
        scales = self._scales(state.step, batch, dtype_of(state.mu))
        keys, signs = self._draws(key)
        if len(keys) == 1:
            grads, nll, network_state = self.gradient(state, batch, keys[0], signs[0], scales)
        else:
            grads, nll, network_state = self._mean_gradient(state, batch, keys, signs, scales)

        new, optimizer = self._descend(state.variational, grads, state.optimizer)
        after = VariationalState(
            new["mu"], new["rho"], network_state, optimizer, state.step + 1, state.average
        )
        return after, Info({"nll": mean_nll(nll, batch)})

    def report(self, state: VariationalState, key: jax.Array) -> dict[str, jax.Array]:
        w = self._draw_weights(state, self._sample_keys(key)[0], jnp.ones(()))[0]
        return {"kl": self.kl(state, w) / self.plan.total.astype(dtype_of(w))}

    def _mean_gradient(
        self, state: VariationalState, batch: Batch, keys: jax.Array, signs: PyTree, scales: PyTree
    ) -> PyTree:
        """The mean over several weight samples, one after another in bounded memory."""

        def one(sums: PyTree, draw: PyTree) -> tuple[PyTree, PyTree]:
            key, sign = draw
            grads, nll, network_state = self.gradient(state, batch, key, sign, scales)
            return jax.tree.map(jnp.add, sums, (grads, nll)), network_state

        zeros = jax.tree.map(jnp.zeros_like, state.variational)
        sums, states = jax.lax.scan(one, (zeros, jnp.zeros((), dtype_of(state.mu))), (keys, signs))
        grads, nll = jax.tree.map(lambda a: a / len(keys), sums)
        return grads, nll, mean_state(states)

    def gradient(
        self, state: VariationalState, batch: Batch, key: jax.Array, sign: jax.Array, scales: PyTree
    ) -> tuple[dict[str, Parameters], jax.Array, PyTree]:
        """The gradient at one weight sample; ``scales`` weigh the minibatch's NLL and the KL."""
        nll_scale, kl_scale = scales
        w, weight_key, network_key = self._draw_weights(state, key, sign)
        if self.method.estimator == "weight":

            def scaled_nll(w: Parameters) -> tuple[jax.Array, tuple[jax.Array, PyTree]]:
                nll, after = batch_nll(self.model, w, state.state, batch, network_key)
                return nll_scale * nll, (nll, after)  # scaled here it is one number, not all of g

            # back-propagate to w once; μ and ρ follow by shifting and scaling
            g, (nll, network_state) = jax.grad(scaled_nll, has_aux=True)(w)
            return self._with_kl(state, w, (g, None), kl_scale), nll, network_state

        def scaled_nll_of_q(
            mu: Parameters, sigma: Parameters
        ) -> tuple[jax.Array, tuple[jax.Array, PyTree]]:
            rule, noise = self.method.estimator, (weight_key, sign, network_key)
            nll, after = sampled_nll(self.model, rule, mu, sigma, state.state, batch, noise)
            return nll_scale * nll, (nll, after)

        descend = jax.grad(scaled_nll_of_q, argnums=(0, 1), has_aux=True)
        g, (nll, network_state) = descend(state.mu, jax.tree.map(softplus, state.rho))
        return self._with_kl(state, w, g, kl_scale), nll, network_state

    def _draw_weights(
        self, state: VariationalState, key: jax.Array, sign: jax.Array
    ) -> tuple[Parameters, jax.Array, jax.Array]:
        """A draw of the weights, the key of its noise, and one for the network."""
        # two uses of one key, by two generators: the cheap one does not wait for a split
        weight_key, network_key = noise_key(key), jax.random.fold_in(key, 1)
        noise = standard_normal_like(weight_key, state.rho)

        def draw(m: jax.Array, r: jax.Array | None, e: jax.Array | None) -> jax.Array:
            return m if r is None or e is None else m + softplus(r) * (sign.astype(e.dtype) * e)

        return jax.tree.map(draw, state.mu, state.rho, noise), weight_key, network_key

    def _with_kl(
        self, state: VariationalState, w: Parameters, g: Gradients, kl_scale: jax.Array
    ) -> dict[str, Parameters]:
        """The gradients of the whole objective; of the likelihood alone where the KL is nothing.

        Blundell's weights halve from one minibatch to the next and are soon below what float32
        resolves, as is a warm-up's beginning. A CPU gains from the branch in any case: its two
        results are stored, and not computed anew for every moment of the optimiser. A GPU would
        have to ask the host which way to go, and members of an ensemble would go both ways.
        """
        if jax.default_backend() != "cpu" or self.plan.members > 1:
            return self._shift_and_scale(state, w, g, kl_scale)
        share = kl_scale * self.plan.total / self.plan.batches
        return jax.lax.cond(
            share > jnp.finfo(jnp.float32).eps,
            lambda: self._shift_and_scale(state, w, g, kl_scale),
            lambda: self._shift_and_scale(state, w, g, None),
        )

    def _shift_and_scale(
        self, state: VariationalState, w: Parameters, g: Gradients, kl_scale: jax.Array | None
    ) -> dict[str, Parameters]:
        r"""Gradients for μ and ρ from those of the NLL (steps 5 and 6 of the paper's algorithm).

        Of a weight sample g = ∂NLL/∂w is that for μ, and g ε that for σ. The KL adds its own
        derivatives where it is in closed form; where it is sampled f = −λ ∂log p/∂w to the first
        and f ε − λ/σ to the second. σ ε is w − μ, what was really added, so the noise need not be
        kept. Without a scale there is no KL.
        """

        def leaf(
            prior: Prior, mu: jax.Array, rho: PyTree, w: jax.Array, g: jax.Array, h: PyTree
        ) -> _Pair:
            if rho is None:
                return _Pair(g, None)
            sigma, slope = softplus_and_slope(rho)
            if kl_scale is None:
                return _Pair(g, (g * (w - mu) / sigma if h is None else h) * slope)
            closed: PyTree = prior.kl_from_gaussian
            if self.method.kl != "auto" or closed(mu, sigma) is None:
                f = -kl_scale * jax.grad(lambda w: jnp.sum(prior.log_prob(w)))(w)
                # of a weight sample both need g + f, which is then computed once
                own = f if h is not None else g + f
                for_sigma = (own * (w - mu) - kl_scale) / sigma
                return _Pair(g + f, (for_sigma if h is None else h + for_sigma) * slope)
            h = g * (w - mu) / sigma if h is None else h
            total = lambda m, s: jnp.sum(closed(m, s))  # noqa: E731
            kl_mu, kl_sigma = jax.grad(total, argnums=(0, 1))(mu, sigma)
            return _Pair(g + kl_scale * kl_mu, (h + kl_scale * kl_sigma) * slope)

        for_mu, for_sigma = g
        if for_sigma is None:
            for_sigma = jax.tree.map(lambda _: None, for_mu)
        pairs = jax.tree.map(
            leaf, self.model.priors, state.mu, state.rho, w, for_mu, for_sigma, is_leaf=is_prior
        )
        return _parts(pairs)

    def kl(self, state: VariationalState, w: Parameters) -> jax.Array:
        """KL(q ‖ p): closed form where there is one, else log q(w) − log p(w) at the sample."""
        sigma = jax.tree.map(softplus, state.rho)
        closed = self.method.kl == "auto"
        return mean_field_kl(self.model.priors, state.mu, sigma, w, closed=closed)

    def finish(self, state: VariationalState, draws: Draw | None) -> Posterior:
        variational = self._last(state.average, state.variational)
        return MeanFieldGaussian(self.model, state.state, self.plan.targets, **variational)

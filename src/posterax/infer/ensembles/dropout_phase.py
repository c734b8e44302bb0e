r"""The objective of MC dropout, and its gradient steps.

A weight W of a layer becomes W · diag(z) / (1 − p): in training by a mask on the layer's inputs,
for each example its own, where the network uses the weight once; in weight space elsewhere.
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..._util.jax_names import ShapedArray
from ..._util.noise import noise_key
from ..._util.tree import dtype_of, named_leaves
from ...data import Batch, Data
from ...model import Parameters
from ...posteriors import DropoutPosterior, Posterior
from ...posteriors.dropout import mask
from ...priors import Prior, is_prior
from ...program.random_weights import RandomArray, run
from ...program.reuse import PRODUCT
from ..base import Draw, History, Info, Start
from ..objective import DescentPhase, mean_nll

_TEMPERATURE = 0.1  # of the relaxed Bernoulli variables, as in the paper


class Fixed(eqx.Module):
    """Dropout at a given rate."""

    p: jax.Array

    def mask(self, key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
        return mask(key, self.p, shape, dtype)


class Concrete(eqx.Module):
    """Dropout at a rate that is learned: masks are relaxed, so that they have a derivative."""

    logit: jax.Array

    @property
    def p(self) -> jax.Array:
        return jax.nn.sigmoid(self.logit)

    def mask(self, key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
        noise = jax.random.logistic(key, shape, dtype)
        logit = self.logit.astype(dtype)
        return jax.nn.sigmoid(-(logit + noise) / _TEMPERATURE) / jax.nn.sigmoid(-logit)

    def entropy(self) -> jax.Array:
        """−p log p − (1 − p) log(1 − p)."""
        log_p, log_rest = -jax.nn.softplus(-self.logit), -jax.nn.softplus(self.logit)
        return -self.p * log_p - (1 - self.p) * log_rest


Rates = dict[str, Fixed | Concrete]  # by the names of weights


class DropoutArray(RandomArray):
    """A weight whose inputs are dropped, every example's by a mask of its own."""

    weight: jax.Array
    rate: Fixed | Concrete
    key: jax.Array

    def aval(self) -> ShapedArray:
        return ShapedArray(self.weight.shape, self.weight.dtype)

    def materialise(self) -> jax.Array:
        raise TypeError("a weight with dropout can only be a factor of a product")

    def map(self, function: Callable[[jax.Array], jax.Array]) -> "DropoutArray":
        return DropoutArray(function(self.weight), self.rate, self.key)

    def product(
        self, x: jax.Array, multiply: Callable, inside: tuple[int, ...], outside: Callable
    ) -> jax.Array:
        return multiply(self.weight, x * self.rate.mask(self.key, inside, x.dtype))


class DropoutState(NamedTuple):
    """Weights W, log odds of the learned rates, the network's and the optimiser's state."""

    point: Parameters
    logits: dict[str, jax.Array]
    state: PyTree
    optimizer: PyTree


class DropoutPhase(DescentPhase):
    """Gradient descent on F / N; without ``units`` the network has dropout layers of its own."""

    rate: jax.Array  # fixed, or where the learned ones start
    units: dict[str, jax.Array]
    inputs: dict[str, jax.Array]  # how many: K
    learned: bool = eqx.field(static=True)

    title: ClassVar[str] = "optimising"

    def init(self, start: Start, data: Data | None, key: jax.Array) -> DropoutState:
        point = start.parameters
        dtype = dtype_of(point)
        known = getattr(start.posterior, "rates", {})
        logits = {}
        if self.learned:
            rates = {name: jnp.asarray(known.get(name, self.rate), dtype) for name in self.units}
            logits = {name: jnp.log(p) - jnp.log1p(-p) for name, p in rates.items()}
        trained = {"point": point, "logit": logits}
        return DropoutState(point, logits, start.state, self._optimizer().init(trained))

    def step(self, state: DropoutState, batch: Batch, key: jax.Array) -> tuple[DropoutState, Info]:
        trained = {"point": state.point, "logit": state.logits}
        grads, (terms, network_state) = jax.grad(self.objective, has_aux=True)(
            trained, state.state, batch, key
        )
        new, optimizer = self._descend(trained, grads, state.optimizer)
        return DropoutState(new["point"], new["logit"], network_state, optimizer), Info(terms)

    def rates(self, logits: dict[str, jax.Array]) -> Rates:
        """The rate of every weight that has dropout."""
        if self.learned:
            return {name: Concrete(logit) for name, logit in logits.items()}
        return {name: Fixed(self.rate) for name in self.units}

    def objective(
        self, trained: dict[str, PyTree], state: PyTree, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, PyTree]:
        """F / N estimated from a minibatch; its terms, and the network's new state."""
        n, m = self.plan.total, self.plan.batches
        point, rates = trained["point"], self.rates(trained["logit"])
        for_masks, for_prior = jax.random.split(noise_key(key))
        outputs, state = self.forward(
            point, rates, state, batch.x, for_masks, jax.random.fold_in(key, 1)
        )
        log_p = self.model.likelihood_of(point, outputs, batch.x, batch.y)
        nll = -jnp.sum(batch.weight * log_p)
        prior = -self.log_prior(point, rates, for_prior) / n
        terms = {"nll": mean_nll(nll, batch), "prior": prior}
        objective = m / n * nll + prior
        if self.learned:
            logits = trained["logit"].items()
            each = [self.inputs[name] * Concrete(logit).entropy() for name, logit in logits]
            entropy = jnp.sum(jnp.stack(each)) / n
            rate = jnp.mean(jnp.stack([rate.p for rate in rates.values()]))
            terms |= {"entropy": entropy, "rate": rate}
            objective = objective - entropy
        return objective, (terms, state)

    def forward(
        self, point: Parameters, rates: Rates, state: PyTree, x: PyTree, noise: jax.Array,
        key: jax.Array,
    ) -> tuple[jax.Array, PyTree]:  # fmt: skip
        """Outputs in training, with masks of their own for each example where that can be."""
        if not rates:
            return self.model.apply(point, state, x, key, training=True)
        names = list(named_leaves(point.network))
        keys = jax.random.split(noise, len(names))

        def draw(i: int, w: jax.Array, use: str) -> jax.Array | DropoutArray:
            if names[i] not in rates:
                return w
            if use == PRODUCT:
                return DropoutArray(w, rates[names[i]], keys[i])
            return self._masked(names[i], w, rates[names[i]], keys[i])

        def network(weights: PyTree, x: PyTree, state: PyTree) -> PyTree:
            return self.model.apply(Parameters(weights, None), state, x, key, training=True)

        return run(network, point.network, draw, x, state)[0]

    def _masked(self, name: str, w: jax.Array, rate: Fixed | Concrete, key: jax.Array) -> jax.Array:
        """One mask for the whole batch, and for all steps of a loop."""
        units = self.units[name]
        return w * rate.mask(key, (units.size,), w.dtype)[units]

    def log_prior(self, point: Parameters, rates: Rates, key: jax.Array) -> jax.Array:
        r"""E_q[log p(w)], exact: a weight is W / (1 − p) or 0.

        A prior of all weights at once (``px.priors.Hierarchical``) is taken at one sample.
        """
        names = [*named_leaves(point.network), *[""] * len(jax.tree.leaves(point.likelihood))]
        priors = jax.tree.leaves(self.model.priors, is_leaf=is_prior)
        keys = jax.random.split(key, len(names))

        def one(name: str, prior: Prior, w: jax.Array, key: jax.Array) -> jax.Array:
            if name not in rates:
                return jnp.sum(prior.log_prob(w))
            p = rates[name].p.astype(w.dtype)
            on = prior.log_prob(w / (1 - p))
            if on.shape == w.shape:
                return jnp.sum((1 - p) * on + p * prior.log_prob(jnp.zeros_like(w)))
            return jnp.sum(prior.log_prob(self._masked(name, w, rates[name], key)))

        parts = zip(names, priors, jax.tree.leaves(point), keys, strict=True)
        return jnp.sum(jnp.stack([one(*part) for part in parts]))

    def explain(self, state: DropoutState, history: History, term: str | None = None) -> str | None:
        if term == "prior":
            return (
                "prior: log p(w) is not finite at the weights or at 0; lower the learning rate, or "
                "use a prior with density on the whole line"
            )
        return super().explain(state, history, term)

    def finish(self, state: DropoutState, draws: Draw | None) -> Posterior:
        dtype = dtype_of(state.point)
        rates = {name: rate.p.astype(dtype) for name, rate in self.rates(state.logits).items()}
        return DropoutPosterior(
            self.model, state.state, self.plan.targets,
            point=state.point, rates=rates, units=self.units,
        )  # fmt: skip

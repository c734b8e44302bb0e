r"""IVON: natural-gradient variational inference at about the cost of Adam.

The same family and the same objective as Bayes by Backprop, minus the ELBO per data point with
q = N(m, 1/(λ s)) and λ = N / temperature. Its natural gradient needs no derivative by the
deviations: with the gradient at one draw w it moves the mean by a Newton step and the precision by
an estimate of the curvature (``posterax.optim`` has the equations). So there is one running
gradient and one precision where Adam has two moments, and no optimiser of deviations.
"""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..._util.noise import noise_key, standard_normal_like
from ..._util.special import inverse_softplus
from ...data import Batch, Data
from ...model import Model, Parameters
from ...optim import deviation, newton_step, next_precision
from ...posteriors import MeanFieldGaussian, Posterior
from ...posteriors.scaled import mean_field_kl
from ...priors import Gaussian, Prior, is_flat, is_prior
from ..base import Draw, History, Info, Method, Needs, Phase, Plan, Start, with_arrays
from ..objective import Elementwise, adam, batch_nll, holds, mean_nll, need_prior, rate_at
from ..settings import Fraction, FractionOrZero, Positive, Rate, Runs, Schedule
from .averaging import Average, averaged, best_of, no_average
from .elbo import mean_state, start_moments
from .estimators import Estimator, sampled_nll, settled

POINTS = 1 / 30  # Adam's learning rate for points, times ours


class _Pair(NamedTuple):
    """ĝ and ĝ (w − m) of an array."""

    gradient: jax.Array
    product: jax.Array | None


class NewtonState(NamedTuple):
    """Mean m, running gradient g, precision per data point s, the network's state, the step.

    Where a weight is a point, its ``momentum`` and ``precision`` are ``None``, and ``points`` is
    Adam's state for it.
    """

    mu: Parameters
    momentum: Parameters
    precision: Parameters
    points: PyTree
    state: PyTree
    step: jax.Array
    average: Average | None = None


class IVONPhase(Phase):
    """Natural-gradient steps on minus the evidence lower bound per data point."""

    method: Any  # an ``IVON``

    title: ClassVar[str] = "IVON"

    def _size(self) -> jax.Array:
        """λ, how many data points the posterior counts."""
        return self.plan.total / self.method.temperature

    def _pull(self, prior: Prior, dtype: jnp.dtype) -> tuple[jax.Array, jax.Array]:
        """δ and the mean of a Gaussian prior; others are sampled with the likelihood, and δ = 0."""
        if not isinstance(prior, Gaussian):
            return jnp.zeros((), dtype), jnp.zeros((), dtype)
        delta = 1 / (self._size() * jnp.square(jnp.asarray(prior.scale)))
        return delta.astype(dtype), jnp.asarray(prior.loc, dtype)

    # -- where it starts

    def init(self, start: Start, data: Data | None, key: jax.Array) -> NewtonState:
        mu, std = start_moments(start)
        precision = jax.tree.map(self._first_precision, self.model.priors, std, is_leaf=is_prior)
        momentum = jax.tree.map(jnp.zeros_like, precision)
        points = self._adam().init(self._points(mu))
        step = jnp.zeros((), jnp.int32)
        average = no_average((mu, precision)) if holds(self.method) else None
        return NewtonState(mu, momentum, precision, points, start.state, step, average)

    def _adam(self) -> Elementwise:
        method = self.method
        rate = partial(rate_at, method.learning_rate, method.schedule, self.plan)
        return adam(lambda step: POINTS * rate(step))

    def _points(self, tree: Parameters) -> Parameters:
        """A tree like the parameters with ``None`` for those that are no points."""
        return jax.tree.map(
            lambda prior, value: value if is_flat(prior) else None,
            self.model.priors, tree, is_leaf=is_prior,
        )  # fmt: skip

    def _first_precision(self, prior: Prior, std: jax.Array) -> jax.Array | None:
        """From the start's deviations where it has some; ``None`` for what is to be a point."""
        if is_flat(prior):
            return None
        known = 1 / (self._size() * jnp.square(jnp.where(std > 0, std, 1)))
        fresh = self.method.hessian_init + self._pull(prior, std.dtype)[0]
        return jnp.where(std > 0, known, fresh).astype(std.dtype)

    # -- a step

    def step(self, state: NewtonState, batch: Batch, key: jax.Array) -> tuple[NewtonState, Info]:
        if self.method.samples == 1:
            grads, products, nll, network_state = self._gradient(state, batch, key)
        else:
            keys = jax.random.split(key, self.method.samples)
            each = jax.lax.map(lambda k: self._gradient(state, batch, k), keys)
            grads, products, nll, network_state = mean_state(each)
        new = self._advance(state, grads, products, network_state)
        return new, Info({"nll": mean_nll(nll, batch)})

    def _gradient(self, state: NewtonState, batch: Batch, key: jax.Array) -> PyTree:
        """ĝ and ĝ (w − m) of one draw w, the minibatch's NLL, and the network's new state.

        ĝ (w − m) is σ ∂NLL/∂σ, which local noise estimates with less variance.
        """
        # two uses of one key, by two generators: the cheap one does not wait for a split
        w, network_key = self._draw(state, key), jax.random.fold_in(key, 1)
        if self.method.estimator == "weight":

            def nll_of(w: Parameters) -> tuple[jax.Array, PyTree]:
                return batch_nll(self.model, w, state.state, batch, network_key)

            (nll, network_state), g = jax.value_and_grad(nll_of, has_aux=True)(w)
            products = jax.tree.map(
                lambda g, s, w, m: None if s is None else g * (w - m),
                g, state.precision, w, state.mu,
            )  # fmt: skip
        else:
            descend = jax.value_and_grad(sampled_nll, argnums=(2, 3), has_aux=True)
            (nll, network_state), (g, by_sigma) = descend(
                self.model, self.method.estimator, state.mu, self.sigma(state), state.state, batch,
                (noise_key(key), jnp.ones(()), network_key),
            )  # fmt: skip
            products = jax.tree.map(jnp.multiply, by_sigma, self.sigma(state))
        return *self._with_prior(state, w, g, products), nll, network_state

    def _with_prior(
        self, state: NewtonState, w: Parameters, g: Parameters, products: Parameters
    ) -> tuple[Parameters, Parameters]:
        """Both per data point, and with the gradient of a prior that is no Gaussian, at w."""
        share = self.plan.batches / self.plan.total

        def leaf(
            prior: Prior, s: PyTree, w: jax.Array, m: jax.Array, g: jax.Array, product: PyTree
        ) -> _Pair:
            g = share.astype(g.dtype) * g
            if s is None:
                return _Pair(g, None)
            product = share.astype(g.dtype) * product
            if isinstance(prior, Gaussian):
                return _Pair(g, product)
            by_prior = jax.grad(lambda w: jnp.sum(prior.log_prob(w)))(w)
            pull = by_prior / self._size().astype(g.dtype)
            return _Pair(g - pull, product - pull * (w - m))

        pairs = jax.tree.map(
            leaf, self.model.priors, state.precision, w, state.mu, g, products, is_leaf=is_prior
        )
        part = lambda i: jax.tree.map(  # noqa: E731
            lambda pair: pair[i], pairs, is_leaf=lambda node: isinstance(node, _Pair)
        )
        return part(0), part(1)

    def _draw(self, state: NewtonState, key: jax.Array) -> Parameters:
        noise = standard_normal_like(noise_key(key), state.precision)
        return jax.tree.map(
            lambda m, sigma, e: m if sigma is None else m + sigma * e,
            state.mu, self.sigma(state), noise,
        )  # fmt: skip

    def sigma(self, state: NewtonState) -> Parameters:
        """Standard deviations, ``None`` for points."""
        return jax.tree.map(lambda s: deviation(s, self._size()), state.precision)

    def _advance(
        self, state: NewtonState, grads: Parameters, products: Parameters, network_state: PyTree
    ) -> NewtonState:
        method = self.method
        debias = 1 - method.b1 ** (state.step + 1.0)
        rate = rate_at(method.learning_rate, method.schedule, self.plan, state.step)
        # what the curvature forgets falls with the rate: so both settle, however noisy
        rho = rate_at(1 - method.b2, method.schedule, self.plan, state.step)

        def follow(old: jax.Array, new: jax.Array) -> jax.Array:
            b1 = method.b1.astype(old.dtype)
            return b1 * old + (1 - b1) * new

        def curve(prior: Prior, s: PyTree, product: PyTree) -> PyTree:
            if s is None:
                return None
            delta = self._pull(prior, s.dtype)[0]
            return next_precision(s, product, self._size(), delta, rho)

        points, moments = self._adam().update(self._points(grads), state.points)

        def move(prior: Prior, m: jax.Array, g: PyTree, s: PyTree, point: PyTree) -> jax.Array:
            if s is None:
                return m + point
            delta, loc = self._pull(prior, m.dtype)
            return m + newton_step(g, s, delta * (m - loc), rate, debias, method.clip)

        priors = self.model.priors
        momentum = jax.tree.map(follow, state.momentum, self.model.bayesian(grads))
        precision = jax.tree.map(curve, priors, state.precision, products, is_leaf=is_prior)
        mu = jax.tree.map(move, priors, state.mu, momentum, precision, points, is_leaf=is_prior)
        step, average = state.step + 1, state.average
        return NewtonState(mu, momentum, precision, moments, network_state, step, average)

    def between(self, state: NewtonState) -> NewtonState:
        if state.average is None:
            return state
        values = lambda: (state.mu, _variances(state.precision))  # noqa: E731
        return state._replace(average=averaged(state.average, values, state.step, self.plan))

    # -- what it tells

    def report(self, state: NewtonState, key: jax.Array) -> dict[str, jax.Array]:
        w, sigma = self._draw(state, key), self.sigma(state)
        kl = mean_field_kl(self.model.priors, state.mu, sigma, w)
        return {"kl": kl / self.plan.total.astype(kl.dtype), "clipped": self._clipped(state)}

    def _clipped(self, state: NewtonState) -> jax.Array:
        """Which share of the weights would move further, if ``clip`` let them."""
        debias = 1 - self.method.b1 ** jnp.maximum(state.step, 1)

        def count(prior: Prior, m: jax.Array, g: PyTree, s: PyTree) -> PyTree:
            if s is None:
                return None
            delta, loc = self._pull(prior, m.dtype)
            step = newton_step(g, s, delta * (m - loc), 1.0, debias, jnp.inf)
            return jnp.sum(jnp.abs(step) > self.method.clip)

        counts = jax.tree.map(
            count, self.model.priors, state.mu, state.momentum, state.precision, is_leaf=is_prior
        )
        return jax.tree.reduce(jnp.add, counts) / self.model.bayesian_size

    def explain(self, state: NewtonState, history: History, term: str | None = None) -> str | None:
        if term is None:
            return None
        part = "likelihood (nll)" if term == "nll" else "prior (kl)"
        return (
            f"{part}: lower learning_rate or clip, raise hessian_init (smaller deviations at "
            "first), and standardise x and y"
        )

    def finish(self, state: NewtonState, draws: Draw | None) -> Posterior:
        mu, rho = _last(state.average, state.mu, state.precision, self._size())
        return MeanFieldGaussian(self.model, state.state, self.plan.targets, mu=mu, rho=rho)


def _variances(precision: Parameters) -> Parameters:
    """1/s, that is λσ²: where ŝ/s has mean 1 at rest, it is its mean that is right."""
    return jax.tree.map(lambda s: 1 / s, precision)


@jax.jit  # on the host one program is cheaper than an operation for each array
def _last(
    average: Average | None, mu: Parameters, precision: Parameters, size: jax.Array
) -> tuple[Parameters, Parameters]:
    """μ and ρ: the mean of the last iterates where there is one."""
    variances = _variances(precision)
    if average is not None:
        mu, variances = best_of(average, (mu, variances))
    return mu, jax.tree.map(lambda v: inverse_softplus(deviation(1 / v, size)), variances)


class IVON(Method):
    r"""Mean-field Gaussian variational inference by natural gradients (variational online Newton).

    It has the family and the objective of ``px.BayesByBackprop`` and costs little more than Adam on
    a plain network. Gaussian priors enter in closed form, others by the same sample as the data.
    Weights without a prior are trained by Adam.

    Its estimate of the curvature is noisy: by default it is sampled with local noise where that is
    exact, as in ``px.BayesByBackprop``, and 1 − b2 falls with the learning rate, so that precisions
    settle.

    Args:
        estimator: how gradient and curvature are sampled. ``"weight"``: one weight sample for the
            whole batch, which costs what Adam costs (the paper's); ``"local"``, ``"flipout"`` and
            ``"auto"`` as in ``px.BayesByBackprop``.
        learning_rate: the step size, or an optax schedule; 1 is Newton's.
        schedule: ``"hold"`` (the rate stays for half of the steps, and then falls to zero in a
            straight line), ``"cosine"`` (it falls from the start) or ``"constant"``.
        hessian_init: where the curvature per data point starts; σ = 1/√(N · hessian_init) at first.
        b1: decay of the running gradient.
        b2: decay of the running curvature, which looks back over 1/(1 − b2) steps, and longer where
            the learning rate falls.
        clip: a weight moves by at most ``learning_rate · clip`` in a step, since the curvature is
            not known at first.
        samples: weight samples per step.
        temperature: weight of the KL; 1 is the posterior, below 1 a colder one.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(-1, 1, 64)[:, None].astype("float32")
        >>> network = px.networks.MLP(1, 1, (16,), key=0)
        >>> model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
        >>> posterior = px.fit(model, (x, x[:, 0] ** 2), px.IVON(), epochs=200, key=0)
        >>> predictive = posterior.predict(x, key=1)
        >>> bool(abs(predictive.mean - x[:, 0] ** 2).mean() < 0.1)
        True

    Reference:
        Shen, Daheim, Cong, Nickl, Marconi, Bazan, Yokota, Gurevych, Cremers, Khan and Möllenhoff,
        *Variational learning is effective for large deep networks*, ICML 2024. The learning rate is
        in Newton's units here, where the paper multiplies it by the initial curvature; local noise,
        precisions that change by a factor of e at most, a ``b2`` that follows the rate and the mean
        of the last iterates are departures.
    """

    learning_rate: Rate = 0.2
    schedule: Schedule = "hold"
    hessian_init: Positive = 1.0
    b1: FractionOrZero = 0.9
    b2: Fraction = 0.997
    clip: Positive = 0.05
    samples: Runs = 1
    temperature: Positive = 1.0
    estimator: Estimator = "auto"

    @property
    def needs(self) -> Needs:
        elementwise = self.estimator == "weight"
        return Needs(elementwise=elementwise, mixes=True, bound=True, anytime=holds(self))

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        need_prior(model, "IVON")
        return [IVONPhase(model, plan, settled(with_arrays(self, model), model, plan))]

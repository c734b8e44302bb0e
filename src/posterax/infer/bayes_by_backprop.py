r"""Bayes by Backprop (Blundell et al. 2015): mean-field variational inference.

Minimise, per data point, minus the evidence lower bound

    F(μ, ρ) = E_q[−log p(D | w)] + KL(q(w | μ, ρ) ‖ p(w)),  q = N(μ, softplus(ρ)²)

with w = μ + softplus(ρ) ε. The paper's update is used as it stands: back-propagate to w once,
then shift and scale for μ and ρ.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from .._checks import whole
from .._noise import noise_key, standard_normal_like
from .._special import inverse_softplus, softplus, softplus_and_slope
from .._xla import multi_output_fusion
from ..data import Batch, Data
from ..model import Model, Parameters
from ..posteriors import MeanFieldGaussian, Posterior
from ..priors import Prior, is_flat, is_prior
from .base import (
    Draw,
    Info,
    Method,
    Phase,
    Plan,
    Start,
    batch_nll,
    check_optimizer,
    choose,
    make_optimizer,
    mean_nll,
)

_HALF_LOG_2PI = float(0.5 * np.log(2 * np.pi))


def minibatch_weight(weighting: str | Callable[..., Any], i: Any, batches: Any) -> jax.Array:
    r"""π_i, the share of the KL that minibatch i = 1 … M carries; the shares sum to one.

    ``"uniform"`` is 1/M (Graves 2011). ``"blundell"`` is 2^(M−i) / (2^M − 1), computed as
    2^−i / (1 − 2^−M), since 2^M overflows.

    Example:
        >>> from posterax.infer.bayes_by_backprop import minibatch_weight
        >>> [float(minibatch_weight("blundell", i, 2)) for i in (1, 2)]
        [0.666..., 0.333...]
    """
    if callable(weighting):
        return weighting(i, batches)
    i, m = jnp.asarray(i, float), jnp.asarray(batches, float)
    if weighting == "uniform":
        return 1 / m
    return jnp.exp2(-i) / (1 - jnp.exp2(-m))


def _dtype(params: Parameters) -> Any:
    return jax.tree.leaves(params)[0].dtype


class _Pair(NamedTuple):
    """Gradients for μ and for ρ."""

    mu: jax.Array
    rho: jax.Array | None


class VariationalState(NamedTuple):
    """Means, raw deviations, the network's and the optimiser's state, and the step.

    Where a weight is a point, its ``rho`` is ``None``: it costs what it costs without Bayes.
    """

    mu: Parameters
    rho: Parameters
    state: Any
    optimizer: Any
    step: jax.Array


class VariationalPhase(Phase):
    """Gradient descent on minus the evidence lower bound per data point."""

    method: "BayesByBackprop"
    learning_rate: Any
    temperature: Any
    warmup: Any
    initial_rho: Any
    alone: bool = eqx.field(static=True, default=True)  # not one of several under vmap

    title: ClassVar[str] = "Bayes by Backprop"

    def _optimizer(self) -> optax.GradientTransformation:
        method = self.method
        return make_optimizer(method.optimizer, self.learning_rate, method.schedule, self.plan)

    def init(self, previous: Start, data: Data | None, key: jax.Array) -> VariationalState:
        mu, std = previous.parameters, None
        if previous.posterior is not None:
            mu, std = previous.posterior.moments()
        std = jax.tree.map(jnp.zeros_like, mu) if std is None else std
        rho = jax.tree.map(self._first_rho, self.model.priors, std, is_leaf=is_prior)
        optimizer = self._optimizer().init({"mu": mu, "rho": rho})
        return VariationalState(mu, rho, previous.state, optimizer, jnp.zeros((), jnp.int32))

    def _first_rho(self, prior: Prior, std: jax.Array) -> jax.Array | None:
        """From the start's deviations where it has some; ``None`` for what is to be a point."""
        if is_flat(prior):
            return None
        fresh = self.initial_rho.astype(std.dtype)
        if self.method.initial_rho == "prior":
            fresh = inverse_softplus(jnp.asarray(prior.deviation(), std.dtype))
        return jnp.where(std > 0, inverse_softplus(jnp.where(std > 0, std, 1)), fresh)

    def step(
        self, state: VariationalState, batch: Batch, key: jax.Array
    ) -> tuple[VariationalState, Info]:
        n, m = self.plan.total, self.plan.batches
        share = minibatch_weight(self.method.kl_weights, batch.i + 1, m)
        warm = jnp.minimum(1.0, (state.step + 1) / jnp.maximum(self.warmup * m, 1))
        scales = m / n, self.temperature * warm * m / n * share
        # numbers of the plan may be wider than the weights
        scales = jax.tree.map(lambda a: a.astype(_dtype(state.mu)), scales)

        samples, keys = self.method.samples, self._sample_keys(key)
        signs = jnp.ones(samples)
        if self.method.antithetic:
            keys, signs = keys[jnp.arange(samples) // 2], signs.at[1::2].set(-1)
        if samples == 1:
            grads, nll, network_state = self.gradient(state, batch, keys[0], signs[0], scales)
        else:
            grads, nll, network_state = self._mean_gradient(state, batch, keys, signs, scales)

        # an optimiser's weight decay sees ρ as zero, so it cannot pull σ to log 2
        seen = {"mu": state.mu, "rho": jax.tree.map(jnp.zeros_like, state.rho)}
        updates, optimizer = self._optimizer().update(grads, state.optimizer, seen)
        mu = optax.apply_updates(state.mu, updates["mu"])
        rho = optax.apply_updates(state.rho, updates["rho"])
        new = VariationalState(mu, rho, network_state, optimizer, state.step + 1)
        return new, Info({"nll": mean_nll(nll, batch)})

    def report(self, state: VariationalState, key: jax.Array) -> dict[str, jax.Array]:
        w = self._draw_weights(state, self._sample_keys(key)[0], jnp.ones(()))[0]
        return {"kl": self.kl(state, w) / self.plan.total.astype(_dtype(w))}

    def _sample_keys(self, key: jax.Array) -> jax.Array:
        samples = self.method.samples
        return jax.random.split(key, samples) if samples > 1 else key[None]

    def _mean_gradient(
        self, state: VariationalState, batch: Batch, keys: jax.Array, signs: jax.Array, scales: Any
    ) -> Any:
        """The mean over several weight samples, one after another in bounded memory."""

        def one(sums: Any, draw: Any) -> tuple[Any, Any]:
            key, sign = draw
            grads, nll, network_state = self.gradient(state, batch, key, sign, scales)
            return jax.tree.map(jnp.add, sums, (grads, nll)), network_state

        zeros = jax.tree.map(jnp.zeros_like, {"mu": state.mu, "rho": state.rho})
        sums, states = jax.lax.scan(one, (zeros, jnp.zeros((), _dtype(state.mu))), (keys, signs))
        grads, nll = jax.tree.map(lambda a: a / len(keys), sums)
        # running averages of a network with state: the mean over the samples' own
        network_state = jax.tree.map(
            lambda a: jnp.mean(a, 0) if jnp.issubdtype(a.dtype, jnp.inexact) else a[-1], states
        )
        return grads, nll, network_state

    def gradient(
        self, state: VariationalState, batch: Batch, key: jax.Array, sign: Any, scales: Any
    ) -> tuple[dict[str, Parameters], jax.Array, Any]:
        """The gradient at one weight sample; ``scales`` weigh the minibatch's NLL and the KL."""
        nll_scale, kl_scale = scales
        w, weight_key, network_key = self._draw_weights(state, key, sign)
        if self.method.estimator == "weight":

            def nll_of(w: Parameters) -> Any:
                return batch_nll(self.model, w, state.state, batch, network_key)

            # back-propagate to w once; μ and ρ follow by shifting and scaling
            (nll, network_state), g = jax.value_and_grad(nll_of, has_aux=True)(w)
            g = jax.tree.map(lambda g: nll_scale * g, g)
            return self._with_kl(state, w, g, kl_scale), nll, network_state

        (nll, network_state), (g_mu, g_rho) = jax.value_and_grad(
            self._distribution_nll, argnums=(0, 1), has_aux=True
        )(state.mu, state.rho, state.state, batch, weight_key, sign, network_key)
        none = jax.tree.map(jnp.zeros_like, w)
        kl = self._with_kl(state, w, none, kl_scale)
        likelihood = {"mu": g_mu, "rho": g_rho}
        grads = jax.tree.map(lambda a, b: nll_scale * a + b, likelihood, kl)
        return grads, nll, network_state

    def _draw_weights(self, state: VariationalState, key: jax.Array, sign: Any) -> Any:
        # two uses of one key, by two generators: the cheap one does not wait for a split
        weight_key, network_key = noise_key(key), jax.random.fold_in(key, 1)
        noise = standard_normal_like(weight_key, state.rho)

        def draw(m: jax.Array, r: jax.Array | None, e: jax.Array | None) -> jax.Array:
            return m if r is None or e is None else m + softplus(r) * (sign.astype(e.dtype) * e)

        return jax.tree.map(draw, state.mu, state.rho, noise), weight_key, network_key

    def _closed_kl(self, prior: Prior, mu: jax.Array, sigma: jax.Array) -> jax.Array | None:
        return prior.kl_from_gaussian(mu, sigma) if self.method.kl == "auto" else None

    def _with_kl(
        self, state: VariationalState, w: Parameters, g: Parameters, kl_scale: jax.Array
    ) -> dict[str, Parameters]:
        """The gradients of the whole objective; of the likelihood alone where the KL is nothing.

        Blundell's weights halve from one minibatch to the next and are soon below what float32
        resolves, as is a warm-up's beginning. A CPU gains from the branch in any case: its two
        results are stored, and not computed anew for every moment of the optimiser (unless the
        compiler computes all at once). A GPU would have to ask the host which way to go, and
        members of an ensemble would go both ways.
        """
        if jax.default_backend() != "cpu" or multi_output_fusion() or not self.alone:
            return self._shift_and_scale(state, w, g, kl_scale)
        share = kl_scale * self.plan.total / self.plan.batches
        return jax.lax.cond(
            share > jnp.finfo(jnp.float32).eps,
            lambda: self._shift_and_scale(state, w, g, kl_scale),
            lambda: self._shift_and_scale(state, w, g, None),
        )

    def _shift_and_scale(
        self, state: VariationalState, w: Parameters, g: Parameters, kl_scale: jax.Array | None
    ) -> dict[str, Parameters]:
        r"""Gradients for μ and ρ from g = ∂NLL/∂w (steps 5 and 6 of the paper's algorithm).

        Δμ = f′(w) and Δρ = (f′(w) ε − λ/σ) σ′(ρ) with f′ = g − λ ∂log p/∂w where the KL is
        sampled; its own derivatives where it is in closed form. σ ε is w − μ, what was really
        added, so the noise need not be kept. Without a scale there is no KL.
        """

        def leaf(prior: Prior, mu: jax.Array, rho: Any, w: jax.Array, g: jax.Array) -> _Pair:
            if rho is None:
                return _Pair(g, None)
            sigma, slope = softplus_and_slope(rho)
            if kl_scale is None:
                return _Pair(g, g * (w - mu) / sigma * slope)
            if self._closed_kl(prior, mu, sigma) is None:
                f = g - kl_scale * jax.grad(lambda w: jnp.sum(prior.log_prob(w)))(w)
                return _Pair(f, (f * (w - mu) - kl_scale) / sigma * slope)
            closed: Any = prior.kl_from_gaussian
            total = lambda m, s: jnp.sum(closed(m, s))  # noqa: E731
            kl_mu, kl_sigma = jax.grad(total, argnums=(0, 1))(mu, sigma)
            for_rho = (g * (w - mu) / sigma + kl_scale * kl_sigma) * slope
            return _Pair(g + kl_scale * kl_mu, for_rho)

        pairs = jax.tree.map(leaf, self.model.priors, state.mu, state.rho, w, g, is_leaf=is_prior)
        part = lambda i: jax.tree.map(  # noqa: E731
            lambda pair: pair[i], pairs, is_leaf=lambda node: isinstance(node, _Pair)
        )
        return {"mu": part(0), "rho": part(1)}

    def kl(self, state: VariationalState, w: Parameters) -> jax.Array:
        """KL(q ‖ p): closed form where there is one, else log q(w) − log p(w) at the sample."""

        def leaf(prior: Prior, mu: jax.Array, rho: Any, w: jax.Array) -> Any:
            if rho is None:
                return None
            sigma = softplus(rho)
            closed = self._closed_kl(prior, mu, sigma)
            if closed is not None:
                return jnp.sum(closed)
            noise = (w - mu) / sigma
            log_q = -0.5 * jnp.square(noise) - jnp.log(sigma) - _HALF_LOG_2PI
            return jnp.sum(log_q) - jnp.sum(prior.log_prob(w))  # which may be of all at once

        terms = jax.tree.map(leaf, self.model.priors, state.mu, state.rho, w, is_leaf=is_prior)
        return jax.tree.reduce(jnp.add, terms)

    def _distribution_nll(
        self,
        mu: Parameters,
        rho: Parameters,
        network_state: Any,
        batch: Batch,
        noise: jax.Array,
        sign: jax.Array,
        key: jax.Array,
    ) -> tuple[jax.Array, Any]:
        from .estimators import forward

        sigma = jax.tree.map(softplus, rho)
        outputs, network_state, params = forward(
            self.model, self.method.estimator, mu, sigma, network_state, batch.x, noise, sign, key
        )
        log_p = self.model.likelihood_of(params, outputs, batch.x, batch.y)
        return -jnp.sum(batch.weight * log_p), network_state

    def blame(self, state: VariationalState, term: str) -> str:
        if term == "nll":
            return (
                "likelihood (nll): lower the learning rate, standardise x and y, or start with a "
                "smaller initial_rho"
            )
        sigma = [softplus(r) for r in jax.tree.leaves(state.rho)]
        if not all(bool(jnp.all(jnp.isfinite(jnp.log(s)))) for s in sigma):
            return "entropy (kl): a deviation reached 0 or infinity; lower the learning rate"
        return (
            "prior (kl): log p(w) is not finite; lower the learning rate, or use a prior with "
            "density on the whole line"
        )

    def finish(self, state: VariationalState, draws: Draw | None) -> Posterior:
        return MeanFieldGaussian(
            self.model, state.state, self.plan.targets, mu=state.mu, rho=state.rho
        )


class BayesByBackprop(Method):
    r"""Mean-field Gaussian variational inference with the reparameterization trick.

    The objective is minus the ELBO per data point, mean NLL + KL / N: batch size, data size and
    reduction never have to be balanced by hand.

    Args:
        estimator: how the likelihood's gradient is sampled. ``"weight"``: one weight sample for
            the whole batch (the paper's); ``"local"``: pre-activations are sampled, example by
            example, with less variance; ``"flipout"``: weight samples decorrelated between
            examples by signs.
        samples: weight samples per step.
        antithetic: use ε and −ε in pairs (``samples`` even).
        kl: ``"auto"``, closed form where there is one and Monte Carlo otherwise; or
            ``"monte_carlo"``, with the same sample as the likelihood (the paper's).
        kl_weights: how minibatch i of M shares the KL: ``"uniform"`` 1/M, ``"blundell"``
            2^(M−i)/(2^M−1), or a function of (i, M) whose values sum to 1.
        temperature: weight of the KL; 1 is the posterior, below 1 a colder one.
        kl_warmup: epochs over which the KL's weight grows from 0.
        initial_rho: where ρ starts, σ = softplus(ρ); or ``"prior"``, at the prior's deviation.
        learning_rate: the step size of Adam.
        schedule: ``"cosine"`` (the rate falls to zero over the fit) or ``"constant"``.
        optimizer: any optax transformation instead of Adam; it sees the tree {mu, rho}.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(-1, 1, 64)[:, None].astype("float32")
        >>> model = px.Model(
        ...     px.networks.MLP(1, 1, (16,), key=0),
        ...     prior=px.priors.ScaleMixture(pi=0.5, sigma1=1.0, sigma2=0.1),
        ...     likelihood=px.likelihoods.Gaussian(noise=0.1),
        ... )
        >>> posterior = px.fit(model, (x, x**2), px.BayesByBackprop(samples=2), epochs=3, key=0)
        >>> sorted(posterior.history)
        ['kl', 'nll']

    Reference:
        Blundell, Cornebise, Kavukcuoglu and Wierstra, *Weight uncertainty in neural networks*,
        ICML 2015. The KL is in closed form here where the paper samples it.
    """

    estimator: str = "weight"
    samples: int = 1
    antithetic: bool = False
    kl: str = "auto"
    kl_weights: str | Callable[..., Any] = "uniform"
    temperature: float = 1.0
    kl_warmup: float = 0.0
    initial_rho: float | str = -5.0
    learning_rate: float = 1e-3
    schedule: str = "cosine"
    optimizer: Any = None

    def __check_init__(self) -> None:
        choose("estimator", self.estimator, ("weight", "local", "flipout"))
        choose("kl", self.kl, ("auto", "monte_carlo"))
        if not callable(self.kl_weights):
            choose("kl_weights", self.kl_weights, ("uniform", "blundell"))
        if isinstance(self.initial_rho, str):
            choose("initial_rho", self.initial_rho, ("prior",))
        whole("samples", self.samples)
        if self.antithetic and self.samples % 2:
            raise ValueError(f"antithetic pairs need an even number of samples, got {self.samples}")
        if not self.temperature >= 0:
            raise ValueError(f"temperature must be 0 or more, got {self.temperature!r}")
        if not self.kl_warmup >= 0:
            raise ValueError(f"kl_warmup must be 0 epochs or more, got {self.kl_warmup!r}")
        check_optimizer(self.optimizer, self.learning_rate, self.schedule)

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        if not model.bayesian_size:
            raise ValueError(
                "method: BayesByBackprop needs weights with a prior, and this model has none: use "
                "px.MaximumLikelihood()"
            )
        by_prior = self.initial_rho == "prior"
        if by_prior:
            self._check_deviations(model)
        initial = 0.0 if by_prior else self.initial_rho
        numbers = (self.learning_rate, self.temperature, self.kl_warmup, initial)
        rate, temperature, warmup, initial_rho = (jnp.asarray(v) for v in numbers)
        # they travel as arrays, so that another rate or temperature compiles nothing
        kept = self.initial_rho if by_prior else 0.0
        choices = dataclasses.replace(
            self, learning_rate=1.0, temperature=1.0, kl_warmup=0.0, initial_rho=kept
        )
        return [VariationalPhase(model, plan, choices, rate, temperature, warmup, initial_rho)]

    def _check_deviations(self, model: Model) -> None:
        for prior in jax.tree.leaves(model.priors, is_leaf=is_prior):
            if not is_flat(prior) and prior.deviation() is None:
                raise ValueError(
                    f"initial_rho='prior': {type(prior).__name__} has no deviation to start from; "
                    "give initial_rho a number, or use a Gaussian prior"
                )

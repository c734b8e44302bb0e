r"""Black-box variational inference (Ranganath, Gerrish and Blei 2014): the score-function gradient.

Minimise, per data point, minus the evidence lower bound

    F(λ) = E_q[f(w)],  f(w) = −log p(D | w) − log p(w) + log q(w | λ)

by ∇F = E_q[f(w) ∇_λ log q(w | λ)]. Nothing is differentiated but log q: any family with draws and
a log density will do, discrete ones among them. The price is variance, which ``score_function``
brings down.
"""

import math
import numbers
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..._util.checks import whole_number
from ..._util.tree import dtype_of, same_structure, shapes_of
from ...data import Batch, Data
from ...model import Model, Parameters
from ...posteriors import Factorized, MeanFieldGaussian, Posterior, factors
from ...posteriors.base import map_samples
from ...posteriors.factors import Factor
from ...priors import Prior, is_flat, is_prior
from ..base import Draw, History, Info, Method, Needs, Phase, Plan, Start, with_arrays
from ..objective import batch_nll, mean_nll, need_prior
from ..settings import Copies, Optimizer, Rate, Schedule, ZeroOrMore, check_settings
from .elbo import ElboPhase, KLWeights, mean_state, start_moments
from .score_function import learning_signals, mean_and_variance, no_coefficient, sample_gradients


class BlackBoxState(NamedTuple):
    """Variational parameters by name, control variates, the network's state, the optimiser's."""

    variational: dict[str, Any]
    coefficients: PyTree  # one for each array that has factors, or None
    state: PyTree
    optimizer: PyTree
    step: jax.Array


class BlackBoxPhase(ElboPhase):
    """Gradient descent on minus the evidence lower bound per data point."""

    title: ClassVar[str] = "black-box VI"

    def _factors(self) -> list[tuple[Factor, Prior]]:
        """The factor and the prior of every array."""
        priors = jax.tree.leaves(self.model.priors, is_leaf=is_prior)
        return list(zip(factors.factors(self.model, self.method.family), priors, strict=True))

    # -- where it starts

    def init(self, start: Start, data: Data | None, key: jax.Array) -> BlackBoxState:
        before: Any = start.posterior
        means, stds = (jax.tree.leaves(part) for part in start_moments(start))
        known = [None] * len(means)
        if hasattr(before, "marginals"):
            treedef: Any = jax.tree.structure(self.model.priors, is_leaf=is_prior)
            known = treedef.flatten_up_to(before.marginals())
        nodes = [
            self._first(*pair, w, std, marginals, bool(start.given))
            for pair, w, std, marginals in zip(self._factors(), means, stds, known, strict=True)
        ]
        names = ("mu", "rho", "logits") if self.method.family == "auto" else ("mu", "own")
        variational = factors.by_name(self.model, nodes, names)
        if names[-1] == "own" and isinstance(before, Factorized):
            variational = self._taken_over(before, variational)
        coefficients = None
        if self.method.baseline == "control_variate":
            coefficients = [
                None if isinstance(factor, factors.PointFactor) else no_coefficient(node)
                for (factor, _), node in zip(self._factors(), nodes, strict=True)
            ]
        optimizer = self._optimizer().init(variational)
        step = jnp.zeros((), jnp.int32)
        return BlackBoxState(variational, coefficients, start.state, optimizer, step)

    def _taken_over(self, before: Factorized, fresh: dict[str, Any]) -> dict[str, Any]:
        """What the same family came to; of other weights or components, only its means are left."""
        old = before.variational
        same = type(before.family) is type(self.method.family) and same_structure(old, fresh)
        if not same or shapes_of(old) != shapes_of(fresh):
            return fresh
        return jax.tree.map(lambda a, like: jnp.asarray(a, like.dtype), old, fresh)

    def _first(
        self, factor: Factor, prior: Prior, w: jax.Array, std: jax.Array, known: PyTree, given: bool
    ) -> dict[str, Any]:
        """Variational parameters of one array, from the start's weights and what else it knows."""
        if isinstance(factor, factors.PointFactor):
            return {"mu": w}
        if isinstance(factor, factors.OwnFactor):
            return {"own": factor.family.init(prior, w)}
        if isinstance(factor, factors.GaussianFactor):
            return {"mu": w, "rho": self._first_rho(prior, std)}
        assert isinstance(factor, factors.CategoricalFactor)
        values = len(factor.grid)
        probs = jnp.broadcast_to(jnp.asarray(factor.grid.probs, w.dtype), (*w.shape, values))
        if known is not None and known.shape == probs.shape:
            # never less than a little of the prior: what has probability 0 has no finite logit
            probs = jnp.maximum(known, 1e-4 * probs)
        elif given:
            nearest = jax.nn.one_hot(factor.grid.index(w), values, dtype=w.dtype)
            probs = 0.5 * nearest + 0.5 * probs
        return {"logits": factor.logits(probs)}

    # -- steps

    def step(self, state: BlackBoxState, batch: Batch, key: jax.Array) -> tuple[PyTree, Info]:
        method, dtype = self.method, dtype_of(self.model.parameters)
        nll_scale, kl_scale = self._scales(state.step, batch, dtype)
        w, nll, point_grads, states = self._evaluate(state, batch, key)
        nodes = factors.by_array(self.model, state.variational)
        arrays = [(*pair, v) for pair, v in zip(self._factors(), nodes, strict=True)]
        closed = method.kl == "auto"
        signals, kl = learning_signals(
            arrays, w, nll_scale * nll, kl_scale, closed=closed, alone=method.rao_blackwell
        )
        grads: list[PyTree] = []
        coefficients: list[PyTree] = []
        variance, count = jnp.zeros((), dtype), 0
        for i, (factor, prior, v) in enumerate(arrays):
            if isinstance(factor, factors.PointFactor):
                grads.append(jax.tree.map(lambda g: nll_scale * jnp.mean(g, 0), point_grads[i]))
                coefficients.append(None)
                continue
            before = None if state.coefficients is None else state.coefficients[i]
            g, after = sample_gradients(factor, v, w[i], signals[i], method.baseline, before)
            mean, spread = mean_and_variance(g, method.baseline)
            if closed and factor.kl(prior, v) is not None:
                own = jax.grad(lambda v, of=factor, p=prior: jnp.sum(of.kl(p, v)))(v)
                mean = jax.tree.map(lambda g, k: g + kl_scale * k, mean, own)
            grads.append(mean)
            coefficients.append(after)
            variance += jax.tree.reduce(jnp.add, jax.tree.map(jnp.sum, spread))
            count += sum(part.size for part in jax.tree.leaves(spread))

        variational, optimizer = self._descend(
            state.variational,
            factors.by_name(self.model, grads, state.variational),
            state.optimizer,
        )
        known = None if state.coefficients is None else coefficients
        new = BlackBoxState(variational, known, states, optimizer, state.step + 1)
        terms = {"nll": mean_nll(jnp.mean(nll), batch), "kl": kl / self.plan.total.astype(dtype)}
        # where one of those is not finite, that is to be named, and not what follows from it
        sound = jnp.isfinite(terms["nll"]) & jnp.isfinite(terms["kl"])
        return new, Info(terms | {"gradient_variance": jnp.where(sound, variance / count, 0)})

    def _evaluate(self, state: BlackBoxState, batch: Batch, key: jax.Array) -> PyTree:
        """Draws of every array, their NLL, its gradient for points alone, and the new state."""
        is_point = jax.tree.map(is_flat, self.model.priors, is_leaf=is_prior)

        def one(key: jax.Array) -> PyTree:
            weight_key, network_key = jax.random.split(key)
            drawn = factors.draw(self.model, self.method.family, state.variational, weight_key)
            points, rest = eqx.partition(drawn, is_point)

            def nll_of(points: Parameters) -> tuple[jax.Array, PyTree]:
                w = eqx.combine(points, rest)
                return batch_nll(self.model, w, state.state, batch, network_key)

            # only points need a gradient of the likelihood
            if jax.tree.leaves(points):
                (nll, new), points = jax.value_and_grad(nll_of, has_aux=True)(points)
            else:
                nll, new = nll_of(points)
            return jax.tree.leaves(drawn), nll, points, new

        keys = jax.random.split(key, self.method.samples)
        w, nll, grads, states = map_samples(one, keys, batch.y.shape[0])
        return w, nll, factors.by_array(self.model, {"mu": grads}), mean_state(states)

    def explain(self, state: PyTree, history: History, term: str | None = None) -> str | None:
        if term == "gradient_variance":
            return "the gradient: lower the learning rate, or start with a larger initial_rho"
        if term == "kl" and self.method.family != "auto":
            return (
                "prior or entropy (kl): log p(w) or log q(w) is not finite at a draw of the "
                "family, which must have no draws where the prior has no density"
            )
        return super().explain(state, history, term)

    def finish(self, state: BlackBoxState, draws: Draw | None) -> Posterior:
        about = self.model, state.state, self.plan.targets
        v, family = state.variational, self.method.family
        if family == "auto" and not factors.has_grids(self.model):
            return MeanFieldGaussian(*about, mu=v["mu"], rho=v["rho"])
        return Factorized(*about, family=family, variational=v)


class BlackBoxVI(Method):
    r"""Variational inference by the score-function gradient, for any family, also discrete ones.

    f is evaluated and never differentiated, so that weights may be discrete: with a
    [`px.priors.Grid`][posterax.priors.Grid] they are Bernoulli or categorical. For Gaussian weights
    ``px.BayesByBackprop`` has the same optimum and a gradient of far less variance.

    Args:
        family: ``"auto"``: weights with a grid prior are categorical over its values, all others
            Gaussian with σ = softplus(ρ), and those without a prior points, trained by the
            ordinary gradient. Or an object with ``init(prior, w)``, ``sample(key, variational)``
            and ``log_prob(variational, w)``, applied array by array.
        samples: weight samples per step, 2 or more, whose spread tells the gradient's variance.
        baseline: what is taken off f to lower the variance: ``"leave_one_out"``, the mean of the
            other samples; ``"control_variate"``, for each variational parameter the best multiple
            of its score, by running averages over earlier steps; or ``None``.
        rao_blackwell: leave out of a factor's f the prior and entropy terms of other factors.
        kl: ``"monte_carlo"``, as part of f (the paper's), whose noise cancels some of the
            likelihood's near the optimum; or ``"auto"``, closed form where there is one.
        kl_weights: how minibatch i of M shares the KL: ``"uniform"`` 1/M, ``"blundell"``
            2^(M−i)/(2^M−1), or a function of (i, M) whose values sum to 1.
        temperature: weight of the KL; 1 is the posterior, below 1 a colder one.
        kl_warmup: epochs over which the KL's weight grows from 0.
        initial_rho: where ρ of Gaussian factors starts.
        learning_rate: the step size of Adam, or an optax schedule.
        schedule: ``"cosine"`` (the rate falls to zero over the fit), ``"hold"`` (in its second
            half) or ``"constant"``.
        optimizer: any optax transformation instead of Adam; it sees the tree {mu, rho, logits}, or
            {mu, own} with a family of your own.

    The history has ``gradient_variance``: the mean over all variational parameters of the variance
    of a step's gradient, as its samples tell it.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.array([[1.0, 0.2], [-0.5, 1.0], [0.3, -0.8]], "float32")
        >>> network = {"w": np.ones((2, 1), "float32")}, lambda p, x: x @ p["w"]
        >>> model = px.Model(network, px.priors.Grid([-1, 1]), px.likelihoods.Gaussian(0.5))
        >>> method = px.BlackBoxVI(samples=8, learning_rate=0.1)
        >>> posterior = px.fit(model, (x, x[:, :1] - x[:, 1:]), method, steps=200, key=0)
        >>> posterior.marginals().network["w"][:, 0, 1].round().tolist()  # P(w = 1): the signs
        [1.0, 0.0]

    Reference:
        Ranganath, Gerrish and Blei, *Black box variational inference*, AISTATS 2014. The paper
        estimates the control variate's coefficient from the step's own samples, at the price of a
        bias; the leave-one-out baseline is of Kool, van Hoof and Welling, *Buy 4 REINFORCE samples,
        get a baseline for free!*, ICLR 2019 workshop.
    """

    family: Any = "auto"
    samples: Copies = 10
    baseline: Literal["leave_one_out", "control_variate"] | None = "leave_one_out"
    rao_blackwell: bool = True
    kl: Literal["auto", "monte_carlo"] = "monte_carlo"
    kl_weights: KLWeights = "uniform"
    temperature: ZeroOrMore = 1.0
    kl_warmup: ZeroOrMore = 0.0
    initial_rho: float = -3.0
    learning_rate: Rate = 1e-2
    schedule: Schedule = "cosine"
    optimizer: Optimizer = None

    needs = Needs(discrete=True)

    def __check_init__(self) -> None:
        if self.family != "auto" and (
            isinstance(self.family, type) or not isinstance(self.family, factors.OwnFamily)
        ):
            raise TypeError(
                "family must be 'auto' or an object with init(prior, w), sample(key, variational) "
                f"and log_prob(variational, w), got {self.family!r}"
            )
        factors.check_hashable(self.family)
        check_settings(self)
        if whole_number("samples", self.samples) < 2:
            why = " and the leave-one-out baseline" if self.baseline == "leave_one_out" else ""
            raise ValueError(
                f"samples must be 2 or more, got 1: the gradient's variance{why} is of several"
            )
        if not isinstance(self.initial_rho, numbers.Real) or not math.isfinite(self.initial_rho):
            raise ValueError(f"initial_rho must be a finite number, got {self.initial_rho!r}")

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        need_prior(model, "BlackBoxVI")
        if self.family != "auto":
            factors.check_family(self.family, model)
        return [BlackBoxPhase(model, plan, with_arrays(self, model))]

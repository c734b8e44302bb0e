r"""SWAG (Maddox et al. 2019): the Gaussian that stochastic gradient descent walks about.

SGD with a constant rate does not settle: near a mode it is a process with a stationary law, which
Mandt et al. (2017) read as an approximate posterior. SWAG trains to a mode, lets SGD walk there,
and gives its iterates w₁, w₂, … (one in so many steps) a Gaussian by their moments,

    q(w) = N(w | w̄, ½ diag(v) + D̂ D̂ᵀ / (2 (K − 1))),

w̄ and v the iterates' mean and variances, D̂ the deviations of the last K from the mean as it was.
Three phases: the mode, by the phase of a point estimate; the curvature there, from which the walk's
rate comes unless it is given; and the walk.
"""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from ..._util.checks import fraction
from ..._util.memory import refuse_beyond_memory
from ..._util.tree import tree_bytes
from ...data import Batch, Data
from ...model import Model, Parameters
from ...posteriors import LowRankGaussian, Posterior
from ..base import Draw, History, Info, Method, Needs, Phase, Plan, Start, with_arrays
from ..objective import mean_nll, need_prior
from ..points.point import MaximumAPosteriori, MaximumLikelihood, PointPhase, PointState
from ..settings import Count, FractionOrZero, Optimizer, Positive, Several

ITERATES = 100  # at least so many go into the moments, where a phase has as many steps
PROBES = 20  # minibatches for the curvature
STABLE = 0.05  # the walk's rate, of the largest that is stable
HIGHEST = 0.1  # a mode that interpolates the data is flat, and its surroundings are not


class SharpnessState(NamedTuple):
    """The mode, a direction of length 1, and the largest curvature so far."""

    params: Parameters
    state: PyTree
    direction: Parameters
    curvature: jax.Array


class SharpnessPhase(PointPhase):
    """The largest curvature at the mode, by power iteration: v ← H v / |H v|, λ = max |H v|.

    Each step has the Hessian of another minibatch. SGD runs away where its rate is too high for
    theirs, not only for that of all data.
    """

    title: ClassVar[str] = "measuring the curvature"
    finishes: ClassVar[Any] = "at the end"
    lengthens: ClassVar[bool] = False

    def init(self, start: Start, data: Data | None, key: jax.Array) -> PyTree:
        # the means of an ensemble or of chains are no network: there is nothing to walk about
        if start.posterior is not None and not start.posterior.centred:
            raise ValueError(
                f"init: the means of {type(start.posterior).__name__} are no network that fits; "
                "pass init=posterior.network(key=0), one draw's, or collect less than 1"
            )
        flat, unravel = ravel_pytree(start.parameters)
        direction = jax.random.normal(key, flat.shape, flat.dtype)
        direction = unravel(direction / jnp.linalg.norm(direction))
        return SharpnessState(start.parameters, start.state, direction, jnp.zeros((), flat.dtype))

    def step(self, state: PyTree, batch: Batch, key: jax.Array) -> tuple[PyTree, Info]:
        def slope(params: Parameters) -> tuple[jax.Array, jax.Array]:
            grads, (nll, _) = jax.grad(self.objective, has_aux=True)(
                params, state.state, batch, key
            )
            return optax.tree.vdot(grads, state.direction), nll

        # reverse twice: networks may have derivatives of their own, for which forward has no rule
        bent, nll = jax.grad(slope, has_aux=True)(state.params)
        size = optax.tree.norm(bent)
        direction = jax.tree.map(lambda b: b / jnp.where(size > 0, size, 1), bent)
        largest = jnp.maximum(state.curvature, size)
        terms = {"nll": mean_nll(nll, batch), "curvature": size}
        return state._replace(direction=direction, curvature=largest), Info(terms)

    def report(self, state: PyTree, key: jax.Array) -> dict[str, jax.Array]:
        return {}

    def hand_over(self, state: PyTree) -> Start:
        return super().hand_over(state)._replace(tuned=state.curvature)


class WalkState(NamedTuple):
    """Where SGD is, and what is known of where it was."""

    point: PointState
    mean: Parameters
    squares: Parameters  # Σ (w − mean)², None for points
    last: jax.Array  # (K, weights), the newest in row (number − 1) mod K
    number: jax.Array  # of iterates so far
    step: jax.Array
    state: PyTree  # the network's, at the mean
    curvature: jax.Array  # the largest at the mode, 0 where the rate is given


class WalkPhase(PointPhase):
    """SGD with a constant rate (``None``: by the curvature), whose iterates are collected."""

    every: jax.Array
    rate: jax.Array | None = None

    title: ClassVar[str] = "collecting"
    finishes: ClassVar[Any] = "to look"  # at a mode already: it is there to spread

    def _optimizer(self) -> optax.GradientTransformation:
        if self.method.optimizer is not None:
            return self.method.optimizer
        # ``step`` puts the rate in
        return optax.sgd(0.0 if self.rate is None else self.rate, self.method.momentum)

    def _flat(self, params: Parameters) -> jax.Array:
        return ravel_pytree(self.model.bayesian(params))[0]

    def init(self, start: Start, data: Data | None, key: jax.Array) -> PyTree:
        params, zero = start.parameters, jnp.zeros((), jnp.int32)
        flat = self._flat(params)
        return WalkState(
            PointState(params, start.state, self._optimizer().init(params)),
            params,
            self.model.bayesian(jax.tree.map(jnp.zeros_like, params)),
            jnp.zeros((self.method.rank, len(flat)), flat.dtype),
            zero, zero,
            start.state,
            start.tuned,
        )  # fmt: skip

    def step(self, state: PyTree, batch: Batch, key: jax.Array) -> tuple[PyTree, Info]:
        walk_key, mean_key = jax.random.split(key)
        method = self.method
        rate = method.learning_rate
        if rate is None:  # heavy balls are stable below 2 (1 + momentum) / λ
            tiny = jnp.finfo(state.curvature.dtype).tiny
            rate = STABLE * 2 * (1 + method.momentum) / jnp.maximum(state.curvature, tiny)
            rate = jnp.minimum(rate, HIGHEST)
        own = dataclasses.replace(self, rate=rate)
        point, info = PointPhase.step(own, state.point, batch, walk_key)
        if method.optimizer is None:
            info = Info(info.terms | {"learning_rate": jnp.asarray(rate)})
        state = self.collect(state._replace(point=point, step=state.step + 1))
        if jax.tree.leaves(state.state):  # running averages must be those of the weights predicted
            _, new = self.model.apply(state.mean, state.state, batch.x, mean_key, training=True)
            state = state._replace(state=new)
        return state, info

    def report(self, state: PyTree, key: jax.Array) -> dict[str, jax.Array]:
        return super().report(state.point, key)

    def collect(self, state: WalkState) -> WalkState:
        """Count the iterate in, at every so many steps.

        By Welford's recursion: a mean square less a squared mean would lose, in float32, what is
        small beside the weight itself. Moments are chosen, not branched to: a branch would copy K
        deviations at each step.
        """
        now = (state.step - self.plan.before) % self.every == 0
        number = state.number + now
        share = jnp.where(now, 1 / jnp.maximum(number, 1), 0)
        params = state.point.params
        mean = jax.tree.map(lambda m, w: m + share.astype(m.dtype) * (w - m), state.mean, params)
        squares = jax.tree.map(
            lambda s, w, old, new: None if s is None else s + now * (w - old) * (w - new),
            state.squares, params, state.mean, mean,
            is_leaf=lambda node: node is None,
        )  # fmt: skip
        row = jnp.maximum(number - 1, 0) % self.method.rank
        away = self._flat(params) - self._flat(mean)
        last = state.last.at[row].set(jnp.where(now, away, state.last[row]))
        return state._replace(mean=mean, squares=squares, last=last, number=number)

    def explain(self, state: WalkState, history: History, term: str | None = None) -> str | None:
        why = super().explain(state, history, term)
        return why and (
            f"{why} of SWAG, which history['learning_rate'] tells, to a "
            "tenth, or train longer before it"
        )

    def finish(self, state: PyTree, draws: Draw | None) -> Posterior:
        number, scale = jnp.maximum(state.number, 1), self.method.scale
        columns = jnp.maximum(jnp.minimum(state.number, self.method.rank) - 1, 1)
        sigma = jax.tree.map(lambda s: jnp.sqrt(0.5 * scale * s / number), state.squares)
        return LowRankGaussian(
            self.model, state.state, self.plan.targets,
            mu=state.mean,
            sigma=jax.tree.map(lambda s, like: s.astype(like.dtype), sigma, state.squares),
            factor=(state.last.T * jnp.sqrt(0.5 * scale / columns)).astype(state.last.dtype),
        )  # fmt: skip


class SWAG(Method):
    r"""Stochastic weight averaging, Gaussian: a posterior from the last epochs of training.

    q(w) = N(w | w̄, ½ diag(v) + D̂ D̂ᵀ / (2 (K − 1)))

    The first part of the epochs trains to a mode, the last (``collect``) is SGD with a constant
    rate, whose iterates have mean w̄, variances v, and for the last K of them deviations D̂.

    The spread is that of gradients between minibatches: it grows with ``learning_rate`` and falls
    with the batch size. It is the posterior's only as far as the noise of gradients resembles the
    curvature and the rate fits (Mandt et al. 2017); ``scale``, chosen on validation data, corrects
    its size. More epochs with ``resume=`` all collect.

    Args:
        rank: K, columns of deviations: memory of K networks.
        collect: fraction of the epochs (or steps) that collect; 1 where ``init=`` is trained.
        learning_rate: of SGD while collecting, for the objective per data point: as high as the
            network trains with. By default a twentieth of the largest stable one, 2 (1 + momentum)
            over the largest curvature at the mode, which 20 minibatches tell; at most 0.1.
        momentum: of SGD while collecting.
        optimizer: any optax transformation instead of SGD while collecting.
        every: steps from an iterate that counts to the next (default: such that 100 or somewhat
            more of them are spread over the whole; the paper takes one an epoch).
        scale: multiplies the covariance; 1 is the paper's.
        training: the point estimate that the walk starts from, and whose objective it has.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(-1, 1, 64)[:, None].astype("float32")
        >>> network = px.networks.MLP(1, 1, (8,), key=0)
        >>> model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.3))
        >>> method = px.SWAG(rank=5, training=px.MaximumAPosteriori(1e-2))
        >>> posterior = px.fit(model, (x, x), method, epochs=20, batch_size=16, key=0)
        >>> posterior.factor.shape
        (25, 5)

    Note:
        Networks with running averages (batch normalisation) get those of w̄: a forward pass at the
        mean goes along with each step that collects. The paper makes them anew, by a pass over the
        data, for every sampled network.

    Reference:
        Maddox, Garipov, Izmailov, Vetrov and Wilson, *A simple baseline for Bayesian uncertainty in
        deep learning*, NeurIPS 2019. Mandt, Hoffman and Blei, *Stochastic gradient descent as
        approximate Bayesian inference*, JMLR 2017.
    """

    rank: Several = 20
    collect: float = 0.25
    learning_rate: Positive | None = None
    momentum: FractionOrZero = 0.9
    optimizer: Optimizer = None
    every: Count | None = None
    scale: Positive = 1.0
    training: MaximumLikelihood = MaximumAPosteriori()

    needs = Needs(batches=2, overfits=True)

    @property
    def with_prior(self) -> bool:
        """Whether the objective has the prior in it."""
        return self.training.with_prior

    def __check_init__(self) -> None:
        if self.collect != 1:
            fraction("collect", self.collect)
        if not isinstance(self.training, MaximumLikelihood):
            raise TypeError(
                "training must be px.MaximumAPosteriori(…) or px.MaximumLikelihood(…), got "
                f"{type(self.training).__name__}"
            )

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        before, steps = int(plan.before), int(plan.steps)
        walk = steps if before else max(1, round(self.collect * steps))
        every = self.every or max(1, (walk - before) // ITERATES)
        self._check(model, plan, (walk - before) // every)
        given = self.learning_rate is not None or self.optimizer is not None
        lengths = jnp.asarray([steps - walk, 0 if given else PROBES, walk], jnp.int32)
        mode, measure, collect = (dataclasses.replace(plan, steps=length) for length in lengths)
        method = with_arrays(self, model)
        return [
            *(self.training.phases(model, mode) if self.collect != 1 else ()),
            SharpnessPhase(model, measure, method),
            WalkPhase(model, collect, method, jnp.asarray(every, jnp.int32)),
        ]

    def _check(self, model: Model, plan: Plan, iterates: int) -> None:
        """Refuse what would leave a Gaussian without spread, or more deviations than memory."""
        need_prior(model, "SWAG")
        if int(plan.batches) == 1 and self.optimizer is None:
            raise ValueError(
                "batch_size: SWAG's posterior is the spread of SGD between minibatches; pass a "
                "batch_size of a tenth of the data, or less"
            )
        if iterates < 2 and not int(plan.before):
            raise ValueError(
                f"collect={self.collect} and every={self.every} leave {iterates} iterates of "
                f"{int(plan.steps)} steps, and a spread needs two or more: raise epochs or collect"
            )
        size = self.rank * tree_bytes(model.bayesian(model.parameters))
        refuse_beyond_memory(f"rank={self.rank}: the deviations of so many networks", size)

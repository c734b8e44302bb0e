r"""How wide the Gaussian should be: a factor τ for the prior's precision, chosen by prediction.

At its mode a network is a linear model with more features than examples. Its posterior under the
prior of the network is often too wide, above all for classes, where spread moves probabilities
towards 1/K even where w* is right. The τ of the largest evidence does not mend that: the evidence
says how well a model explains the data from its prior alone, not what it predicts next. So the grid
of τ begins there (at 1 at least), and goes on until next to nothing is left of the spread and
predictions are those of w*. From it is taken,

- in regression, the τ that predicts best what was left out. Without example n the outputs there are

      f₋ₙ ≈ fₙ − Vₙ rₙ,   Vₙ = Jₙ (H + P)⁻¹ Jₙᵀ,   rₙ = ∂ log p(yₙ | f) / ∂f

  to first order in the example's weight (the infinitesimal jackknife), and the score is
  Σₙ log ∫ p(yₙ | f) N(f | f₋ₙ, Jₙ (H + τP)⁻¹ Jₙᵀ) df. The next order, f₋ₙ = fₙ − Vₙ(1 − ΛₙVₙ)⁻¹rₙ,
  is that of the linear model exactly, and of the network only where w* has converged to the last
  digit: with as many weights as examples 1 − ΛV is nearly 0.

- for classes and counts, the smallest τ that costs next to nothing on the examples themselves:
  ``COST`` nats each more than w*. A linear model of logits without one of its examples is far from
  the network, and its f₋ₙ tells nothing; but what takes back what the data say is wrong.
"""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...data import Batch, Data
from ...model import Model, Parameters
from ...posteriors import LaplaceGaussian, Posterior
from ..base import Draw, Info, Phase, Start
from .curvature import Block
from .marginal import solve
from .passes import CurvatureState, gaussian

ROWS = 1024  # examples that choose among a dozen factors well enough
COVARIANCE_DRAWS = 64  # for Vₙ
DRAWS = 16  # of the Gaussian, each with its mirror image
FACTORS = 10.0 ** np.arange(0, 6.5, 0.5)  # of τ, from the largest evidence on
COST = 0.002  # nats an example that spread may cost where nothing is left out


class TuningState(NamedTuple):
    """The curvature, the Gaussian of the model's own prior, and the scores of each τ."""

    curvature: CurvatureState
    arrays: dict[str, PyTree]
    best: jax.Array  # τ of the largest evidence, where the grid begins
    value: jax.Array  # the log evidence of the model's own prior, less log p(D | w*)
    scores: jax.Array
    of_mode: jax.Array
    mass: jax.Array


class TuningPhase(Phase):
    """Some of the examples again, each as if it had been left out."""

    blocks: tuple[Block, ...] = eqx.field(static=True)
    linearised: np.ndarray

    title: ClassVar[str] = "tuning"
    finishes: ClassVar[Any] = "at the end"
    lengthens: ClassVar[bool] = False

    def length(self) -> int:
        return min(int(self.plan.batches), -(-ROWS // self.plan.batch_size))

    def init(self, start: Start, data: Data | None, key: jax.Array) -> TuningState:
        state: CurvatureState = start.tuned
        given = self.blocks, self.model, state.params, state.sums, state.mass, self.plan.total
        dtype = state.mass.dtype
        with jax.enable_x64(True):
            arrays, _, value, _ = solve(*given, "fixed")
            _, factors, _, _ = solve(*given, "marginal_likelihood")
            value = value.astype(dtype)
        # no wider than the prior: the evidence asks for that where w* has not converged
        best = jnp.maximum(jnp.asarray(next(iter(factors.values())), dtype), 1)
        zero = jnp.zeros((), dtype)
        return TuningState(state, arrays, best, value, jnp.zeros(len(FACTORS), dtype), zero, zero)

    @property
    def leaves_out(self) -> bool:
        """Whether examples are predicted as if they had been left out."""
        return self.model.likelihood.kind == "regression"

    def step(self, state: TuningState, batch: Batch, key: jax.Array) -> tuple[PyTree, Info]:
        keys = jax.random.split(key, DRAWS)
        at, model = state.curvature, self.model
        wide = self._gaussian(state, 1.0)  # of the prior that w* was trained with
        random, points = eqx.partition(at.params, wide._random(key))

        def network(weights: PyTree) -> jax.Array:
            own = Parameters(eqx.combine(weights, points.network), None)
            return model.apply(own, at.state, batch.x, None, training=False)[0]

        centre, tangent = jax.linearize(network, random.network)
        outputs = centre
        if self.leaves_out:
            many = jax.random.split(key, COVARIANCE_DRAWS)
            moved = jax.lax.map(lambda key: tangent(wide.deviation(key).network), many)
            outputs = left_out(model, at.params, centre, moved, batch)

        def log_p(posterior: LaplaceGaussian, key: jax.Array) -> jax.Array:
            step = posterior.deviation(key)
            away = tangent(step.network)

            def side(sign: float) -> jax.Array:
                own = jax.tree.map(lambda m, d: m + sign * d, random.likelihood, step.likelihood)
                params = Parameters(None, eqx.combine(own, points.likelihood))
                return model.likelihood_of(params, outputs + sign * away, batch.x, batch.y)

            return jnp.logaddexp(side(1.0), side(-1.0)) - jnp.log(2.0)

        def score(tau: jax.Array) -> jax.Array:
            posterior = self._gaussian(state, tau)
            each = jax.lax.map(lambda key: log_p(posterior, key), keys)
            mean = jax.nn.logsumexp(each, axis=0) - jnp.log(float(DRAWS))
            return jnp.sum(jnp.where(batch.weight > 0, batch.weight * mean, 0))

        scores = jax.lax.map(score, state.best * jnp.asarray(FACTORS, centre.dtype))
        of_mode = jnp.sum(batch.weight * model.likelihood_of(at.params, centre, batch.x, batch.y))
        mass = jnp.sum(batch.weight)
        new = state._replace(
            scores=state.scores + scores, of_mode=state.of_mode + of_mode, mass=state.mass + mass
        )
        share = jnp.where(mass > 0, mass, 1)
        return new, Info({"nll": -of_mode / share, "tuned_nll": -jnp.max(scores) / share})

    def _gaussian(self, state: TuningState, tau: Any, **more: Any) -> LaplaceGaussian:
        """The Gaussian of a prior of τ times the precision."""
        at = state.curvature
        count = len(jax.tree.leaves(at.params.network))
        arrays = dict(state.arrays)
        for block in self.blocks:
            if block.leaves[0] < count:  # the network's; the likelihood's prior is as it was
                own = arrays[block.name]
                data = jnp.square(1 / own["deviation"]) - 1  # λ
                deviation = jax.lax.rsqrt(tau + jnp.maximum(data, 0))
                arrays[block.name] = own | {"deviation": deviation}
        options: dict[str, Any] = {"linearised": True, "factors": {}, "evidence": None} | more
        return gaussian(
            self.model, self.plan, self.blocks, arrays, at.params, at.state, **options
        )  # fmt: skip

    def finish(self, state: TuningState, draws: Draw | None) -> Posterior:
        at = state.curvature
        scores = np.asarray(state.scores, np.float64)
        scores = np.where(np.isfinite(scores), scores, -np.inf)
        least = scores.max() if self.leaves_out else float(state.of_mode - COST * state.mass)
        # none may do: draws of the likelihood's own parameters cost something, too
        factor = FACTORS[int(np.argmax(scores >= min(least, scores.max())))]
        evidence = float(at.log_likelihood) + float(state.value)
        tau = jnp.asarray(factor * state.best, state.best.dtype)
        return self._gaussian(
            state, tau, linearised=bool(self.linearised), factors={"all": tau}, evidence=evidence
        )


def left_out(
    model: Model, params: Parameters, outputs: jax.Array, moved: jax.Array, batch: Batch
) -> jax.Array:
    """fₙ − Vₙ rₙ, with Vₙ of draws J δ of the Gaussian, (S, N, …)."""

    def total(outputs: jax.Array) -> jax.Array:
        return jnp.sum(batch.weight * model.likelihood_of(params, outputs, batch.x, batch.y))

    score = jax.grad(total)(outputs).reshape(len(outputs), -1)  # r
    draws = moved.reshape(len(moved), *score.shape) / jnp.sqrt(1.0 * len(moved))
    along = jnp.einsum("snk,nk->ns", draws, score, precision="highest")
    shift = jnp.einsum("snk,ns->nk", draws, along, precision="highest")
    return outputs - shift.reshape(outputs.shape)

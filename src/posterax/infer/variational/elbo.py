r"""What the phases of variational inference share: starts, the scales of the bound, draws.

Per data point, a step on minibatch i of M minimises

    (M / N) Σₙ −weightₙ log p(yₙ | xₙ, w) + T · warm-up · πᵢ (M / N) KL,  w ~ q
"""

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike
from jaxtyping import PyTree

from ..._util.special import inverse_softplus, softplus
from ...data import Batch
from ...model import Parameters
from ...priors import Prior, is_flat
from ..base import History, Start
from ..objective import DescentPhase, adam, holds, rate_at
from .averaging import Average, averaged, best_of, no_average

B2 = 0.995  # of Adam: deviations begin small, and gradients of those days have to be forgotten

KLWeights = Literal["uniform", "blundell"] | Callable[..., jax.Array]


def minibatch_weight(weighting: KLWeights, i: ArrayLike, batches: ArrayLike) -> jax.Array:
    r"""π_i, the share of the KL that minibatch i = 1 … M carries; the shares sum to one.

    ``"uniform"`` is 1/M (Graves 2011). ``"blundell"`` is 2^(M−i) / (2^M − 1), computed as
    2^−i / (1 − 2^−M), since 2^M overflows.

    Example:
        >>> from posterax.infer.variational.elbo import minibatch_weight
        >>> [float(minibatch_weight("blundell", i, 2)) for i in (1, 2)]
        [0.666..., 0.333...]
    """
    if callable(weighting):
        return weighting(i, batches)
    i, m = jnp.asarray(i, float), jnp.asarray(batches, float)
    if weighting == "uniform":
        return 1 / m
    return jnp.exp2(-i) / (1 - jnp.exp2(-m))


def mean_state(states: PyTree) -> PyTree:
    """A network's state after several weight samples: running averages are averaged once more."""
    return jax.tree.map(
        lambda a: jnp.mean(a, 0) if jnp.issubdtype(a.dtype, jnp.inexact) else a[-1], states
    )


def start_moments(start: Start) -> tuple[Parameters, Parameters]:
    """Means and deviations to start from; a deviation of zero is one that is not known."""
    if start.posterior is not None:
        return start.posterior.moments()
    return start.parameters, jax.tree.map(jnp.zeros_like, start.parameters)


def _with_variances(variational: dict[str, PyTree]) -> dict[str, PyTree]:
    """With σ² in the place of ρ."""
    return variational | {
        "rho": jax.tree.map(lambda rho: jnp.square(softplus(rho)), variational["rho"])
    }


@jax.jit  # on the host one program is cheaper than an operation for each array
def _last(average: Average, variational: dict[str, PyTree]) -> dict[str, PyTree]:
    flat, unravel = ravel_pytree(average.mean["rho"])  # all at once: sooner compiled
    rho = unravel(inverse_softplus(jnp.sqrt(flat)))
    return best_of(average._replace(mean=average.mean | {"rho": rho}), variational)


class ElboPhase(DescentPhase):
    """Gradient descent on minus a bound on the evidence, per data point."""

    title: ClassVar[str] = "Bayes by Backprop"

    def _optimizer(self) -> optax.GradientTransformation:
        method = self.method
        if method.optimizer is not None or not hasattr(method, "rho_rate"):
            return super()._optimizer()
        rate = partial(rate_at, method.learning_rate, method.schedule, self.plan)
        faster = {"rho": method.rho_rate}
        if not holds(method):
            return adam(rate, faster=faster)
        return adam(rate, b2=B2, faster=faster, forget=partial(rate_at, 1.0, "hold", self.plan))

    # -- the mean of the last iterates, where rates hold and then fall

    # At rest the gradient has mean zero, and with it 1 − σ² (1/s² + curvature): it is the mean of
    # σ² that is right, where that of ρ would be too small.

    def _no_average(self, variational: dict[str, PyTree]) -> Average | None:
        return no_average(_with_variances(variational)) if holds(self.method) else None

    def between(self, state: PyTree) -> PyTree:
        if getattr(state, "average", None) is None:
            return state
        values = lambda: _with_variances(state.variational)  # noqa: E731
        return state._replace(average=averaged(state.average, values, state.step, self.plan))

    def _last(self, average: Average | None, variational: dict[str, PyTree]) -> dict[str, PyTree]:
        return variational if average is None else _last(average, variational)

    # -- where it starts, and what a step is made of

    def _first_rho(self, prior: Prior, std: jax.Array, stretch: float = 1.0) -> jax.Array | None:
        """From the start's deviations where it has some; ``None`` for what is to be a point.

        ``stretch`` is σ = softplus(ρ) by the deviation, where a family has the two differ.
        """
        if is_flat(prior):
            return None
        fresh = self.method.initial_rho
        if isinstance(fresh, str):  # "prior"
            fresh = inverse_softplus(jnp.asarray(stretch * prior.deviation(), std.dtype))
        fresh = fresh.astype(std.dtype)
        return jnp.where(std > 0, inverse_softplus(jnp.where(std > 0, std, 1)), fresh)

    def _scales(
        self, step: jax.Array, batch: Batch, dtype: jnp.dtype
    ) -> tuple[jax.Array, jax.Array]:
        """What the minibatch's NLL and the KL count for in this step's objective."""
        n, m = self.plan.total, self.plan.batches
        share = minibatch_weight(self.method.kl_weights, batch.i + 1, m)
        warm = jnp.minimum(1.0, (step + 1) / jnp.maximum(self.method.kl_warmup * m, 1))
        scales = m / n, self.method.temperature * warm * m / n * share
        # numbers of the plan may be wider than the weights
        return jax.tree.map(lambda a: a.astype(dtype), scales)

    def _sample_keys(self, key: jax.Array) -> jax.Array:
        samples = self.method.samples
        return jax.random.split(key, samples) if samples > 1 else key[None]

    def _draws(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Keys of a step's weight samples, and the signs of their noise."""
        samples, keys = self.method.samples, self._sample_keys(key)
        signs = jnp.ones(samples)
        if self.method.antithetic:
            keys, signs = keys[jnp.arange(samples) // 2], signs.at[1::2].set(-1)
        return keys, signs

    def explain(self, state: PyTree, history: History, term: str | None = None) -> str | None:
        if term is None:
            return None
        if term == "nll":
            return (
                "likelihood (nll): lower the learning rate, standardise x and y, or start with a "
                "smaller initial_rho"
            )
        sigma = [softplus(r) for r in jax.tree.leaves(state.variational.get("rho"))]
        if not all(bool(jnp.all(jnp.isfinite(jnp.log(s)))) for s in sigma):
            return f"entropy ({term}): a deviation reached 0 or infinity; lower the learning rate"
        return (
            f"prior ({term}): log p(w) is not finite; lower the learning rate, or use a prior with "
            "density on the whole line"
        )

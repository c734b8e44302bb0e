r"""What the phases of variational inference share: starts, the scales of the bound, draws, blame.

Per data point, a step on minibatch i of M minimises

    (M / N) Σₙ −weightₙ log p(yₙ | xₙ, w) + T · warm-up · πᵢ (M / N) KL,  w ~ q
"""

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax

from ..._util.special import inverse_softplus, softplus
from ...data import Batch
from ...model import Parameters
from ...priors import Prior, is_flat
from ..base import Phase, Start, make_optimizer


def minibatch_weight(weighting: str | Callable[..., Any], i: Any, batches: Any) -> jax.Array:
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


def dtype_of(params: Any) -> Any:
    """The precision of a tree of weights."""
    return jax.tree.leaves(params)[0].dtype


def mean_state(states: Any) -> Any:
    """A network's state after several weight samples: running averages are averaged once more."""
    return jax.tree.map(
        lambda a: jnp.mean(a, 0) if jnp.issubdtype(a.dtype, jnp.inexact) else a[-1], states
    )


def start_moments(previous: Start) -> tuple[Parameters, Parameters]:
    """Means and deviations to start from; a deviation of zero is one that is not known."""
    if previous.posterior is not None:
        return previous.posterior.moments()
    return previous.parameters, jax.tree.map(jnp.zeros_like, previous.parameters)


class ElboPhase(Phase):
    """Gradient descent on minus a bound on the evidence, per data point."""

    method: Any  # a ``BayesByBackprop`` or a ``BlackBoxVI``
    learning_rate: Any
    temperature: Any
    warmup: Any
    initial_rho: Any

    title: ClassVar[str] = "Bayes by Backprop"

    def _optimizer(self) -> optax.GradientTransformation:
        method = self.method
        return make_optimizer(method.optimizer, self.learning_rate, method.schedule, self.plan)

    def _first_rho(self, prior: Prior, std: jax.Array, stretch: float = 1.0) -> jax.Array | None:
        """From the start's deviations where it has some; ``None`` for what is to be a point.

        ``stretch`` is σ = softplus(ρ) by the deviation, where a family has the two differ.
        """
        if is_flat(prior):
            return None
        fresh = self.initial_rho.astype(std.dtype)
        if self.method.initial_rho == "prior":
            fresh = inverse_softplus(jnp.asarray(stretch * prior.deviation(), std.dtype))
        return jnp.where(std > 0, inverse_softplus(jnp.where(std > 0, std, 1)), fresh)

    def _scales(self, step: jax.Array, batch: Batch, dtype: Any) -> tuple[jax.Array, jax.Array]:
        """What the minibatch's NLL and the KL count for in this step's objective."""
        n, m = self.plan.total, self.plan.batches
        share = minibatch_weight(self.method.kl_weights, batch.i + 1, m)
        warm = jnp.minimum(1.0, (step + 1) / jnp.maximum(self.warmup * m, 1))
        scales = m / n, self.temperature * warm * m / n * share
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

    def _rho(self, state: Any) -> Parameters:
        """The raw deviations in a state."""
        raise NotImplementedError

    def blame(self, state: Any, term: str) -> str:
        if term == "nll":
            return (
                "likelihood (nll): lower the learning rate, standardise x and y, or start with a "
                "smaller initial_rho"
            )
        sigma = [softplus(r) for r in jax.tree.leaves(self._rho(state))]
        if not all(bool(jnp.all(jnp.isfinite(jnp.log(s)))) for s in sigma):
            return f"entropy ({term}): a deviation reached 0 or infinity; lower the learning rate"
        return (
            f"prior ({term}): log p(w) is not finite; lower the learning rate, or use a prior with "
            "density on the whole line"
        )

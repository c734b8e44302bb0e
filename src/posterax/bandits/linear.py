r"""Thompson sampling with a Bayesian linear regression for each action, in closed form.

For action a, with x the context and a one for the intercept,

    r = xᵀw + ε,  ε ~ N(0, s²),  w | s² ~ N(m, s² P),  s² ~ IG(k, k v)

is conjugate: a reward r moves it, with e = r − xᵀm and c = 1 + xᵀPx, by

    P ← P − P x xᵀ P / c,  m ← m + P x e / c,  k ← k + ½,  v ← v + (e²/c − v) / (2k)

P is kept as a square root, P = SSᵀ, which Potter's update changes by one rank: with f = Sᵀx and
α = 1/(1 + fᵀf), S ← S − α/(1 + √α) (S f) fᵀ. That costs O(d²), P can never lose its sign, and in
float32 the root has the range that P would have in float64. v is a running mean rather than a sum,
which would stop growing in float32.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._util.memory import refuse_beyond_memory
from ..infer.settings import Positive, check_settings
from .base import Policy


class LinearState(NamedTuple):
    """What is known of each action."""

    mean: Array  # (actions, d) m
    root: Array  # (actions, d, d) S
    shape: Array  # (actions,) k
    noise: Array  # (actions,) v, about the noise's variance


def student(key: Array, freedom: Array) -> Array:
    """Student's t by two uniforms (Bailey 1994): no rejection, so that it vectorises.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from posterax.bandits.linear import student
        >>> student(jax.random.key(0), jnp.full(3, 12.0)).shape
        (3,)
    """
    u, v = jax.random.uniform(key, (2, *freedom.shape))
    radius = jnp.sqrt(freedom * jnp.expm1(-2 / freedom * jnp.log1p(-u)))  # 1 − u is never 0
    return radius * jnp.cos(2 * jnp.pi * v)


class LinearThompson(Policy):
    r"""Thompson sampling with linear rewards: no training, no settings that matter much.

    The expected reward of each action is drawn from its posterior and the largest is taken: with s²
    integrated out xᵀw is xᵀm + √(v xᵀPx) times a Student t of 2k degrees of freedom.

    Args:
        prior_scale: deviation of the weights before any reward, in units of the noise.
        noise: deviation of the noise where it is known; ``None`` learns it, for each action.
        forgetting: below 1 all that was seen counts less by this factor at every interaction, so
            that about the last 1 / (1 − forgetting) count: for rewards that change. No weight
            becomes less certain than it was before any reward.
        intercept: add one to every context.

    Example:
        >>> import posterax as px
        >>> environment = px.bandits.wheel(0.5)
        >>> policy = px.bandits.LinearThompson()
        >>> played = px.bandits.play(environment, policy, 200, runs=2, key=0)
        >>> played.regret.shape
        (2, 200)

    Reference:
        Agrawal and Goyal, *Thompson sampling for contextual bandits with linear payoffs*, ICML
        2013; the prior of the noise is that of Riquelme, Tucker and Snoek (ICLR 2018). Potter's
        update is in Bierman, *Factorization methods for discrete sequential estimation*, 1977.
    """

    prior_scale: Positive = eqx.field(static=True, default=2.0)
    noise: Positive | None = eqx.field(static=True, default=None)
    forgetting: float = eqx.field(static=True, default=1.0)
    intercept: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        check_settings(self)
        if not 0 < self.forgetting <= 1:
            raise ValueError(f"forgetting must lie above 0 and be at most 1, got {self.forgetting}")

    def init(self, features: int, actions: int, key: Array) -> LinearState:
        d = features + self.intercept
        what = f"features={features:,}: a matrix for each of {actions:,} actions"
        refuse_beyond_memory(what, 4 * actions * d * d)
        variance = 1.0 if self.noise is None else self.noise**2
        return LinearState(
            jnp.zeros((actions, d)),
            jnp.broadcast_to(self.prior_scale * jnp.eye(d), (actions, d, d)),
            jnp.full(actions, SHAPE),
            jnp.full(actions, variance),
        )

    def choose(self, state: LinearState, context: Array, key: Array) -> Array:
        x = self._with_one(context)
        spread = jnp.sum(jnp.square(x @ state.root), -1)  # xᵀPx, action by action
        known = self.noise is not None
        z = jax.random.normal(key, spread.shape) if known else student(key, 2 * state.shape)
        return jnp.argmax(state.mean @ x + jnp.sqrt(state.noise * spread) * z).astype(jnp.int32)

    def update(
        self, state: LinearState, context: Array, action: Array, reward: Array, key: Array
    ) -> LinearState:
        x = self._with_one(context)
        if self.forgetting != 1:
            state = self._forgotten(state)  # all actions: what is not tried may have changed too
        mean, root, shape, noise = (part[action] for part in state)
        f = x @ root
        c = 1 + f @ f
        p = root @ f  # P x
        error = reward - x @ mean
        mean = mean + p * (error / c)
        root = root - jnp.outer(p, f) / (c + jnp.sqrt(c))  # α/(1 + √α) = 1/(c + √c)
        if self.noise is None:
            shape = shape + 0.5
            noise = noise + (error**2 / c - noise) / (2 * shape)
        pairs = zip(state, (mean, root, shape, noise), strict=True)
        return LinearState(*(old.at[action].set(new) for old, new in pairs))

    def _forgotten(self, state: LinearState) -> LinearState:
        """Less is known: P / forgetting, but no variance above the prior's; k goes towards its."""
        root = state.root / jnp.sqrt(self.forgetting)
        deviation = jnp.sqrt(jnp.sum(jnp.square(root), -1, keepdims=True))
        root = root * jnp.minimum(1, self.prior_scale / deviation)
        shape = self.forgetting * state.shape + (1 - self.forgetting) * SHAPE
        return state._replace(root=root, shape=shape)

    def _with_one(self, context: Array) -> Array:
        return jnp.append(context, 1.0) if self.intercept else context


SHAPE = 6.0  # k before any reward: the noise is taken for about 1, as if 12 rewards had shown it

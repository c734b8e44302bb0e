r"""IVON as an optax transformation, for training loops of your own.

The improved variational online Newton method (Shen et al. 2024) keeps a Gaussian over the weights,
q = N(m, 1/(λ s)), and moves its mean and precision along the natural gradient of minus the ELBO per
data point. With w = m + ε/√(λ s), ĝ the minibatch's gradient of the mean loss at w, δ the prior's
precision divided by λ, and ρ = 1 − β₂,

    ŝ = λ s ĝ (w − m) + δ,            u = ρ (ŝ − s) / s,      s ← s eᵘ, |u| ≤ 1
    g ← β₁ g + (1 − β₁) ĝ,            m ← m − α clip((g / (1 − β₁ᵗ) + δ m) / s, ±ξ).

ŝ is an unbiased estimate of the curvature (Stein's identity), found with the gradient that training
needs anyway: a step costs what Adam costs, and the draw of w. The factor eᵘ keeps s positive,
whatever ŝ; the paper has 1 + u + ½u². Its h is s − δ here, which saves operations.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike
from jaxtyping import PyTree

from ._util.checks import above_zero, fraction
from ._util.keys import KeyLike, as_key
from ._util.noise import standard_normal_like


class IVONState(NamedTuple):
    """Steps taken, running gradient g, precision per data point s, the draw w, and λ."""

    step: jax.Array
    momentum: Any
    precision: Any
    drawn: Any
    data_size: jax.Array


def ivon(
    learning_rate: float | Callable[[jax.Array], Any],
    data_size: float,
    *,
    prior_precision: float = 1.0,
    hessian_init: float = 1.0,
    b1: float = 0.9,
    b2: float = 0.999,
    clip: float = 0.03,
) -> optax.GradientTransformation:
    r"""Natural-gradient variational inference as an optimiser.

    Before each step draw weights with ``draw_weights``, and take the gradient of the *mean* loss
    there. The posterior is N(params, ``deviations(state)``²).

    Args:
        learning_rate: α, a number or an optax schedule; 1 is Newton's.
        data_size: λ, the number of data points.
        prior_precision: of a Gaussian prior about zero: 1 / scale².
        hessian_init: where the curvature starts: σ is about 1/√(data_size · hessian_init) at first.
        b1: decay of the running gradient.
        b2: decay of the running curvature, which looks back over 1/(1 − b2) steps. Its estimates
            are noisy where a batch holds B of N examples: 1 − b2 should be well below B/N.
        clip: ξ; a weight moves by at most ``learning_rate · clip`` in a step.

    Example:
        >>> import jax, jax.numpy as jnp, optax
        >>> from posterax import optim
        >>> optimizer = optim.ivon(0.1, data_size=100, prior_precision=1e-6, b2=0.99)
        >>> params = jnp.zeros(1000)
        >>> state = optimizer.init(params)
        >>> loss = lambda w: jnp.sum(2 * (w - 1) ** 2)  # curvature 4, so σ = 1/√(100 · 4)
        >>> @jax.jit
        ... def step(params, state, key):
        ...     w, state = optim.draw_weights(key, params, state)
        ...     updates, state = optimizer.update(jax.grad(loss)(w), state, params)
        ...     return optax.apply_updates(params, updates), state
        >>> for key in jax.random.split(jax.random.key(0), 1000):
        ...     params, state = step(params, state, key)
        >>> print(f"{params.mean():.2f} ± {optim.deviations(state).mean():.2f}")
        1.00 ± 0.05

    Reference:
        Shen, Daheim, Cong, Nickl, Marconi, Bazan, Yokota, Gurevych, Cremers, Khan and Möllenhoff,
        *Variational learning is effective for large deep networks*, ICML 2024.
    """
    above_zero("data_size", data_size)
    above_zero("hessian_init", hessian_init)
    above_zero("clip", clip)
    fraction("b1", b1, zero=True)
    fraction("b2", b2)
    if not prior_precision >= 0:
        raise ValueError(f"prior_precision must be 0 or more, got {prior_precision!r}")
    delta = prior_precision / data_size
    first = hessian_init + delta

    def init(params: PyTree) -> IVONState:
        zeros = jax.tree.map(jnp.zeros_like, params)
        precision = jax.tree.map(lambda p: jnp.full_like(p, first), params)
        size = jnp.asarray(data_size, float)
        return IVONState(jnp.zeros((), jnp.int32), zeros, precision, _nothing(params), size)

    def update(grads: PyTree, state: IVONState, params: PyTree = None) -> tuple[Any, IVONState]:
        if params is None:
            raise ValueError("ivon: update needs the parameters: update(grads, state, params)")
        momentum = jax.tree.map(lambda g, new: b1 * g + (1 - b1) * new, state.momentum, grads)
        precision = jax.tree.map(
            lambda s, g, w, m: next_precision(s, g * (w - m), data_size, delta, 1 - b2),
            state.precision, grads, state.drawn, params,
        )  # fmt: skip
        debias = 1 - b1 ** (state.step + 1.0)
        rate = learning_rate(state.step) if callable(learning_rate) else learning_rate
        updates = jax.tree.map(
            lambda g, s, m: newton_step(g, s, delta * m, rate, debias, clip),
            momentum, precision, params,
        )  # fmt: skip
        drawn = _nothing(params)
        return updates, IVONState(state.step + 1, momentum, precision, drawn, state.data_size)

    return optax.GradientTransformation(init, update)


def draw_weights(key: KeyLike, params: PyTree, state: PyTree) -> tuple[Any, Any]:
    """w ~ N(params, 1/(λ s)), where the next gradient is to be taken; the state remembers it.

    ``state`` may also be that of an ``optax.chain`` with ``ivon`` in it.

    Example:
        >>> import jax.numpy as jnp
        >>> from posterax import optim
        >>> params = jnp.zeros(10_000)
        >>> state = optim.ivon(0.1, data_size=100, prior_precision=0.0).init(params)
        >>> w, state = optim.draw_weights(0, params, state)
        >>> print(f"{w.std():.2f}")
        0.10
    """
    noise = standard_normal_like(as_key(key), params)
    drawn = jax.tree.map(lambda m, d, e: m + d * e, params, deviations(state), noise)
    replaced = jax.tree.map(
        lambda part: part._replace(drawn=drawn) if _is_own(part) else part, state, is_leaf=_is_own
    )
    return drawn, replaced


def deviations(state: PyTree) -> Any:
    """σ = 1/√(λ s) of every weight.

    Example:
        >>> import jax.numpy as jnp
        >>> from posterax import optim
        >>> print(optim.deviations(optim.ivon(0.1, 4, prior_precision=0).init(jnp.zeros(2))))
        [0.5 0.5]
    """
    own = next((part for part in jax.tree.leaves(state, is_leaf=_is_own) if _is_own(part)), None)
    if own is None:
        raise TypeError("state: no state of optim.ivon is in it; it is what optimizer.init gives")
    return jax.tree.map(lambda s: deviation(s, own.data_size), own.precision)


def _is_own(part: PyTree) -> bool:
    return isinstance(part, IVONState)


def _nothing(params: PyTree) -> Any:
    """No draw yet: a step without one must not go unseen."""
    return jax.tree.map(lambda p: jnp.full_like(p, jnp.nan), params)


# -- for one array, shared with ``px.IVON``


def deviation(s: jax.Array, data_size: ArrayLike) -> jax.Array:
    """σ = 1/√(λ s)."""
    return jax.lax.rsqrt(jnp.asarray(data_size, s.dtype) * s)


def next_precision(
    s: jax.Array, product: jax.Array, data_size: ArrayLike, delta: ArrayLike, rho: ArrayLike
) -> Any:
    """s eᵘ with u = ρ (ŝ − s)/s and ŝ = λ s ĝ (w − m) + δ; ``product`` is ĝ (w − m).

    The paper has 1 + u + ½u², which is the same where u is small, and takes large negative u for
    positive ones. Single products may be thousands of times their mean: |u| is at most 1.
    """
    data_size, delta, rho = (jnp.asarray(a, s.dtype) for a in (data_size, delta, rho))
    u = rho * (data_size * product + delta / s - 1)
    return s * jnp.exp(jnp.clip(u, -1, 1))


def newton_step(
    g: jax.Array, s: jax.Array, pull: ArrayLike, rate: ArrayLike, debias: ArrayLike, clip: ArrayLike
) -> jax.Array:
    """−α clip((g / (1 − β₁ᵗ) + pull) / s, ±ξ), where ``pull`` is the prior's gradient."""
    rate, debias, clip = (jnp.asarray(a, s.dtype) for a in (rate, debias, clip))
    return -rate * jnp.clip((g / debias + pull) / s, -clip, clip)

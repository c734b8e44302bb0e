r"""The score-function gradient of an expectation, and what makes its variance bearable.

    ∇_λ E_q[f(w)] = E_q[f(w) ∇_λ log q(w | λ)]

f is only evaluated: neither it nor w needs a derivative, so that w may be discrete. With the score
h = ∇ log q, whose mean is 0, any number a that is independent of the sample may be taken off f:
E[(f − a) h] is the same, its variance is not.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...posteriors.factors import Factor, PointFactor
from ...priors import Prior

DECAY = 0.95  # of the running averages behind the control variate's coefficient, per step

Tree = Any  # of arrays like an array's variational parameters


class Coefficient(NamedTuple):
    """Running averages of f h² and h², whose ratio is the best coefficient of h."""

    product: Tree
    square: Tree

    def take_off(self, g: Tree, h: Tree) -> Tree:
        """f h − a h; nothing as long as a is not known: the first step only learns it.

        A first gradient as large as f h would stay in an optimiser's memory for long.
        """

        def one(g: jax.Array, h: jax.Array, product: jax.Array, square: jax.Array) -> jax.Array:
            known = square > 0
            return jnp.where(known, g - product / jnp.where(known, square, 1) * h, 0)

        return jax.tree.map(one, g, h, self.product, self.square)


def no_coefficient(v: Tree) -> Coefficient:
    """Before the first step."""
    zeros = jax.tree.map(jnp.zeros_like, v)
    return Coefficient(zeros, zeros)


def scores(factor: Factor, v: Tree, w: jax.Array, signal: jax.Array) -> Tree:
    """Σᵢ fᵢ ∇ log qᵢ(wᵢ) of every sample, on a leading axis; w and f are (sample, …)."""

    def one(w: jax.Array, f: jax.Array) -> Tree:
        _, pull = jax.vjp(lambda v: factor.log_prob(v, w), v)
        return pull(f)[0]

    return jax.vmap(one)(w, signal)


def leave_one_out(signal: jax.Array) -> jax.Array:
    """f less the mean of the other samples' f, with which its own score has nothing to do."""
    count = len(signal)
    return (signal - jnp.mean(signal, 0)) * (count / (count - 1))


def sample_gradients(
    factor: Factor,
    v: Tree,
    w: jax.Array,
    signal: jax.Array,
    baseline: str | None,
    coefficient: Coefficient | None,
) -> tuple[Tree, Coefficient | None]:
    """The gradient at every sample, and the control variate's averages with this step's in them.

    Args:
        factor: the family of this array.
        v: its variational parameters.
        w: samples of the array, (sample, …).
        signal: f for every sample and weight, (sample, …).
        baseline: what is taken off f.
        coefficient: running averages of earlier steps, for ``"control_variate"``.
    """
    if baseline == "leave_one_out":
        signal = leave_one_out(signal)
    g = scores(factor, v, w, signal)
    if coefficient is None:
        return g, None
    # a = Cov(f h, h) / Var(h) for each variational parameter, and E[h] = 0. It comes from earlier
    # steps, which know nothing of these samples: estimated from the same ones it would be
    # correlated with h, and the gradient biased
    h = scores(factor, v, w, jnp.ones_like(signal))
    product = jax.tree.map(lambda g, h: jnp.mean(g * h, 0), g, h)
    square = jax.tree.map(lambda h: jnp.mean(jnp.square(h), 0), h)
    later = jax.tree.map(
        lambda old, new: DECAY * old + (1 - DECAY) * new, coefficient, Coefficient(product, square)
    )
    return coefficient.take_off(g, h), later


def mean_and_variance(g: Tree, baseline: str | None = None) -> tuple[Tree, Tree]:
    """The mean over samples, and the variance of that mean, from the same samples.

    With leave-one-out, sample i is in the baseline of j and j in that of i, hence
    Cov(gᵢ, gⱼ) = c E[g]² with c = 1 / (S − 1)². The spread v over samples then is too small,
    E[v] = V − c E[g]², and since E[mean²] = V + E[g]², (v + c mean²) / (1 + c) has mean V. That is
    exact where every weight has variational parameters of its own.
    """
    mean = jax.tree.map(lambda g: jnp.mean(g, 0), g)
    spread = jax.tree.map(lambda g: jnp.var(g, 0, ddof=1) / len(g), g)
    if baseline == "leave_one_out":
        c = 1 / (len(jax.tree.leaves(g)[0]) - 1) ** 2
        spread = jax.tree.map(lambda v, m: (v + c * jnp.square(m)) / (1 + c), spread, mean)
    return mean, spread


def learning_signals(
    arrays: list[tuple[Factor, Prior, Tree]],
    w: list[jax.Array],
    nll: jax.Array,
    kl_scale: jax.Array,
    *,
    closed: bool,
    alone: bool,
) -> tuple[list[jax.Array], jax.Array]:
    """f, which multiplies the score of every weight, for each array; and KL(q ‖ p).

    Args:
        arrays: factor, prior and variational parameters of each.
        w: samples of each, (sample, …).
        nll: −log p(D | w) of each sample, as it counts in the objective.
        kl_scale: what log q − log p counts for.
        closed: leave out what has a KL in closed form.
        alone: Rao–Blackwell: a weight's f has log q − log p of this weight alone. That of the
            others does not depend on it, and its product with the weight's score has mean 0.
    """
    gaps: list[Any] = []  # log q − log p: of each weight, of all together, or None
    kl = jnp.zeros((), nll.dtype)
    for (factor, prior, v), drawn in zip(arrays, w, strict=True):
        known = factor.kl(prior, v) if closed else None
        if isinstance(factor, PointFactor) or known is not None:
            kl += 0 if known is None else jnp.sum(known)
            gaps.append(None)
            continue
        log_q = jax.vmap(partial(factor.log_prob, v))(drawn)
        log_p = jax.vmap(prior.log_prob)(drawn)
        together = _sum(log_q) - _sum(log_p)
        kl += jnp.mean(together)
        if log_p.shape != log_q.shape:  # a prior of all weights at once: each of them meets it
            log_p = _beside(_sum(log_p), log_q)
        gaps.append(log_q - log_p if alone else together)
    if not alone:
        parts = [gap for gap in gaps if gap is not None]
        gaps = [sum(parts) if parts else None] * len(w)

    def signal(gap: Any, drawn: jax.Array) -> jax.Array:
        f = _beside(nll, drawn)
        f = f if gap is None else f + kl_scale * _beside(gap, drawn)
        return jnp.broadcast_to(f, drawn.shape)

    return list(map(signal, gaps, w)), kl


def _sum(a: jax.Array) -> jax.Array:
    """Over all but the samples."""
    return jnp.sum(a, axis=tuple(range(1, a.ndim)))


def _beside(a: jax.Array, like: jax.Array) -> jax.Array:
    """A number for each sample, to meet arrays (sample, …)."""
    return a if a.ndim == like.ndim else a.reshape(len(a), *[1] * (like.ndim - 1))

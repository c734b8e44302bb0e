r"""The Fisher information of a likelihood in the outputs f of the network and its own parameters φ.

    Λ = E_y[s sᵀ],  s = ∂ log p(y | f, φ) / ∂(f, φ),  y ~ p(y | f, φ)

It is never negative, whatever the targets, and where f is a natural parameter (the logits of
classes, the logarithm of a rate, a mean with known noise) it is minus the second derivative of
log p. What is computed here is a root of it, columns sₖ with Λ = Σₖ sₖ sₖᵀ, since a network can be
differentiated backwards from each of them.

Every likelihood of px.likelihoods has a linear map from white noise ε to (f, φ) with E[s sᵀ] = Λ.
Its columns are exact; where there are more than ``MOST_COLUMNS`` (an image of classes), random
signs ε in their place give Λ on average. ``From``, and likelihoods of the user's own, draw y.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from ... import likelihoods
from ...likelihoods import Likelihood

MOST_COLUMNS = 128

Spread = Callable[[PyTree], PyTree]


def columns(
    likelihood: Likelihood,
    outputs: jax.Array,
    own: PyTree,
    side: PyTree,
    key: jax.Array,
    probes: int,
) -> tuple[jax.Array, PyTree]:
    r"""Columns s₁ … s_K of a root of Λ for one example, on a leading axis.

    Args:
        likelihood: the likelihood.
        outputs: of the network for a batch of one example.
        own: the likelihood's parameters.
        side: what the likelihood reads of the inputs.
        key: for random columns.
        probes: how many of those.

    Returns:
        (K, 1, …) in the shape of ``outputs``, and a tree like ``own`` with K in front.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> from posterax.infer.laplace.fisher import columns
        >>> logits = jnp.log(jnp.array([[0.2, 0.8]]))
        >>> s, _ = columns(px.likelihoods.Categorical(), logits, {}, None, jax.random.key(0), 1)
        >>> print(jnp.einsum("kni,knj->ij", s, s).round(2))  # diag(p) − p pᵀ
        [[ 0.16 -0.16]
         [-0.16  0.16]]
    """
    spread = _spread(likelihood, outputs, own, side)
    if spread is None:  # scores of targets drawn from the likelihood itself: Λ on average

        def score(key: jax.Array) -> PyTree:
            y = likelihood.distribution(outputs, own, side).sample(key)
            log_prob = lambda f, own: likelihood.log_prob(f, y, own, side)[0] / probes**0.5  # noqa: E731
            return jax.grad(log_prob, argnums=(0, 1))(outputs, own)

        return jax.vmap(score)(jax.random.split(key, probes))
    white, back = ravel_pytree((outputs, own))
    if white.size <= MOST_COLUMNS:
        noise = jnp.eye(white.size, dtype=outputs.dtype)
    else:
        noise = jax.random.rademacher(key, (probes, white.size), outputs.dtype) / probes**0.5
    return jax.vmap(lambda e: spread(back(e)))(noise)


def _spread(likelihood: Likelihood, outputs: jax.Array, own: PyTree, side: PyTree) -> Spread | None:
    """The map from white noise in the shape of (outputs, own) to the scores, where it is known."""
    kind = type(likelihood)  # a class of the user's own may have changed anything
    if kind in (likelihoods.Gaussian, likelihoods.StudentT):
        return _location_scale(likelihood, outputs, own)
    if kind is likelihoods.MultivariateGaussian:
        return _multivariate(likelihood, outputs, own)
    if kind is likelihoods.Categorical:
        p = jax.nn.softmax(outputs)

        def classes(white: PyTree) -> PyTree:
            u = jnp.sqrt(p) * white[0]
            return u - p * jnp.sum(u, -1, keepdims=True), white[1]

        return classes
    if kind is likelihoods.Bernoulli:
        root = jnp.sqrt(jax.nn.sigmoid(outputs) * jax.nn.sigmoid(-outputs))
        return lambda white: (root * white[0], white[1])
    if kind is likelihoods.Poisson:
        root = jnp.sqrt(likelihood.distribution(outputs, own, side).rate)
        return lambda white: (root * white[0], white[1])
    return None


def _location_scale(likelihood: PyTree, outputs: jax.Array, own: PyTree) -> Spread:
    """Location: c/σ², logarithm of σ: d, and nothing between them, by symmetry.

    Gaussian: c = 1, d = 2. Student t of ν degrees: c = (ν + 1)/(ν + 3), d = 2ν/(ν + 3).
    """
    c, d = 1.0, 2.0
    if isinstance(likelihood, likelihoods.StudentT):
        c = (likelihood.df + 1) / (likelihood.df + 3)
        d = 2 * likelihood.df / (likelihood.df + 3)
    sigma = likelihood.location_scale(outputs, own)[1]
    if likelihood.outputs_for((1,)) == (2,):  # the network predicts σ = softplus(raw)
        raw = jnp.split(outputs, 2, axis=-1)[1]
        root = jnp.concatenate([c**0.5 / sigma, d**0.5 * jax.nn.sigmoid(raw) / sigma], axis=-1)
    else:
        root = c**0.5 / sigma
    return lambda white: (root * white[0], jax.tree.map(lambda e: d**0.5 * e, white[1]))


def _multivariate(likelihood: PyTree, outputs: jax.Array, own: PyTree) -> Spread:
    r"""Mean: Σ⁻¹; parameters of Σ: ½ tr(Σ⁻¹ ∂ᵢΣ Σ⁻¹ ∂ⱼΣ), and nothing between them."""

    def factor(own: PyTree) -> jax.Array:
        d = outputs.shape[-1]
        return likelihood.distribution(outputs, own).scale_tril.reshape(d, d)

    lower = factor(own)

    def whiten(matrix: jax.Array) -> jax.Array:
        half = jax.scipy.linalg.solve_triangular(lower, matrix, lower=True)
        return jax.scipy.linalg.solve_triangular(lower, half.T, lower=True)

    flat, back = ravel_pytree(own)
    information = None
    if flat.size:
        moves = jax.jacfwd(lambda v: factor(back(v)) @ factor(back(v)).T)(flat)
        white = jax.vmap(whiten, in_axes=-1)(moves).reshape(flat.size, -1)
        information = jnp.linalg.cholesky(0.5 * white @ white.T)

    def spread(white: PyTree) -> PyTree:
        mean = jax.scipy.linalg.solve_triangular(lower.T, white[0].T, lower=False).T
        if information is None:
            return mean, white[1]
        return mean, back(information @ ravel_pytree(white[1])[0])

    return spread

"""KL(q ‖ p) of a mean-field Gaussian from the priors of a model."""

from typing import Any

import jax
import jax.numpy as jnp

from ...model import Parameters
from ...priors import Prior, is_prior
from ...priors.base import LOG_2PI


def mean_field_kl(
    priors: Parameters, mu: Parameters, sigma: Parameters, w: Parameters, *, closed: bool = True
) -> jax.Array:
    """KL(q ‖ p): closed form where there is one, else log q(w) − log p(w) at a draw w of q.

    Args:
        priors: a prior for every array.
        mu: means.
        sigma: deviations, ``None`` for points, which do not count.
        w: a draw.
        closed: whether to use closed forms.

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> from posterax.infer.variational.divergence import mean_field_kl
        >>> one = jnp.ones(1)
        >>> print(mean_field_kl(px.priors.Gaussian(1.0), one, one, one))  # ½ μ²
        0.5
    """

    def leaf(prior: Prior, mu: jax.Array, sigma: Any, w: jax.Array) -> Any:
        if sigma is None:
            return None
        exact = prior.kl_from_gaussian(mu, sigma) if closed else None
        if exact is not None:
            return jnp.sum(exact)
        log_q = -0.5 * jnp.square((w - mu) / sigma) - jnp.log(sigma) - 0.5 * LOG_2PI
        return jnp.sum(log_q) - jnp.sum(prior.log_prob(w))  # which may be of all at once

    terms = jax.tree.map(leaf, priors, mu, sigma, w, is_leaf=is_prior)
    return jax.tree.reduce(jnp.add, terms)

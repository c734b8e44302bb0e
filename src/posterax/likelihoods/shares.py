"""Shares: numbers between 0 and 1."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import PyTree
from numpyro.distributions import Distribution

from .base import check_support
from .linked import Linked
from .links import bent

SQUEEZE = 1e-4  # shares are no closer to 0 and 1 than this
REACH = 10.0  # of the logit of the mean, on both sides of its centre
PRECISIONS = (-2.0, 8.0)  # of log φ as the network predicts it: 0.14 to 3,000, bent beyond
LEAST = 1e-3  # of both parameters of the distribution, below which draws are 0 and 1 alone


class DrawnBeta(dist.Beta):
    """numpyro's, whose quantiles come from draws, as those of counts do."""

    @property
    def is_discrete(self) -> bool:
        """True, so that quantiles are not searched for by bisection.

        That would evaluate the incomplete beta function thousands of times for every row.
        """
        return True


class Beta(Linked):
    r"""y ~ Beta(μ φ, (1 − μ) φ) with μ = sigmoid(centre + f(x)): shares.

    E[y] = μ and Var[y] = μ (1 − μ) / (1 + φ);

    p(y) = y^(μφ − 1) (1 − y)^((1 − μ)φ − 1) / B(μφ, (1 − μ)φ).

    The density has no value at 0 and 1: targets closer than 0.0001 to them count as 0.0001 and
    0.9999. A few exact zeros and ones are fine so; where there are many, they need a likelihood
    of their own, such as
    [`ZeroInflatedLogNormal`][posterax.likelihoods.ZeroInflatedLogNormal].

    Quantiles of shares come from draws, as those of counts do.

    A predicted precision is φ = exp(raw), from 0.14 to 3,000 and bent beyond, within a factor of e.
    f is itself up to ``reach`` on both sides and bent beyond, never more than 1 further.

    Args:
        precision: φ. A number (or one per output) when it is known; ``"learned"`` for one
            parameter per output with a prior N(log initial, 1) on its logarithm; ``"predicted"``
            for a network with 2 × D outputs, logits of the mean and then log precisions.
        initial: where a learned precision starts (default: 10).
        centre: added to f; the logit of the mean, so that the network learns what is around it.
            A number or one per output.
        reach: how far f goes from 0, a number, or two of them, below and above.

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> likelihood = px.likelihoods.Beta(precision=4.0)
        >>> f, y = jnp.zeros((1, 1)), jnp.full((1, 1), 0.5)
        >>> print(likelihood.log_prob(f, y, {}, None).round(4))
        [0.4055]

    Reference: Ferrari and Cribari-Neto (2004), Beta regression for modelling rates and proportions.
    """

    precision: Any

    spread: ClassVar[str] = "precision"
    start: ClassVar[float] = 10.0

    def __init__(
        self,
        precision: Any = "predicted",
        *,
        initial: Any = None,
        centre: Any = 0.0,
        reach: Any = REACH,
    ):
        super().__init__(precision, initial, centre, reach)

    def distribution(self, outputs: jax.Array, params: PyTree, side: PyTree = None) -> Distribution:
        f, phi, _ = self.parts(outputs, params)
        if self._spread_is("predicted"):
            phi = jnp.exp(bent(phi, *PRECISIONS))
        logit = self.within_reach(f)
        ones, zeros = phi * jax.nn.sigmoid(logit), phi * jax.nn.sigmoid(-logit)
        return DrawnBeta(jnp.maximum(ones, LEAST), jnp.maximum(zeros, LEAST))

    def log_prob(self, outputs: jax.Array, y: jax.Array, params: PyTree, side: PyTree) -> jax.Array:
        return super().log_prob(outputs, jnp.clip(y, SQUEEZE, 1 - SQUEEZE), params, side)

    def _wider(self, location: jax.Array, raw: jax.Array, factor: Any) -> jax.Array:
        """φ / factor²: far from 0 and 1 the deviation is ``factor`` times as large; μ stays."""
        return raw - 2 * jnp.log(jnp.asarray(factor, raw.dtype))

    def location(self, y: np.ndarray) -> np.ndarray:
        # further out a logit would say more of the squeeze than of the share
        inside = np.clip(np.asarray(y, np.float64), 10 * SQUEEZE, 1 - 10 * SQUEEZE)
        return np.log(inside) - np.log1p(-inside) - self.centre

    def check_values(self, y: np.ndarray, output_shape: tuple[int, ...]) -> None:
        shares = "shares from 0 to 1 for Beta (divide percentages by 100)"
        check_support(y, (y >= 0) & (y <= 1), shares)

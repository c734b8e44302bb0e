"""Counts that vary more than a Poisson distribution's."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import PyTree
from numpyro.distributions import Distribution

from .._util.special import inverse_softplus
from .base import Kind, check_support
from .linked import Linked
from .links import FLOOR, SMALL, bent

REACH = 15.0  # of the log mean, on both sides of its centre, unless the user says otherwise
MOST_DISPERSED = 30.0  # of α as the network predicts it; beyond it is bent, and stays below 40
MOST_DRAWN = 2.0**30  # of a draw: it is a whole number of 32 bits


class BoundedNegativeBinomial(dist.NegativeBinomial2):
    """numpyro's, whose draws fit 32 bits."""

    def sample(self, key: jax.Array | None, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws of y: Poisson, with a rate that is drawn from a Gamma distribution."""
        assert key is not None
        of_rate, of_count = jax.random.split(key)
        rate = jnp.minimum(self._gamma.sample(of_rate, sample_shape), MOST_DRAWN)
        return jax.random.poisson(of_count, rate)


class NegativeBinomial(Linked):
    r"""y ~ NegativeBinomial(mean m = exp(centre + f(x)), dispersion α): counts.

    Var[y] = m + α m². With r = 1/α,

    p(y) = Γ(y + r) / (Γ(r) y!) · (r / (r + m))ʳ (m / (r + m))ʸ.

    The Poisson distribution is the limit α → 0. Quantiles of counts come from draws.

    f is itself up to ``reach`` on both sides and bent beyond, never more than 1 further; so is a
    predicted α = softplus(raw) + 0.0001 above 30, and stays below 40.

    Args:
        dispersion: α. A number (or one per output) when it is known; ``"learned"`` for one
            parameter per output with a prior N(log initial, 1) on its logarithm; ``"predicted"``
            for a network with 2 × D outputs, log means and then raw dispersions.
        initial: where a learned dispersion starts (default: 0.3).
        centre: added to f; the logarithm of the mean of the counts, so that the network learns
            what is around it. A number or one per output.
        reach: how far f goes from 0, a number, or two of them, below and above.

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> likelihood = px.likelihoods.NegativeBinomial(dispersion=0.5)
        >>> one = jnp.ones((1, 1))
        >>> print(likelihood.log_prob(0 * one, one, {}, None).round(4))
        [-1.2164]

    Reference: Hilbe (2011), Negative Binomial Regression; this is its NB2.
    """

    dispersion: Any

    family: ClassVar[Kind] = "counts"
    spread: ClassVar[str] = "dispersion"
    start: ClassVar[float] = 0.3

    def __init__(
        self,
        dispersion: Any = "predicted",
        *,
        initial: Any = None,
        centre: Any = 0.0,
        reach: Any = REACH,
    ):
        super().__init__(dispersion, initial, centre, reach)

    def _mean(self, f: jax.Array) -> jax.Array:
        return jnp.exp(self.within_reach(f))

    def distribution(self, outputs: jax.Array, params: PyTree, side: PyTree = None) -> Distribution:
        f, alpha, _ = self.parts(outputs, params)
        if self._spread_is("predicted"):
            alpha = bent(jax.nn.softplus(alpha) + FLOOR, 0.0, MOST_DISPERSED, 10.0)
        return BoundedNegativeBinomial(self._mean(f), 1 / jnp.maximum(alpha, FLOOR))

    def _wider(self, location: jax.Array, raw: jax.Array, factor: Any) -> jax.Array:
        r"""Var[y] = m + α m² becomes factor² times as large: α′ = factor² α + (factor² − 1) / m.

        The mean stays, and the variance cannot be less than Poisson's. Raw dispersions below −15
        count as −15: 0.0001 is added to both, so that nobody can tell them apart.
        """
        square = jnp.square(jnp.asarray(factor, raw.dtype))
        predicted = jax.nn.softplus(jnp.maximum(raw, SMALL))
        wanted = square * predicted + (square - 1) * (FLOOR + 1 / self._mean(location))
        least = 0.5 * jax.nn.softplus(jnp.asarray(SMALL, raw.dtype))
        return inverse_softplus(jnp.clip(wanted, least, 1 / FLOOR))

    def location(self, y: np.ndarray) -> np.ndarray:
        return np.log(np.asarray(y, np.float64) + 0.5) - self.centre

    def check_values(self, y: np.ndarray, output_shape: tuple[int, ...]) -> None:
        counts = "counts, whole numbers of 0 or more, for NegativeBinomial"
        check_support(y, (y >= 0) & (y == np.floor(y)), counts)

"""Any distribution of numpyro over the real line is a prior."""

from typing import Any

import jax
import numpyro.distributions as dist

from .base import Prior
from .simple import Gaussian


class FromDistribution(Prior):
    """Any distribution of numpyro over the real line, the same for every entry."""

    distribution: dist.Distribution

    def __init__(self, distribution: dist.Distribution):
        if distribution.event_shape != () or distribution.batch_shape != ():
            raise ValueError(
                "prior must be a distribution of one number (empty batch and event shape), got "
                f"batch {distribution.batch_shape} and event {distribution.event_shape}; "
                "use px.priors.ByPart or px.priors.PerWeight for different weights"
            )
        if distribution.support is not dist.constraints.real:
            raise ValueError(
                "prior must have the whole real line as its support, got "
                f"{type(distribution).__name__} on {distribution.support}"
            )
        self.distribution = distribution

    def log_prob(self, w: jax.Array) -> jax.Array:
        return self.distribution.log_prob(w)

    def sample(self, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        return self.distribution.sample(key, shape).astype(dtype)

    def kl_from_gaussian(self, mu: jax.Array, sigma: jax.Array) -> jax.Array | None:
        try:
            return dist.kl_divergence(dist.Normal(mu, sigma), self.distribution)
        except NotImplementedError:
            return None


def as_prior(prior: Any) -> Prior:
    """Accept a prior of this module or a numpyro distribution.

    numpyro's ``Normal`` becomes ``px.priors.Gaussian``, for which much has a closed form.

    Example:
        >>> import numpyro.distributions as dist
        >>> import posterax as px
        >>> px.priors.as_prior(dist.Cauchy(0.0, 1.0))
        FromDistribution(...)
    """
    if isinstance(prior, Prior):
        return prior
    if isinstance(prior, dist.Distribution):
        made = FromDistribution(prior)
        return Gaussian(prior.scale, prior.loc) if type(prior) is dist.Normal else made
    raise TypeError(
        "prior must be one of px.priors or a numpyro distribution, got "
        f"{type(prior).__name__}; for instance px.priors.Gaussian(1.0)"
    )

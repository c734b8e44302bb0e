r"""Likelihoods: from network outputs to a distribution of the target.

`numpyro.distributions` is the vocabulary. A likelihood says how many outputs it reads, gives the
distribution of y, and may own parameters (a learned noise scale) with priors like any weight's.
"""

from .base import From, Kind, Likelihood
from .discrete import Bernoulli, Categorical, Poisson
from .regression import Gaussian, MultivariateGaussian, StudentT

__all__ = [
    "Bernoulli", "Categorical", "From", "Gaussian", "Kind", "Likelihood", "MultivariateGaussian",
    "Poisson", "StudentT",
]  # fmt: skip

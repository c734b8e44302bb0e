r"""Likelihoods: from network outputs to a distribution of the target.

`numpyro.distributions` is the vocabulary. A likelihood says how many outputs it reads, gives the
distribution of y, and may own parameters (a learned noise scale) with priors like any weight's.
"""

from .base import From, Kind, Likelihood
from .counts import NegativeBinomial
from .discrete import Bernoulli, Categorical, Poisson
from .positive import LogNormal, ZeroInflatedLogNormal
from .regression import Gaussian, MultivariateGaussian, StudentT
from .shares import Beta

__all__ = [
    "Bernoulli", "Beta", "Categorical", "From", "Gaussian", "Kind", "Likelihood", "LogNormal",
    "MultivariateGaussian", "NegativeBinomial", "Poisson", "StudentT", "ZeroInflatedLogNormal",
]  # fmt: skip

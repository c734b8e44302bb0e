r"""Priors over weights.

A prior gives every array of a parameter tree a density, one for all entries or one for each. It is
one for all weights, or one per part of the tree ([`ByPart`][posterax.priors.ByPart]), or one per
weight ([`PerWeight`][posterax.priors.PerWeight], what ``posterior.as_prior()`` returns). Any
distribution of ``numpyro.distributions`` is accepted in their place.
"""

from .base import Flat, Grid, Prior, is_flat, is_grid, is_prior
from .hierarchical import Hierarchical
from .simple import FromDistribution, Gaussian, Laplace, ScaleMixture, as_prior
from .trees import ByPart, PerWeight, Trained

__all__ = [
    "ByPart", "Flat", "FromDistribution", "Gaussian", "Grid", "Hierarchical", "Laplace",
    "PerWeight", "Prior", "ScaleMixture", "Trained", "as_prior", "is_flat", "is_grid", "is_prior",
]  # fmt: skip

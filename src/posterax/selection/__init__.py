"""Choosing a model: evidence, cross-validation, comparison, predictive checks."""

from .checks import Check, predictive_check
from .compare import compare, stacking
from .evidence import elbo
from .pointwise import heldout, loo, waic
from .score import Comparison, Score

__all__ = [
    "Check",
    "Comparison",
    "Score",
    "compare",
    "elbo",
    "heldout",
    "loo",
    "predictive_check",
    "stacking",
    "waic",
]

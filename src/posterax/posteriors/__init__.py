"""What inference returns."""

from .base import Posterior, Record
from .draws import Draws, Point
from .gaussian import MeanFieldGaussian
from .mixture import GaussianMixture
from .prior import PriorPosterior, before_data

__all__ = [
    "Draws",
    "GaussianMixture",
    "MeanFieldGaussian",
    "Point",
    "Posterior",
    "PriorPosterior",
    "Record",
    "before_data",
]

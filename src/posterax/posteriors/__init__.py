"""What inference returns."""

from .base import Posterior, Record
from .draws import Draws, Point
from .gaussian import MeanFieldGaussian
from .prior import PriorPosterior, before_data

__all__ = [
    "Draws",
    "MeanFieldGaussian",
    "Point",
    "Posterior",
    "PriorPosterior",
    "Record",
    "before_data",
]

"""What inference returns."""

from .base import Evidence, Posterior, Record
from .draws import Draws, Point
from .enumerated import Enumerated
from .gaussian import MeanFieldGaussian
from .mixture import GaussianMixture
from .prior import PriorPosterior, before_data
from .weighted import WeightedDraws

__all__ = [
    "Draws",
    "Enumerated",
    "Evidence",
    "GaussianMixture",
    "MeanFieldGaussian",
    "Point",
    "Posterior",
    "PriorPosterior",
    "Record",
    "WeightedDraws",
    "before_data",
]

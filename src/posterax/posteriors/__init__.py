"""What inference returns."""

from .base import Evidence, Posterior, Record
from .correlated import FullGaussian, LowRankGaussian
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
    "FullGaussian",
    "GaussianMixture",
    "LowRankGaussian",
    "MeanFieldGaussian",
    "Point",
    "Posterior",
    "PriorPosterior",
    "Record",
    "WeightedDraws",
    "before_data",
]

"""What inference returns."""

from .base import Evidence, Posterior
from .correlated import FullGaussian, LowRankGaussian
from .draws import Draws, Point
from .dropout import DropoutPosterior
from .enumerated import Enumerated
from .factorized import Factorized
from .gaussian import MeanFieldGaussian
from .laplace import LaplaceGaussian
from .mixture import GaussianMixture
from .prior import PriorPosterior, before_data, prior_posterior
from .radial import Radial
from .record import Record
from .weighted import WeightedDraws

__all__ = [
    "Draws",
    "DropoutPosterior",
    "Enumerated",
    "Evidence",
    "Factorized",
    "FullGaussian",
    "GaussianMixture",
    "LaplaceGaussian",
    "LowRankGaussian",
    "MeanFieldGaussian",
    "Point",
    "Posterior",
    "PriorPosterior",
    "Radial",
    "Record",
    "WeightedDraws",
    "before_data",
    "prior_posterior",
]

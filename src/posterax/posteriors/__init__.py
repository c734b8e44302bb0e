"""What inference returns."""

from .base import Evidence, Posterior
from .blend import Blend
from .correlated import FullGaussian, LowRankGaussian
from .draws import Draws, Point, WeightedDraws
from .dropout import DropoutPosterior
from .enumerated import Enumerated
from .factors import Factorized
from .laplace import LaplaceGaussian
from .mixture import GaussianMixture
from .prior import PriorPosterior, before_data, prior_posterior
from .record import Record
from .scaled import MeanFieldGaussian, Radial

__all__ = [
    "Blend", "Draws", "DropoutPosterior", "Enumerated", "Evidence", "Factorized", "FullGaussian",
    "GaussianMixture", "LaplaceGaussian", "LowRankGaussian", "MeanFieldGaussian", "Point",
    "Posterior", "PriorPosterior", "Radial", "Record", "WeightedDraws", "before_data",
    "prior_posterior",
]  # fmt: skip

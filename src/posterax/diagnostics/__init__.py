"""Whether to trust a posterior: chains, ELBO, a diagnosis in words, the course of training."""

from .bound import Bound, bound
from .diagnosis import Diagnosis, Space, diagnose, warn_of
from .measures import measure

__all__ = ["Bound", "Diagnosis", "Space", "bound", "diagnose", "measure", "warn_of"]

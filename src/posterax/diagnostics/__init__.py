"""Whether to trust a posterior: chains, ELBO, a diagnosis in words, the course of training."""

from .bound import Bound
from .diagnosis import Diagnosis, Space, diagnose

__all__ = ["Bound", "Diagnosis", "Space", "diagnose"]

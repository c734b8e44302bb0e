"""Whether to trust a posterior: chain statistics, a diagnosis in words, the course of training."""

from .diagnosis import Diagnosis, Space, diagnose

__all__ = ["Diagnosis", "Space", "diagnose"]

"""What a posterior says about new inputs."""

from .predictive import Parts, Predictive
from .sampled import Particles
from .stream import Moments, Targets

__all__ = ["Moments", "Particles", "Parts", "Predictive", "Targets"]

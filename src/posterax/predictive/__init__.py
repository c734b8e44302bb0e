"""What a posterior says about new inputs."""

from .joined import Moments
from .predictive import Parts, Predictive
from .sampled import Particles
from .stream import Targets

__all__ = ["Moments", "Particles", "Parts", "Predictive", "Targets"]

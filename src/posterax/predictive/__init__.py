"""What a posterior says about new inputs."""

from .block import Particles
from .joined import Moments
from .predictive import Parts, Predictive
from .stream import Targets

__all__ = ["Moments", "Particles", "Parts", "Predictive", "Targets"]

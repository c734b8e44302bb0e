"""What to do, given what is believed."""

from .decide import decide
from .decision import Decision, Realised

__all__ = ["Decision", "Realised", "decide"]

"""What to do, given what is believed."""

from .decide import Decision, Realised, decide

__all__ = ["Decision", "Realised", "decide"]

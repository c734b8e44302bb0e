"""Contextual bandits: act on what is uncertain, and learn from what comes of it."""

from .base import Environment, Interaction, Policy
from .environments import adult, covertype, from_csv, from_table, mushroom, switching, wheel
from .linear import LinearThompson
from .live import Agent
from .loop import Played, play
from .policies import UCB, EpsilonGreedy, Greedy, Thompson, Uniform
from .saved import load

__all__ = [
    "UCB", "Agent", "Environment", "EpsilonGreedy", "Greedy", "Interaction", "LinearThompson",
    "Played", "Policy", "Thompson", "Uniform", "adult", "covertype", "from_csv", "from_table",
    "load", "mushroom", "play", "switching", "wheel",
]  # fmt: skip

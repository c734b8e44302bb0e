"""Pruning: weights of which a posterior knows nothing become the constant 0, and are gone."""

from .compact import compact
from .prune import prune
from .ranking import signal_to_noise
from .report import Report, report

__all__ = ["Report", "compact", "prune", "report", "signal_to_noise"]

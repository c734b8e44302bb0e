"""What people ask of a fitted table model next: which columns matter, how, and what would change.

All functions ask the estimator for predictions only, so they hold for every method.
"""

from .changes import Changes, what_if
from .dependence import Dependence, partial_dependence
from .importance import Importance, importance
from .nearby import Nearest, nearest
from .rows import LearningCurve, Uncertainty, learning_curve, uncertainty

__all__ = [
    "Changes",
    "Dependence",
    "Importance",
    "LearningCurve",
    "Nearest",
    "Uncertainty",
    "importance",
    "learning_curve",
    "nearest",
    "partial_dependence",
    "uncertainty",
    "what_if",
]

"""Tables: scikit-learn estimators whose predictions know what they don't know."""

from .classifier import BayesianClassifier
from .regressor import BayesianRegressor

__all__ = ["BayesianClassifier", "BayesianRegressor"]

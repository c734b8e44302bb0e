"""scikit-learn's own checks, every one it has for an estimator, with default settings."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import posterax as px


# the checks provoke warnings on purpose
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([px.BayesianRegressor(), px.BayesianClassifier()])
def test_scikit_learn_check(estimator, check):
    check(estimator)

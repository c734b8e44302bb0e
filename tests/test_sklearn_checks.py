"""scikit-learn's own checks, every one it has for an estimator.

With a short fit of one network in `make test`; with default settings in `make test-all`.
"""

import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import posterax as px

# for checks that update: a point is no prior
UPDATES = {
    "check_fit_score_takes_y",
    "check_n_features_in_after_fitting",
    "check_estimators_partial_fit_n_features",
}


# the checks provoke warnings on purpose
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [px.BayesianRegressor("map", steps=200), px.BayesianClassifier("map", steps=200)]
)
def test_scikit_learn_check(estimator, check, hasty_compiler):
    if check.func.__name__ in UPDATES:
        estimator = clone(estimator).set_params(method=px.BayesByBackprop())
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([px.BayesianRegressor(), px.BayesianClassifier()])
def test_scikit_learn_check_by_default(estimator, check):
    check(estimator)

"""Bad tables and settings: one line that names the argument and the fix."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import posterax as px

FAST = {"steps": 2, "members": 2, "hidden_layer_sizes": (16,), "random_state": 0}


X = np.random.default_rng(0).normal(size=(20, 3))
Y = 1e4 + 100 * X[:, 0]
LABELS = np.arange(20) % 2
BAD = {
    "infinite target": (lambda: _regressor().fit(X, np.where(Y > 1e4, np.inf, Y)), "y.*infinity"),
    "NaN target": (lambda: _regressor().fit(X, np.where(Y > 1e4, np.nan, Y)), "y contains NaN"),
    "text target": (lambda: _regressor().fit(X, ["a"] * 20), "y must be numeric.*Classifier"),
    "infinite label": (lambda: _classifier().fit(X, np.full(20, np.inf)), "y must hold labels"),
    "continuous label": (lambda: _classifier().fit(X, Y), "continuous"),
    "mixed labels": (
        lambda: _classifier().fit(X, np.array([1, "a"] * 10, dtype=object)),
        "y holds labels of type int and str.*astype",
    ),
    "text column": (
        lambda: _regressor().fit([[1.0, "Paris"]] * 20, Y),
        "X must be numeric, but column 1 holds 'Paris'.*OneHotEncoder",
    ),
    "more columns at predict": (
        lambda: _regressor().fit(X, Y).predict(np.ones((2, 4))),
        "X has 4 features, but BayesianRegressor is expecting 3",
    ),
    "weights all zero": (
        lambda: _regressor().fit(X, Y, np.zeros(20)),
        "sample_weight is zero for every row",
    ),
    "negative weight": (lambda: _regressor().fit(X, Y, -np.ones(20)), "[Nn]egative.*sample_weight"),
    "weights of another length": (lambda: _regressor().fit(X, Y, np.ones(3)), "sample_weight"),
    "unknown method": (
        lambda: px.BayesianRegressor("bayes").fit(X, Y),
        "method must be one of 'bayes_by_backprop'.*got 'bayes'",
    ),
    "method that cannot classify": (
        lambda: px.BayesianClassifier(px.Conjugate()).fit(X, LABELS),
        "likelihood: Categorical is not conjugate",
    ),
    "learning rate beside an object": (
        lambda: px.BayesianRegressor(px.BayesByBackprop(), learning_rate=0.1).fit(X, Y),
        "learning_rate: the method is an object",
    ),
    "temperature": (
        lambda: px.BayesianRegressor(temperature="cold").fit(X, Y),
        "temperature must be a number above 0, or a pair",
    ),
    "members": (lambda: px.BayesianRegressor(members=0).fit(X, Y), "members must be"),
    "hidden_layer_sizes": (
        lambda: px.BayesianRegressor(hidden_layer_sizes=(5, -1)).fit(X, Y),
        "hidden_layer_sizes must be",
    ),
    "noise": (lambda: px.BayesianRegressor(noise="loud").fit(X, Y), "noise must be"),
    "noise below zero": (lambda: px.BayesianRegressor(noise=-1.0).fit(X, Y), "noise must be"),
    "epochs and steps": (lambda: px.BayesianRegressor(epochs=1, steps=1).fit(X, Y), "not both"),
    "validation_fraction": (
        lambda: px.BayesianRegressor(early_stopping=True, validation_fraction=2.0).fit(X, Y),
        "validation_fraction must lie between 0 and 1",
    ),
    "prior": (lambda: px.BayesianRegressor(prior=3).fit(X, Y), "prior must be"),
    "level": (lambda: _regressor().fit(X, Y).predict_interval(X, 90), "level must lie"),
    "n_samples": (lambda: _regressor().fit(X, Y).sample_y(X, 0), "n_samples must be"),
    "batch_size of a method that needs all": (
        lambda: px.BayesianRegressor("nuts", batch_size=5).fit(X, Y),
        "batch_size=5: NUTS uses all",
    ),
    "epochs of a method that counts steps": (
        lambda: px.BayesianRegressor("nuts", epochs=3).fit(X, Y),
        "counts steps",
    ),
}


def _regressor():
    return px.BayesianRegressor(**FAST)


def _classifier():
    return px.BayesianClassifier(**FAST)


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, match = BAD[case]
    with pytest.raises((ValueError, TypeError), match=match) as error:
        call()
    if case not in ("NaN target",):  # scikit-learn's own text, with its advice, is longer
        assert "\n" not in str(error.value)


def test_not_fitted():
    with pytest.raises(NotFittedError):
        px.BayesianRegressor().predict(X)
    with pytest.raises(NotFittedError):
        px.BayesianClassifier().predict_proba(X)
    with pytest.raises(NotFittedError):
        px.BayesianClassifier().sample_y(X)

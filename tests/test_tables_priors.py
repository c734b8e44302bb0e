"""The prior an estimator takes by itself, by method; and predictions that compile nothing twice."""

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.model_selection import train_test_split

import posterax as px
from posterax._util.keys import as_key
from posterax.data import shuffle
from tests.data import make_format1 as format1
from tests.test_fit import compilations

pytestmark = pytest.mark.usefixtures("hasty_module")

X, Y = load_iris(return_X_y=True)
TRAIN, X_NEW, LABELS, Y_NEW = train_test_split(X, Y, test_size=0.3, random_state=1, stratify=Y)
# 50 units, as by default: with 8 the data hold on to some under any prior
FAST = {"members": 2, "steps": 600, "random_state": 0, "verbose": False}
METHODS = {
    "maximum_a_posteriori": "maximum_a_posteriori",
    "deep_ensemble": "deep_ensemble",
    "mc_dropout": px.MCDropout(learning_rate=1e-2),
    "laplace": px.Laplace(learning_rate=1e-2),
    "ivon": px.IVON(),
    "swag": px.SWAG(),
    "sghmc": px.SGHMC(),
    "svgd": px.SVGD(learning_rate=1e-2),
    "one Gaussian": px.BayesByBackprop(),
    "mclmc": px.MCLMC(chains=2, warmup=200),
    "nuts": px.NUTS(chains=2, warmup=100),
}
STEPS = {"mclmc": 100, "nuts": 30, "one Gaussian": 3000, "sghmc": 2000}
CHEAP = ("maximum_a_posteriori", "deep_ensemble")


def nll(classifier):
    p = classifier.predict_proba(X_NEW)
    return -np.log(p[np.arange(len(Y_NEW)), Y_NEW]).mean()


def some(names, cheap):
    return [n if n in cheap else pytest.param(n, marks=pytest.mark.slow) for n in names]


@pytest.mark.parametrize("name", some(["bayes_by_backprop", *METHODS], CHEAP))
def test_iris_is_learned_by_the_default_of_every_method(name):
    options = FAST | {"steps": STEPS.get(name, FAST["steps"])}
    classifier = px.BayesianClassifier(METHODS.get(name, name), **options).fit(TRAIN, LABELS)
    # the frequencies of the classes are log 3 = 1.10 and a third
    assert nll(classifier) < 0.5
    assert classifier.score(X_NEW, Y_NEW) > 0.85


@pytest.mark.slow
def test_one_gaussian_of_each_weight_that_has_switched_the_network_off_says_so():
    """With learned noise and 50 rows the best such q explains the targets by noise."""
    x, y = load_diabetes(return_X_y=True)
    x, x_new, y, y_new = train_test_split(x, y, train_size=50, random_state=0)
    with pytest.warns(px.ConvergenceWarning, match="the others are off"):
        regressor = px.BayesianRegressor(px.BayesByBackprop(), **FAST | {"steps": 3000}).fit(x, y)
    assert "collapsed" in regressor.posterior_.diagnose().kinds
    assert regressor.score(x_new, y_new) < 0.15


@pytest.mark.parametrize(
    "name", some([n for n in METHODS if n not in ("nuts", "one Gaussian")], CHEAP[:1])
)
def test_a_small_regression_is_learned_too(name):
    x, y = load_diabetes(return_X_y=True)
    x, x_new, y, y_new = train_test_split(x, y, train_size=50, random_state=0)
    options = FAST | {"steps": STEPS.get(name, FAST["steps"])}
    regressor = px.BayesianRegressor(METHODS[name], **options).fit(x, y)
    # the mean alone explains nothing; with widths that are learned a mode is no better
    assert regressor.score(x_new, y_new) > 0.15


def prior_of(estimator, method):
    """What a fit of no length at all has for a prior."""
    estimator.set_params(method=method)
    estimator.n_features_in_, estimator._network_seed = 4, 0
    estimator.classes_, estimator.n_outputs_ = np.arange(3), 1
    return estimator._model(100).prior


@pytest.mark.parametrize("make", [px.BayesianClassifier, px.BayesianRegressor])
class TestRule:
    @pytest.mark.parametrize("options", [{}, {"members": 1}, {"temperature": 1.0}], ids=str)
    def test_widths_are_learned_by_the_default_method(self, make, options):
        prior = prior_of(make(**options), "bayes_by_backprop")
        assert isinstance(prior, px.priors.Hierarchical)
        assert prior.relevance == (make is px.BayesianRegressor)
        assert (prior.concentration, prior.rate) == (1, 1)

    @pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
    def test_and_fixed_for_others(self, make, method):
        prior = prior_of(make(), method)
        assert isinstance(prior, px.priors.Gaussian)
        assert (prior.scale, prior.fan_in) == (1, make is px.BayesianRegressor)

    def test_a_prior_of_ones_own_stays(self, make):
        own = px.priors.Laplace(0.5)
        assert prior_of(make(prior=own), "deep_ensemble") is own


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(px.DeepEnsemble(2, anchored=True, learning_rate=1e-2), marks=pytest.mark.slow),
        pytest.param(
            px.Laplace(prior_precision="marginal_likelihood", learning_rate=1e-2),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["anchored", "prior_precision"],
)
def test_what_needs_a_gaussian_prior_has_one(method):
    classifier = px.BayesianClassifier(method, **FAST).fit(TRAIN, LABELS)
    assert nll(classifier) < 0.8


class TestPrograms:
    @pytest.fixture
    def mixture(self):
        return px.load(format1.HERE / "GaussianMixture.px")

    def test_a_second_prediction_compiles_nothing(self, mixture):
        first = mixture.predict(format1.X, samples=5, key=3).mean
        with compilations() as later:
            again = mixture.predict(format1.X, samples=5, key=3).mean
        assert later == []
        np.testing.assert_array_equal(again, first)

    def test_moments_are_one_program(self, mixture):
        with compilations() as compiled:
            mean, std = mixture.moments()
        assert len(compiled) <= 1
        mu, rho = (np.asarray(t.network.layers[0].weight, "f8") for t in (mixture.mu, mixture.rho))
        variance = mu.var(0) + np.mean(np.log1p(np.exp(rho)) ** 2, 0)
        np.testing.assert_allclose(mean.network.layers[0].weight, mu.mean(0), rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(std.network.layers[0].weight, np.sqrt(variance), rtol=1e-5)

    def test_a_key_gives_the_permutation_it_always_gave(self):
        order = shuffle(np.arange(10), 10, as_key(3))
        assert order.dtype == np.int32
        assert order.tolist() == [8, 1, 2, 6, 5, 4, 3, 7, 9, 0]

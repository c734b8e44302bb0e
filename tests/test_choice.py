"""What ``px.fit`` takes where no method is named."""

import numpy as np
import pytest

import posterax as px
from posterax.fitting.choice import CHEAP, choose_method
from tests.test_batch_norm import model_of

X = np.linspace(-1, 1, 40)[:, None].astype("float32")
Y = np.sin(3 * X[:, 0])


def model(width=8, **options):
    options = {"prior": px.priors.Gaussian(1.0)} | options
    network = px.networks.MLP(1, 1, (width,), key=0)
    return px.Model(network, likelihood=px.likelihoods.Gaussian(0.1), **options)


def chosen(model, data, **options):
    return type(choose_method(model, data, **options)).__name__


def test_chains_where_a_pass_over_all_data_is_cheap():
    few, weights = model(), 25
    assert chosen(few, (X, Y)) == chosen(few, (X, Y, np.ones(40))) == "MCLMC"
    assert chosen(few, [X, Y]) == chosen(few, (X.tolist(), Y.tolist())) == "MCLMC"
    assert chosen(few, px.data.Padded((X, Y), 64)) == "MCLMC"
    for rows, name in ((CHEAP // weights, "MCLMC"), (CHEAP // weights + 1, "DeepEnsemble")):
        assert chosen(few, (np.zeros((rows, 1)), np.zeros(rows))) == name
    assert chosen(model(10_000), (X, Y)) == "DeepEnsemble"


def test_what_takes_minibatches_where_chains_cannot():
    assert chosen(model(), [(X, Y), (X, Y)]) == "DeepEnsemble"  # a stream
    assert chosen(model(), (X, Y), minibatches=True) == "DeepEnsemble"
    assert chosen(model(where="layers.1.*"), (X, Y)) == "DeepEnsemble"  # weights without a prior
    whole = model_of("equinox")  # batch statistics
    assert chosen(whole, (X, Y)) == "DeepEnsemble"


@pytest.mark.filterwarnings("ignore::posterax.ConvergenceWarning")
def test_fit_without_a_method():
    posterior = px.fit(model(), (X, Y), steps=100, key=0)
    assert posterior.record.method == "MCLMC"
    assert np.abs(posterior.predict(X).mean - Y).mean() < 0.1
    again = px.fit(model(), (X, Y), px.MCLMC(), steps=100, key=0)
    np.testing.assert_array_equal(posterior.predict(X).mean, again.predict(X).mean)
    trained = px.fit(model(), (X, Y), epochs=300, key=0)
    assert (trained.record.method, trained.members) == ("DeepEnsemble", 5)


def test_what_goes_on_has_a_name():
    short = px.fit(model(), (X, Y), px.MaximumAPosteriori(), steps=10)
    with pytest.raises(ValueError, match="resume: name the method"):
        px.fit(model(), (X, Y), steps=10, resume=short)


def test_data_that_is_no_good_is_refused_in_its_own_words():
    with pytest.raises(ValueError, match="x"):
        px.fit(model(), ((), Y), epochs=1)

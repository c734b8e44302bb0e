"""Data on a scale that the prior cannot reach are told of before a fit, and no others are."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posterax as px
from posterax import likelihoods as lk
from posterax.fitting import scales
from posterax.fitting.prepare import Asked, prepare

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 3)).astype("float32")
Y = (X[:, 0] + 0.1 * RNG.normal(size=200)).astype("float32")
LEARNED = lk.Gaussian("learned")


def model(likelihood=LEARNED, prior=None, inputs=3):
    return px.Model(px.networks.MLP(inputs, 1, (8,), key=0), prior, likelihood)


def told(x, y, likelihood=LEARNED, prior=None):
    return list(scales.concerns(model(likelihood, prior), x, y))


INSANE = {
    "house prices": (X, 250_000 + 50_000 * Y, LEARNED, r"^y is 2\.47e\+05 ± 5e\+04, beyond"),
    "tiny targets": (X, 1e-5 * Y, LEARNED, "^y is .* far below"),
    "large inputs": (1e6 * X, Y, LEARNED, "^x, column 0, .* larger than"),
    "faint inputs": (X * [1, 1e-6, 1], Y, LEARNED, "^x, column 1, .* smaller than"),
    "years": (X * [1, 1, 2] + [0, 0, 900], Y, LEARNED, "^x, column 2, .* lies far from 0"),
    "noise too small": (X, Y, lk.Gaussian(1e-3), "^noise=0.001 is known, and y varies by ± 1"),
    "noise too large": (X, Y, lk.StudentT(4.0, 300.0), "^noise=300 is known"),
    "covariance": (X, Y, lk.MultivariateGaussian([[1e-8]]), "^noise=0.0001 is known"),
}  # fmt: skip


@pytest.mark.parametrize("name", INSANE)
def test_what_the_prior_cannot_reach_is_told(name):
    x, y, likelihood, words = INSANE[name]
    (text,) = told(x, y, likelihood)
    assert "standardise it with" in text or "noise='learned'" in text
    with pytest.warns(UserWarning, match=words) as caught:
        prepare(model(likelihood), (x, y), px.MaximumAPosteriori(), Asked(steps=1))
    assert len(caught) == 1


def test_the_warning_points_at_the_call_and_nothing_else_happens_in_silence():
    with pytest.warns(UserWarning, match="^y is") as caught:
        px.fit(model(), (X, 1e6 * Y), px.MaximumAPosteriori(), steps=1)
    assert caught[0].filename == __file__
    batches = [(X[i : i + 50], 1e6 * Y[i : i + 50]) for i in range(0, 200, 50)]
    with pytest.warns(UserWarning, match="^y is") as caught:
        px.fit(model(), batches, px.MaximumAPosteriori(), steps=1)
    assert caught[0].filename == __file__


SANE = {
    "standardised": (X, Y, LEARNED, None),
    "ages, shares and a constant": (np.c_[40 + 20 * X[:, :1], 0.5 + 0.1 * X[:, :1], 0 * X[:, :1] + 7], Y, LEARNED, None),  # noqa: E501
    "rare ones": (np.where(np.arange(600).reshape(200, 3) == 5, 1.0, 0.0), Y, LEARNED, None),
    "one target": (X, 0 * Y, lk.Gaussian(0.1), None),
    "whole numbers": ((1000 * X).astype("int32"), Y, LEARNED, None),
    "a wide prior": (X, 250_000 + 50_000 * Y, LEARNED, px.priors.Gaussian(1e5)),
    "noise that covers all": (X, 1e4 + Y, lk.Gaussian(2e4), None),
    "counts": (X, np.full(200, 100_000), lk.Poisson(), None),
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in SANE if name != "noise that covers all"])
def test_sane_data_are_left_alone(name):
    x, y, likelihood, prior = SANE[name]
    assert told(x, y, likelihood, prior) == []


def test_noise_that_covers_the_targets_is_told_as_noise_alone():
    x, y, likelihood, _ = SANE["noise that covers all"]
    (text,) = told(x, y, likelihood)
    assert text.startswith("noise=2e+04")


def test_what_a_network_has_or_a_prior_is_around_counts_as_reached():
    """A posterior as a prior, and a network that was trained on such targets."""
    network = px.networks.MLP(3, 1, (8,), key=0)
    far = eqx.tree_at(lambda n: n.layers[1].bias, network, jnp.full(1, 250_000.0))
    y = 250_000 + 50_000 * Y
    assert list(scales.concerns(px.Model(far, None, LEARNED), X, y)) == []
    around = px.priors.Trained(0.2, 0.05)
    assert list(scales.concerns(px.Model(far, around, LEARNED), X, y)) == []
    assert told(X, y)


def test_batch_statistics_take_any_scale():
    norm = eqx.nn.BatchNorm(3, axis_name="batch", mode="batch")
    layers = [norm, eqx.nn.Linear(3, 1, key=jax.random.key(0))]
    network = eqx.nn.make_with_state(lambda: eqx.nn.Sequential(layers))()
    made = px.Model(network, None, LEARNED)
    assert list(scales.concerns(made, 1e6 * X, Y)) == []


def test_a_prior_that_float32_cannot_hold_is_refused():
    narrow = model(prior=px.priors.Gaussian(1e-30))
    with pytest.raises(ValueError, match=r"^prior: that of network.layers.0.weight .*1e-30.*widen"):
        px.fit(narrow, (X, Y), px.MaximumAPosteriori(), steps=1)
    scales.refuse_narrow_priors(narrow, jnp.float64)  # which can
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scales.refuse_narrow_priors(model(prior=px.priors.Gaussian(1e-15)), jnp.float32)


def test_a_rate_of_nothing_is_refused():
    with pytest.raises(ValueError, match="learning_rate must be a finite number above 0, got 0"):
        px.MaximumAPosteriori(learning_rate=0)


def test_nothing_set_means_a_hundred_epochs_and_2000_steps_at_least():
    def steps(rows, method=None, **asked):
        x, y = np.zeros((rows, 3), "float32"), np.linspace(-1, 1, rows, dtype="float32")
        method = method or px.MaximumAPosteriori()
        return int(prepare(model(), (x, y), method, Asked(**asked)).plan.steps)

    assert steps(200) == 2000
    assert steps(128 * 40) == 4000
    assert steps(200, epochs=3) == 6
    assert steps(200, steps=7) == 7
    assert steps(200, px.NUTS()) == 1000

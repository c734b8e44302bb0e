"""Maximum a posteriori is regularised likelihood: L2 for a Gaussian prior, L1 for Laplace."""

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import Lasso, Ridge

import posterax as px

NOISE = 0.5


def problem(rng):
    x = rng.normal(size=(60, 5)).astype("float32")
    y = x @ np.array([[2.0], [-1.0], [0.1], [0.0], [0.0]]) + NOISE * rng.normal(size=(60, 1))
    return x, y.astype("float32")


def weights(data, method, prior=None, **options):
    network = ({"w": jnp.zeros((5, 1))}, lambda p, x: x @ p["w"])
    model = px.Model(network, prior, px.likelihoods.Gaussian(NOISE))
    posterior = px.fit(model, data, method, epochs=3000, key=0, **options)
    return np.asarray(posterior.point.network["w"])[:, 0]


def test_gaussian_prior_is_ridge(rng):
    x, y = problem(rng)
    scale = 0.3
    ridge = Ridge(alpha=NOISE**2 / scale**2, fit_intercept=False).fit(x, y[:, 0])
    found = weights((x, y), px.MaximumAPosteriori(0.05), px.priors.Gaussian(scale))
    np.testing.assert_allclose(found, ridge.coef_, rtol=1e-3, atol=1e-4)


def test_ridge_whatever_the_batch_size(rng):
    x, y = problem(rng)
    scale = 0.3
    ridge = Ridge(alpha=NOISE**2 / scale**2, fit_intercept=False).fit(x, y[:, 0])
    method, prior = px.MaximumAPosteriori(0.01), px.priors.Gaussian(scale)
    found = weights((x, y), method, prior, batch_size=20)
    np.testing.assert_allclose(found, ridge.coef_, rtol=0.02, atol=0.01)


def test_laplace_prior_is_lasso(rng):
    x, y = problem(rng)
    scale = 0.01
    lasso = Lasso(alpha=NOISE**2 / (60 * scale), fit_intercept=False, tol=1e-8)
    lasso.fit(x.astype(float), y[:, 0].astype(float))
    found = weights((x, y), px.MaximumAPosteriori(0.02), px.priors.Laplace(scale))
    np.testing.assert_allclose(found, lasso.coef_, rtol=2e-3, atol=2e-3)
    assert np.sum(lasso.coef_ == 0) >= 2  # the problem is one where L1 acts
    assert np.all(np.abs(found[lasso.coef_ == 0]) < 2e-3)


def test_maximum_likelihood_is_least_squares(rng):
    x, y = problem(rng)
    found = weights((x, y), px.MaximumLikelihood(0.05), px.priors.Gaussian(0.01))
    solution, *_ = np.linalg.lstsq(x, y, rcond=None)
    np.testing.assert_allclose(found, solution[:, 0], rtol=1e-3, atol=1e-4)


def test_a_point_is_no_prior(rng):
    x, y = problem(rng)
    network = ({"w": jnp.zeros((5, 1))}, lambda p, x: x @ p["w"])
    model = px.Model(network, None, px.likelihoods.Gaussian(NOISE))
    posterior = px.fit(model, (x, y), px.MaximumLikelihood(), epochs=1)
    with pytest.raises(ValueError, match="without spread"):
        posterior.as_prior()

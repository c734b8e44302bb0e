"""The closed form against the density of the data, scipy's, and what is refused."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.stats import multivariate_normal

import posterax as px
from posterax.callbacks import StopFit

pytestmark = pytest.mark.usefixtures("hasty_compiler")

ROWS, FEATURES, OUTPUTS = 24, 4, 2
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, FEATURES)).astype("float32")
Y = (X @ RNG.normal(size=(FEATURES, OUTPUTS)) + RNG.normal(size=(ROWS, OUTPUTS))).astype("float32")
WEIGHT = RNG.integers(0, 4, ROWS)
LOC = RNG.normal(size=(FEATURES, OUTPUTS)).astype("float32")
SCALE = RNG.uniform(0.3, 2.0, size=(FEATURES, OUTPUTS)).astype("float32")
COVARIANCE = np.array([[0.5, -0.3], [-0.3, 0.8]])


def affine(params, x):
    return x @ params["w"] + 3 * params["b"] + 0.5


def model(likelihood, scale=SCALE, prior=None):
    """Each weight with its own prior; the bias with that of all."""
    network = {"b": jnp.zeros(OUTPUTS), "w": jnp.ones((FEATURES, OUTPUTS))}, affine
    own = {"w": px.priors.Gaussian(scale, LOC)}
    prior = px.priors.ByPart(own, default=px.priors.Gaussian(0.7, -0.2)) if prior is None else prior
    return px.Model(network, prior, likelihood)


def flat(tree):
    return np.concatenate([np.ravel(tree.network["b"]), np.ravel(tree.network["w"])])


def exact(x, y, noise, loc, scale, design):
    """Mean, covariance and log evidence, the last from the density of all targets at once."""
    phi = np.concatenate([design(row) for row in x.astype(float)])
    y = y.astype(float).reshape(-1)
    r = block_diag(*[noise] * len(x))
    variance, centre = scale.astype(float) ** 2, phi @ loc + 0.5
    joint = multivariate_normal(centre, r + (phi * variance) @ phi.T)
    covariance = np.linalg.inv(np.diag(1 / variance) + phi.T @ np.linalg.solve(r, phi))
    mean = loc + covariance @ phi.T @ np.linalg.solve(r, y - centre)
    return mean, covariance, joint.logpdf(y)


def design(row):
    """∂ outputs / ∂ (b, w) of one example."""
    return np.hstack([3 * np.eye(OUTPUTS), np.kron(row, np.eye(OUTPUTS))])


def truth(noise, x=X, y=Y):
    loc = np.concatenate([np.full(OUTPUTS, -0.2), np.ravel(LOC)]).astype(float)
    scale = np.concatenate([np.full(OUTPUTS, 0.7), np.ravel(SCALE)])
    return exact(x, y, noise, loc, scale, design)


def check(posterior, expected, weights=flat):
    mean, covariance, log_evidence = expected
    scale = np.sqrt(np.diag(covariance))
    stored = np.abs(mean) * np.finfo("float32").eps
    assert np.all(np.abs(weights(posterior.mu) - mean) < 1e-5 * scale + stored)
    away = (np.asarray(posterior.covariance()) - covariance) / np.outer(scale, scale)
    assert np.max(np.abs(away)) < 1e-5
    value, error, kind = posterior.log_evidence
    assert value == pytest.approx(log_evidence, rel=1e-6)
    assert (error, kind) == (0.0, "exact")


NOISES = {
    "one": (px.likelihoods.Gaussian(0.6), 0.36 * np.eye(2)),
    "correlated": (px.likelihoods.MultivariateGaussian(COVARIANCE), COVARIANCE),
}


@pytest.mark.parametrize("name", NOISES)
def test_equals_the_density_of_the_data(name):
    likelihood, noise = NOISES[name]
    check(px.fit(model(likelihood), (X, Y), px.Conjugate()), truth(noise))


def test_fewer_weights_than_outputs_and_noise_for_each():
    network = jnp.zeros(1), lambda w, x: w * x[:, :OUTPUTS] + 0.5
    likelihood = px.likelihoods.Gaussian([0.3, 1.1])
    found = px.fit(px.Model(network, px.priors.Gaussian(0.8), likelihood), (X, Y), px.Conjugate())
    one = np.ones(1)
    expected = exact(
        X, Y, np.diag([0.09, 1.21]), 0 * one, 0.8 * one, lambda row: row[:OUTPUTS, None]
    )
    check(found, expected, lambda tree: np.ravel(tree.network))


def test_weights_are_copies_and_batches_add_up():
    """Also from a stream; an example's weight of 3 is as if it were there three times."""
    likelihood, noise = NOISES["correlated"]
    expected = truth(noise, np.repeat(X, WEIGHT, axis=0), np.repeat(Y, WEIGHT, axis=0))
    found = px.fit(model(likelihood), (X, Y, WEIGHT), px.Conjugate(), batch_size=10)
    check(found, expected)
    parts = [slice(i, i + 10) for i in range(0, ROWS, 10)]
    stream = [(X[part], Y[part], WEIGHT[part]) for part in parts]
    check(px.fit(model(likelihood), stream, px.Conjugate()), expected)


@pytest.mark.filterwarnings("ignore:noise=.* is known")  # and is meant
def test_sums_keep_what_float32_would_lose():
    """Little noise: log p(D) is some 200 nats, and the squares that it is made of are 10⁸."""
    w = RNG.normal(size=(FEATURES, OUTPUTS))
    y = (X @ w + 0.5 + 1e-3 * RNG.normal(size=Y.shape)).astype("float32")
    found = px.fit(model(px.likelihoods.Gaussian(1e-3)), (X, y), px.Conjugate())
    check(found, truth(1e-6 * np.eye(2), y=y))


@pytest.fixture(scope="module")
def last_layer():
    """The last layer of a network with random features."""
    network = px.networks.MLP(FEATURES, 1, (6,), activation="tanh", key=0)
    prior, likelihood = px.priors.Gaussian(1.5), px.likelihoods.Gaussian(0.5)
    frozen = px.Model(network, prior, likelihood, where="layers.1.*", rest="frozen")
    first = network.layers[0]
    hidden = np.tanh(X.astype(float) @ np.asarray(first.weight).T + np.asarray(first.bias))
    phi = np.column_stack([hidden, np.ones(ROWS)])
    return px.fit(frozen, (X, Y[:, 0]), px.Conjugate()), phi


def test_last_layer_over_fixed_features(last_layer):
    posterior, phi = last_layer
    covariance = np.linalg.inv(np.eye(7) / 1.5**2 + phi.T @ phi / 0.25)
    mean = covariance @ phi.T @ Y[:, 0] / 0.25
    evidence = multivariate_normal(np.zeros(ROWS), 0.25 * np.eye(ROWS) + 2.25 * phi @ phi.T)

    def weights(tree):
        layer = tree.network.layers[1]
        return np.concatenate([np.ravel(layer.weight), layer.bias])

    check(posterior, (mean, covariance, evidence.logpdf(Y[:, 0])), weights)


def test_predictions_are_those_of_the_posterior(last_layer):
    """The mean exactly: pairs μ ± δ of an affine network cancel. The variance within 5 errors."""
    posterior, phi = last_layer
    samples = 2000
    predictive = posterior.predict(X, samples=samples, key=1)
    covariance = np.linalg.inv(np.eye(7) / 1.5**2 + phi.T @ phi / 0.25)
    mean = phi @ covariance @ phi.T @ Y[:, 0] / 0.25
    np.testing.assert_allclose(predictive.mean, mean, atol=2e-5)
    variance = np.sum(phi @ covariance * phi, axis=1)
    # half of the samples are independent, each a variance of χ² with one degree
    error = variance * np.sqrt(2 / (samples / 2))
    assert np.all(np.abs(predictive.epistemic - variance) < 5 * error)
    np.testing.assert_allclose(predictive.aleatoric, 0.25, rtol=1e-4)  # a float32 mean of 2000


def test_evidence_of_all_data_is_that_of_one_part_after_another():
    """log p(D₁, D₂) = log p(D₁) + log p(D₂ | D₁), where no correlations are lost on the way.

    ``as_prior`` keeps deviations only; features of the first part are orthogonal, so there is
    nothing else to keep.
    """
    x, y = X[:, :2], Y[:, :1]
    first = np.linalg.qr(x[:12].astype(float))[0].astype("float32")
    x = np.concatenate([3 * first, x[12:]])
    network = {"w": jnp.zeros((2, 1))}, lambda params, x: x @ params["w"]
    parts = [(x[:12], y[:12]), (x[12:], y[12:])]

    def fit(prior, data):
        return px.fit(px.Model(network, prior, px.likelihoods.Gaussian(0.4)), data, px.Conjugate())

    whole = fit(px.priors.Gaussian(1.0), parts)
    one = fit(px.priors.Gaussian(1.0), parts[:1])
    assert abs(one.covariance()[0, 1]) < 1e-6 * one.covariance()[0, 0]
    other = fit(one.as_prior(), parts[1:])
    total = one.log_evidence.value + other.log_evidence.value
    assert total == pytest.approx(whole.log_evidence.value, rel=1e-6)
    np.testing.assert_allclose(other.mu.network["w"], whole.mu.network["w"], rtol=1e-5)
    np.testing.assert_allclose(other.covariance(), whole.covariance(), rtol=1e-4, atol=1e-8)


def test_cut_short_and_gone_on_with():
    likelihood, _ = NOISES["correlated"]

    def stop(event):
        if event.step < event.total:
            raise StopFit

    options = {"batch_size": 10}
    with pytest.warns(UserWarning, match="1 of 3 batches were summed"):
        part = px.fit(model(likelihood), (X, Y), px.Conjugate(), callbacks=[stop], **options)
    with pytest.raises(ValueError, match="log_evidence: this posterior of Conjugate has none"):
        _ = part.log_evidence
    whole = px.fit(model(likelihood), (X, Y), px.Conjugate(), **options)
    resumed = px.fit(model(likelihood), (X, Y), px.Conjugate(), resume=part, **options)
    assert resumed.log_evidence == whole.log_evidence


def bent_at_the_data(params, x):
    """Affine at small inputs, which a check without the data would see, and not at large ones."""
    return x @ params["w"] ** jnp.where(jnp.max(x) > 50, 2, 1)


def product(params, x):
    return x @ (params["a"] * params["b"])


def fit(given, likelihood=None, prior=None, x=X, y=Y, **options):
    likelihood = likelihood or px.likelihoods.Gaussian(0.1)
    prior = prior or px.priors.Gaussian(1.0)
    return px.fit(px.Model(given, prior, likelihood, **options), (x, y), px.Conjugate())


W = jnp.ones((FEATURES, OUTPUTS))
LINEAR = {"w": W}, lambda params, x: x @ params["w"]
DEEP = px.networks.MLP(FEATURES, OUTPUTS, (3,), key=0)
REFUSED = {
    "hidden layer": (
        lambda: fit(DEEP),
        r"not affine in network\.layers\.0\.weight, network\.layers\.0\.bias, .* freeze those, "
        r"px\.Model\(…, where=\['layers\.1\.weight', 'layers\.1\.bias'\], rest='frozen'\), or use "
        r"px\.Laplace, px\.NUTS or px\.BayesByBackprop",
    ),
    "product of two": (
        lambda: fit(({"a": W, "b": W}, product)),
        r"not affine in network\.a and network\.b together",
    ),
    "bent at the data": (
        lambda: fit(({"w": W}, bent_at_the_data), x=100 * X),
        "network: at these inputs it is not affine in its weights",
    ),
    "narrow prior": (  # over which any network is straight, but not from there to zero
        lambda: fit(DEEP, prior=px.priors.Gaussian(1e-6, loc=1.0)),
        r"not affine in network\.layers\.0\.weight",
    ),
    "prior": (
        lambda: fit(LINEAR, prior=px.priors.Laplace(1.0)),
        r"prior: Laplace, that of network\.w, is not conjugate.*px\.NUTS",
    ),
    "points": (
        lambda: fit(DEEP, where="layers.1.*"),
        r"prior: network\.layers\.0\.weight has none.*rest='frozen'",
    ),
    "learned noise": (
        lambda: fit(LINEAR, px.likelihoods.Gaussian("learned")),
        r"likelihood: noise='learned' is not known.*give px\.likelihoods\.Gaussian numbers",
    ),
    "learned covariance": (
        lambda: fit(LINEAR, px.likelihoods.MultivariateGaussian("learned")),
        r"likelihood: covariance='learned' is not known",
    ),
    "likelihood": (
        lambda: fit(LINEAR, px.likelihoods.StudentT(4.0, 0.1)),
        "likelihood: StudentT is not conjugate to a Gaussian prior",
    ),
    "classes": (
        lambda: fit(LINEAR, px.likelihoods.Categorical(), y=(Y[:, 0] > 0).astype(int)),
        "likelihood: Categorical is not conjugate",
    ),
    "steps": (
        lambda: px.fit(model(NOISES["one"][0]), (X, Y), px.Conjugate(), steps=10),
        "steps: Conjugate goes through everything once",
    ),
    "init": (
        lambda: px.fit(model(NOISES["one"][0]), (X, Y), px.Conjugate(), init=DEEP),
        "init: Conjugate has its answer in closed form",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.filterwarnings("ignore:noise=.* is known")  # and is meant
def test_refuses_what_memory_and_float64_cannot_hold():
    with pytest.raises(MemoryError, match=r"px\.Conjugate for 300,000 weights .*kronecker"):
        fit((jnp.ones((FEATURES, 75_000)), lambda w, x: (x @ w).sum(1, keepdims=True)), y=Y[:, 0])
    few = (np.arange(ROWS) < 3).astype(float)  # examples for ten weights
    with pytest.raises(FloatingPointError, match="noise: so small against what the prior allows"):
        px.fit(model(px.likelihoods.Gaussian(1e-12)), (X, Y, few), px.Conjugate())

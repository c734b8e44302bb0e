"""Likelihoods: log densities and moments against scipy, own parameters, weights and shapes."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special, stats

import posterax as px
from posterax import likelihoods as lk
from posterax.fitting.prepare import Asked, prepare
from posterax.likelihoods.regression import OF_DEVIATION

pytestmark = pytest.mark.usefixtures("hasty_compiler")

RNG = np.random.default_rng(0)
F1 = RNG.normal(size=(5, 1)).astype("float32")
F2 = RNG.normal(size=(5, 2)).astype("float32")
F3 = RNG.normal(size=(5, 3)).astype("float32")
F4 = RNG.normal(size=(5, 4)).astype("float32")
Y1 = RNG.normal(size=(5, 1)).astype("float32")
Y2 = RNG.normal(size=(5, 2)).astype("float32")
COUNTS = np.array([[0], [3], [1], [12], [2]])
LABELS = np.array([0, 2, 1, 2, 0])
COVARIANCE = np.array([[1.0, 0.6], [0.6, 0.5]])
FACTOR = np.array([[np.exp(0.2), 0.0], [0.7, np.exp(-0.4)]])
EXPOSURE = np.array([1.0, 2.0, 0.5, 3.0, 10.0], "float32")


def line(inputs, outputs, key=0):
    w = jax.random.normal(jax.random.key(key), (inputs, outputs))
    return {"w": w}, lambda p, x: x @ p["w"]


def rows(log_prob):
    return log_prob.reshape(len(log_prob), -1).sum(-1)


def predicted(f):
    return f[:, :2], np.log1p(np.exp(f[:, 2:])) + 1e-4


CASES = {
    "gaussian": (lk.Gaussian(0.3), F2, Y2, {}, None, rows(stats.norm(F2, 0.3).logpdf(Y2))),
    "gaussian, a noise per output": (
        lk.Gaussian([0.3, 2.0]), F2, Y2, {}, None, rows(stats.norm(F2, [0.3, 2.0]).logpdf(Y2)),
    ),
    "gaussian, learned": (
        lk.Gaussian("learned"), F2, Y2, {"log_noise": jnp.array([-1.0, 0.5])}, None,
        rows(stats.norm(F2, np.exp([-1.0, 0.5])).logpdf(Y2)),
    ),
    "gaussian, predicted": (
        lk.Gaussian("predicted"), F4, Y2, {}, None, rows(stats.norm(*predicted(F4)).logpdf(Y2)),
    ),
    "student": (lk.StudentT(5.0, 0.3), F1, Y1, {}, None, rows(stats.t(5, F1, 0.3).logpdf(Y1))),
    "student, predicted": (
        lk.StudentT(3.0, "predicted"), F4, Y2, {}, None,
        rows(stats.t(3, *predicted(F4)).logpdf(Y2)),
    ),
    "multivariate": (
        lk.MultivariateGaussian(COVARIANCE), F2, Y2, {}, None,
        stats.multivariate_normal(np.zeros(2), COVARIANCE).logpdf(Y2 - F2),
    ),
    "multivariate, learned": (
        lk.MultivariateGaussian("learned"), F2, Y2,
        {"log_diagonal": jnp.array([0.2, -0.4]), "lower": jnp.array([0.7])}, None,
        stats.multivariate_normal(np.zeros(2), FACTOR @ FACTOR.T).logpdf(Y2 - F2),
    ),
    "categorical": (
        lk.Categorical(), F3, LABELS, {}, None, special.log_softmax(F3, -1)[range(5), LABELS],
    ),
    "bernoulli": (
        lk.Bernoulli(), F1, np.array([[0], [1], [1], [0], [1]]), {}, None,
        rows(stats.bernoulli(special.expit(F1)).logpmf([[0], [1], [1], [0], [1]])),
    ),
    "poisson": (lk.Poisson(), F1, COUNTS, {}, None, rows(stats.poisson(np.exp(F1)).logpmf(COUNTS))),
    "poisson, exposure": (
        lk.Poisson(exposure=True), F1, COUNTS, {}, EXPOSURE,
        rows(stats.poisson(EXPOSURE[:, None] * np.exp(F1)).logpmf(COUNTS)),
    ),
    "from": (
        lk.From(lambda f: dist.Laplace(f, 0.2)), F2, Y2, {}, None,
        rows(stats.laplace(F2, 0.2).logpdf(Y2)),
    ),
    "from, own parameters": (
        lk.From(lambda f, own: dist.Laplace(f, jnp.exp(own["log_scale"])), {"log_scale": 0.0}),
        F2, Y2, {"log_scale": jnp.array(-0.5)}, None,
        rows(stats.laplace(F2, np.exp(-0.5)).logpdf(Y2)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_log_density_is_scipys(name):
    likelihood, outputs, y, own, side, expected = CASES[name]
    assert likelihood.check(outputs.shape, y) == y.shape[1:]
    found = likelihood.log_prob(jnp.asarray(outputs), jnp.asarray(y), own, side)
    assert found.shape == (5,)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_moments():
    f = jnp.asarray(F1)
    student = lk.StudentT(5.0, 0.3).distribution(f, {})
    np.testing.assert_allclose(student.variance, 0.09 * 5 / 3 * np.ones((5, 1)), rtol=1e-5)
    np.testing.assert_allclose(student.mean, F1)
    poisson = lk.Poisson(exposure=True).distribution(f, {}, EXPOSURE)
    np.testing.assert_allclose(poisson.mean, EXPOSURE[:, None] * np.exp(F1), rtol=1e-5)
    np.testing.assert_allclose(poisson.variance, poisson.mean)
    joint = lk.MultivariateGaussian(COVARIANCE).distribution(jnp.asarray(F2), {})
    np.testing.assert_allclose(joint.covariance_matrix[0], COVARIANCE, rtol=1e-5)
    np.testing.assert_allclose(lk.Bernoulli().probabilities(f, {}, None).sum(-1), 1, rtol=1e-6)


def test_learned_noise_is_a_parameter_with_a_prior_and_a_posterior():
    x = np.linspace(-1, 1, 40, dtype="float32")[:, None]
    y = x + 0.5 * RNG.normal(size=(40, 1)).astype("float32")
    model = px.Model(line(1, 1), px.priors.Gaussian(1.0), lk.Gaussian("learned", initial=0.2))
    ready = model.for_targets((1,), jnp.float32)
    np.testing.assert_allclose(ready.parameters.likelihood["log_noise"], np.log([0.2]), rtol=1e-6)

    moved = ready.parameters._replace(likelihood={"log_noise": jnp.array([np.log(0.2) + 2.0])})
    change = ready.log_prior(moved) - ready.log_prior(ready.parameters)
    assert change == pytest.approx(-2.0, rel=1e-4)  # N(log initial, 1), two deviations away

    posterior = px.fit(model, (x, y), px.BayesByBackprop(learning_rate=0.03), steps=400, key=0)
    noise = np.exp(posterior.sample(0, 300).likelihood["log_noise"][:, 0])
    assert noise.std() > 0.01
    assert noise.mean() == pytest.approx(0.5, abs=0.15)
    predictive = posterior.predict(x, samples=300, key=0)
    np.testing.assert_allclose(predictive.aleatoric, np.mean(noise**2), rtol=0.1)


def test_learned_covariance_starts_at_one_with_a_prior_on_every_entry():
    model = px.Model(line(1, 3), px.priors.Gaussian(1.0), lk.MultivariateGaussian("learned"))
    ready = model.for_targets((3,), jnp.float32)
    shapes = {name: value.shape for name, value in ready.parameters.likelihood.items()}
    assert shapes == {"log_diagonal": (3,), "lower": (3,)}
    made = ready.likelihood.distribution(jnp.zeros((1, 3)), ready.parameters.likelihood)
    np.testing.assert_allclose(made.covariance_matrix[0], np.eye(3))
    moved = jax.tree.map(lambda a: a + 1, ready.parameters.likelihood)
    change = ready.log_prior(ready.parameters._replace(likelihood=moved))
    assert change - ready.log_prior(ready.parameters) == pytest.approx(-0.5 * 6, rel=1e-4)


def test_own_parameters_of_a_custom_likelihood_have_priors_too():
    likelihood = lk.From(lambda f, own: dist.Laplace(f, jnp.exp(own["s"])), {"s": 0.7})
    ready = px.Model(line(1, 1), None, likelihood).for_targets((1,), jnp.float32)
    assert ready.parameters.likelihood["s"] == pytest.approx(0.7)
    moved = ready.parameters._replace(likelihood={"s": jnp.asarray(1.7)})
    change = ready.log_prior(moved) - ready.log_prior(ready.parameters)
    assert change == pytest.approx(-0.5, rel=1e-4)


def test_a_weight_of_two_is_the_row_twice():
    model = px.Model(line(2, 1), None, lk.Gaussian(0.5))
    x, y, weight = F2, Y1, np.array([1.0, 2.0, 0.0, 1.0, 1.0])
    doubled = [0, 1, 1, 3, 4]
    found = model.log_likelihood(model.parameters, x, y, weight)
    expected = model.log_likelihood(model.parameters, x[doubled], y[doubled])
    assert found == pytest.approx(float(expected), rel=1e-5)

    fits = [
        px.fit(model, data, px.MaximumAPosteriori(0.05), steps=50, key=0).point.network["w"]
        for data in [(x, y, weight), (x[doubled], y[doubled])]
    ]
    np.testing.assert_allclose(*fits, rtol=1e-4)


@pytest.mark.parametrize("name", ["gaussian", "student", "bernoulli", "poisson", "predicted"])
def test_a_column_of_targets_is_the_vector(name):
    likelihood = {
        "gaussian": lk.Gaussian("learned"),
        "student": lk.StudentT(4.0, 0.3),
        "bernoulli": lk.Bernoulli(),
        "poisson": lk.Poisson(),
        "predicted": lk.Gaussian("predicted"),
    }[name]
    y = np.array([0.0, 1.0, 1.0, 0.0, 1.0])
    model = px.Model(line(2, 2 if name == "predicted" else 1), None, likelihood)
    model = model.for_targets(model.check(F2, y), jnp.float32)
    column = model.log_joint(model.parameters, F2, y[:, None])
    vector = model.log_joint(model.parameters, F2, y)
    assert vector == column
    assert model.pointwise(model.parameters, F2, y).shape == (5,)


def test_targets_never_broadcast():
    model = px.Model(line(2, 2), None, lk.Gaussian(0.5))
    with pytest.raises(ValueError, match=r"y has shape \(5,\).*\(5, 2\)"):
        model.log_joint(model.parameters, F2, Y1[:, 0])


def test_one_label_a_pixel():
    images, labels = RNG.normal(size=(4, 3, 2, 2)), RNG.integers(0, 5, size=(4, 3, 2))
    network = {"w": 0.1 * jnp.ones((2, 5))}, lambda p, x: x @ p["w"]
    model = px.Model(network, None, lk.Categorical())
    log_p = special.log_softmax(images @ (0.1 * np.ones((2, 5))), -1)
    expected = np.take_along_axis(log_p, labels[..., None], -1).reshape(4, -1).sum(-1)
    np.testing.assert_allclose(
        model.pointwise(model.parameters, images, labels), expected, rtol=1e-5
    )
    posterior = px.fit(model, (images, labels), px.MaximumAPosteriori(), steps=1, key=0)
    predictive = posterior.predict(images)
    assert predictive.mean.shape == (4, 3, 2, 5)
    assert predictive.epistemic.shape == (4, 3, 2)
    assert predictive.log_prob(labels).shape == (4,)


def test_exposure_scales_the_predicted_counts():
    x, exposure = F1, EXPOSURE
    model = px.Model(line(1, 1), None, lk.Poisson(exposure=True))
    data = ((x, exposure), COUNTS[:, 0])
    posterior = px.fit(model, data, px.MaximumAPosteriori(), steps=1, key=0)
    once, twice = (posterior.predict((x, k * exposure)).mean for k in (1, 2))
    assert once.shape == (5,)
    np.testing.assert_allclose(twice, 2 * once, rtol=1e-5)


@pytest.mark.parametrize("df", [2.5, 4, 5, 8, 30])
def test_student_t_agrees_with_scipy(df):
    """Even degrees of freedom have a distribution function of their own."""
    likelihood = px.likelihoods.StudentT(df, 2.0)
    y = np.array([-50, -3, -1, 0, 0.5, 4, 100])[:, None].astype("float32")
    outputs, reference = jnp.full((7, 1), 0.5), stats.t(df, 0.5, 2.0)
    distribution = likelihood.distribution(outputs, {})
    np.testing.assert_allclose(distribution.cdf(y), reference.cdf(y), atol=2e-6)
    log_prob = likelihood.log_prob(outputs, jnp.asarray(y), {}, None)
    np.testing.assert_allclose(log_prob, reference.logpdf(y)[:, 0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(distribution.log_prob(y)[:, 0], log_prob, rtol=1e-5, atol=1e-5)


# -- learned noise starts from the data


def start_of(likelihood, y, weight=None, x=None):
    """Learned noise at the start of a fit, and the model of it."""
    x = np.zeros((len(y), 1), "float32") if x is None else x
    data = (x, y) if weight is None else (x, y, weight)
    model = px.Model(line(1, 1 if y.ndim == 1 else y.shape[1]), None, likelihood)
    ready = prepare(model, data, px.MaximumAPosteriori(), Asked(steps=1)).model
    return np.exp(ready.parameters.likelihood["log_noise"]), ready


@pytest.mark.parametrize("kind", [lk.Gaussian, lambda **given: lk.StudentT(4.0, **given)])
def test_learned_noise_starts_at_a_part_of_each_outputs_deviation(kind):
    y = RNG.normal(size=(50, 3)).astype("float32") * [0.02, 1.0, 30.0] + [0.0, 5.0, -7.0]
    noise, ready = start_of(kind(noise="learned"), y)
    np.testing.assert_allclose(noise, OF_DEVIATION * y.std(0), rtol=1e-5)
    centre = ready.priors.likelihood["log_noise"].loc
    np.testing.assert_allclose(centre, np.log(OF_DEVIATION * y.std(0)), rtol=1e-5)
    weight = np.repeat([2.0, 0.0], 25)
    noise, _ = start_of(kind(noise="learned"), y, weight)
    np.testing.assert_allclose(noise, OF_DEVIATION * y[:25].std(0), rtol=1e-5)
    noise, ready = start_of(kind(noise="learned", initial=0.2), y)
    np.testing.assert_allclose(noise, 0.2, rtol=1e-6)
    assert ready.likelihood.initial == 0.2


def test_targets_that_do_not_vary_and_streams_have_a_start_too():
    y = np.stack([np.full(40, 3.0), np.linspace(0, 1, 40)], 1).astype("float32")
    noise, _ = start_of(lk.Gaussian("learned"), y)
    np.testing.assert_allclose(noise, OF_DEVIATION * y[:, 1].std(), rtol=1e-5)
    np.testing.assert_allclose(start_of(lk.Gaussian("learned"), y[:, :1])[0], OF_DEVIATION)
    model = px.Model(line(1, 2), None, lk.Gaussian("learned"))
    batches = [(np.zeros((10, 1), "float32"), y[i : i + 10]) for i in range(0, 40, 10)]
    ready = prepare(model, batches, px.MaximumAPosteriori(), Asked(steps=1)).model
    found = np.exp(ready.parameters.likelihood["log_noise"])
    np.testing.assert_allclose(found, noise, rtol=0.02)  # of some rows of every batch


def test_noise_is_found_from_its_start():
    """From 0.1 whatever y is, it hardly left it; here the noise is 0.5, and 50."""
    x = np.linspace(-1, 1, 200, dtype="float32")[:, None]
    y = x[:, 0] + 0.5 * np.random.default_rng(0).normal(size=200).astype("float32")
    for scale in (1.0, 100.0):
        prior = px.priors.Gaussian(scale)
        model = px.Model(line(1, 1), prior, lk.Gaussian("learned"))
        posterior = px.fit(model, (x, scale * y), px.MaximumAPosteriori(3e-2 * scale), key=0)
        found = float(np.exp(posterior.point.likelihood["log_noise"][0]))
        assert found == pytest.approx(0.5 * scale, rel=0.15)


def test_the_start_of_learned_noise_is_in_the_file(tmp_path):
    x = np.linspace(-1, 1, 40, dtype="float32")[:, None]
    y = np.concatenate([x, 9 * x], 1)
    network = px.networks.MLP(1, 2, (4,), key=0)
    model = px.Model(network, None, lk.Gaussian("learned"))
    posterior = px.fit(model, (x, y), px.BayesByBackprop(), steps=2, key=0)
    posterior.save(tmp_path / "a.px")
    for again in (px.load(tmp_path / "a.px"), px.load(tmp_path / "a.px", model=model)):
        initial = again.model.likelihood.initial
        np.testing.assert_array_equal(initial, posterior.model.likelihood.initial)
        here, there = (p.model.priors.likelihood["log_noise"].loc for p in (posterior, again))
        np.testing.assert_array_equal(here, there)
    assert model.likelihood.initial is None  # the user's own is as it was

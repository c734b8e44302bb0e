"""Importance sampling against answers known exactly, with every kind of proposal."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

import posterax as px
from posterax.posteriors import GaussianMixture, MeanFieldGaussian, Point
from posterax.posteriors.draws import effective, pareto_smooth

pytestmark = pytest.mark.usefixtures("hasty_compiler")  # many small programs, each run once

RNG = np.random.default_rng(3)
NOISE = 1.0

# -- a line with three weights: conjugate, so that everything is known

X = RNG.normal(size=(12, 3)).astype("float32")
Y = (X @ [1.0, -0.5, 0.3] + NOISE * RNG.normal(size=12)).astype("float32")
DATA = (X, Y)


def line_model(scale=1.0, inputs=3, prior=None):
    network = {"w": jnp.zeros((inputs, 1))}, lambda p, x: x @ p["w"]
    prior = px.priors.Gaussian(scale) if prior is None else prior
    return px.Model(network, prior, px.likelihoods.Gaussian(NOISE))


def weights(params):
    return params.network["w"][:, 0]


@pytest.fixture(scope="module")
def truth():
    """Mean, covariance and log evidence of the conjugate posterior, in float64."""
    x = X.astype(np.float64)
    precision = np.eye(3) + x.T @ x / NOISE**2
    mean = np.linalg.solve(precision, x.T @ Y / NOISE**2)
    marginal = stats.multivariate_normal(np.zeros(12), NOISE**2 * np.eye(12) + x @ x.T)
    return mean, np.linalg.inv(precision), marginal.logpdf(Y)


@pytest.fixture(scope="module")
def variational():
    method = px.BayesByBackprop(learning_rate=0.02)
    return px.fit(line_model(), DATA, method, epochs=1500, key=0)


@pytest.fixture(scope="module")
def from_prior():
    return px.fit(line_model(), DATA, px.ImportanceSampling(), steps=500, key=0)


def check(posterior, truth):
    """Means and evidence within 4.5 of their own standard errors; evidence within 0.1 nat."""
    mean, _, evidence = truth
    found, error = posterior.expectation(weights)
    assert np.all(error < 0.05)
    assert np.all(np.abs(found - mean) < 4.5 * error)
    value, error, _ = posterior.log_evidence
    assert abs(value - evidence) < 0.1
    assert abs(value - evidence) < 4.5 * error + 1e-4  # float32


def test_from_the_prior(from_prior, truth):
    check(from_prior, truth)
    assert from_prior.khat < 0.7
    assert 100 < from_prior.effective_sample_size < 32_000
    assert from_prior.effective_sample_size == pytest.approx(effective(from_prior.log_weights))


def test_from_a_fitted_posterior(variational, from_prior, truth):
    posterior = px.fit(line_model(), DATA, px.ImportanceSampling(proposal=variational), steps=100)
    check(posterior, truth)
    assert posterior.khat < 0.7
    # it meets the posterior far more often than the prior does
    share = posterior.effective_sample_size / 6_400
    assert share > 5 * from_prior.effective_sample_size / 32_000


def test_from_the_moments_of_draws(from_prior, truth):
    method = px.ImportanceSampling(proposal=from_prior.as_prior())
    check(px.fit(line_model(), DATA, method, steps=100, key=1), truth)


def test_from_a_mixture_with_unequal_shares(truth):
    """Five candidates a step from two components: two of one, three of the other."""
    base = line_model()
    mu = base.parameters._replace(network={"w": jnp.array([[[0.6], [-0.3], [0.4]],
                                                           [[1.5], [-0.8], [0.0]]])})  # fmt: skip
    rho = jax.tree.map(lambda m: jnp.full_like(m, 0.0), mu)
    targets = px.prior_posterior(base, X).targets
    proposal = GaussianMixture(base, (), targets, mu=mu, rho=rho)
    method = px.ImportanceSampling(chains=5, proposal=proposal)
    check(px.fit(line_model(), DATA, method, steps=4000, key=0), truth)


def test_from_the_exact_posterior_every_weight_is_the_evidence(truth):
    mean, covariance, evidence = truth
    exact = dist.MultivariateNormal(jnp.asarray(mean, jnp.float32), jnp.asarray(covariance))
    posterior = px.fit(line_model(), DATA, px.ImportanceSampling(proposal=exact), steps=20)
    np.testing.assert_allclose(posterior.stats["log_weight"], evidence, atol=1e-3)
    assert posterior.effective_sample_size == pytest.approx(1280, rel=1e-3)
    assert posterior.log_evidence.error < 1e-4


def test_from_a_distribution_of_one_number(truth):
    method = px.ImportanceSampling(proposal=dist.StudentT(5.0, 0.0, 1.0))
    check(px.fit(line_model(), DATA, method, steps=500, key=2), truth)


def test_plain_where_the_target_is_normalised(truth):
    """With p(D) known the mean of w F is unbiased, and the mean of w is one."""
    mean, covariance, evidence = truth
    method = px.ImportanceSampling(log_evidence=evidence)
    posterior = px.fit(line_model(), DATA, method, steps=500, key=3)
    second = np.diag(covariance) + mean**2
    for function, wanted in (
        (weights, mean), (lambda p: weights(p) ** 2, second), (lambda p: jnp.ones(()), 1.0),
    ):  # fmt: skip
        found, error = posterior.expectation(function)
        assert np.all(error > 0)
        assert np.all(np.abs(found - wanted) < 4.5 * error)


def test_smoothing_changes_the_largest_weights_only():
    rough = px.fit(line_model(), DATA, px.ImportanceSampling(smooth=False), steps=50, key=0)
    smooth = px.fit(line_model(), DATA, px.ImportanceSampling(), steps=50, key=0)
    a, b = (np.ravel(p.log_weights).astype(np.float64) for p in (rough, smooth))
    order = np.argsort(a)
    tail = int(3 * np.sqrt(3200))
    difference = (b - a)[order]
    np.testing.assert_allclose(difference[:-tail], difference[0], atol=1e-4)
    assert np.ptp(difference[-tail:]) > 1e-3
    assert smooth.khat == rough.khat
    assert smooth.log_evidence == rough.log_evidence


# -- twelve binary weights, where enumeration knows everything


def network(p, x):
    return jnp.tanh(x @ p["a"] + p["c"]) @ p["b"]


def binary_model():
    params = {"a": jnp.zeros((2, 3)), "b": jnp.zeros((3, 1)), "c": jnp.zeros(3)}
    return px.Model((params, network), px.priors.Grid([-1.0, 1.0]), px.likelihoods.Gaussian(0.5))


POINTS = RNG.normal(size=(8, 2)).astype("float32")
HEIGHTS = np.tanh(POINTS @ [1.0, -1.0]).astype("float32")


def test_agrees_with_enumeration():
    """z-tests of twelve means, five products, six predictions and the evidence, at 0.001 in all."""
    model, data = binary_model(), (POINTS, HEIGHTS)
    exact = px.fit(model, data, px.Enumeration())
    assert len(exact.log_probs) == 2**12

    def quantities(params):
        flat = ravel_pytree(params.network)[0]
        return jnp.concatenate(
            [flat, flat[:5] * flat[6:11], network(params.network, POINTS[:6])[:, 0]]
        )

    wanted, _ = exact.expectation(quantities)
    tilted = px.priors.Grid([-1.0, 1.0], [0.4, 0.6])
    bound = stats.norm.isf(0.001 / 2 / (3 * 24))
    for proposal, steps in (("prior", 600), (tilted, 600), (exact, 100)):
        posterior = px.fit(
            model, data, px.ImportanceSampling(proposal=proposal), steps=steps, key=4
        )
        found, error = posterior.expectation(quantities)
        assert np.all(error < 0.1)
        assert np.isnan(posterior.khat)  # equal weights have no density
        assert np.all(np.abs(found - wanted) <= bound * error + 1e-5)
        value, error, _ = posterior.log_evidence
        assert abs(value - exact.log_evidence.value) <= bound * error + 1e-4
    # the exact posterior proposes with weights that are all p(D)
    assert np.ptp(posterior.stats["log_weight"]) < 1e-3


# -- k-hat


@pytest.mark.parametrize("k", [0.3, 1.0])
def test_khat_finds_the_shape_of_a_pareto_tail(k):
    """log w = k · Exponential(1) has that shape; its estimate from 424 points is good to 0.3."""
    log_w = k * np.random.default_rng(0).exponential(size=(20, 1000))
    smooth, khat = pareto_smooth(log_w)
    assert abs(khat - k) < 4 * (1 + k) / np.sqrt(3 * np.sqrt(20_000))
    assert smooth.shape == log_w.shape
    assert np.exp(smooth).sum() == pytest.approx(1)


def test_a_bad_proposal_warns():
    far = px.priors.Gaussian(0.1, loc=-0.5)  # narrow, and elsewhere
    with pytest.warns(UserWarning, match=r"k-hat is \d.*above 0\.7.*not narrower.*px\.NUTS"):
        bad = px.fit(line_model(), DATA, px.ImportanceSampling(proposal=far), steps=100, key=0)
    assert bad.khat > 0.7
    with pytest.warns(UserWarning, match=r"there is no k-hat, and \d\.\d of 8 candidates"):
        px.fit(line_model(10.0), (10 * X, Y), px.ImportanceSampling(chains=4), steps=2, key=0)


def test_weights_that_say_nothing_about_their_tail():
    assert np.isnan(pareto_smooth(np.zeros(24))[1])
    assert np.isnan(pareto_smooth(np.zeros((10, 10)))[1])
    alone = np.full(100, -np.inf)
    alone[7] = 0.0
    smooth, khat = pareto_smooth(alone)
    assert np.isnan(khat)
    assert effective(smooth) == 1


# -- densities


def test_densities_of_posteriors(variational):
    point = jnp.array([0.5, -0.2, 0.1])
    params = variational.mu._replace(network={"w": point[:, None]})
    density = jax.jit(lambda posterior: posterior.log_prob(params))
    mean, std = (tree.network["w"][:, 0] for tree in variational.moments())
    wanted = dist.Normal(mean, std).log_prob(point).sum()
    assert float(density(variational.bare())) == pytest.approx(float(wanted), abs=1e-4)

    both = jax.tree.map(lambda a: jnp.stack([a, a + 1]), (variational.mu, variational.rho))
    mixture = GaussianMixture(variational.model, (), variational.targets, mu=both[0], rho=both[1])
    each = [float(density(mixture.component(i))) for i in range(2)]
    assert isinstance(mixture.component(0), MeanFieldGaussian)
    assert float(density(mixture)) == pytest.approx(np.logaddexp(*each) - np.log(2), abs=1e-4)
    prior = px.prior_posterior(line_model(), X)
    assert float(prior.log_prob(params)) == pytest.approx(
        stats.norm.logpdf(np.asarray(point)).sum(), abs=1e-4
    )


# -- files, checkpoints, errors


def test_saved_and_loaded(from_prior, tmp_path):
    from_prior.save(tmp_path / "p.px")
    loaded = px.load(tmp_path / "p.px", model=line_model())
    assert loaded.log_evidence == from_prior.log_evidence
    assert loaded.khat == from_prior.khat
    assert loaded.effective_sample_size == from_prior.effective_sample_size
    np.testing.assert_array_equal(loaded.expectation(weights), from_prior.expectation(weights))


def test_a_checkpoint_knows_its_proposal(tmp_path):
    prior = px.priors.Gaussian(1.0)
    other = px.priors.Gaussian(1.5)
    options = {"steps": 50, "key": 0, "checkpoint": tmp_path / "c"}
    first = px.fit(line_model(), DATA, px.ImportanceSampling(proposal=prior), **options)
    again = px.fit(line_model(), DATA, px.ImportanceSampling(proposal=prior), **options)
    np.testing.assert_array_equal(first.log_weights, again.log_weights)
    for method in (px.ImportanceSampling(proposal=other), px.ImportanceSampling()):
        with pytest.raises(px.CheckpointError, match=r"its method\.proposal is [a#]"):
            px.fit(line_model(), DATA, method, **options)


def fit(model=None, steps=5, init=None, data=DATA, **options):
    method = px.ImportanceSampling(**options)
    return px.fit(model or line_model(), data, method, steps=steps, init=init)


def gaussian_of(model, inputs=3):
    prior = px.prior_posterior(model, np.ones((1, inputs), "float32"))
    zeros = prior.model.parameters
    return MeanFieldGaussian(prior.model, (), prior.targets, mu=zeros, rho=zeros)


def point_of(model):
    start = gaussian_of(model)
    return Point(start.model, (), start.targets, point=start.mu)


BAD = {
    "no proposal": (lambda: fit(proposal="posterior"), "proposal must be 'prior', a posterior"),
    "a class": (lambda: fit(proposal=px.priors.Gaussian), "proposal must be 'prior'"),
    "chains": (lambda: fit(chains=0), "chains must be a whole number"),
    "smooth": (lambda: fit(smooth=1), "smooth must be True or False"),
    "log_evidence": (lambda: fit(log_evidence=np.inf), "log_evidence must be finite"),
    "a point": (
        lambda: fit(proposal=point_of(line_model())),
        r"proposal: Point has no density: posterior\.as_prior\(\) gives a Gaussian",
    ),
    "trained": (lambda: fit(proposal=px.priors.Trained()), "proposal: px.priors.Trained is for"),
    "flat": (lambda: fit(proposal=px.priors.Flat()), r"proposal: network\.w has no density"),
    "another model's": (
        lambda: fit(proposal=gaussian_of(line_model(inputs=2), 2)),
        r"proposal has other parameters.*\(2, 1\)\] instead of \[\(3, 1\)",
    ),
    "a vector of another length": (
        lambda: fit(proposal=dist.Normal(jnp.zeros(4), 1.0)),
        r"Normal is over shape \(4,\), and the model has 3 parameters",
    ),
    "half of the reals": (
        lambda: fit(proposal=dist.HalfNormal(jnp.ones(3)).to_event(1)), "not over all real",
    ),
    "a grid for a density": (
        lambda: fit(proposal=px.priors.Grid([0, 1])),
        r"network\.w has finitely many values in the proposal and a density in the model",
    ),
    "a density for a grid": (
        lambda: fit(line_model(prior=px.priors.Grid([0, 1])), proposal=px.priors.Gaussian(1.0)),
        r"network\.w has a density in the proposal and finitely many values in the model",
    ),
    "a vector for a grid": (
        lambda: fit(
            line_model(prior=px.priors.Grid([0, 1])), proposal=dist.Normal(jnp.zeros(3), 1.0)
        ),
        r"a density never meets the grid of network\.w",
    ),
    "init": (lambda: fit(init=line_model().parameters), r"init: .* give it as proposal="),
    "no evidence": (
        lambda: gaussian_of(line_model()).log_evidence,
        r"log_evidence: this posterior of .* has none; px\.ImportanceSampling and px\.SMC",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_errors(case):
    call, message = BAD[case]
    with pytest.raises((ValueError, TypeError), match=message):
        call()

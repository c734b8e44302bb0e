"""One evidence, every way to it: polynomials of four degrees, whose log p(D) is known exactly.

Weights of powers that a degree leaves out see a feature that is zero: they change no integral, and
all degrees share their compiled programs.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import posterax as px
from posterax.posteriors import MeanFieldGaussian
from posterax.predictive import Targets

pytestmark = pytest.mark.usefixtures("hasty_compiler")

ROWS, NOISE, DEGREES = 24, 0.3, (0, 1, 2, 3)
RNG = np.random.default_rng(3)
T = np.linspace(-1, 1, ROWS)
Y = (0.4 - 0.8 * T + 1.1 * T**2 + NOISE * RNG.normal(size=ROWS)).astype("float32")


def powers(degree, columns=4):
    """Powers up to the degree, zero beyond."""
    features = np.vander(T, columns, increasing=True)
    return (features * (np.arange(columns) <= degree)).astype("float32")


def linear(params, x):
    return x @ params["w"]


def model(prior, columns=4):
    network = {"w": np.zeros((columns, 1), "float32")}, linear
    return px.Model(network, prior, px.likelihoods.Gaussian(NOISE))


GAUSSIAN = px.priors.Gaussian(1.0)
PHI = [powers(degree).astype(float) for degree in DEGREES]
EXACT = [
    multivariate_normal(np.zeros(ROWS), NOISE**2 * np.eye(ROWS) + phi @ phi.T).logpdf(Y)
    for phi in PHI
]


def fit(degree, method, **options):
    return px.fit(model(GAUSSIAN), (powers(degree), Y), method, key=degree, **options)


def agree(found, kind, rounding=2e-4):
    """Within 4.5 standard errors and the rounding, and the degrees in the same order."""
    for (value, error, _), exact in zip(found, EXACT, strict=True):
        assert abs(value - exact) < 4.5 * error + rounding
    values = [evidence.value for evidence in found]
    assert np.array_equal(np.argsort(values), np.argsort(EXACT))
    assert {evidence.kind for evidence in found} == {kind}


@pytest.fixture(scope="module")
def posteriors():
    return [fit(degree, px.Conjugate()) for degree in DEGREES]


def test_degrees_can_be_told_apart():
    """The true one is best, and no two are within 4.5 times the largest error allowed below."""
    assert np.argmax(EXACT) == 2
    assert np.min(np.diff(np.sort(EXACT))) > 4.5 * 0.1


def test_conjugate(posteriors):
    found = [posterior.log_evidence for posterior in posteriors]
    agree(found, "exact", rounding=1e-5)
    for (value, error, _), exact in zip(found, EXACT, strict=True):
        assert value == pytest.approx(exact, rel=1e-6)
        assert error == 0


def test_laplace(posteriors):
    """The curvature of a quadratic at its maximum."""
    known = zip(DEGREES, posteriors, strict=True)
    method = px.Laplace("full", prior_precision="fixed", train=False)
    agree([fit(degree, method, init=p).log_evidence for degree, p in known], "approximation")


def test_importance_sampling(posteriors):
    """Candidates without the posterior's correlations, and half as wide again."""
    found = []
    for degree, posterior in zip(DEGREES, posteriors, strict=True):
        near = posterior.as_prior()
        wide = px.priors.PerWeight(near.loc, jax.tree.map(lambda s: 1.5 * s, near.scale))
        found.append(fit(degree, px.ImportanceSampling(proposal=wide), steps=100).log_evidence)
    agree(found, "estimate")
    assert max(evidence.error for evidence in found) < 0.1


@pytest.mark.slow
def test_smc():
    """Sixteen groups, so that their spread is an error to rely on."""
    method = px.SMC(particles=2048, groups=16)
    found = [fit(degree, method).log_evidence for degree in DEGREES]
    agree(found, "estimate")
    assert max(evidence.error for evidence in found) < 0.1


def bounds(posteriors, samples):
    both = zip(DEGREES, posteriors, strict=True)
    return [px.selection.elbo(p, (powers(degree), Y), samples=samples) for degree, p in both]


def test_bound_at_the_posterior(posteriors):
    """For q = p(w | D) the ratio p(D, w) / q(w) is p(D) whatever w: there is nothing to lose."""
    found = bounds(posteriors, 10)
    agree(found, "bound")
    assert max(evidence.error for evidence in found) < 2e-4


@pytest.mark.slow
def test_bound_of_variational_inference():
    """With a covariance it reaches the evidence, to the hundredth of a nat that Adam leaves."""
    method = px.BayesByBackprop(
        family="full", gradient="sticking_the_landing", learning_rate=0.05, initial_rho=-2.0
    )
    found = bounds([fit(degree, method, steps=1000) for degree in DEGREES], 100)
    agree(found, "bound", rounding=0.01)
    for (value, error, _), exact in zip(found, EXACT, strict=True):
        assert value < exact + 4.5 * error + 2e-4


def test_bound_without_correlations_is_below():
    """The best q of independent weights has variances 1/Λᵢᵢ, and loses ½ (Σ log Λᵢᵢ − log |Λ|)."""
    posteriors, lost = [], []
    for phi in PHI:
        precision = np.eye(4) + phi.T @ phi / NOISE**2
        mean = np.linalg.solve(precision, phi.T @ Y / NOISE**2)
        sigma = np.diag(precision) ** -0.5
        as_tree = lambda v: px.Parameters({"w": jnp.asarray(v[:, None], jnp.float32)}, {})  # noqa: E731
        made = model(GAUSSIAN).for_targets((1,), jnp.float32)
        rho = as_tree(np.log(np.expm1(sigma)))
        targets = Targets((), (1,))
        posteriors.append(
            MeanFieldGaussian(made, made.network.state, targets, mu=as_tree(mean), rho=rho)
        )
        lost.append(0.5 * (np.sum(np.log(np.diag(precision))) - np.linalg.slogdet(precision)[1]))
    assert lost[-1] > 1
    for (value, error, kind), exact, less in zip(
        bounds(posteriors, 2000), EXACT, lost, strict=True
    ):
        assert abs(value - (exact - less)) < 4.5 * error + 2e-4
        assert kind == "bound"


def test_enumeration():
    """Weights on a grid so fine that the sum is the integral.

    Steps of 0.04 for deviations of the posterior of 0.06 and more: the error of the trapezoidal
    rule is 2 exp(−2π² (0.06 / 0.04)²) of the sum, less than 1e-15.
    """
    values = np.linspace(-4, 4, 201)
    density = norm.pdf(values)
    grid = px.priors.Grid(values, density / density.sum())
    for degree in (0, 1):
        data = powers(degree, columns=2), Y
        found = px.fit(model(grid, columns=2), data, px.Enumeration()).log_evidence
        assert abs(found.value - EXACT[degree]) < 1e-3  # log-likelihoods in float32
        assert found.kind == "exact"

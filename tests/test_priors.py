"""Priors: their densities, draws and KL against scipy, and which weight gets which prior."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, special, stats

import posterax as px
from posterax.posteriors import MeanFieldGaussian
from posterax.predictive import Targets
from posterax.priors import as_prior

GRID = np.concatenate([-np.logspace(4, -6, 40), [0.0], np.logspace(-6, 4, 40)]).astype("float32")
LINEAR = px.likelihoods.Gaussian(0.1)


def mixture_log_density(w, pi, s1, s2):
    wide = np.log(pi) + stats.norm.logpdf(w, 0, s1)
    narrow = np.log1p(-pi) + stats.norm.logpdf(w, 0, s2)
    return np.logaddexp(wide, narrow)


@pytest.mark.parametrize(
    ("prior", "reference"),
    [
        (px.priors.Gaussian(0.3, loc=1.5), stats.norm(1.5, 0.3).logpdf),
        (px.priors.Laplace(0.2), stats.gennorm(1, 0, 0.2).logpdf),
        (px.priors.ScaleMixture(0.25, 2.0, 0.01), lambda w: mixture_log_density(w, 0.25, 2, 0.01)),
        (as_prior(dist.Cauchy(0.0, 0.5)), stats.cauchy(0, 0.5).logpdf),
        (as_prior(dist.StudentT(3.0, 0.0, 0.5)), stats.t(3, 0, 0.5).logpdf),
        (as_prior(dist.Normal(0.0, 0.5)), stats.norm(0, 0.5).logpdf),
    ],
    ids=["gaussian", "laplace", "mixture", "cauchy", "student", "normal"],
)
def test_log_density_is_scipys_far_into_the_tails(prior, reference):
    np.testing.assert_allclose(
        prior.log_prob(jnp.asarray(GRID)), reference(GRID.astype(float)), rtol=2e-5, atol=2e-5
    )


def test_scale_mixture_has_no_floor():
    prior = px.priors.ScaleMixture(pi=0.5, sigma1=1.0, sigma2=0.0025)
    value, slope = jax.value_and_grad(prior.log_prob)(jnp.asarray(1e3))
    assert value == pytest.approx(np.log(0.5) + stats.norm.logpdf(1e3), rel=1e-6)
    assert slope == pytest.approx(-1e3, rel=1e-6)


@pytest.mark.parametrize("pi", [0.25, 0.5, 0.75])
def test_slope_of_the_scale_mixture_over_the_papers_grid(pi):
    """∂ log p/∂w against double precision: deviations far apart, in either order."""
    w = np.concatenate([np.linspace(-3, 3, 601), np.logspace(-6, 0, 200)]).astype(np.float32)
    x = w.astype(np.float64)
    grid = [(np.exp(-a), np.exp(-b)) for a in (0, 1, 2) for b in (6, 7, 8)]
    for s1, s2 in [*grid, *((b, a) for a, b in grid)]:
        prior = px.priors.ScaleMixture(pi, s1, s2)
        found = jax.vmap(jax.grad(lambda v, p=prior: p.log_prob(v)))(w)
        logs = np.stack([np.log([pi / s1, (1 - pi) / s2][i]) - 0.5 * (x / s) ** 2
                         for i, s in enumerate((s1, s2))])  # fmt: skip
        shares = np.exp(logs - np.logaddexp(*logs))
        exact = -x * (shares[0] / s1**2 + shares[1] / s2**2)
        np.testing.assert_allclose(found, exact, rtol=2e-4, atol=1e-6)


def test_scale_mixture_is_more_peaked_and_heavier_tailed_than_its_gaussian():
    pi, s1, s2 = 0.25, 1.0, 0.1
    prior = px.priors.ScaleMixture(pi, s1, s2)
    sd = np.sqrt(pi * s1**2 + (1 - pi) * s2**2)
    gaussian = px.priors.Gaussian(sd)
    for place in (0.0, 6 * sd):
        assert prior.log_prob(jnp.asarray(place)) > gaussian.log_prob(jnp.asarray(place)) + 0.5

    def moment(k):
        density = lambda w: w**k * np.exp(float(prior.log_prob(jnp.asarray(w))))  # noqa: E731
        return 2 * sum(integrate.quad(density, a, b, epsabs=1e-8)[0] for a, b in [(0, 1), (1, 9)])

    assert moment(2) == pytest.approx(sd**2, rel=1e-4)
    assert moment(4) / moment(2) ** 2 > 3


@pytest.mark.parametrize(
    ("prior", "mean", "variance", "fourth"),
    [
        (px.priors.Gaussian(0.3, loc=1.5), 1.5, 0.09, 3 * 0.09**2),
        (px.priors.Laplace(0.2), 0.0, 0.08, 24 * 0.2**4),
        (px.priors.ScaleMixture(0.25, 2.0, 0.1), 0.0, 1.0075, 3 * (0.25 * 16 + 0.75 * 1e-4)),
        (as_prior(dist.Normal(-1.0, 2.0)), -1.0, 4.0, 48.0),
    ],
    ids=["gaussian", "laplace", "mixture", "numpyro"],
)
def test_draws_have_the_right_moments(prior, mean, variance, fourth):
    n = 40_000
    draws = np.asarray(prior.sample(jax.random.key(0), (n // 4, 4), jnp.float32), np.float64)
    assert draws.shape == (n // 4, 4)
    z_mean = (draws.mean() - mean) / np.sqrt(variance / n)
    z_variance = (np.mean((draws - mean) ** 2) - variance) / np.sqrt((fourth - variance**2) / n)
    assert abs(z_mean) < 4
    assert abs(z_variance) < 4


@pytest.mark.parametrize("mu", [-1.3, 0.0, 0.4])
@pytest.mark.parametrize("sigma", [0.05, 0.7])
@pytest.mark.parametrize(
    "prior",
    [px.priors.Gaussian(0.5, loc=0.2), px.priors.Laplace(0.3), as_prior(dist.Normal(0.2, 0.5))],
    ids=["gaussian", "laplace", "numpyro"],
)
def test_closed_form_kl_is_the_integral_of_q_log_q_over_p(prior, mu, sigma):
    q = stats.norm(mu, sigma)
    # KL(q ‖ p) weighs by q: with the roles exchanged these cases differ by up to a hundredfold
    grid = np.linspace(mu - 12 * sigma, mu + 12 * sigma, 40_001)
    log_p = np.asarray(prior.log_prob(jnp.asarray(grid, jnp.float32)), np.float64)
    expected = integrate.trapezoid(q.pdf(grid) * (q.logpdf(grid) - log_p), grid)
    found = prior.kl_from_gaussian(jnp.asarray(mu), jnp.asarray(sigma))
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_kl_direction():
    q, p = (0.0, 0.1), (1.0, 2.0)
    forward = px.priors.Gaussian(p[1], loc=p[0]).kl_from_gaussian(*map(jnp.asarray, q))
    backward = px.priors.Gaussian(q[1], loc=q[0]).kl_from_gaussian(*map(jnp.asarray, p))
    by_hand = np.log(2 / 0.1) + (0.1**2 + 1) / (2 * 2**2) - 0.5
    assert forward == pytest.approx(by_hand, rel=1e-5)
    assert backward > 50 * forward


def test_no_closed_form_is_said_so():
    one = jnp.ones(())
    for prior in (px.priors.ScaleMixture(), as_prior(dist.Cauchy(0.0, 1.0))):
        assert prior.kl_from_gaussian(one, one) is None


def test_by_part_first_match_decides():
    prior = px.priors.ByPart(
        {
            "layers.0.*": px.priors.Laplace(0.1),
            "*.bias": dist.Cauchy(0.0, 3.0),
            lambda name, w: w.ndim == 2: px.priors.Gaussian(0.5),
        }
    )
    model = px.Model(px.networks.MLP(2, 1, (4,), key=0), prior, LINEAR)
    first, last = model.priors.network.layers
    assert isinstance(first.bias, px.priors.Laplace)
    assert isinstance(first.weight, px.priors.Laplace)
    assert isinstance(last.bias, px.priors.FromDistribution)
    assert last.weight.scale == 0.5
    expected = sum(
        float(jnp.sum(p.log_prob(w)))
        for p, w in [
            (px.priors.Laplace(0.1), model.parameters.network.layers[0].weight),
            (px.priors.Laplace(0.1), model.parameters.network.layers[0].bias),
            (px.priors.Gaussian(0.5), model.parameters.network.layers[1].weight),
            (as_prior(dist.Cauchy(0.0, 3.0)), model.parameters.network.layers[1].bias),
        ]
    )
    assert model.log_prior(model.parameters) == pytest.approx(expected, rel=1e-5)


def test_by_part_refuses_a_pattern_that_matches_nothing():
    prior = px.priors.ByPart({"*.bais": px.priors.Gaussian(1.0)})
    with pytest.raises(ValueError, match=r"\*\.bais.*layers\.0\.weight"):
        px.Model(px.networks.MLP(2, 1, (4,), key=0), prior, LINEAR)


def test_fan_in_knows_which_axis_the_inputs_are_on():
    prior = px.priors.Gaussian(2.0, fan_in=True)
    outputs_first = px.Model(eqx.nn.Linear(16, 5, key=jax.random.key(0)), prior, LINEAR)
    assert outputs_first.priors.network.weight.scale == pytest.approx(2 / 4)
    assert outputs_first.priors.network.bias.scale == 2.0

    plain = ({"w": jnp.ones((16, 5)), "b": jnp.ones(5)}, lambda p, x: x @ p["w"] + p["b"])
    inputs_first = px.Model(plain, prior, LINEAR)
    assert inputs_first.priors.network["w"].scale == pytest.approx(2 / 4)
    assert inputs_first.priors.network["b"].scale == 2.0

    convolution = px.Model(eqx.nn.Conv2d(4, 7, 2, key=jax.random.key(0)), prior, LINEAR)
    assert convolution.priors.network.weight.scale == pytest.approx(2 / 4)  # 4 × 2 × 2 inputs


def test_fan_in_of_flax_kernels():
    nnx = pytest.importorskip("flax.nnx")
    model = px.Model(
        nnx.Linear(16, 5, rngs=nnx.Rngs(0)), px.priors.Gaussian(2.0, fan_in=True), LINEAR
    )
    priors = jax.tree.leaves(model.priors.network, is_leaf=px.priors.is_prior)
    weights = jax.tree.leaves(model.parameters.network)
    scales = {w.shape: float(p.scale) for p, w in zip(priors, weights, strict=True)}
    assert scales == {(5,): 2.0, (16, 5): pytest.approx(2 / 4)}


def test_a_posterior_is_the_next_prior_weight_by_weight():
    network = px.networks.MLP(1, 1, (3,), key=0)
    model = px.Model(network, None, px.likelihoods.Gaussian("learned"))
    model = model.for_targets((1,), jnp.float32)
    mu = jax.tree.map(lambda a: a + 0.1, model.parameters)
    rho = jax.tree.map(lambda a: -1 + 0.3 * jnp.ones_like(a), mu)
    posterior = MeanFieldGaussian(model, model.network.state, Targets((1,), (1,)), mu=mu, rho=rho)
    after = px.Model(network, posterior.as_prior(), px.likelihoods.Gaussian("learned"))
    after = after.for_targets((1,), jnp.float32)
    sigma = np.log1p(np.exp(-0.7))
    expected = sum(
        stats.norm(np.asarray(m), sigma).logpdf(np.asarray(w)).sum()
        for m, w in zip(jax.tree.leaves(mu), jax.tree.leaves(after.parameters), strict=True)
    )
    assert after.log_prior(after.parameters) == pytest.approx(expected, rel=1e-4)
    with pytest.raises(ValueError, match="another tree"):
        px.Model(px.networks.MLP(1, 1, (3, 3), key=0), posterior.as_prior(), LINEAR)


class TestHierarchical:
    """Against numerical integration over the variance that is integrated out."""

    @staticmethod
    def log_evidence(sum_of_squares, n, a, b):
        """log ∫ (2πv)^(−n/2) exp(−S / 2v) InverseGamma(v | a, b) dv by quadrature over log v."""
        v = np.exp(np.linspace(-30, 30, 200_001))
        log_p = -n / 2 * np.log(2 * np.pi * v) - sum_of_squares / (2 * v)
        log_p += stats.invgamma.logpdf(v, a, scale=b) + np.log(v)
        return special.logsumexp(log_p) + np.log(60 / 200_000)

    @pytest.mark.parametrize("a", [0.5, 1.0, 4.0])
    @pytest.mark.parametrize("b", [0.01, 1.0, 10.0])
    def test_log_prob_integrates_the_variance_out(self, a, b):
        w = np.array([[0.1, -2.0, 0.7], [0.0, 1.0, 3.0]], "float32")
        shared = px.priors.Hierarchical(a, b).log_prob(jnp.asarray(w)).sum()
        assert float(shared) == pytest.approx(self.log_evidence(np.sum(w**2), 6, a, b), rel=1e-4)
        each = px.priors.Hierarchical(a, b, relevance=True).log_prob(jnp.asarray(w)).sum()
        by_input = sum(self.log_evidence(np.sum(w[:, j] ** 2), 2, a, b) for j in range(3))
        assert float(each) == pytest.approx(by_input, rel=1e-4)

    @pytest.mark.parametrize("relevance", [False, True])
    def test_kl_is_the_smallest_over_the_variances_posterior(self, relevance):
        """KL(q(w) q(v) ‖ p(w, v)) for inverse gammas q(v): at the best it is ours, else above."""
        mu = np.array([[0.5, -1.0], [0.2, 0.1], [2.0, 0.0]])
        sigma = np.array([[0.1, 0.5], [1.0, 0.2], [0.3, 0.7]])
        a, b = 1.5, 0.8
        prior = px.priors.Hierarchical(a, b, relevance=relevance)
        ours = float(prior.kl_from_gaussian(jnp.asarray(mu), jnp.asarray(sigma)).sum())
        groups = [(slice(None), j) for j in range(2)] if relevance else [slice(None)]

        def joint(extra):
            total = 0.0
            for group in groups:
                s, n = np.sum(mu[group] ** 2 + sigma[group] ** 2), mu[group].size
                qa, qb = a + n / 2 + extra, b + s / 2
                v_inverse, log_v = qa / qb, np.log(qb) - special.digamma(qa)
                log_joint = -n / 2 * (np.log(2 * np.pi) + log_v) - s / 2 * v_inverse
                log_joint += a * np.log(b) - special.gammaln(a) - (a + 1) * log_v - b * v_inverse
                entropy_v = stats.invgamma(qa, scale=qb).entropy()
                entropy_w = np.sum(np.log(sigma[group]) + 0.5 * np.log(2 * np.pi * np.e))
                total -= log_joint + entropy_v + entropy_w
            return total

        assert ours == pytest.approx(joint(0.0), rel=1e-5)
        assert ours < joint(0.5)
        assert ours < joint(-0.5)

    def test_kl_is_above_the_marginal_one(self):
        mu, sigma = jnp.asarray([0.5, -1.0, 0.2]), jnp.asarray([0.1, 0.5, 1.0])
        prior = px.priors.Hierarchical(1.0, 0.5)
        w = mu + sigma * jax.random.normal(jax.random.key(0), (200_000, 3))
        log_q = stats.norm.logpdf(np.asarray(w), mu, sigma).sum(1)
        marginal = log_q - np.asarray(jax.vmap(lambda w: prior.log_prob(w).sum())(w))
        assert float(prior.kl_from_gaussian(mu, sigma).sum()) > marginal.mean()

    def test_draws_have_the_density(self):
        """One weight alone is a Student t with 2a degrees of freedom and scale √(b/a)."""
        prior = px.priors.Hierarchical(1.5, 0.6)
        keys = jax.random.split(jax.random.key(0), 4000)
        drawn = np.asarray(jax.vmap(lambda k: prior.sample(k, (1,), jnp.float32))(keys))[:, 0]
        reference = stats.t(3.0, scale=np.sqrt(0.6 / 1.5))
        assert stats.kstest(drawn, reference.cdf).pvalue > 0.01

    def test_inputs_share_a_variance_whatever_the_layout(self):
        """(out, in) in Equinox and (in, out) in plain code: the group is an input's weights."""
        prior = px.priors.Hierarchical(relevance=True)
        params = {"a": jnp.ones((2, 5))}
        plain = px.Model((params, lambda p, x: x @ p["a"]), prior, px.likelihoods.Gaussian(0.1))
        assert plain.priors.network["a"]._shared(2) == (1,)
        mlp = px.networks.MLP(2, 5, (), key=0)
        layers = px.Model(mlp, prior, px.likelihoods.Gaussian(0.1)).priors.network.layers
        assert layers[0].weight._shared(2) == (0,)
        # fan-in scaling: rate / inputs
        assert float(layers[0].weight.rate) == pytest.approx(0.5)

    def test_a_useless_input_loses_its_weights(self):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(200, 2)).astype("float32")
        model = px.Model(
            px.networks.MLP(2, 1, (10,), key=0),
            px.priors.Hierarchical(relevance=True),
            px.likelihoods.Gaussian(0.1),
        )
        method = px.BayesByBackprop(learning_rate=1e-2)
        posterior = px.fit(model, (x, np.sin(2 * x[:, 0])), method, steps=20_000, batch_size=200)
        weight = np.asarray(posterior.mu.network.layers[0].weight)
        useful, useless = np.sqrt(np.mean(np.square(weight), axis=0))
        assert useless < 0.1 * useful


def test_normal_of_numpyro_is_gaussian():
    """So that it has a precision, and an evidence."""
    for given in (dist.Normal(0.2, 0.5), dist.Normal(jnp.asarray(0.2), jnp.asarray(0.5))):
        prior = as_prior(given)
        assert isinstance(prior, px.priors.Gaussian)
        assert (float(prior.loc), float(prior.scale)) == pytest.approx((0.2, 0.5))
    with pytest.raises(ValueError, match=r"batch \(3,\)"):
        as_prior(dist.Normal(jnp.zeros(3), 1.0))

"""Bayes by Backprop against answers known exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import integrate, stats

import posterax as px
from posterax._util.special import inverse_softplus
from posterax.data import Batch
from posterax.infer.base import Plan, Start
from posterax.infer.variational.elbo import minibatch_weight
from posterax.model import Parameters
from posterax.predictive import Targets

NOISE, SCALE = 0.5, 2.0
ESTIMATORS = ("weight", "local", "flipout")


def linear_model(d: int, prior=None, noise=NOISE) -> px.Model:
    network = ({"w": jnp.zeros((d, 1))}, lambda p, x: x @ p["w"])
    return px.Model(network, prior or px.priors.Gaussian(SCALE), px.likelihoods.Gaussian(noise))


def linear_data(rng, n=120, d=3):
    mix = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 1.0]])[:d, :d]
    x = rng.normal(size=(n, d)) @ mix
    y = x @ np.array([[1.0], [-2.0], [0.5]])[:d] + NOISE * rng.normal(size=(n, 1))
    return x.astype("float32"), y.astype("float32")


def phase_of(method, model, n, batches=1, batch_size=None):
    model = model.for_targets((1,), jnp.float32)
    plan = Plan(
        jnp.asarray(float(n)), jnp.asarray(batches), jnp.asarray(1000), batch_size or n,
        Targets((1,), (1,)),
    )  # fmt: skip
    (phase,) = method.phases(model, plan)
    start = Start(model.parameters, model.network.state, None, given=False)
    return phase, phase.init(start, None, jax.random.key(0))


def batch_of(x, y, i=0):
    return Batch(jnp.asarray(x), jnp.asarray(y), jnp.ones(len(y)), jnp.asarray(i))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_mean_field_optimum_of_the_conjugate_linear_model(rng, estimator):
    """Exact means, and σ_i = precision_ii^(−1/2), to 2 %."""
    x, y = linear_data(rng)
    precision = x.T @ x / NOISE**2 + np.eye(3) / SCALE**2
    mean = np.linalg.solve(precision, x.T @ y / NOISE**2)
    method = px.BayesByBackprop(
        estimator=estimator, samples=64, antithetic=True, learning_rate=0.01, initial_rho=-3.0
    )
    posterior = px.fit(linear_model(3), (x, y), method, steps=8000, batch_size=len(y), key=1)
    np.testing.assert_allclose(posterior.mu.network["w"], mean, rtol=0.02)
    sigma = posterior.sigma().network["w"][:, 0]
    np.testing.assert_allclose(sigma, np.diag(precision) ** -0.5, rtol=0.02)


@pytest.mark.parametrize(
    "prior",
    [px.priors.Gaussian(0.7), px.priors.ScaleMixture(0.3, 1.5, 0.2), px.priors.Laplace(0.5)],
    ids=["gaussian", "mixture", "laplace"],
)
def test_monte_carlo_kl_agrees_with_quadrature(prior):
    mu, sigma = np.array([0.3, -1.0, 0.0]), np.array([0.1, 0.4, 1.2])
    model = linear_model(3, prior)
    phase, state = phase_of(px.BayesByBackprop(kl="monte_carlo"), model, 10)
    state = state._replace(
        mu=Parameters({"w": jnp.asarray(mu)[:, None]}, {}),
        rho=Parameters({"w": inverse_softplus(jnp.asarray(sigma))[:, None]}, {}),
    )

    def one(key):
        return phase.kl(state, phase._draw_weights(state, key, jnp.ones(()))[0])

    draws = np.asarray(jax.vmap(one)(jax.random.split(jax.random.key(0), 40_000)), np.float64)

    def integrand(w, m, s):
        log_q = stats.norm(m, s).logpdf(w)
        return np.exp(log_q) * (log_q - float(prior.log_prob(jnp.asarray(w, jnp.float32))))

    exact = sum(
        integrate.quad(integrand, m - 9 * s, m + 9 * s, args=(m, s), points=[0.0], limit=200)[0]
        for m, s in zip(mu, sigma, strict=True)
    )
    error = draws.std() / np.sqrt(len(draws))
    assert abs(draws.mean() - exact) < 4 * error + 1e-4
    assert error < 0.02  # the check has teeth


def gradients(phase, state, batch, keys):
    """Likelihood gradients of many noise draws, one row each."""

    def one(key):
        grads, *_ = phase.gradient(state, batch, key, jnp.ones(()), (1.0, 0.0))
        return jax.flatten_util.ravel_pytree(grads)[0]

    return np.asarray(jax.jit(jax.vmap(one))(keys), np.float64)


def p_value(gap, covariance):
    """Chi-square over all coordinates, in the directions that vary (some gradients are tied)."""
    variances, directions = np.linalg.eigh(covariance)
    varies = variances > 1e-6 * variances.max()
    z = (gap @ directions)[varies] / np.sqrt(variances[varies])
    return stats.chi2(varies.sum()).sf(z @ z)


def chi_square(rows, truth):
    """P-value of the mean of rows being the truth."""
    return p_value(rows.mean(0) - truth, np.cov(rows.T) / len(rows))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_mean_gradient_is_the_exact_gradient(rng, estimator):
    x, y = linear_data(rng, n=20)
    phase, state = phase_of(px.BayesByBackprop(estimator=estimator), linear_model(3), len(y))
    state = state._replace(
        mu=Parameters({"w": jnp.array([[0.5], [-1.0], [0.2]])}, {}),
        rho=Parameters({"w": jnp.array([[-1.0], [0.0], [-0.5]])}, {}),
    )

    def expected_nll(mu, rho):
        mean = x @ mu["w"]
        variance = (x**2) @ jax.nn.softplus(rho["w"]) ** 2
        return jnp.sum((y - mean) ** 2 + variance) / (2 * NOISE**2)

    exact = jax.grad(expected_nll, argnums=(0, 1))(state.mu.network, state.rho.network)
    truth = np.concatenate([np.ravel(g["w"]) for g in exact])
    keys = jax.random.split(jax.random.key(3), 20_000)
    rows = gradients(phase, state, batch_of(x, y), keys)
    assert chi_square(rows, truth) > 1e-3
    # the test can fail: a gradient that is off by 5 % is found out
    assert chi_square(rows, truth * 1.05) < 1e-3


def test_estimators_agree_on_a_nonlinear_network(rng):
    x, y = linear_data(rng, n=8)
    model = px.Model(
        px.networks.MLP(3, 1, (4,), key=1), px.priors.Gaussian(1.0), px.likelihoods.Gaussian(1.0)
    )
    rows = {}
    for estimator in ESTIMATORS:
        method = px.BayesByBackprop(estimator=estimator, initial_rho=-1.0)
        phase, state = phase_of(method, model, len(y))
        keys = jax.random.split(jax.random.key(ESTIMATORS.index(estimator)), 20_000)
        rows[estimator] = gradients(phase, state, batch_of(x, y), keys)
    for estimator in ("local", "flipout"):
        gap = rows["weight"].mean(0) - rows[estimator].mean(0)
        error = (np.cov(rows["weight"].T) + np.cov(rows[estimator].T)) / 20_000
        assert p_value(gap, error) > 1e-3
        assert rows[estimator].var(0).sum() < rows["weight"].var(0).sum()


def test_score_of_q_has_mean_zero():
    """E_q[∇ log q] = 0, the identity under black-box inference, for μ and ρ."""
    mu, rho = jnp.array([0.4, -2.0]), jnp.array([-1.0, 0.5])
    w = mu + jax.nn.softplus(rho) * jax.random.normal(jax.random.key(0), (50_000, 2))

    def log_q(mu, rho, w):
        return jnp.sum(jax.scipy.stats.norm.logpdf(w, mu, jax.nn.softplus(rho)))

    score = jax.vmap(jax.grad(log_q, argnums=(0, 1)), in_axes=(None, None, 0))(mu, rho, w)
    rows = np.concatenate([np.asarray(s, np.float64) for s in score], axis=1)
    assert chi_square(rows, np.zeros(4)) > 1e-3


@pytest.mark.parametrize("weighting", ["uniform", "blundell"])
def test_minibatch_shares_sum_to_one(weighting):
    for m in (1, 2, 3, 24, 127, 128, 129, 469, 1000):
        shares = minibatch_weight(weighting, jnp.arange(1, m + 1), m) * jnp.ones(m)
        assert np.all(np.isfinite(shares))
        np.testing.assert_allclose(np.sum(np.asarray(shares, np.float64)), 1, rtol=1e-5)


@pytest.mark.parametrize("weighting", ["uniform", "blundell"])
@pytest.mark.parametrize("batches", [1, 4, 1000])
@pytest.mark.usefixtures("hasty_compiler")
def test_minibatch_objectives_sum_to_the_full_objective(rng, weighting, batches):
    """Same noise: the mean over an epoch of the minibatch gradients is the full gradient."""
    x, y = linear_data(rng, n=1000)
    method = px.BayesByBackprop(
        estimator="weight", kl_weights=weighting, kl="monte_carlo", initial_rho=-1.0
    )
    size = 1000 // batches
    whole, state = phase_of(method, linear_model(3), 1000)
    part, _ = phase_of(method, linear_model(3), 1000, batches, size)
    key, one = jax.random.key(0), jnp.ones(())
    n = 1000.0
    full, *_ = whole.gradient(state, batch_of(x, y), key, one, (1 / n, 1 / n))

    def minibatch(i):
        rows = jax.lax.dynamic_slice_in_dim
        b = batch_of(rows(x, i * size, size), rows(y, i * size, size), i)
        share = minibatch_weight(weighting, i + 1, batches)
        grads, *_ = part.gradient(state, b, key, one, (batches / n, batches / n * share))
        return grads

    x, y = jnp.asarray(x), jnp.asarray(y)
    each = jax.lax.map(minibatch, jnp.arange(batches))
    mean = jax.tree.map(lambda g: jnp.mean(g, 0), each)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5), mean, full)


@pytest.mark.usefixtures("hasty_compiler")
def test_step_scales_likelihood_and_kl_per_data_point(rng):
    """One step of gradient descent is −rate · ∇(mean NLL + KL/N), whatever the batch size."""
    x, y = linear_data(rng, n=40)
    method = px.BayesByBackprop(optimizer=optax.sgd(1.0), initial_rho=-1.0, estimator="weight")
    moved = []
    for copies in (1, 5):  # at μ = 0 the KL does not move μ, so only its reported share changes
        model = linear_model(3, px.priors.Gaussian(SCALE))
        phase, state = phase_of(method, model, 40 * copies)
        batch = batch_of(np.tile(x, (copies, 1)), np.tile(y, (copies, 1)))
        new, info = phase.step(state, batch, jax.random.key(0))
        kl = phase.report(state, jax.random.key(0))["kl"]
        moved.append((new.mu.network["w"], float(info.terms["nll"]), float(kl)))
    assert moved[0][1] == pytest.approx(moved[1][1], rel=1e-4)
    assert moved[0][2] == pytest.approx(5 * moved[1][2], rel=1e-4)
    np.testing.assert_allclose(moved[0][0], moved[1][0], rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("hasty_compiler")
def test_weight_decay_does_not_reach_rho(rng):
    x, y = linear_data(rng, n=40)
    rho = {}
    for decay in (0.0, 10.0):
        method = px.BayesByBackprop(optimizer=optax.adamw(1e-2, weight_decay=decay))
        posterior = px.fit(linear_model(3), (x, y), method, steps=1, key=0)
        rho[decay] = np.asarray(posterior.rho.network["w"])
    np.testing.assert_array_equal(rho[0.0], rho[10.0])


def test_temperature_zero_is_maximum_likelihood_and_warmup_delays_the_kl(rng):
    x, y = linear_data(rng, n=40)
    model = linear_model(3, px.priors.Gaussian(0.01))
    cold = px.fit(
        model, (x, y), px.BayesByBackprop(temperature=0.0, learning_rate=0.05), epochs=400, key=0
    )
    solution, *_ = np.linalg.lstsq(x, y, rcond=None)
    np.testing.assert_allclose(cold.mu.network["w"], solution, atol=0.02)
    warm = px.BayesByBackprop(kl_warmup=1e9, learning_rate=0.05)
    warming = px.fit(model, (x, y), warm, epochs=400, key=0)
    np.testing.assert_allclose(warming.mu.network["w"], solution, atol=0.02)


def test_sequential_updating_equals_all_at_once(rng):
    """Yesterday's posterior as today's prior: orthogonal inputs, so mean field is exact."""
    x = np.tile(np.eye(3, dtype="float32"), (40, 1))
    y = x @ np.array([[1.0], [-2.0], [0.5]], "float32")
    y = y + NOISE * rng.normal(size=y.shape).astype("float32")
    method = px.BayesByBackprop(samples=64, antithetic=True, learning_rate=0.01, initial_rho=-2.5)
    options = {"steps": 8000, "batch_size": 60, "key": 0}
    first = px.fit(linear_model(3), (x[:60], y[:60]), method, **options)
    second = px.fit(linear_model(3, first.as_prior()), (x[60:], y[60:]), method, **options)
    precision = 40 / NOISE**2 + 1 / SCALE**2
    mean = x.T @ y / NOISE**2 / precision
    np.testing.assert_allclose(second.mu.network["w"], mean, rtol=0.03)
    np.testing.assert_allclose(second.sigma().network["w"], precision**-0.5, rtol=0.03)


@pytest.mark.usefixtures("hasty_compiler")
def test_init_starts_from_a_posterior_or_a_trained_network(rng):
    x, y = linear_data(rng, n=40)
    model = linear_model(3)
    trained = px.fit(model, (x, y), px.MaximumAPosteriori(0.1), epochs=100, key=0)
    still = px.BayesByBackprop(optimizer=optax.sgd(0.0), initial_rho=-3.0)
    again = px.fit(model, (x, y), still, steps=1, key=0, init=trained)
    np.testing.assert_array_equal(again.mu.network["w"], trained.point.network["w"])
    np.testing.assert_allclose(again.rho.network["w"], -3.0)
    wide = px.fit(model, (x, y), px.BayesByBackprop(initial_rho=-1.0), epochs=50, key=0)
    same = px.fit(model, (x, y), still, steps=1, key=0, init=wide)
    np.testing.assert_allclose(same.sigma().network["w"], wide.sigma().network["w"], rtol=1e-5)

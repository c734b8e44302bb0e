"""Families and gradients of Bayes by Backprop against answers known exactly."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

import posterax as px
from posterax.posteriors import FullGaussian, MeanFieldGaussian
from posterax.predictive import Targets
from tests.conjugate import NOISE
from tests.variational import (
    LANDING,
    SCALE,
    TRUTH,
    batch_of,
    bound_on_z,
    gradients,
    kl_both_ways,
    phase_of,
    somewhere,
    z_values,
)

pytestmark = pytest.mark.usefixtures("hasty_compiler")

# -- the conjugate model


def covariance_of(posterior):
    if isinstance(posterior, FullGaussian):
        return np.asarray(posterior.covariance(), np.float64)
    sigma = np.asarray(posterior.sigma.network["w"], np.float64)
    return np.diag(sigma**2) + np.asarray(posterior.factor @ posterior.factor.T, np.float64)


@pytest.mark.parametrize("family", ["full", "low_rank"])
def test_correlated_families_equal_the_exact_posterior(family):
    """To 2 %; three common factors and a diagonal are any covariance of four weights."""
    rank = 3 if family == "low_rank" else None
    method = px.BayesByBackprop(
        family=family, rank=rank, gradient=LANDING, samples=8, learning_rate=0.05, initial_rho=-2.0
    )
    posterior = px.fit(TRUTH.model(), TRUTH.data, method, steps=1500, key=0)
    mean = np.asarray(posterior.mu.network["w"])
    assert np.max(np.abs(mean - TRUTH.mean) / SCALE) < 0.02
    gap = (covariance_of(posterior) - TRUTH.covariance) / np.outer(SCALE, SCALE)
    assert np.max(np.abs(gap)) < 0.02
    # the KL in the history is the closed one: ½ (tr S + m·m − D − log |S|) / N
    _, log_det = np.linalg.slogdet(TRUTH.covariance)
    exact = 0.5 * (np.trace(TRUTH.covariance) + TRUTH.mean @ TRUTH.mean - 4 - log_det) / 20
    assert posterior.history["kl"][-1] == pytest.approx(exact, rel=0.01)
    # and the density is the exact one
    at = TRUTH.mean + SCALE
    density = stats.multivariate_normal(TRUTH.mean, TRUTH.covariance).logpdf(at)
    given = posterior.log_prob(px.Parameters({"w": jnp.asarray(at, jnp.float32)}, {}))
    assert float(given) == pytest.approx(density, abs=0.05)


def test_mean_field_in_the_general_phase_finds_its_optimum():
    method = px.BayesByBackprop(
        gradient=LANDING, samples=64, antithetic=True, learning_rate=0.02, initial_rho=-2.0
    )
    posterior = px.fit(TRUTH.model(), TRUTH.data, method, steps=3000, key=0)
    assert isinstance(posterior, MeanFieldGaussian)
    mean, sigma = (np.asarray(part.network["w"]) for part in posterior.moments())
    optimum = np.diag(np.linalg.inv(TRUTH.covariance)) ** -0.5
    assert np.max(np.abs(mean - TRUTH.mean) / SCALE) < 0.02
    np.testing.assert_allclose(sigma, optimum, rtol=0.02)


def exact_objective(family, scales, x, y, variational):
    """E_q[NLL] and KL(q ‖ N(0, 1)) up to constants, by second moments."""
    mu = variational["mu"].network["w"]
    sigma = jnp.log1p(jnp.exp(variational["rho"].network["w"]))
    root = jnp.diag(sigma)
    if family == "full":
        root = sigma[:, None] * (jnp.eye(4) + jnp.tril(variational["lower"], -1))
    if family == "low_rank":
        root = sigma[:, None] * jnp.hstack([jnp.eye(4), variational["factor"]])
    covariance = root @ root.T
    half_log_det = 0.5 * jnp.linalg.slogdet(covariance)[1]
    if family == "radial":
        covariance = covariance / 4
    spread = jnp.trace(x @ covariance @ x.T)
    nll = 0.5 * (jnp.sum(jnp.square(y - x @ mu)) + spread) / NOISE**2
    kl = 0.5 * (jnp.trace(covariance) + mu @ mu) - half_log_det
    return scales[0] * nll + scales[1] * kl


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("full", {}),
        pytest.param("full", {"kl": "monte_carlo", "antithetic": True}, marks=pytest.mark.slow),
        ("full", {"gradient": LANDING}),
        pytest.param("low_rank", {"rank": 2}, marks=pytest.mark.slow),
        pytest.param("low_rank", {"rank": 2, "gradient": LANDING}, marks=pytest.mark.slow),
        pytest.param("radial", {}, marks=pytest.mark.slow),
        ("radial", {"gradient": LANDING}),
        pytest.param("mean_field", {"gradient": LANDING}, marks=pytest.mark.slow),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())),
)
def test_mean_gradient_is_the_exact_gradient(family, options):
    """On the first of two minibatches, at a temperature, with Blundell's share of the KL."""
    method = px.BayesByBackprop(
        family=family, samples=2, temperature=0.5, kl_weights="blundell", **options
    )
    phase, state = phase_of(method, batches=2)
    state, (x, y) = somewhere(state), (part[:10] for part in TRUTH.data)
    scales = 2 / 20, 0.5 * 2 / 20 * 2 / 3
    objective = partial(exact_objective, family, scales, x, y)
    truth = np.asarray(ravel_pytree(jax.jit(jax.grad(objective))(state.variational))[0])
    rows = gradients(phase, state, batch_of(x, y), 3000)
    random = rows.std(0) > 1e-5 * np.abs(rows).max()  # the rest is exact, above the diagonal zero
    z = z_values(rows[:, random], truth[random])
    assert np.max(np.abs(z)) < bound_on_z(len(z))
    np.testing.assert_allclose(rows.mean(0)[~random], truth[~random], atol=1e-4)


def test_sticking_the_landing_has_no_variance_at_the_posterior():
    model = TRUTH.model().for_targets((1,), jnp.float32)
    mu = px.Parameters({"w": jnp.asarray(TRUTH.mean, jnp.float32)}, {})
    cholesky = jnp.asarray(np.linalg.cholesky(TRUTH.covariance), jnp.float32)
    exact = FullGaussian(model, None, Targets((1,), (1,)), mu=mu, cholesky=cholesky)
    spread = {}
    for gradient in ("total", LANDING):
        method = px.BayesByBackprop(family="full", gradient=gradient)
        phase, state = phase_of(method, posterior=exact)  # starts where the posterior is
        np.testing.assert_allclose(phase.finish(state, None).cholesky, cholesky, rtol=1e-4)
        rows = gradients(phase, state, batch_of(*TRUTH.data), 200)
        spread[gradient] = np.sqrt(np.mean(np.var(rows, axis=0)))
    assert spread[LANDING] < 1e-3 * spread["total"]


# -- the KL of correlated families


@pytest.mark.parametrize(
    ("family", "other"),
    [
        pytest.param("full", px.priors.Gaussian(0.7), marks=pytest.mark.slow),
        ("low_rank", px.priors.ScaleMixture(0.5, 1.0, 0.2)),
    ],
    ids=["full", "low_rank"],
)
def test_closed_kl_agrees_with_monte_carlo(family, other):
    """Also for priors that are not Gaussian, in closed form or in part."""
    network = ({"a": jnp.zeros(3), "b": jnp.zeros(2)}, lambda p, x: x[:, :1] * p["a"][0])
    prior = px.priors.ByPart({"a": px.priors.Laplace(0.5)}, default=other)
    model = px.Model(network, prior, px.likelihoods.Gaussian(NOISE))
    phase, state = phase_of(px.BayesByBackprop(family=family), model)
    closed, sampled = kl_both_ways(phase, phase._distribution(somewhere(state).variational))
    if family == "full":  # nothing of it is sampled
        assert np.ptp(closed) < 1e-5
    assert abs(z_values(closed - sampled)) < 4


# -- starts, points, likelihood parameters, decay


@pytest.mark.parametrize("family", ["mean_field", "full", "low_rank", "radial"])
def test_starts_from_means_and_deviations(family):
    still = px.BayesByBackprop(family=family, gradient=LANDING, initial_rho="prior")
    phase, state = phase_of(still)
    _, std = phase.finish(state, None).moments()
    slack = 0.1 if family == "low_rank" else 1e-5  # beside what its factors start with
    np.testing.assert_allclose(std.network["w"], 1.0, rtol=slack)
    # from a posterior of another family: its moments
    other, begun = phase_of(px.BayesByBackprop(family="full"))
    earlier = other.finish(somewhere(begun), None)
    phase, state = phase_of(still, posterior=earlier)
    for given, wanted in zip(phase.finish(state, None).moments(), earlier.moments(), strict=True):
        np.testing.assert_allclose(given.network["w"], wanted.network["w"], rtol=1e-4)
    # from one of its own: the same distribution
    own = phase.finish(somewhere(state), None)
    phase, state = phase_of(still, posterior=own)
    at = px.Parameters({"w": jnp.array([0.2, -0.1, 0.4, 0.0])}, {})
    again = phase.finish(state, None)
    assert float(again.log_prob(at)) == pytest.approx(float(own.log_prob(at)), rel=1e-4)


def test_points_learned_noise_minibatches_and_files(tmp_path):
    """Of the weights only the last layer is uncertain, and the noise."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(48, 1)).astype("float32")
    y = np.sin(3 * x[:, 0]) + 0.1 * rng.normal(size=48)
    model = px.Model(
        px.networks.MLP(1, 1, (8,), key=0),
        px.priors.Gaussian(1.0),
        px.likelihoods.Gaussian(noise="learned", initial=0.5),
        where="layers.1.*",
    )
    method = px.BayesByBackprop(family="low_rank", rank=2, learning_rate=0.03, kl_warmup=2)
    posterior = px.fit(model, (x, y), method, steps=300, batch_size=16, key=0)
    assert posterior.factor.shape == (9 + 1, 2)
    assert posterior.sigma.network.layers[0].weight is None
    moved = posterior.mu.network.layers[0].weight - model.parameters.network.layers[0].weight
    assert float(jnp.max(jnp.abs(moved))) > 0.1
    assert posterior.history["nll"][-50:].mean() < 0.5
    posterior.save(tmp_path / "posterior.px")
    loaded = px.load(tmp_path / "posterior.px")
    jax.tree.map(
        np.testing.assert_array_equal, *((p.mu, p.sigma, p.factor) for p in (loaded, posterior))
    )


def test_weight_decay_reaches_means_only():
    decay = optax.chain(optax.add_decayed_weights(0.1), optax.sgd(1.0))
    phase, state = phase_of(px.BayesByBackprop(family="full", optimizer=decay))
    state, batch = somewhere(state), batch_of(*TRUTH.data)

    @jax.jit
    def both(key):
        return phase.step(state, batch, key)[0].variational, phase.gradient(state, batch, key)[0]

    before, (after, grads) = state.variational, both(jax.random.key(0))
    kept = {"mu": 0.9, "rho": 1.0, "lower": 1.0}
    for name, share in kept.items():
        expected = ravel_pytree(before[name])[0] * share - ravel_pytree(grads[name])[0]
        np.testing.assert_allclose(ravel_pytree(after[name])[0], expected, rtol=1e-4, atol=1e-5)


# -- bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"family": "wide"}, "family must be one of 'mean_field', 'full', 'low_rank', 'radial'"),
        ({"family": "bernoulli"}, "family='bernoulli': a discrete draw .* px.BlackBoxVI"),
        ({"objective": "vae"}, "objective must be one of"),
        ({"gradient": "score"}, "gradient must be one of"),
        ({"family": "full", "rank": 2}, "rank=2 is for family='low_rank'"),
        ({"family": "full", "estimator": "local"}, "estimator='local' is for family='mean_field'"),
        ({"gradient": LANDING, "estimator": "flipout"}, "use estimator='weight'"),
        ({"objective": "iwae"}, "objective='iwae' with one sample is the ELBO: give samples=K"),
        (
            {"objective": "iwae", "samples": 4, "antithetic": True, "gradient": LANDING},
            "antithetic=True: .* needs independent draws",
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_settings_that_do_not_go_together(options, message):
    with pytest.raises(ValueError, match=message):
        px.BayesByBackprop(**options)


def test_a_stream_is_told_of_the_other_objective():
    method = px.BayesByBackprop(objective="iwae", samples=4)
    with pytest.raises(ValueError, match="cannot stream batches; pass arrays, or use objective='e"):
        px.fit(TRUTH.model(), [TRUTH.data], method, steps=1)


def test_a_covariance_beyond_memory_is_refused_with_its_bytes():
    network = ({"w": np.zeros((1000, 1000), "float32")}, lambda p, x: x @ p["w"])
    model = px.Model(network, None, px.likelihoods.Gaussian(NOISE))
    data, d = (np.zeros((4, 1000), "float32"), np.zeros((4, 1000), "float32")), 10**6
    message = rf"family='full' for {d:,} weights .*family='low_rank'.* needs [\d,]+ bytes"
    with pytest.raises(MemoryError, match=message):
        px.fit(model, data, px.BayesByBackprop(family="full"), steps=1)

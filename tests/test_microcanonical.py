"""Microcanonical chains: against the exact posterior, by calibration, and beside HMC and NUTS."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import t as student

import posterax as px
from posterax.diagnostics.chain_statistics import convergence
from tests.sbc import compared, p_values, ranks

NOISE, CHAINS = 0.5, 64


def linear(params, x):
    return x @ params["w"]


@pytest.fixture(scope="module")
def conjugate():
    """y = x w + noise with correlated inputs: model, data, and the posterior's mean and Σ."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 6)) @ (np.eye(6) + 0.4)
    y = x @ rng.normal(size=6) + NOISE * rng.normal(size=20)
    covariance = np.linalg.inv(x.T @ x / NOISE**2 + np.eye(6))
    mean = covariance @ x.T @ y / NOISE**2
    model = px.Model(
        ({"w": jnp.zeros((6, 1))}, linear), px.priors.Gaussian(1.0), px.likelihoods.Gaussian(NOISE)
    )
    return model, (x.astype("float32"), y.astype("float32")), mean, covariance


def draws_of(conjugate, steps=300, key=0, **options):
    """(chain, draw, weight), with the truth at 0."""
    model, data, mean, _ = conjugate
    method = px.MCLMC(chains=CHAINS, warmup=600, ensemble_steps=50, **options)
    posterior = px.fit(model, data, method, steps=steps, key=key)
    return np.asarray(posterior.draws.network["w"])[..., 0].astype(float) - mean


def test_adjusted_chains_have_the_exact_means_and_covariances(conjugate):
    # a t-test of every mean, variance and covariance over chains, which are independent;
    # Bonferroni's bound for all 27 together: one false alarm in a thousand
    away = draws_of(conjugate, steps=150, adjusted=True)
    i, j = np.triu_indices(6)
    products = np.mean(away[..., i] * away[..., j], axis=1) - conjugate[3][i, j]
    found = np.concatenate([away.mean(1), products], axis=1)
    score = found.mean(0) / (found.std(0, ddof=1) / np.sqrt(CHAINS))
    assert np.abs(score).max() < student.ppf(1 - 0.5e-3 / found.shape[1], CHAINS - 1)


def ratios(conjugate, **options):
    """Deviation over the exact one in the directions of the posterior's axes, and its error."""
    away = draws_of(conjugate, **options)
    scale, axes = np.linalg.eigh(conjugate[3])
    variance = np.mean(np.square(away @ axes), axis=1) / scale
    return np.sqrt(variance.mean(0)), variance.std(0, ddof=1) / np.sqrt(CHAINS) / 2


def test_unadjusted_deviations_are_near_and_nearer_with_smaller_steps(conjugate):
    # ε goes with the sixth root of the energy error: an error 64 times smaller halves it
    near, _ = ratios(conjugate)
    assert np.all((near > 0.9) & (near < 1.1))
    rough, error = ratios(conjugate, energy_error=0.32)
    fine, fine_error = ratios(conjugate, energy_error=0.32 / 64)
    worst = np.argmax(np.abs(rough - 1))
    assert np.abs(rough - 1)[worst] > 4 * error[worst]  # there is a bias to be seen
    assert np.abs(fine - 1).max() + 3 * fine_error.max() < np.abs(rough - 1)[worst]


def test_calibration_passes_adjusted_and_fails_without_acceptance(calibration):
    # chi-square over 320 replications and three parameters; 1 in 1000 by chance
    options = {"chains": 1, "warmup": 300, "ensemble_steps": 20}
    # draws that are 4 steps apart are not independent, and their ranks not quite uniform
    figure = p_values(ranks(px.MCLMC(adjusted=True, **options), thin=12)).min()
    calibration("mclmc", figure=figure, least=1e-3 / 3, **compared("adjusted"))
    assert p_values(ranks(px.MCLMC(energy_error=10.0, **options))).min() < 1e-3 / 3


def curve(rows=16):
    x = np.linspace(-1, 1, rows)[:, None].astype("float32")
    y = np.sin(3 * x[:, 0]) + 0.1 * np.random.default_rng(1).normal(size=rows)
    model = px.Model(
        px.networks.MLP(1, 1, (6,), activation="tanh", key=0),
        px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.2),
    )  # fmt: skip
    return model, (x, y.astype("float32"))


def outputs(posterior, x):
    """(chain, draw, input): the network's values."""
    model = posterior.model
    one = lambda p: model.apply(p, posterior.state, x, None, training=False)[0][:, 0]  # noqa: E731
    return np.asarray(jax.vmap(jax.vmap(one))(posterior.draws))


@pytest.mark.slow
def test_hmc_nuts_and_adjusted_mclmc_agree_in_function_space():
    # Welch's t over 8 chains each, of every input's mean and square; for all pairs of methods,
    # inputs and moments together one false alarm in a thousand
    model, data = curve()
    x = jnp.linspace(-1.2, 1.2, 5)[:, None]
    methods = {
        "hmc": (px.HMC(chains=8, warmup=400, leapfrog_steps=24, target_acceptance=0.95), 2000),
        "nuts": (px.NUTS(chains=8, warmup=400, max_doublings=6, target_acceptance=0.95), 1000),
        "mclmc": (px.MCLMC(chains=8, adjusted=True), 3000),
    }
    found = {}
    for i, (name, (method, steps)) in enumerate(methods.items()):
        values = outputs(px.fit(model, data, method, steps=steps, key=i), x).astype(float)
        assert convergence(values).rhat.max() < 1.02, name
        found[name] = np.concatenate([values.mean(1), np.square(values).mean(1)], axis=1)
    pairs = [("hmc", "nuts"), ("hmc", "mclmc"), ("nuts", "mclmc")]
    for one, other in pairs:
        a, b = found[one], found[other]
        va, vb = a.var(0, ddof=1) / 8, b.var(0, ddof=1) / 8
        score = (a.mean(0) - b.mean(0)) / np.sqrt(va + vb)
        degrees = (va + vb) ** 2 / ((va**2 + vb**2) / 7)
        limit = student.ppf(1 - 0.5e-3 / (len(pairs) * a.shape[1]), degrees)
        assert np.all(np.abs(score) < limit), (one, other)


SHORT = {"chains": 2, "warmup": 20, "ensemble_steps": 10}


def test_members_are_trained_first_unless_a_start_is_given():
    model, data = curve()
    posterior = px.fit(model, data, px.MCLMC(**SHORT), steps=3, key=0)
    history = posterior.history
    assert len(history["training members/log_density"]) == 10
    trained = history["training members/log_density"]
    assert trained[-1] > trained[0]
    assert len(history["tuning/step_size"]) == 20
    assert {"log_density", "step_size", "energy_error", "divergences"} <= history.keys()
    lengths = np.asarray(posterior.stats["n_steps"])
    assert np.all(lengths == lengths[0, 0])

    given = px.fit(model, data, px.MCLMC(**SHORT), steps=3, key=0, init=posterior)
    assert not any(name.startswith("training") for name in given.history)
    longer = px.fit(model, data, px.MCLMC(**SHORT), steps=2, key=0, resume=given)
    assert longer.shape == (2, 5)
    none = px.fit(model, data, px.MCLMC(**SHORT | {"ensemble_steps": 0}), steps=3, key=0)
    assert not any(name.startswith("training") for name in none.history)


@pytest.mark.usefixtures("hasty_compiler")
def test_steps_between_and_statistics_for_arviz():
    model, data = curve()
    method = px.MCLMC(**SHORT, adjusted=True, steps_between=4)
    stats = px.fit(model, data, method, steps=40, key=0).to_arviz().sample_stats
    assert {"lp", "acceptance_rate", "n_steps", "diverging"} <= set(stats)
    lengths = np.asarray(stats["n_steps"])
    assert lengths.min() == 3
    assert lengths.max() == 6
    method = px.MCLMC(**SHORT, steps_between=4)
    stats = px.fit(model, data, method, steps=3, key=0).to_arviz().sample_stats
    assert {"lp", "energy_change", "n_steps", "diverging"} <= set(stats)
    assert np.all(np.asarray(stats["n_steps"]) == 4)


def cliff(params, x):
    """Finite at the start only, where all weights are 0."""
    return x @ params["w"] + jnp.where(jnp.any(params["w"] != 0), jnp.nan, 0)


def test_chains_that_cannot_move_end_in_an_error_that_says_what_to_change():
    model = px.Model(({"w": jnp.zeros((6, 1))}, cliff), likelihood=px.likelihoods.Gaussian(0.1))
    x = np.ones((4, 6), "float32")
    method = px.MCLMC(chains=1, warmup=200, ensemble_steps=0)
    with pytest.raises(px.StuckError, match=r"every step of every chain diverged.*energy_error"):
        px.fit(model, (x, x[:, 0]), method, steps=3, key=0, init=model.parameters)


def test_options_that_make_no_sense():
    with pytest.raises(ValueError, match="ensemble_steps must be a whole number"):
        px.MCLMC(ensemble_steps=-1)
    with pytest.raises(ValueError, match="energy_error must be a finite number above 0"):
        px.MCLMC(energy_error=0.0)
    with pytest.raises(ValueError, match="steps_between must be a whole number"):
        px.MCLMC(steps_between=0)
    with pytest.raises(ValueError, match="target_acceptance must lie between 0 and 1"):
        px.MCLMC(target_acceptance=1.0)
    model = px.Model(({"w": jnp.zeros((1, 1))}, linear), likelihood=px.likelihoods.Gaussian(0.1))
    with pytest.raises(ValueError, match="one weight only"):
        px.fit(model, (np.ones((3, 1)), np.ones(3)), px.MCLMC(), steps=3)

"""Sequential Monte Carlo against the evidence and the posterior known exactly, and two modes."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import f as f_distribution
from scipy.stats import multivariate_normal

import posterax as px
from posterax.data import Data
from posterax.infer.base import Start
from posterax.infer.chains.smc import Tempering, combine

from . import sbc

pytestmark = pytest.mark.usefixtures("hasty_compiler")

N, NOISE = 40, 0.5


def linear_data():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(N, 3)) @ np.array([[1.0, 0.5, 0.0], [0.0, 0.8, 0.2], [0.0, 0.0, 0.6]])
    y = x @ np.array([0.5, -1.0, 0.3]) + NOISE * rng.normal(size=N)
    return x.astype("float32"), y.astype("float32")


X, Y = linear_data()
PRECISION = X.T.astype(float) @ X / NOISE**2 + np.eye(3)
MEAN = np.linalg.solve(PRECISION, X.T.astype(float) @ Y / NOISE**2)
EVIDENCE = multivariate_normal(
    np.zeros(N), NOISE**2 * np.eye(N) + X.astype(float) @ X.T.astype(float)
).logpdf(Y)


def linear(params, x):
    return x @ params["w"]


def linear_model():
    network = {"w": jnp.zeros((3, 1))}, linear  # one function for all: nothing compiles twice
    return px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(NOISE))


def fit(method, key=0, **options):
    return px.fit(linear_model(), (X, Y), method, key=key, **options)


def whitened(posterior):
    """(groups, particles, 3): standard normal where the particles are of the posterior."""
    w = np.asarray(posterior.draws.network["w"], float)[..., 0]
    return (w - MEAN) @ np.linalg.cholesky(PRECISION)


GROUPS = 64
METHOD = px.SMC(particles=GROUPS * 64, groups=GROUPS)


def test_evidence_is_within_a_tenth_of_a_nat():
    """Three seeds: a weight's relative variance is 1/0.8 − 1 at each of about 10 temperatures.

    The error is then about √(10 · 0.25 / 4096) = 0.025.
    """
    for seed in range(3):
        posterior = fit(dataclasses.replace(METHOD, target_ess=0.8), seed)
        value, error, _ = posterior.log_evidence
        assert abs(value - EVIDENCE) < 0.1
        assert 0 < error < 0.05
        assert posterior.history["temperature"][-1] == 1


@pytest.fixture(scope="module")
def many_groups():
    """Groups know nothing of one another: each is a repetition of the whole method."""
    return fit(METHOD)


def test_evidence_has_no_bias_and_the_stated_error(many_groups):
    """z-test of the mean of p̂(D)/p(D), and an F-test of real against stated squared errors."""
    found = np.asarray(many_groups.record.final.state.log_evidence, float)
    ratios = np.exp(found - EVIDENCE)
    assert abs(ratios.mean() - 1) < 4 * ratios.std(ddof=1) / np.sqrt(GROUPS)
    assert ratios.std() > 0.05  # not constant: there is an error to state
    # fits of four groups each, as the default has it
    fits = [combine(part) for part in found.reshape(-1, 4)]
    real = np.mean([(made.value - EVIDENCE) ** 2 for made in fits])
    stated = np.mean([made.error**2 for made in fits])
    low, high = f_distribution.ppf([1e-3, 1 - 1e-3], len(fits), 3 * len(fits))
    assert low < real / stated < high


def test_particles_have_the_moments_of_the_posterior(many_groups):
    """z-tests over groups of 3 means and 6 second moments: |z| < 4 fails in 1 of 1700 seeds."""
    z = whitened(many_groups)
    first = z.mean(1)
    second = np.einsum("gni,gnj->gij", z, z)[:, *np.triu_indices(3)] / z.shape[1]
    second -= np.eye(3)[np.triu_indices(3)]
    for found in (first, second):
        error = found.std(0, ddof=1) / np.sqrt(GROUPS)
        assert np.all(np.abs(found.mean(0)) < 4 * error)
        assert np.all(error < 0.1)


# -- simulation-based calibration


class AcceptAll(Tempering):
    """A broken mutation: large steps, and no test whether to take them."""

    def mutate(self, key, w, log_density, size, leaps):
        return w + jax.random.normal(key, w.shape), size, jnp.ones(())


def ranks(kind, replications=320):
    """(replications, parameters): the rank of the truth among 15 particles, temperature λ = 1."""
    model = sbc.line_model()
    (phase,) = px.SMC(particles=64, groups=2).phases(model, sbc.plan_for(1))
    phase = kind(**{f.name: getattr(phase, f.name) for f in dataclasses.fields(phase)})
    phase = dataclasses.replace(phase, chains=1)
    x = jnp.linspace(-1, 1, sbc.ROWS)[:, None]

    def one(key):
        simulate_key, init_key, run_key, pick_key = jax.random.split(key, 4)
        truth, y = sbc.simulate(model, x, simulate_key)
        data = Data(x, y, jnp.ones(sbc.ROWS), jnp.asarray(sbc.ROWS))
        start = Start(model.parameters, model.network.state, None, given=False)
        state = phase.init(start, data, init_key)

        def step(carry):
            state, t = carry
            return phase.step(state, data.everything(), jax.random.fold_in(run_key, t))[0], t + 1

        state, _ = jax.lax.while_loop(
            lambda c: ~phase.done(c[0]) & (c[1] < 50), step, (state, jnp.zeros((), jnp.int32))
        )
        some = jax.random.choice(pick_key, phase.particles, (sbc.DRAWS,), replace=False)
        below = jnp.sum(state.position[0, some] < phase.position(truth), axis=0)
        return below, phase.done(state)

    keys = jax.random.split(jax.random.key(0), replications)
    found, done = eqx.filter_jit(jax.vmap(one))(keys)
    assert bool(jnp.all(done))
    return np.asarray(found)


def test_calibration_passes(calibration):
    """Chi-square for uniform ranks, 320 replications, 3 parameters (1 in 300 seeds fails)."""
    figure = np.min(sbc.p_values(ranks(Tempering)))
    calibration("smc", figure=figure, least=1e-3, **sbc.compared())


def test_calibration_fails_for_a_broken_kernel():
    assert np.min(sbc.p_values(ranks(AcceptAll, 200))) < 1e-6


# -- several modes


def two_modes():
    """y = v tanh(u x): (u, v) and (−u, −v) are the same function, so half the mass is at each."""
    network = ({"u": jnp.ones(()), "v": jnp.ones(())}, lambda p, x: p["v"] * jnp.tanh(p["u"] * x))
    model = px.Model(network, px.priors.Gaussian(1.5), px.likelihoods.Gaussian(0.1))
    x = np.linspace(-2, 2, 20)[:, None].astype("float32")
    return model, (x, np.tanh(1.5 * x[:, 0]))


def test_both_modes_get_their_mass():
    """z-test over groups of the share of particles with u > 0, which is ½."""
    model, data = two_modes()
    posterior = px.fit(model, data, px.SMC(particles=32 * 64, groups=32), key=0)
    share = np.mean(np.asarray(posterior.draws.network["u"]) > 0, axis=1)
    error = share.std(ddof=1) / np.sqrt(32)
    assert abs(share.mean() - 0.5) < 4 * error
    assert error < 0.05
    assert np.all((share > 0.05) & (share < 0.95))  # every group found both


@pytest.mark.slow
def test_a_chain_stays_in_one_of_the_modes():
    model, data = two_modes()
    chain = px.fit(model, data, px.NUTS(chains=1, warmup=200), steps=200, key=0)
    assert np.mean(np.asarray(chain.draws.network["u"]) > 0) in (0, 1)


# -- the contract


class StopNow(Exception):
    pass


def test_resuming_is_bit_identical(tmp_path):
    whole = fit(METHOD)
    assert len(whole.history["temperature"]) > 4

    def crash(event):
        if event.step > 1:
            raise StopNow

    options = {"checkpoint": px.Checkpoint(tmp_path, every=0)}
    with pytest.raises(StopNow):
        fit(METHOD, callbacks=[crash], **options)
    resumed = fit(METHOD, **options)
    for a, b in zip(jax.tree.leaves(whole.bare()), jax.tree.leaves(resumed.bare()), strict=True):
        np.testing.assert_array_equal(a, b)
    assert whole.log_evidence == resumed.log_evidence


def test_too_few_temperatures_are_an_error():
    with pytest.raises(px.StuckError, match=r"after 3 temperatures λ is 0\.\d+, not 1.*Raise"):
        fit(dataclasses.replace(METHOD, temperatures=3))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:noise=1e-30 is known")
def test_data_that_nothing_explains_is_an_error():
    model = px.Model(linear_model().network, likelihood=px.likelihoods.Gaussian(1e-30))
    with pytest.raises(px.NonFiniteError, match="no particle explains the data"):
        px.fit(model, (X, Y), px.SMC(particles=8, groups=2), key=0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: px.SMC(particles=1001), "particles=1001 must be a multiple of groups=4"),
        (lambda: px.SMC(groups=1), "groups must be a whole number .* of 2 or more"),
        (lambda: px.SMC(target_ess=1.0), "target_ess must lie between 0 and 1"),
        (lambda: fit(px.SMC(), steps=10), "steps: SMC"),
        (lambda: fit(px.SMC(), init=linear_model().network), "init: SMC starts from the prior"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()

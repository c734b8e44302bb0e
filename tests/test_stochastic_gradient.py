"""SGLD and SGHMC against answers known exactly: the posterior, and the bias of their own steps.

On a Gaussian target a step is a linear map plus noise, so the law that the chains settle into is
known for any step size. Tests compare with that law, and show that it nears the posterior.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov

import posterax as px
from posterax.infer.base import Plan
from posterax.predictive import Targets

pytestmark = pytest.mark.usefixtures("hasty_compiler")

N, NOISE, CHAINS = 100, 0.5, 64


def linear_data():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(N, 3)) @ np.array([[1.0, 0.3, 0.0], [0.0, 0.8, 0.2], [0.0, 0.0, 0.7]])
    y = x @ np.array([0.5, -1.0, 0.3]) + NOISE * rng.normal(size=N)
    return x.astype("float32"), y.astype("float32")


X, Y = linear_data()
PRECISION = X.T.astype(float) @ X / NOISE**2 + np.eye(3)
MEAN = np.linalg.solve(PRECISION, X.T.astype(float) @ Y / NOISE**2)
CURVATURE, DIRECTIONS = np.linalg.eigh(PRECISION)


def linear(params, x):
    return x @ params["w"]


def linear_model():
    network = {"w": jnp.zeros((3, 1))}, linear  # one function for all: nothing compiles twice
    return px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(NOISE))


def along(posterior):
    """(chains, draws, 3): distances from the posterior mean along its axes."""
    w = np.asarray(posterior.draws.network["w"], float)[..., 0]
    return (w - MEAN) @ DIRECTIONS


def spread(found):
    """Deviation along each axis as a ratio to the posterior's, with its standard error.

    Chains see different noise, so the spread between their own estimates is the error of the mean.
    """
    squares = np.mean(np.square(found), axis=1) * CURVATURE
    mean, error = squares.mean(0), squares.std(0, ddof=1) / np.sqrt(len(squares))
    return np.sqrt(mean), error / (2 * np.sqrt(mean))


def fit(method, steps, **options):
    return px.fit(linear_model(), (X, Y), method, steps=steps, key=0, **options)


def everything(kind, rate, **options):
    return kind(rate, chains=CHAINS, keep=10**6, **options)


def langevin_law(rate):
    """Deviation ratios: Var = 1 / (a (1 − εa/2)) instead of 1 / a."""
    return 1 / np.sqrt(1 - rate / N * CURVATURE / 2)


def hamiltonian_law(rate, friction):
    """The same from (w, p) ← F (w, p) + noise, which has Var = F Var Fᵀ + noise."""
    h, ratios = np.sqrt(rate / N), []
    for a in CURVATURE:
        # w' = w + h p; p' = (1 − α) p − h a w' + √(2α) ξ
        move = np.array([[1, h], [-h * a, 1 - friction - h * h * a]])
        law = solve_discrete_lyapunov(move, np.diag([0, 2 * friction]))
        ratios.append(np.sqrt(law[0, 0] * a))
    return np.array(ratios)


LAWS = {px.SGLD: langevin_law, px.SGHMC: lambda rate: hamiltonian_law(rate, 0.1)}


@pytest.mark.parametrize("kind", [px.SGLD, px.SGHMC])
def test_full_batches_settle_into_the_law_of_their_steps(kind):
    """z-test of the deviation along each axis at two rates; the bias shrinks with the rate.

    Twelve comparisons in all (2 methods, 2 rates, 3 axes): |z| < 4 fails in 1 of 1300 seeds.
    """
    found = {}
    for rate, steps in ((0.2, 1600), (0.05, 3200)):
        ratio, error = spread(along(fit(everything(kind, rate), steps)))
        law = LAWS[kind](rate)
        assert np.all(np.abs(ratio - law) < 4 * error)
        found[rate] = ratio, error
    ratio, error = found[0.2]
    assert (ratio - 1)[-1] > 10 * error[-1]  # the test can tell the law from the posterior
    assert np.all(np.abs(found[0.05][0] - 1) < 0.1)
    assert np.all(np.abs(found[0.05][0] - 1) < np.abs(ratio - 1))


@pytest.mark.parametrize(("kind", "rate"), [(px.SGLD, 0.02), (px.SGHMC, 0.004)])
def test_minibatches(kind, rate):
    """10 of 100 rows: deviations within a tenth of the truth, and nearer at a quarter of the rate.

    The noise of a minibatch's gradient widens most where the curvature is largest: the last axis.
    """
    widest = []
    for r, steps in ((rate, 4000), (rate / 4, 12_000)):
        posterior = fit(everything(kind, r), steps, batch_size=10)
        ratio, error = spread(along(posterior))
        assert np.all(np.abs(ratio - 1) < 0.1)
        widest.append((abs(ratio[-1] - 1), error[-1]))
    (coarse, error), (fine, fine_error) = widest
    assert coarse - fine > 3 * np.hypot(error, fine_error)


VARIANTS = {
    "polynomial": px.SGLD(0.02, schedule="polynomial"),
    "preconditioned": px.SGLD(0.005, preconditioner="rmsprop"),
    "preconditioned hamiltonian": px.SGHMC(0.002, preconditioner="rmsprop"),
    "cyclical": px.SGLD(0.05, schedule="cyclical", cycles=5, burn_in=0.6),
    "cyclical hamiltonian": px.SGHMC(0.01, schedule="cyclical", cycles=5, burn_in=0.6),
}


SLOW = {"polynomial", "preconditioned", "cyclical hamiltonian"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in VARIANTS]
)
def test_variants_have_the_right_mean_and_deviation(name):
    """By minibatches: means within a fifth of a posterior deviation, deviations within a tenth.

    All chains see the same minibatches, so that means of chains move together.
    """
    method = dataclasses.replace(VARIANTS[name], chains=CHAINS, keep=10**6)
    found = along(fit(method, 8000, batch_size=10))
    assert np.all(np.abs(found.mean((0, 1))) * np.sqrt(CURVATURE) < 0.2)
    assert np.all(np.abs(spread(found)[0] - 1) < 0.1)


def test_cycles_keep_draws_of_their_sampling_part_only():
    method = px.SGLD(0.04, chains=2, schedule="cyclical", cycles=4, burn_in=0.75, keep=40)
    posterior = fit(method, 800, batch_size=10)
    rates = posterior.history["learning_rate"]
    np.testing.assert_allclose(rates[::200], 0.04)  # every cycle begins at the full rate
    assert np.all(np.diff(rates).reshape(-1)[:199] < 0)
    assert posterior.shape == (2, 40)
    kept = np.asarray(posterior.stats["learning_rate"])[0]
    # of 200 steps the last 50 sample, every fifth is kept, and the last of all always
    expected = np.concatenate([rates[c * 200 + 154 : (c + 1) * 200 : 5] for c in range(4)])
    np.testing.assert_array_equal(kept, expected)
    assert fit(method, 800, batch_size=10, thin=2).shape == (2, 20)


@pytest.mark.parametrize("schedule", ["constant", "cyclical"])
@pytest.mark.parametrize(("steps", "thin", "keep"), [(97, 1, 10), (100, 3, 1000), (7, 2, 3)])
def test_the_count_of_draws_is_that_of_a_walk_through_all_steps(schedule, steps, thin, keep):
    cycles = 3 if schedule == "cyclical" else 1
    method = px.SGLD(schedule=schedule, cycles=cycles, keep=keep, burn_in=0.4)
    (phase,) = method.phases(linear_model(), plan_of(steps))
    length = -(-steps // cycles)
    burn = int(0.4 * length)
    every = math.ceil((length - burn) * cycles / keep) * thin
    walk = [t % length >= burn and (length - 1 - t % length) % every == 0 for t in range(steps)]
    counted = phase.retained(np.arange(steps + 1), thin)
    np.testing.assert_array_equal(np.diff(counted), walk)
    np.testing.assert_array_equal(phase.retained(jnp.arange(steps + 1), thin), counted)


def plan_of(steps):
    one = jnp.ones((), jnp.int32)
    return Plan(jnp.asarray(float(N)), one, steps * one, N, Targets((), (1,)))


def test_streams_give_the_draws_of_the_posterior():
    batches = [(X[i : i + 20], Y[i : i + 20]) for i in range(0, N, 20)]
    method = px.SGHMC(0.004, chains=16)
    posterior = px.fit(linear_model(), batches, method, epochs=600, key=0)
    assert posterior.shape == (16, 100)
    found = along(posterior)
    assert np.all(np.abs(found.mean((0, 1))) * np.sqrt(CURVATURE) < 0.2)
    # 1600 draws, a few hundred of them independent: a deviation of theirs is known to a tenth
    assert np.all(np.abs(spread(found)[0] - 1) < 0.3)


class StopNow(Exception):
    pass


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(
            px.SGLD(0.01, chains=2, preconditioner="rmsprop", keep=30), marks=pytest.mark.slow
        ),
        px.SGHMC(0.01, chains=2, schedule="cyclical", cycles=3, keep=30),
    ],
)
def test_resuming_is_bit_identical(method, tmp_path):
    whole = fit(method, 300, batch_size=10)

    def crash(event):
        if event.step > 200:
            raise StopNow

    options = {"batch_size": 10, "checkpoint": px.Checkpoint(tmp_path, every=0)}
    with pytest.raises(StopNow):
        fit(method, 300, callbacks=[crash], **options)
    resumed = fit(method, 300, **options)
    for a, b in zip(jax.tree.leaves(whole.bare()), jax.tree.leaves(resumed.bare()), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(whole.history["nll"], resumed.history["nll"])


def test_going_on_burns_in_no_more():
    method = px.SGLD(0.01, chains=2, keep=50)
    posterior = fit(method, 200)
    assert posterior.shape == (2, 50)
    longer = fit(method, 400, resume=posterior)
    assert longer.shape == (2, 100)
    assert len(longer.history["nll"]) == 600
    np.testing.assert_array_equal(longer.draws.network["w"][:, :50], posterior.draws.network["w"])


def test_chains_start_where_init_is():
    start = fit(px.MaximumAPosteriori(0.05), 400)
    method = px.SGLD(1e-4, chains=2, burn_in=0)
    near = fit(method, 2, init=start)
    assert np.all(np.abs(along(near)) < 0.2)


def test_steps_that_run_away_are_refused_with_what_to_change():
    with pytest.raises(px.NonFiniteError, match=r"nll is not finite.*Lower learning_rate"):
        fit(px.SGLD(10.0), 2000)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: px.SGLD(0.0), "learning_rate must be a finite number above 0"),
        (lambda: px.SGLD(schedule="cosine"), "schedule must be one of 'constant', 'polynomial'"),
        (lambda: px.SGLD(preconditioner="adam"), "preconditioner must be one of 'rmsprop'"),
        (lambda: px.SGLD(burn_in=1.0), "burn_in must lie between 0 and 1"),
        (lambda: px.SGLD(cycles=4), "cycles=4 needs schedule='cyclical'"),
        (lambda: px.SGLD(keep=0), "keep must be a whole number"),
        (lambda: px.SGHMC(friction=1.5), "friction must lie above 0"),
        (lambda: fit(px.SGLD(schedule="cyclical", cycles=9), 10), "cycles=9 are too many for 10"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()

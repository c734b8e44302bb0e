"""Weights on a grid: the prior, and the exact posterior by summing over all states."""

import itertools
import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import posterax as px
from posterax.posteriors.enumerated import MOST, encode

pytestmark = pytest.mark.usefixtures("hasty_module")  # many small programs, each run once

X = np.array([[1.0, 0.5], [-0.5, 1.0], [0.3, -1.2], [0.8, 0.1]], "float32")
Y = np.array([0.9, 0.2, -0.4, 0.6], "float32")
NOISE = 0.7
SLOPES = px.priors.Grid([-1.0, 0.0, 2.0], probs=[0.2, 0.5, 0.3])
PRIOR = px.priors.ByPart({"offset": px.priors.Grid([-0.5, 0.5])}, default=SLOPES)


def line(p, x):
    return x @ p["slope"] + p["offset"]


def tiny(prior=PRIOR, inputs=2, likelihood=None):
    network = {"offset": jnp.zeros(1), "slope": jnp.zeros((inputs, 1))}, line
    return px.Model(network, prior, likelihood or px.likelihoods.Gaussian(NOISE))


def network_model(hidden=2, prior=None):
    network = px.networks.MLP(2, 1, (hidden,), key=0)
    prior = px.priors.Grid([-1.0, 1.0]) if prior is None else prior
    return px.Model(network, prior, px.likelihoods.Gaussian(NOISE))


@pytest.fixture(scope="module")
def brute():
    """By hand, in float64: every state of the tiny model, its parameters and log joint."""
    states, log_joint = [], []
    values, probs = SLOPES.values, SLOPES.probs
    for offset, i, j in itertools.product([-0.5, 0.5], range(3), range(3)):
        w = np.array([offset, values[i], values[j]])
        mean = X.astype(np.float64) @ w[1:] + offset
        log_p = stats.norm(mean, NOISE).logpdf(Y).sum() + np.log(0.5 * probs[i] * probs[j])
        states.append(w)
        log_joint.append(log_p)
    return np.array(states), np.array(log_joint)


@pytest.fixture(scope="module")
def exact():
    return px.fit(tiny(), (X, Y), px.Enumeration(), key=0)


def test_enumeration_is_the_brute_force_sum(exact, brute):
    states, log_joint = brute
    evidence = np.logaddexp.reduce(log_joint)
    probs = np.exp(log_joint - evidence)
    # float32 arithmetic: log joints of some tens carry errors of some 1e-6
    assert exact.log_evidence.value == pytest.approx(evidence, abs=2e-5)
    assert exact.log_evidence.error == 0
    assert len(exact.log_probs) == len(states) == 18
    all_states = px.Parameters({"offset": states[:, :1], "slope": states[:, 1:, None]}, {})
    all_states = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), all_states)
    log_probs = jax.jit(jax.vmap(exact.log_prob))(all_states)
    np.testing.assert_allclose(log_probs, np.log(probs), atol=2e-5)

    marginals = exact.marginals().network
    for k, value in enumerate(SLOPES.values):
        for j in range(2):
            wanted = probs[states[:, 1 + j] == value].sum()
            assert float(marginals["slope"][j, 0, k]) == pytest.approx(wanted, abs=1e-5)
    mean, std = exact.moments()
    np.testing.assert_allclose(mean.network["slope"][:, 0], probs @ states[:, 1:], atol=2e-5)
    spread = np.sqrt(probs @ np.square(states - probs @ states))
    np.testing.assert_allclose(std.network["offset"], spread[:1], atol=2e-5)

    product, error = exact.expectation(lambda p: p.network["slope"][:, 0] * p.network["offset"])
    np.testing.assert_allclose(product, (probs * states[:, 0]) @ states[:, 1:], atol=2e-5)
    np.testing.assert_array_equal(error, 0)

    # predictions: the mean and both parts of the variance
    means = states[:, 1:] @ X.T.astype(np.float64) + states[:, :1]
    predictive = exact.predict(X)
    np.testing.assert_allclose(predictive.mean, probs @ means, atol=2e-5)
    np.testing.assert_allclose(
        predictive.epistemic, probs @ np.square(means - probs @ means), atol=5e-5
    )
    log_p = stats.norm(means, NOISE).logpdf(Y)
    wanted = np.logaddexp.reduce(log_p + np.log(probs)[:, None], axis=0)
    np.testing.assert_allclose(predictive.log_prob(Y), wanted, atol=2e-5)


def test_evidence_is_elbo_plus_divergence():
    """ln p(D) = ELBO(q) + KL(q ‖ p(w | D)) for any q; here a factorised one, drawn at random."""
    model = network_model()
    posterior = px.fit(model, (X, Y), px.Enumeration(), key=0)
    count = len(posterior.log_probs)
    assert count == 2**9
    up = np.random.default_rng(0).uniform(0.05, 0.95, 9)  # q(wᵢ = +1)
    elbo = divergence = total = 0.0
    states = jax.jit(jax.vmap(posterior.parameters))(jnp.arange(count))
    log_joint = np.asarray(jax.jit(jax.vmap(lambda p: model.log_joint(p, X, Y[:, None])))(states))
    bits = np.concatenate([np.asarray(a).reshape(count, -1) for a in jax.tree.leaves(states)], 1)
    assert len(np.unique(bits, axis=0)) == count  # every state, once
    for w, log_p, log_post in zip(bits, log_joint, np.asarray(posterior.log_probs), strict=True):
        log_q = np.log(np.where(w > 0, up, 1 - up)).sum()
        total += np.exp(log_q)
        elbo += np.exp(log_q) * (log_p - log_q)
        divergence += np.exp(log_q) * (log_q - log_post)
    assert total == pytest.approx(1)
    assert divergence > 0.5  # q is far from the posterior, and elbo alone from the evidence
    assert elbo + divergence == pytest.approx(posterior.log_evidence.value, abs=1e-4)


def test_steps_of_another_size_are_the_same_sum(exact):
    uneven = px.fit(tiny(), (X, Y), px.Enumeration(chunk=5))  # 18 states: the last not a whole one
    assert len(uneven.history["log_evidence"]) == 4
    assert uneven.log_evidence.value == pytest.approx(exact.log_evidence.value, abs=1e-5)
    np.testing.assert_allclose(uneven.log_probs, exact.log_probs, atol=1e-5)


def test_weights_of_examples_count(exact):
    twice = px.fit(tiny(), (X, Y, np.full(4, 2.0)), px.Enumeration())
    copies = px.fit(tiny(), (np.tile(X, (2, 1)), np.tile(Y, 2)), px.Enumeration())
    np.testing.assert_allclose(twice.log_probs, copies.log_probs, atol=1e-4)
    assert not np.allclose(twice.log_probs, exact.log_probs, atol=0.1)


def test_draws_follow_the_probabilities(exact):
    """A chi-square test at 0.001 of 20,000 draws; rare states are counted together."""
    drawn = exact.sample(1, 20_000)
    numbers, inside = jax.jit(jax.vmap(lambda p: encode(exact.model, p)))(drawn)
    assert bool(jnp.all(inside))
    counts = np.bincount(numbers, minlength=18)
    expected = 20_000 * np.exp(np.asarray(exact.log_probs, np.float64))
    often = expected >= 5
    counts = np.append(counts[often], counts[~often].sum())
    expected = np.append(expected[often], expected[~often].sum())
    kept = expected > 0
    chi2 = np.sum(np.square(counts - expected)[kept] / expected[kept])
    assert chi2 < stats.chi2(kept.sum() - 1).ppf(0.999)


def test_off_the_grid_is_impossible(exact):
    @jax.jit
    def around(number, step):
        params = jax.tree.map(lambda w: w + step, exact.parameters(number))
        return exact.log_prob(params)

    assert float(around(3, 0.0)) == float(exact.log_probs[3])
    assert float(around(3, 0.1)) == -np.inf


def test_more_states_than_a_prediction_takes_are_drawn_evenly():
    """2^13 states that are all possible: 4096 draws, within 4.5 standard errors of the sum."""
    model = network_model(hidden=3)
    posterior = px.fit(model, (X[:1], Y[:1]), px.Enumeration())
    assert len(posterior.likely()[0]) > MOST
    predictive = posterior.predict(X, key=5)
    assert predictive.samples == MOST

    def outputs(params):
        return model.network.apply(params.network, None, jnp.asarray(X), None, False)[0][:, 0]

    wanted, _ = posterior.expectation(outputs)
    error = np.sqrt(predictive.epistemic / MOST)
    assert np.all(np.abs(predictive.mean - wanted) < 4.5 * error)


def test_interrupted_and_resumed_is_the_same(tmp_path):
    model, method = network_model(hidden=3), px.Enumeration(chunk=64)
    whole = px.fit(model, (X, Y), method, key=0)

    def press(event):
        if event.step < event.total:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.warns(UserWarning, match=r"of 8,192 states were visited.*resume=posterior"):
        part = px.fit(model, (X, Y), method, key=0, callbacks=[press], checkpoint=tmp_path / "c")
    assert part.record.interrupted
    assert np.sum(np.isfinite(part.log_probs)) < 8192
    with pytest.raises(
        ValueError,
        match=r"log_evidence: this posterior of Enumeration has none.*ImportanceSampling",
    ):
        _ = part.log_evidence
    resumed = px.fit(model, (X, Y), method, key=0, resume=part)
    restarted = px.fit(model, (X, Y), method, key=0, checkpoint=tmp_path / "c")
    for same in (resumed, restarted):
        np.testing.assert_array_equal(same.log_probs, whole.log_probs)
        np.testing.assert_array_equal(same.history["log_evidence"], whole.history["log_evidence"])
        assert same.log_evidence == whole.log_evidence


@pytest.mark.parametrize(
    "prior",
    [px.priors.Grid([-1, 1], [0.3, 0.7]),
     px.priors.ByPart({"*.bias": px.priors.Grid([0.0, 0.1, 0.2])}, px.priors.Grid([-1, 1]))],
    ids=["one", "by part"],
)  # fmt: skip
def test_saved_and_loaded(prior, tmp_path):
    posterior = px.fit(network_model(prior=prior), (X, Y), px.Enumeration(), key=0)
    posterior.save(tmp_path / "exact.px")
    loaded = px.load(tmp_path / "exact.px")
    assert loaded.log_evidence == posterior.log_evidence
    np.testing.assert_array_equal(loaded.log_probs, posterior.log_probs)
    np.testing.assert_array_equal(loaded.predict(X).mean, posterior.predict(X).mean)
    for one, two in zip(
        jax.tree.leaves(loaded.marginals()), jax.tree.leaves(posterior.marginals()), strict=True
    ):
        np.testing.assert_array_equal(one, two)


def test_a_few_weights_of_a_frozen_network():
    network = px.networks.MLP(2, 1, (50,), key=0)
    model = px.Model(
        network, px.priors.Grid([-1, 0, 1]), px.likelihoods.Gaussian(NOISE),
        where="layers.1.bias", rest="frozen",
    )  # fmt: skip
    posterior = px.fit(model, (X, Y), px.Enumeration())
    assert len(posterior.log_probs) == 3
    assert jax.tree.leaves(posterior.marginals())[0].sum() == pytest.approx(1, abs=1e-6)


# -- errors


def fit(method=None, model=None, x=X, **options):
    return px.fit(model or tiny(), (x, Y), method or px.Enumeration(), **options)


HALF = px.priors.ByPart({"offset": px.priors.Gaussian(1.0)}, default=SLOPES)
LEARNED = px.likelihoods.Gaussian(noise="learned")
BAD = {
    "too many": (
        lambda: fit(model=tiny(px.priors.Grid([-1, 1]), 99), x=np.ones((4, 99))),
        r"2\^100 ≈ 1\.27e30 states.*2\^22.*px\.Metropolis or px\.ImportanceSampling",
    ),
    "far too many": (
        lambda: fit(model=tiny(inputs=5000), x=np.ones((4, 5000))),
        r"2\^1 · 3\^5000 ≈ \d\.\d\de2385 states",
    ),
    "one not on a grid": (
        lambda: fit(model=tiny(HALF)), r"Grid for every parameter.*network\.offset has Gaussian",
    ),
    "noise not on a grid": (
        lambda: fit(model=tiny(likelihood=LEARNED)),
        r"Grid for every parameter.*likelihood\..* has .*known noise",
    ),
    "steps": (lambda: fit(steps=10), "steps: Enumeration goes through everything once"),
    "epochs": (lambda: fit(epochs=10), "epochs: Enumeration goes through everything once"),
    "init": (lambda: fit(init=tiny().parameters), "init: Enumeration visits every state"),
    "validation": (lambda: fit(validation=(X, Y)), "validation is for methods that optimise; Enum"),
    "chunk": (lambda: px.Enumeration(chunk=0), "chunk must be a whole number"),
    "gradient of a grid": (
        lambda: fit(px.MaximumAPosteriori(), tiny(HALF)),
        r"MaximumAPosteriori needs a density.*network\.slope is a px\.priors\.Grid.*"
        r"px\.Enumeration, px\.ImportanceSampling or px\.Metropolis",
    ),
    "nothing explains": (
        lambda: fit(model=tiny(px.priors.Grid([1, 2])), x=np.full((4, 2), 1e30)),
        "no state explains the data",
    ),
    "as a prior": (
        lambda: fit().as_prior(), "Enumerated: weights on a grid are not Gaussian",
    ),
    "one value": (lambda: px.priors.Grid([1.0]), "values must be a list of two or more"),
    "a number": (lambda: px.priors.Grid(2), "values must be a list of two or more"),
    "no number": (lambda: px.priors.Grid("ab"), "values must be a number"),
    "equal values": (lambda: px.priors.Grid([1, 1 + 1e-12]), "values must be distinct"),
    "infinite values": (lambda: px.priors.Grid([0, np.inf]), "values must be finite"),
    "probs of another length": (lambda: px.priors.Grid([0, 1], [1.0]), "probs must be 2 numbers"),
    "probs of another sum": (lambda: px.priors.Grid([0, 1], [0.2, 0.2]), "probs must be positive"),
    "probs of zero": (lambda: px.priors.Grid([0, 1], [0.0, 1.0]), "probs must be positive.*leave"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:x, column 0, is 1e.30")  # of which it warns as well
@pytest.mark.parametrize("case", BAD)
def test_errors(case):
    call, message = BAD[case]
    with pytest.raises((ValueError, TypeError, FloatingPointError), match=message):
        call()


@pytest.mark.parametrize(
    "method",
    [px.BayesByBackprop(), px.MaximumLikelihood(), px.DeepEnsemble(2), px.NUTS(1, warmup=4)],
    ids=lambda m: type(m).__name__,
)
def test_methods_with_gradients_refuse_a_grid(method):
    with pytest.raises(ValueError, match=f"{type(method).__name__} needs a density"):
        px.fit(tiny(), (X, Y), method, steps=2)


# -- the prior


def test_grid_draws_and_deviation():
    """A chi-square test at 0.001 of 10,000 draws."""
    w = SLOPES.sample(jax.random.key(0), (100, 100), jnp.float32)
    counts = np.bincount(np.ravel(SLOPES.index(w)), minlength=3)
    chi2 = np.sum(np.square(counts - 1e4 * SLOPES.probs) / (1e4 * SLOPES.probs))
    assert chi2 < stats.chi2(2).ppf(0.999)
    assert np.exp(SLOPES.log_prob(w)).max() == pytest.approx(0.5)
    mean = SLOPES.probs @ SLOPES.values
    wanted = np.sqrt(SLOPES.probs @ SLOPES.values**2 - mean**2)
    assert SLOPES.deviation() == pytest.approx(wanted)
    near = jnp.array([2.0 + 5e-4, 2.0 + 5e-3])  # the smallest distance is 1
    np.testing.assert_array_equal(SLOPES.contains(near), [True, False])

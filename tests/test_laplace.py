"""The Laplace approximation against exact answers: posterior, evidence, predictions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize
from sklearn.datasets import load_digits

import posterax as px
from posterax.data import Batch
from posterax.infer.laplace.tuning import left_out

from .conjugate import NOISE, conjugate
from .test_curvature import as_matrix, compare

pytestmark = pytest.mark.usefixtures("hasty_compiler")

TRUTH = conjugate()


def at(model, data, weights=None, **options):
    """Laplace around given weights of the network: the curvature alone."""
    init = None if weights is None else px.Parameters(weights, model.parameters.likelihood)
    method = px.Laplace(train=False, **({"prior_precision": "fixed"} | options))
    return px.fit(model, data, method, init=init, key=0)


def test_conjugate_model():
    """Trained to its maximum, full Laplace is the posterior, and its evidence the evidence."""
    method = px.Laplace(structure="full", prior_precision="fixed", learning_rate=0.1)
    found = px.fit(TRUTH.model(), TRUTH.data, method, steps=3000, key=0)
    deviation = np.sqrt(np.diag(TRUTH.covariance))
    np.testing.assert_allclose(found.covariance(), TRUTH.covariance, rtol=0.02)
    assert np.all(np.abs(found.mu.network["w"] - TRUTH.mean) < 0.02 * deviation)
    # a maximum missed by 0.02 deviations costs less than 10⁻³ nats; the rest is rounding
    assert abs(found.log_evidence.value - TRUTH.log_evidence) < 2e-3
    assert found.log_evidence.error == 0

    # one output with constant noise: the factor of the outputs is a constant, and nothing is lost
    factors = px.fit(
        TRUTH.model(),
        TRUTH.data,
        px.Laplace("kronecker", prior_precision="fixed", train=False),
        init=found,
    )
    np.testing.assert_allclose(factors.covariance(), TRUTH.covariance, rtol=0.02)
    assert abs(factors.log_evidence.value - TRUTH.log_evidence) < 2e-3


def test_weights_count_as_repetitions():
    x, y = TRUTH.data
    twice = at(TRUTH.model(), (np.concatenate([x[:10]] * 2), np.concatenate([y[:10]] * 2)))
    weighted = at(TRUTH.model(), (x, y, np.repeat([2.0, 0.0], 10)))
    np.testing.assert_allclose(weighted.covariance(), twice.covariance(), rtol=1e-4)
    assert weighted.log_evidence.value == pytest.approx(twice.log_evidence.value, abs=1e-3)
    # a stream of batches, the last not full
    batches = [(x[i : i + 8], y[i : i + 8]) for i in (0, 8, 16)]
    streamed, whole = at(TRUTH.model(), batches), at(TRUTH.model(), (x, y))
    np.testing.assert_allclose(streamed.covariance(), whole.covariance(), rtol=1e-4)
    assert streamed.log_evidence.value == pytest.approx(whole.log_evidence.value, abs=1e-3)
    assert len(streamed.history["nll"]) == 3


def split_linear(params, x):
    return (x[:, :2] @ params["a"] + x[:, 2:] @ params["b"])[:, None]


@pytest.mark.parametrize(
    ("structure", "precision"),
    [
        ("kronecker", "marginal_likelihood"),
        ("full", "per_array"),
        pytest.param("full", "marginal_likelihood", marks=pytest.mark.slow),
        pytest.param("kronecker", "per_array", marks=pytest.mark.slow),
    ],
)
def test_prior_precision_maximises_the_evidence(structure, precision):
    """Against a search in float64 for the same objective, w* and H held fixed."""
    prior = px.priors.Gaussian(0.7, loc=0.1)
    start = {"a": jnp.asarray(TRUTH.mean[:2]), "b": jnp.asarray(TRUTH.mean[2:])}
    weights = jax.tree.map(lambda a: a.astype(jnp.float32), start)
    model = px.Model((weights, split_linear), prior, px.likelihoods.Gaussian(NOISE))
    found = at(model, TRUTH.data, structure=structure, prior_precision=precision)
    x, y = (np.asarray(a, np.float64) for a in TRUTH.data)
    h, w = x.T @ x / NOISE**2, TRUTH.mean - 0.1
    if structure == "kronecker":
        h[:2, 2:] = h[2:, :2] = 0
    owner = np.zeros(3, int) if precision == "marginal_likelihood" else np.array([0, 0, 1])
    residual = (y - x @ TRUTH.mean) / NOISE
    fit = -0.5 * residual @ residual - len(y) * (np.log(NOISE) + 0.5 * np.log(2 * np.pi))

    def evidence(log_tau):
        p = np.exp(log_tau)[owner] / 0.7**2
        log_prior = 0.5 * np.sum(np.log(p) - p * w**2)  # 2π cancels
        return fit + log_prior - 0.5 * np.linalg.slogdet(h + np.diag(p))[1]

    best = minimize(lambda v: -evidence(v), np.zeros(owner.max() + 1), tol=1e-10)
    factors = np.array(list(found.prior_factors.values()))
    assert list(found.prior_factors) == (
        ["all"] if owner.max() == 0 else ["network.a", "network.b"]
    )
    np.testing.assert_allclose(np.log(factors), best.x, atol=1e-3)
    assert found.log_evidence.value == pytest.approx(-best.fun, abs=1e-3)
    covariance = np.linalg.inv(h + np.diag(np.exp(best.x)[owner] / 0.7**2))
    np.testing.assert_allclose(found.covariance(), covariance, rtol=2e-3, atol=1e-6)
    # the log joint is quadratic: its expectation under q has no other terms than the evidence has
    bound = px.selection.elbo(found, TRUTH.data)
    assert abs(bound.value + best.fun) < max(5 * bound.error, 2e-3)


def test_what_float32_rounds_off_is_no_knowledge():
    """Little noise: λ of 10⁷ beside a prior of 1. Against J in float64 at the same weights."""
    rng, noise, count = np.random.default_rng(0), 0.01, 300
    x = rng.uniform(-1, 1, size=(count, 1)).astype("float32")
    y = (np.sin(3 * x[:, 0]) + noise * rng.normal(size=count)).astype("float32")
    network = px.networks.MLP(1, 1, (30,), activation="tanh", key=0)
    model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(noise))
    data, options = (x, y), {"steps": 300, "batch_size": count, "key": 0}
    trained = px.fit(model, data, px.MaximumAPosteriori(0.02), **options).network()

    w, b, v, c = (np.asarray(a, np.float64) for a in jax.tree.leaves(trained))
    h = np.tanh(x @ w.T + b)
    g = (1 - h**2) * v
    jacobian = np.concatenate([g * x, g, h, np.ones((count, 1))], axis=1) / noise
    residual = (y - (h @ v.T + c)[:, 0]) / noise
    fit = -0.5 * residual @ residual - count * (np.log(noise) + 0.5 * np.log(2 * np.pi))
    square = sum(np.sum(a**2) for a in (w, b, v, c))
    whole = np.maximum(np.linalg.eigvalsh(jacobian.T @ jacobian), 0)
    gg, hh = (np.linalg.eigvalsh(a.T @ a) / noise**2 for a in (g, h))
    parts = np.maximum(np.concatenate([gg * np.mean(x**2), gg, hh, [count / noise**2]]), 0)
    for structure, values in (("full", whole), ("kronecker", parts)):

        def evidence(log_tau, values=values):
            tau = np.exp(log_tau)
            return fit - 0.5 * (tau * square + np.sum(np.log1p(values / tau)))

        best = minimize(lambda t: -evidence(t[0]), [0.0], tol=1e-10)
        method = px.Laplace(structure, prior_precision="marginal_likelihood", train=False)
        tuned = px.fit(model, data, method, init=trained, key=0)
        assert tuned.log_evidence.value == pytest.approx(-best.fun, abs=0.05)
        assert np.log(tuned.prior_factors["all"]) == pytest.approx(best.x[0], abs=0.005)
        if structure == "full":
            found = px.fit(model, data, px.Laplace(structure, train=False), init=trained, key=0)
            assert found.log_evidence.value == pytest.approx(evidence(0.0), abs=0.05)
            covariance = np.linalg.inv(jacobian.T @ jacobian + np.eye(len(whole)))
            deviation = ravel_pytree(found.moments()[1])[0]
            np.testing.assert_allclose(deviation, np.sqrt(np.diag(covariance)), rtol=1e-3)


# -- predictions, densities, parts


@pytest.fixture(scope="module")
def regression():
    """A network with learned noise, and a prior that differs between the outputs of a layer."""
    rng = np.random.default_rng(0)
    rows = px.priors.Gaussian(np.array([[0.5], [1.0], [2.0]]))
    prior = px.priors.ByPart({"layers.0.weight": rows})
    network = px.networks.MLP(2, 2, (3,), activation="tanh", key=0)
    model = px.Model(network, prior, px.likelihoods.Gaussian("learned", initial=0.5))
    x = rng.normal(size=(12, 2)).astype("float32")
    return model, (x, rng.normal(size=(12, 2)).astype("float32"))


def test_kronecker_posterior(regression):
    model, data = regression
    posterior = at(model, data, structure="kronecker")
    made = model.for_targets((2,), jnp.float32)
    _, ((blocks, sums),) = compare(made, jnp.asarray(data[0]), np.ones(12), "kronecker")
    covariance, at_, mass = np.asarray(posterior.covariance(), np.float64), 0, 12
    trace = 0.0
    precisions = [np.repeat([4.0, 1.0, 0.25], 2), *[np.ones(n) for n in (3, 6, 2, 2)]]
    leaves = jax.tree.leaves(made.parameters)
    for block, precision in zip(blocks, precisions, strict=True):
        h = sums[block.name].get("matrix")
        if h is None:
            h = as_matrix(block, sums[block.name], leaves[block.leaves[0]].shape, mass)
        trace += np.trace(h)
        part = slice(at_, at_ + block.size)
        exact = np.linalg.inv(h + np.diag(precision))
        np.testing.assert_allclose(covariance[part, part], exact, rtol=2e-3, atol=1e-5)
        at_ += block.size
    assert posterior.history["trace"] == pytest.approx(trace, rel=1e-4)
    # the noise: the prior's 1, and 2 for each example
    np.testing.assert_allclose(covariance[-2:, -2:], np.eye(2) / (1 + 2 * 12), rtol=1e-4)

    # moments and density are those of this Gaussian
    mean, std = (ravel_pytree(part)[0] for part in eqx.filter_jit(posterior.moments)())
    np.testing.assert_allclose(std, np.sqrt(np.diag(covariance)), rtol=1e-3)
    assert posterior.as_prior().scale.likelihood["log_noise"].shape == (2,)
    assert posterior.entropy() == pytest.approx(
        0.5 * np.linalg.slogdet(2 * np.pi * np.e * covariance)[1], rel=1e-3
    )
    draws, log_prob = posterior.sample(0, 2), eqx.filter_jit(posterior.log_prob)
    for i in range(2):
        one = jax.tree.map(lambda a, i=i: a[i], draws)
        away = np.asarray(ravel_pytree(one)[0] - mean, np.float64)
        expected = -0.5 * away @ np.linalg.solve(covariance, away)
        expected -= 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
        assert float(log_prob(one)) == pytest.approx(expected, rel=1e-3)


def test_posterior_of_a_convolution(rng):
    """Strides and padding: patches and derivatives at every position of an image, by hand."""
    kernel = rng.normal(size=(3, 2, 2, 2))

    def apply(params, x):
        z = jax.lax.conv_general_dilated(x, params["kernel"], (2, 1), [(1, 0), (0, 1)])
        return jnp.sum(jnp.tanh(z), axis=(1, 2, 3))[:, None]

    network = ({"kernel": jnp.asarray(kernel, jnp.float32)}, apply)
    model = px.Model(network, px.priors.Gaussian(0.5), px.likelihoods.Gaussian(1.0))
    x = rng.normal(size=(3, 2, 3, 4)).astype("float32")
    weight = np.array([1.0, 0.5, 2.0])
    found = at(model, (x, np.zeros(3, "float32"), weight), structure="kronecker").covariance()
    padded = np.pad(x, [(0, 0), (0, 0), (1, 0), (0, 1)])
    places = [(i, j) for i in (0, 2) for j in range(4)]
    a = np.stack([padded[:, :, i : i + 2, j : j + 2].reshape(3, -1) for i, j in places], axis=1)
    g = 1 - np.tanh(a @ kernel.reshape(3, -1).T) ** 2
    factors = [np.einsum("n,nti,ntj->ij", weight, part, part) for part in (g, a)]
    h = np.kron(*factors) / (weight.sum() * len(places))
    np.testing.assert_allclose(found, np.linalg.inv(h + 4 * np.eye(24)), rtol=1e-3, atol=1e-6)


def test_linearised_predictions(regression):
    """f(x; w*) + J δ: the mean is that of w*, the variance J Σ Jᵀ."""
    model, data = regression
    posterior = at(model, data, structure="full")
    x, pairs = np.array([[0.5, -1.0], [4.0, 3.0]], "float32"), 2000
    predictive = posterior.predict(x, samples=2 * pairs, key=1)
    found = predictive.outputs().astype(np.float64)
    flat, back = ravel_pytree(posterior.mu.network)
    apply = jax.jit(lambda v: model.network.apply(back(v), (), x, None, False)[0])
    np.testing.assert_allclose(found.mean(0), apply(flat), rtol=1e-4, atol=1e-4)
    jacobian = np.asarray(jax.jacrev(apply)(flat), np.float64).reshape(4, -1)
    sigma = np.asarray(posterior.covariance(), np.float64)[: flat.size, : flat.size]
    exact = jacobian @ sigma @ jacobian.T
    away = (found[::2] - found[1::2]).reshape(pairs, 4) / 2
    variances = np.outer(np.diag(exact), np.diag(exact))
    z = (away.T @ away / pairs - exact) / np.sqrt((variances + exact**2) / pairs)
    assert np.max(np.abs(z)) < 4
    # the noise of a draw goes with it
    sampled = at(model, data, structure="full", predictive="sampled").predict(x, samples=8, key=1)
    assert not np.allclose(sampled.outputs(), found[:8], rtol=0.01)
    assert sampled.aleatoric.std() > 0 or predictive.aleatoric.std() > 0


def test_last_layer_is_a_model_of_it_alone(regression):
    model, data = regression
    last = at(model, data, structure="last_layer")
    part = px.Model(model.network, model.prior, model.likelihood, where="layers.1.*")
    alone = at(part, data, structure="full")
    assert last.blocks["network"]["leaves"].split("\n") == [
        "network.layers.1.weight",
        "network.layers.1.bias",
    ]
    for a, b in zip(jax.tree.leaves(last.moments()), jax.tree.leaves(alone.moments()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)
    assert last.log_evidence.value == pytest.approx(alone.log_evidence.value, abs=1e-3)
    assert np.all(np.asarray(last.moments()[1].network.layers[0].weight) == 0)
    with pytest.raises(ValueError, match="parameters without spread"):
        last.as_prior()


def test_stopping_early_keeps_the_best_and_more_epochs_go_on_training(regression):
    model, data = regression
    method = px.Laplace("diagonal", learning_rate=0.5, schedule="constant")
    watch = px.Validation(*data, patience=3)
    stopped = px.fit(model, data, method, epochs=60, key=0, validation=watch)
    looks = stopped.history["optimising/validation_nll"]
    assert 4 <= len(looks) < 60
    own = stopped.model.pointwise(stopped.mu, *map(jnp.asarray, data))
    assert -float(jnp.mean(own)) == pytest.approx(float(looks.min()), rel=1e-4)
    longer = px.fit(model, data, method, epochs=5, key=0, resume=stopped)
    taken = len(stopped.history["optimising/nll"])
    assert len(longer.history["optimising/nll"]) == taken + 5
    assert len(longer.history["nll"]) == 2


def test_refused(regression):
    model, data = regression
    likelihood = px.likelihoods.Gaussian(0.1)
    network = px.networks.MLP(2, 2, (3,), key=0)

    def refused(match, error=ValueError, prior=None, network=network, **options):
        with pytest.raises(error, match=match):
            px.fit(px.Model(network, prior, likelihood), data, px.Laplace(**options), epochs=1)

    refused("structure must be one of 'auto'", structure="block")
    refused("prior_precision must be", prior_precision=1.0)
    refused("layer is for structure='last_layer'", layer="layers.1.*")
    refused(r"layer='head.\*' matches no weight", structure="last_layer", layer="head.*")
    refused("px.priors.Grid", prior=px.priors.Grid([-1.0, 1.0]))
    refused("no parameter has a prior", prior=px.priors.Flat())
    options = {"prior": px.priors.ScaleMixture(), "prior_precision": "per_array"}
    refused("needs Gaussian priors, and that of network.layers.0.weight is ScaleMixture", **options)
    refused("leave it out", train=False)
    parts = dist.Categorical(jnp.array([0.5, 0.5])), dist.Normal(jnp.array([-3.0, 3.0]), 0.5)
    two = px.Model(network, dist.MixtureSameFamily(*parts), likelihood)
    with pytest.raises(ValueError, match=r"that of network.* does not fall off"):
        at(two, data)
    mixture = at(px.Model(network, px.priors.ScaleMixture(), likelihood), data)
    message = r"of Laplace has none; it needs Gaussian priors, and that of network.* ScaleMixture"
    with pytest.raises(ValueError, match=message):
        _ = mixture.log_evidence
    with pytest.raises(ValueError, match="the pass over the data was interrupted"):
        _ = at(model, data, structure="diagonal").bare().log_evidence  # as where it was cut short
    ensemble = px.fit(model, data, px.DeepEnsemble(2), epochs=1)
    with pytest.raises(ValueError, match=r"init: the mean of a .*px.MaximumAPosteriori"):
        px.fit(model, data, px.Laplace(train=False), init=ensemble)
    fixed = px.Model(network, likelihood=likelihood, where="layers.0.*")
    with pytest.raises(ValueError, match="its weights are points"):
        at(fixed, data, structure="last_layer")
    weights = {"w": jnp.zeros((2, 500_000)), "v": jnp.zeros((500_000, 2))}
    wide = (weights, lambda p, x: jnp.tanh(x @ p["w"]) @ p["v"])
    message = (
        r"structure='full' for 2,000,000 weights .*'kronecker'.* needs 128,000,000,000,000 bytes"
    )
    refused(message, MemoryError, network=wide, structure="full")


# -- the prior's precision with nothing set


def digits(rows=600):
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = (x[order] / 16).astype("float32"), y[order]
    return (x[:rows], y[:rows]), (x[rows : 2 * rows], y[rows : 2 * rows])


def held_out(posterior, data):
    return -float(np.mean(posterior.predict(data[0], samples=64, key=0).log_prob(data[1])))


def test_classes_are_predicted_no_worse_than_by_the_mode():
    """With the prior as it is, or as the evidence has it, they are: by a quarter of a nat."""
    train, test = digits()
    model = px.Model(px.networks.MLP(64, 10, (50,), key=0), None, px.likelihoods.Categorical())
    mode = px.fit(model, train, px.MaximumAPosteriori(1e-2), steps=500, key=0)
    fixed, evidence, auto = (
        px.fit(model, train, px.Laplace(train=False, prior_precision=how), init=mode, key=0)
        for how in ("fixed", "marginal_likelihood", "auto")
    )
    best = held_out(mode, test)
    assert held_out(auto, test) < best + 0.01
    assert held_out(evidence, test) > best + 0.1
    assert held_out(fixed, test) > best + 0.1
    # not the mode itself: what is no digit is less certain
    noise = np.random.default_rng(1).normal(size=(50, 64)).astype("float32")
    assert auto.predict(noise).epistemic.mean() > 0
    assert float(auto.prior_factors["all"]) > 1
    assert auto.log_evidence.value == pytest.approx(fixed.log_evidence.value, abs=1e-3)
    assert sorted(auto.history)[-2:] == ["nll", "tuned_nll"]


def test_an_overfitted_mode_keeps_its_spread():
    """Where w* follows the noise, the outputs without an example are far from it."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (60, 3)).astype("float32")
    y = (x[:, 0] + 0.5 * rng.normal(size=60)).astype("float32")
    model = px.Model(px.networks.MLP(3, 1, (50,), key=0), None, px.likelihoods.Gaussian(0.15))
    mode = px.fit(model, (x[:40], y[:40]), px.MaximumAPosteriori(1e-2), steps=3000, key=0)
    auto = at(model, (x[:40], y[:40]), mode.point.network, prior_precision="auto")
    test = x[40:], y[40:]
    assert held_out(auto, test) < held_out(mode, test) - 0.5
    assert float(auto.prior_factors["all"]) >= 1


def test_left_out_outputs_are_those_of_a_fit_with_the_row_weighted_down():
    """To first order: a hundredth of a row's weight less, and a hundredth of the shift."""
    x, y = (a.astype(np.float64) for a in TRUTH.data)
    root = np.sqrt(len(TRUTH.mean)) * np.linalg.cholesky(TRUTH.covariance).T  # as many draws
    model = TRUTH.model().for_targets((1,), jnp.float32)
    params = px.Parameters({"w": jnp.asarray(TRUTH.mean)}, {})
    rows = Batch(*map(jnp.asarray, (x, y[:, None], np.ones(len(x)))), jnp.zeros(()))
    outputs = jnp.asarray((x @ TRUTH.mean)[:, None])
    without = left_out(model, params, outputs, jnp.asarray((root @ x.T)[:, :, None]), rows)
    shift = np.asarray(outputs - without)[:, 0]
    for n, part in ((0, 0.01), (7, 0.01)):
        weight = np.where(np.arange(len(x)) == n, 1 - part, 1.0)
        precision = np.eye(x.shape[1]) + (weight * x.T) @ x / NOISE**2
        mean = np.linalg.solve(precision, (weight * x.T) @ y / NOISE**2)
        assert x[n] @ (TRUTH.mean - mean) == pytest.approx(part * shift[n], rel=0.05)


def test_with_other_priors_nothing_is_chosen():
    prior = px.priors.Laplace(1.0)
    model = px.Model(px.networks.MLP(2, 1, (4,), key=0), prior, px.likelihoods.Gaussian(0.3))
    x = np.random.default_rng(0).normal(size=(30, 2)).astype("float32")
    auto, fixed = (at(model, (x, x[:, 0]), prior_precision=how) for how in ("auto", "fixed"))
    assert auto.prior_factors == {}
    np.testing.assert_array_equal(auto.covariance(), fixed.covariance())

"""Metropolis: exact answers by algebra, enumeration and quadrature, and kernels that must fail."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posterax as px
from posterax.infer.chains.metropolis import Sampling

from . import sbc

Z = 4.0  # |z| above it has probability 6e-5; a test below compares at most 18 numbers


def z_scores(replicates, truth):
    """Of the mean over independent chains, (chains, …), against the truth."""
    replicates = np.asarray(replicates, np.float64)
    error = replicates.std(0, ddof=1) / np.sqrt(len(replicates))
    return (replicates.mean(0) - truth) / error, error


# -- real weights


def product(params, x):
    return x @ params["w"]


def linear():
    """y = X w with w ~ N(0, 1): the posterior is a Gaussian with known moments."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 3)) * [0.3, 1.0, 3.0]
    y = x @ [1.0, -1.0, 0.5] + 0.5 * rng.normal(size=12)
    covariance = np.linalg.inv(x.T @ x / 0.5**2 + np.eye(3))
    mean = covariance @ x.T @ y / 0.5**2
    network = ({"w": jnp.zeros((3, 1))}, product)
    model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(noise=0.5))
    return model, (x.astype("float32"), y.astype("float32")), mean, covariance


CHAINS = {"chains": 200, "warmup": 600}  # the same programs for all tests of the linear model


@pytest.mark.parametrize("proposal", ["random_walk", "langevin"])
def test_moments_of_a_linear_model(proposal):
    model, data, mean, covariance = linear()
    method = px.Metropolis(**CHAINS, proposal=proposal)
    posterior = px.fit(model, data, method, steps=500, key=1)
    draws = np.asarray(posterior.draws.network["w"], np.float64)[..., 0]  # (chain, draw, weight)
    deviation = np.sqrt(np.diag(covariance))
    z, error = z_scores(draws.mean(1), mean)
    assert np.all(np.abs(z) < Z)
    assert np.all(error < 0.03 * deviation)  # so a bias of an eighth of a deviation would be seen
    centred = draws - mean
    products = np.einsum("cdi,cdj->cij", centred, centred) / draws.shape[1]
    z, error = z_scores(products, covariance)
    assert np.all(np.abs(z) < Z)
    assert np.all(error < 0.04 * np.outer(deviation, deviation))
    # what is reported: the state is repeated exactly where a proposal was rejected
    moved = np.any(np.diff(draws, axis=1) != 0, axis=-1)
    np.testing.assert_array_equal(moved, np.asarray(posterior.stats["accepted"])[:, 1:])
    assert {"acceptance_rate", "accepted", "lp"} == set(posterior.stats)
    assert {"acceptance", "step_size", "log_density"} <= set(posterior.history)
    wanted = {"random_walk": 0.234, "langevin": 0.574}[proposal]
    assert abs(np.mean(posterior.stats["acceptance_rate"]) - wanted) < 0.05


def test_acceptance_is_tuned():
    model, data, *_ = linear()
    for target in (0.15, 0.44):
        method = px.Metropolis(**CHAINS, target_acceptance=target)
        posterior = px.fit(model, data, method, steps=500)
        rates = np.mean(posterior.stats["acceptance_rate"], axis=1)
        assert abs(np.mean(rates) - target) < 0.05
        assert np.std(rates) < 0.05  # every chain's, not only all together


@pytest.mark.parametrize("proposal", ["random_walk", "langevin"])
def test_calibration(proposal, calibration):
    """Ranks of 320 true parameters among their posterior's draws are uniform."""
    method = px.Metropolis(chains=1, warmup=400, proposal=proposal)
    figure = np.min(sbc.p_values(sbc.ranks(method, thin=20)))
    words = sbc.compared(proposal.replace("_", " "))
    calibration("metropolis", figure=figure, least=1e-3, **words)


class TakesAll(Sampling):
    """A broken kernel: every proposal is accepted."""

    def log_density(self, batch, state):
        return lambda position: jnp.zeros(())


class Broken(px.Metropolis):
    def phases(self, model, plan):
        warmup, right = super().phases(model, plan)
        fields = (right.model, right.plan, right.chains, right.layout, right.flips)
        return [warmup, TakesAll(*fields, right.kind, right.own)]


def test_calibration_finds_a_broken_kernel():
    found = sbc.p_values(sbc.ranks(Broken(chains=1, warmup=400), thin=20))
    assert np.min(found) < 1e-6


# -- a proposal of one's own


class Drift:
    """w' ~ N(½ w + ½, 0.8²), which is not symmetric."""

    def sample(self, key, w):
        return 0.5 * w + 0.5 + 0.8 * jax.random.normal(key, w.shape)

    def log_prob(self, new, old):
        return -0.5 * jnp.sum(jnp.square((new - 0.5 * old - 0.5) / 0.8))


def bend(params, x):
    return jnp.tanh(params["w"]) * x


@pytest.mark.usefixtures("hasty_compiler")
def test_asymmetric_proposal_needs_its_correction():
    x = np.linspace(-1, 1, 6).astype("float32")[:, None]
    y = -0.5 * x[:, 0]
    model = px.Model(
        ({"w": jnp.zeros(())}, bend), px.priors.Gaussian(1.0), px.likelihoods.Gaussian(noise=0.5)
    )
    grid = np.linspace(-8, 8, 4001)
    log_p = -0.5 * grid**2 - 0.5 * np.sum(
        ((y - np.tanh(grid)[:, None] * x[:, 0]) / 0.5) ** 2, axis=1
    )
    p = np.exp(log_p - log_p.max())
    truth = np.sum(p * grid) / np.sum(p)

    def z(proposal):
        method = px.Metropolis(chains=128, warmup=100, proposal=proposal)
        posterior = px.fit(model, (x, y), method, steps=300, key=3)
        return z_scores(np.asarray(posterior.draws.network["w"]).mean(1), truth)[0]

    own = Drift()
    assert abs(z(own)) < Z
    assert abs(z((own.sample, None))) > 20


def test_proposals_that_do_not_fit_are_refused():
    model, data, *_ = linear()
    with pytest.raises(TypeError, match=r"proposal must be .* sample\(key, w\)"):
        px.Metropolis(proposal=3)
    with pytest.raises(ValueError, match="proposal must be one of 'random_walk', 'langevin'"):
        px.Metropolis(proposal="gibbs")
    with pytest.raises(ValueError, match="target_acceptance must lie between 0 and 1"):
        px.Metropolis(target_acceptance=1.5)
    with pytest.raises(ValueError, match="sample must return a vector of all 3 weights"):
        px.fit(model, data, px.Metropolis(proposal=(lambda key, w: w[:1], None)), steps=2)
    wrong = (lambda key, w: w, lambda new, old: new - old)
    with pytest.raises(ValueError, match="log_prob must return one number"):
        px.fit(model, data, px.Metropolis(proposal=wrong), steps=2)


# -- discrete weights


def small_apply(params, x):
    return jnp.tanh(x @ params["a"] + params["c"]) @ params["b"]


def small_network():
    """Twelve weights."""
    return {"a": jnp.zeros((2, 3)), "b": jnp.zeros((3, 1)), "c": jnp.zeros(3)}, small_apply


@pytest.mark.usefixtures("hasty_compiler")
@pytest.mark.parametrize("flips", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_twelve_binary_weights_agree_with_enumeration(flips):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(10, 2))
    y = np.tanh(x[:, 0] - x[:, 1] + 1) + rng.normal(size=10)
    x_new = rng.normal(size=(4, 2))

    # all 4096 states, by hand
    states = np.array(np.meshgrid(*[[-1.0, 1.0]] * 12)).reshape(12, -1).T
    a, b, c = states[:, :6].reshape(-1, 2, 3), states[:, 6:9], states[:, 9:]

    def outputs(x):
        hidden = np.tanh(np.einsum("nd,sdh->snh", x, a) + c[:, None])
        return np.einsum("snh,sh->sn", hidden, b)

    log_p = -0.5 * np.sum((y - outputs(x)) ** 2, axis=1)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    truth = np.concatenate([p @ outputs(x_new), p @ outputs(x_new) ** 2, p @ (a[:, 0] * b)])

    model = px.Model(
        small_network(), px.priors.Grid([-1.0, 1.0]), px.likelihoods.Gaussian(noise=1.0)
    )
    data = (x.astype("float32"), y.astype("float32"))
    method = px.Metropolis(chains=128, warmup=200, flips=flips)
    posterior = px.fit(model, data, method, steps=1500, thin=3, key=5)
    drawn = posterior.draws.network
    assert set(np.unique(drawn["a"])) == {-1.0, 1.0}
    each = np.asarray(jax.vmap(jax.vmap(lambda w: small_apply(w, x_new)[:, 0]))(drawn))
    pairs = np.asarray(drawn["a"])[:, :, 0] * np.asarray(drawn["b"])[..., 0]
    found = np.concatenate([each.mean(1), (each**2).mean(1), pairs.mean(1)], axis=1)
    z, error = z_scores(found, truth)
    assert np.all(np.abs(z) < Z)
    assert np.all(error < 0.05)
    assert "step_size" not in posterior.history


@pytest.mark.usefixtures("hasty_compiler")
@pytest.mark.parametrize(
    "proposal", ["random_walk", pytest.param("langevin", marks=pytest.mark.slow)]
)
def test_discrete_and_real_weights_together(proposal):
    """Ternary weights with unequal probabilities and a learned noise, against quadrature."""
    rng = np.random.default_rng(6)
    x = rng.normal(size=(8, 3)).astype("float32")
    y = (x @ [1.0, 0.0, -1.0] + 0.5 * rng.normal(size=8)).astype("float32")
    values, probs = np.array([-1.0, 0.0, 2.0]), np.array([0.2, 0.5, 0.3])
    states = np.array(np.meshgrid(*[range(3)] * 3)).reshape(3, -1).T
    log_noise = np.linspace(np.log(0.5) - 5, np.log(0.5) + 5, 801)
    residual = np.sum((y - values[states] @ x.T.astype(float)) ** 2, axis=1)
    log_p = (
        np.sum(np.log(probs)[states], axis=1)[:, None]
        - 0.5 * (log_noise - np.log(0.5)) ** 2
        - 8 * log_noise
        - 0.5 * residual[:, None] / np.exp(2 * log_noise)
    )
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    weights = values[states]
    state, scale = p.sum(1), p.sum(0)
    truth = np.array([*(state @ weights), *(state @ weights**2), scale @ log_noise])

    network = ({"w": jnp.zeros((3, 1))}, product)
    likelihood = px.likelihoods.Gaussian(noise="learned", initial=0.5)
    model = px.Model(network, px.priors.Grid(values, probs), likelihood)
    method = px.Metropolis(chains=128, warmup=400, proposal=proposal)
    posterior = px.fit(model, (x, y), method, steps=500, key=7)
    w = np.asarray(posterior.draws.network["w"])[..., 0]
    s = np.asarray(posterior.draws.likelihood["log_noise"]).reshape(128, -1, 1)
    found = np.concatenate([w, w**2, s], axis=-1).mean(1)
    z, error = z_scores(found, truth)
    assert np.all(np.abs(z) < Z)
    assert np.all(error < 0.1)
    # flips and walks are accepted each by itself
    flipped = np.any(np.diff(w, axis=1) != 0, axis=-1)
    np.testing.assert_array_equal(flipped, np.asarray(posterior.stats["flip_accepted"])[:, 1:])
    walked = np.diff(s[..., 0], axis=1) != 0
    np.testing.assert_array_equal(walked, np.asarray(posterior.stats["accepted"])[:, 1:])
    assert {"acceptance", "flip_acceptance", "step_size"} <= set(posterior.history)


def test_more_flips_than_weights_are_refused():
    network = ({"w": jnp.zeros((3, 1))}, product)
    model = px.Model(network, px.priors.Grid([0.0, 1.0]), px.likelihoods.Gaussian(1.0))
    data = np.ones((4, 3), "float32"), np.ones(4, "float32")
    with pytest.raises(ValueError, match="flips=4, but the model has 3 discrete weights"):
        px.fit(model, data, px.Metropolis(flips=4), steps=2)


# -- bad places


def line(noise, function=lambda params, x: params["w"] * x):
    return px.Model(
        ({"w": jnp.ones(())}, function), px.priors.Gaussian(1.0), px.likelihoods.Gaussian(noise)
    )


@pytest.mark.usefixtures("hasty_compiler")
@pytest.mark.parametrize("proposal", ["random_walk", "langevin"])
def test_chains_that_never_move(proposal):
    """At the mode of a noise far below float32 every step is uphill, or lost in rounding."""
    x = np.ones((4, 1), "float32")
    method = px.Metropolis(chains=1, warmup=300, proposal=proposal)
    with pytest.raises(px.StuckError, match="no chain moves"):
        px.fit(line(1e-10), (x, x[:, 0]), method, steps=100, init=px.Parameters(
            {"w": jnp.ones(())}, {}
        ))  # fmt: skip


@pytest.mark.usefixtures("hasty_compiler")
def test_start_that_is_not_finite():
    x = np.ones((4, 1), "float32")
    model = line(0.1, lambda params, x: jnp.log(params["w"] - 2) * x)
    with pytest.raises(px.NonFiniteError, match="log_density is not finite"):
        px.fit(model, (x, x[:, 0]), px.Metropolis(chains=2, warmup=50), steps=50)


@pytest.mark.usefixtures("hasty_compiler")
@pytest.mark.parametrize("proposal", ["random_walk", "langevin"])
def test_proposals_that_are_not_finite_are_rejected(proposal):
    x = np.ones((4, 1), "float32")
    model = line(1.0, lambda params, x: jnp.log(params["w"]) * x)  # NaN below 0
    method = px.Metropolis(chains=4, warmup=100, proposal=proposal)
    posterior = px.fit(model, (x, 0 * x[:, 0]), method, steps=200)
    assert np.all(np.asarray(posterior.draws.network["w"]) > 0)
    assert np.all(np.isfinite(posterior.stats["lp"]))


@pytest.mark.parametrize("cut", ["warming up", "sampling"])
def test_resumes_to_the_same_bits(cut, tmp_path):
    model, data, *_ = linear()
    method = px.Metropolis(**CHAINS)
    options = {"steps": 500, "key": 8}
    whole = px.fit(model, data, method, **options)

    def power_cut(event):
        if event.phase == cut and event.step > 20:
            raise OSError("power cut")

    kept = px.Checkpoint(tmp_path, every=0)
    with pytest.raises(OSError, match="power cut"):
        px.fit(model, data, method, checkpoint=kept, callbacks=[power_cut], **options)
    again = px.fit(model, data, method, checkpoint=kept, **options)
    for one, other in zip(
        jax.tree.leaves((whole.draws, whole.stats)),
        jax.tree.leaves((again.draws, again.stats)),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    assert whole.history.keys() == again.history.keys()

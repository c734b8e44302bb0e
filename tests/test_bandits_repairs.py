"""Contextual bandits: what minibatches, draws, refits and files must not get wrong."""

import signal
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posterax as px
from experiments import bandit
from posterax.bandits.learner import Learner, constant_rate
from posterax.bandits.networks import PerAction
from posterax.bandits.neural import Replay, empty
from posterax.bandits.saved import _make, _settings
from posterax.files.container import read, write
from posterax.fitting.run import Run
from posterax.networks import as_network
from posterax.posteriors import Draws
from tests.test_fit import compilations

pytestmark = pytest.mark.usefixtures("hasty_module")

bandits = px.bandits
TINY: dict[str, Any] = {"hidden": (4,), "buffer": 64, "batch_size": 8, "updates": 2}


# -- minibatches


@pytest.mark.parametrize("updates", [1, 3, 4, 6])
def test_every_number_of_a_minibatch_comes_equally_often(updates):
    """Shares of the KL by number add up to 1 over a pass, whatever the number of updates."""
    replay = empty(4, 1)
    found = [
        np.asarray(replay._replace(seen=jnp.asarray(seen, jnp.int32)).numbers(updates, 4))
        for seen in range(1, 9)
    ]
    following = np.concatenate(found)
    assert (np.diff(following) % 4 == 1).all()
    assert (np.bincount(following, minlength=4) == 2 * updates).all()


def full_buffer(rng: Any, rows: int, seen: int) -> Replay:
    """Two features and one of two actions; rewards are a line of them."""
    x = rng.normal(size=(rows, 2)).astype("float32")
    shown = np.concatenate([x, np.eye(2, dtype="float32")[rng.integers(0, 2, rows)]], 1)
    rewards = shown @ np.array([0.3, -0.2, 0.1, 0.0], "float32")
    return Replay(jnp.asarray(shown), jnp.asarray(rewards), jnp.asarray(seen, jnp.int32))


def test_the_deviation_is_exact_for_all_that_was_seen():
    """For a line, mean field has 1/σⱼ² = 1/s² + N mean(xⱼ²)/noise², with N of all so far.

    Per step log σ is pulled by 2δ with a noise of about √(2/4), from 4 pairs of samples; with
    Adam's rate 0.005 it spreads by √(0.005 / (2 · 2 / 0.7)) = 0.03 about the truth.
    """
    noise, scale, n = 0.5, 0.7, 800
    method = px.BayesByBackprop(
        samples=8, antithetic=True, learning_rate=0.005, schedule="constant", initial_rho=-4.5,
        rho_rate=1.0, estimator="weight",
    )  # fmt: skip
    policy = bandits.Thompson(
        None, method, hidden=(), prior=px.priors.Gaussian(scale), buffer=32, batch_size=32,
        updates=500, likelihood=px.likelihoods.Gaussian(noise), reward_scale=1.0,
        data_size="seen",
    )  # fmt: skip
    learner, replay = Learner(policy, 2, 2), full_buffer(np.random.default_rng(0), 32, n)

    @jax.jit
    def deviation(key):
        learned = learner.train(learner.init(key), replay, 0.0, 1.0, key)
        block = learner.posterior(learned, replay).moments()[1].network
        return learner.model.network.unflatten(block).layers[0].weight[0]

    precision = 1 / scale**2 + n * np.square(replay.inputs).mean(0) / noise**2
    found = deviation(jax.random.key(0))
    np.testing.assert_allclose(np.log(found), -np.log(precision) / 2, atol=0.12)


def test_refits_take_the_buffer_as_a_sample_of_all():
    noise = 0.5
    found = {}
    for data_size in ("buffer", "seen"):
        policy = bandits.Thompson(
            None, px.Conjugate(), hidden=(), buffer=32, refit_every=1, reward_scale=1.0,
            prior=px.priors.Gaussian(1.0), likelihood=px.likelihoods.Gaussian(noise),
            data_size=data_size,
        )  # fmt: skip
        state = policy.init(2, 2, jax.random.key(0))
        state = state._replace(replay=full_buffer(np.random.default_rng(0), 32, 800))
        fitted = policy.refit(state, jax.random.key(0)).learned
        found[data_size] = np.linalg.inv(fitted.covariance())
    # precision − prior = the likelihood's part, in proportion to N
    parts = {name: precision - np.eye(5) for name, precision in found.items()}
    np.testing.assert_allclose(parts["seen"], 25 * parts["buffer"], rtol=0.02, atol=2.0)


# -- what is believed


def test_defaults_are_those_that_learned_on_mushrooms():
    """Noise 0.5 and N(0, 1) leave the posterior at the prior: docs/bandits.md has what it costs."""
    policy = bandits.Thompson(hidden=())
    model, method = Learner(policy, 1, 2).model, policy.inference()
    assert (float(model.likelihood.noise), float(model.prior.scale)) == (0.1, 0.3)
    assert (method.learning_rate, method.initial_rho) == (3e-4, -5.0)


def three_members(policy: Any) -> Any:
    """The state of a policy whose posterior is three lines: one says 3 and 0, two 0 and 0.9."""
    learner = Learner(policy, 1, 2)
    zeros = jax.tree.map(lambda a: jnp.zeros((1, 3, *a.shape)), learner.model.parameters)
    weight = jnp.array([[0.0, 3.0, 0.0], [0.0, 0.0, 0.9], [0.0, 0.0, 0.9]])[None, :, None]
    draws = zeros._replace(network=jax.tree.map(lambda a: weight if a.ndim == 4 else a, zeros[0]))
    posterior = Draws(learner.model, (), learner.targets, draws=draws)
    return policy.init(1, 2, jax.random.key(0))._replace(learned=posterior)


@pytest.mark.parametrize(
    ("make", "shares"),
    [(bandits.Greedy, [1, 0]), (bandits.UCB, [1, 0]), (bandits.Thompson, [1 / 3, 2 / 3])],
)
def test_only_thompson_sampling_chooses_among_stored_draws(make, shares):
    """All three average to 1 and 0.6, with deviations 1.41 and 0.42; two of three prefer 0.9."""
    policy = make(method=px.NUTS(), hidden=(), refit_every=1, samples=1)
    state = three_members(policy)
    keys = jax.random.split(jax.random.key(0), 300)
    actions = jax.jit(jax.vmap(lambda key: policy.choose(state, jnp.ones(1), key)))(keys)
    found = np.bincount(actions, minlength=2) / 300
    assert (abs(found - shares) <= 4 * np.sqrt(np.prod(shares) / 300)).all()


def test_dropout_explores():
    """Two masks of 8 units at 1/2 are the same with probability 2⁻⁸: 20 of them are not all."""
    policy = bandits.Thompson(None, px.MCDropout(0.5), hidden=(8,), samples=1, updates=1)
    learner = Learner(policy, 2, 2)

    @jax.jit
    def preferred(key):
        posterior = learner.posterior(learner.init(key), empty(4, 4))
        each = lambda key: learner.values(posterior, jnp.ones(2), key)[0][0]  # noqa: E731
        return jax.vmap(each)(jax.random.split(key, 20)) @ jnp.array([1.0, -1.0])

    assert np.std(preferred(jax.random.key(0))) > 1e-3


def test_a_predicted_noise_has_outputs_of_its_own():
    likelihood = px.likelihoods.Gaussian("predicted")
    joint = Learner(bandits.Thompson(likelihood=likelihood, **TINY), 3, 2)
    assert joint._sizes() == (5, 2)
    heads = bandits.Thompson(likelihood=likelihood, heads="per_action", **TINY)
    assert Learner(heads, 3, 2)._sizes() == (3, 4)
    # of each action the location, then of each the scale
    weights, apply = np.zeros((1, 1), "float32"), lambda w, x: x @ w + jnp.arange(4.0)
    network = PerAction(as_network((weights, apply)), 1)
    x = jnp.array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    found = jax.jit(lambda x: network.apply(weights, (), x, None, training=False)[0])(x)
    np.testing.assert_array_equal(found, [[0, 2], [1, 3]])


def test_a_rate_stays_as_it_is_inside_of_an_ensemble():
    inside = constant_rate(px.DeepEnsemble(2, inside=px.BayesByBackprop())).inside
    assert inside.schedule == "constant"
    assert constant_rate(px.DeepEnsemble(2)).schedule == "constant"
    assert constant_rate(px.SGLD()).schedule == "constant"


# -- refits


class Lines(bandits.Environment):
    actions: int = 2
    features: int = 2

    def draw(self, key: jax.Array, t: jax.Array) -> Any:
        context = jax.random.normal(key, (2,))
        return bandits.Interaction(context, context, context)


LINE = bandits.Thompson(None, px.Conjugate(), hidden=(), buffer=256, refit_every=5)


def test_ctrl_c_during_a_fit_ends_the_play(ctrl_c, monkeypatch):
    whole = Run.all_phases

    def pressed(self, *arguments):
        signal.raise_signal(signal.SIGINT)
        return whole(self, *arguments)

    monkeypatch.setattr(Run, "all_phases", pressed)
    played = bandits.play(Lines(), LINE, 20, runs=1, key=0, progress=False)
    assert played.steps == 5
    agent = bandits.Agent(LINE, 2, 2, key=0)
    for _ in range(4):
        agent.update(np.ones(2), 0, 1.0)
    with pytest.raises(KeyboardInterrupt):
        agent.update(np.ones(2), 0, 1.0)
    assert agent.updates == 5
    assert agent.state.learned is None


@pytest.mark.parametrize(
    ("method", "first", "later"),
    [(px.Conjugate(), 20, (25, 32)), (px.MaximumLikelihood(), 3, (5, 15))],
)
def test_refits_compile_nothing_while_the_buffer_grows(method, first, later):
    epochs = 1 if method.needs.counts == "epochs" else None
    policy = bandits.Thompson(None, method, hidden=(), batch_size=8, refit_every=1, epochs=epochs)
    replay = full_buffer(np.random.default_rng(0), 64, 64)
    start = policy.init(2, 2, jax.random.key(0))
    at = lambda n: start._replace(replay=replay._replace(seen=jnp.asarray(n, jnp.int32)))  # noqa: E731
    states = [at(n) for n in (first, *later)]
    policy.refit(states[0], jax.random.key(0))
    with compilations() as compiled:
        for state in states[1:]:
            policy.refit(state, jax.random.key(0))
    assert not compiled


# -- files


def test_files_of_agents_say_who_reads_them(tmp_path):
    path = tmp_path / "agent.px"
    bandits.Agent(bandits.Uniform(), 2, 2).save(path)
    with pytest.raises(px.CheckpointError, match=r"px\.bandits\.load"):
        px.load(path)
    arrays, header = read(path)
    for name, value in (("choices", 2**40), ("updates", float("inf")), ("features", 2**40)):
        write(path, arrays, header | {"agent": header["agent"] | {name: value}})
        with pytest.raises(px.CheckpointError, match=name):
            bandits.load(path)


def test_numbers_of_numpy_are_numbers_in_a_file():
    method = px.BayesByBackprop(learning_rate=np.float32(0.5), samples=np.int64(2))
    policy = bandits.UCB(np.float32(2.0), method=method, reward_scale=np.float32(0.25))
    found = _make(_settings(policy), {})
    assert (found.scale, found.reward_scale) == (2.0, 0.25)
    assert (found.method.learning_rate, found.method.samples) == (0.5, 2)


def test_the_first_actions_are_at_random():
    class Sure(bandits.Thompson):
        def among(self, preference, key):
            return jnp.asarray(3, jnp.int32)

    made = {"hidden": (4,), "buffer": 16, "batch_size": 4, "updates": 1}
    world = bandits.wheel(0.5)
    played = bandits.play(world, Sure(**made, random_first=200), 210, runs=1, key=0)
    first, then = played.actions[0, :200], played.actions[0, 200:]
    assert (np.bincount(first, minlength=5) > 20).all()
    assert (then == 3).all()
    assert (bandits.play(world, Sure(**made), 20, runs=1, key=0).actions == 3).all()
    with pytest.raises(ValueError, match="random_first"):
        bandits.Thompson(random_first=-1)


def test_an_experiments_rate_falls_with_the_interactions():
    settings = bandit.Settings(learning_rate=0.1, decay=100, power=1.0)
    rate = settings.rate(64)
    assert rate(0) == pytest.approx(0.1)
    assert rate(100 * 64) == pytest.approx(0.05)
    assert rate(900 * 64) == pytest.approx(0.01)
    assert settings._replace(power=0.5).rate(2)(300 * 2) == pytest.approx(0.05)
    assert settings._replace(decay=None).rate(64)(10**6) == pytest.approx(0.1)

"""Contextual bandits: the loop, the replay buffer, the policies, agents live and in files."""

from collections import deque
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posterax as px
from posterax.bandits import loop
from posterax.bandits.learner import Learner, pick
from posterax.bandits.networks import Flat, PerAction
from posterax.bandits.neural import Moments, empty
from posterax.networks import as_network
from posterax.posteriors import Draws

pytestmark = pytest.mark.usefixtures("hasty_module")

bandits = px.bandits


class Mushrooms(bandits.Environment):
    """Poisonous where the first feature is 1: eating pays 5, or half of the time −35 if poisonous;
    passing by pays nothing."""

    actions: int = eqx.field(static=True, default=2)
    features: int = eqx.field(static=True, default=4)

    def draw(self, key: jax.Array, t: jax.Array) -> Any:
        what, luck = jax.random.split(key)
        context = jax.random.bernoulli(what, 0.5, (4,)).astype(float)
        bad = context[0] > 0
        eaten = jnp.where(bad & jax.random.bernoulli(luck), -35.0, 5.0)
        expected = jnp.where(bad, -15.0, 5.0)
        return bandits.Interaction(
            context, jnp.stack([jnp.zeros(()), eaten]), jnp.stack([jnp.zeros(()), expected])
        )


class Knows(bandits.Policy):
    """What nobody can know."""

    def init(self, features: int, actions: int, key: jax.Array) -> Any:
        return jnp.zeros(())

    def choose(self, state: Any, context: jax.Array, key: jax.Array) -> jax.Array:
        return jnp.where(context[0] > 0, 0, 1)

    def update(self, state: Any, *_: Any) -> Any:
        return state


WORLD = Mushrooms()
SMALL: dict[str, Any] = {"hidden": (16,), "buffer": 256, "batch_size": 32, "updates": 8}
METHOD = px.BayesByBackprop(learning_rate=1e-2, schedule="constant", initial_rho=-3.0)
THOMPSON = bandits.Thompson(None, METHOD, **SMALL)


@pytest.fixture(scope="module")
def thompson() -> bandits.Played:
    return bandits.play(WORLD, THOMPSON, 500, runs=2, key=7)


# -- the loop


def test_who_knows_the_truth_has_no_regret():
    played = bandits.play(WORLD, Knows(), 300, runs=2, key=0)
    assert played.actions.shape == (2, 300)
    assert not played.regret.any()
    assert not played.realised.any()
    # edible ones (half of all) pay 5: a binomial count
    eaten = (played.rewards == 5).mean()
    assert abs(eaten - 0.5) < 4 * np.sqrt(0.25 / 600)


def test_regret_of_random_actions_is_what_theory_says():
    played = bandits.play(WORLD, bandits.Uniform(), 2000, runs=2, key=0)
    # 0, 5 (edible left), 0, 15 (poisonous eaten), a quarter each
    per_step = np.array([0.0, 5.0, 0.0, 15.0])
    error = per_step.std() / np.sqrt(4000)
    assert abs(played.regret.mean() - per_step.mean()) < 4 * error
    # what was paid: 0, or 5 for passing by an edible one, or −5 and 35 for eating
    paid = np.array([0, 0, 5, 5, 0, 0, -5, 35.0])
    assert abs(played.realised.mean() - paid.mean()) < 4 * paid.std() / np.sqrt(4000)
    np.testing.assert_allclose(played.cumulative[:, -1], played.regret.sum(1), rtol=1e-5)
    assert (played.runs, played.steps) == (2, 2000)


def test_regret_and_rewards_are_those_of_the_actions(thompson):
    """Interaction by interaction, from the keys that ``play`` documents."""
    course = jax.random.split(jax.random.fold_in(jax.random.key(7), 1))[1]

    @jax.jit
    def world(t):
        return WORLD.draw(loop.step_keys(course, t)[0], t)

    for t in range(0, 500, 25):
        found, action = world(t), thompson.actions[1, t]
        assert thompson.rewards[1, t] == found.rewards[action]
        assert thompson.regret[1, t] == found.expected.max() - found.expected[action]
        best = np.argmax(found.expected)
        assert thompson.realised[1, t] == found.rewards[best] - found.rewards[action]


def test_a_run_is_the_same_whatever_the_number_of_runs(thompson):
    alone = bandits.play(WORLD, THOMPSON, 60, runs=1, key=7)
    np.testing.assert_array_equal(alone.actions[0], thompson.actions[0, :60])
    np.testing.assert_array_equal(alone.regret[0], thompson.regret[0, :60])
    assert (thompson.actions[0] != thompson.actions[1]).any()
    chunked = bandits.play(WORLD, bandits.Uniform(), 5000, runs=1, key=7)  # longer than a chunk
    short = bandits.play(WORLD, bandits.Uniform(), 50, runs=3, key=7)
    np.testing.assert_array_equal(chunked.actions[0, :50], short.actions[0])
    assert chunked.steps == 5000


def test_thompson_sampling_beats_chance_by_far(thompson):
    # random actions cost 5 each, with a deviation of 6.1
    chance, error = 5.0 * 500, 6.13 * np.sqrt(500)
    assert (thompson.cumulative[:, -1] < 0.5 * (chance - 4 * error)).all()
    # it has learned: in the end it passes by the poisonous ones and eats the others
    assert thompson.regret[:, -100:].mean() < 0.5


def test_runs_side_by_side_under_vmap_are_those_that_go_alone(thompson):
    keys = jnp.stack([jax.random.fold_in(jax.random.key(7), r) for r in range(2)])
    starts, courses = jax.vmap(jax.random.split)(keys).T
    state = jax.jit(jax.vmap(lambda k: THOMPSON.init(4, 2, k)))(starts)
    played = loop.Played(*(jnp.zeros((2, 8), kind) for kind in (jnp.int32, float, float, float)))
    span = jnp.asarray(0, jnp.int32), jnp.asarray(8, jnp.int32)
    state, played = loop._all_runs((WORLD, THOMPSON, courses, *span), state, played)
    np.testing.assert_array_equal(played.actions, thompson.actions[:, :8])
    np.testing.assert_allclose(played.rewards, thompson.rewards[:, :8])
    assert state.replay.seen.tolist() == [8, 8]


# -- the replay buffer and the moments of rewards


def test_the_buffer_holds_the_last_interactions():
    replay, kept = empty(5, 2), deque(maxlen=5)
    push = jax.jit(lambda replay, i: replay.push(jnp.stack([i, -i]), 10.0 * i))
    for i in range(13):
        replay = push(replay, jnp.asarray(float(i)))
        kept.append((float(i), -float(i), 10.0 * i))
        filled = int(replay.filled)
        rows = np.column_stack([replay.inputs, replay.rewards])[:filled]
        assert sorted(map(tuple, rows)) == sorted(kept)
    assert int(replay.seen) == 13


ROWS = jax.jit(lambda replay, key: replay.rows((16, 8), key))


@pytest.mark.parametrize("seen", [1, 3, 64, 200])
def test_minibatches_go_through_what_is_filled_and_nothing_else(seen):
    replay = empty(64, 1)._replace(seen=jnp.asarray(seen, jnp.int32))
    rows = np.asarray(ROWS(replay, jax.random.key(seen)))
    filled = min(seen, 64)
    counts = np.bincount(rows.ravel(), minlength=filled)
    assert len(counts) == filled
    assert counts.max() - counts.min() <= 1
    if filled == 64:  # one pass is half of them, in an order of its own each time
        assert len(set(rows[:8].ravel())) == 64
        assert (rows != np.asarray(ROWS(replay, jax.random.key(1)))).any()


def test_running_moments_of_rewards():
    rewards = np.random.default_rng(0).normal(100.0, 3.0, 50).astype("float32")
    moments = Moments(jnp.zeros(()), jnp.zeros(()))
    assert moments.scale(jnp.asarray(0)) == 1
    for i, reward in enumerate(rewards):
        moments = moments.add(reward, i + 1)
        if i == 0:
            assert moments.scale(jnp.asarray(1)) == 1
    np.testing.assert_allclose(moments.mean, rewards.mean(), rtol=1e-5)
    np.testing.assert_allclose(moments.scale(jnp.asarray(50)), rewards.std(), rtol=1e-4)


# -- what learns


@pytest.mark.parametrize("filled", [1, 20, 32, 33, 256])
def test_the_objective_is_that_of_a_fit_to_the_buffer(filled):
    """The likelihood's mean over a minibatch, and the KL by the number of interactions."""
    phase = Learner(THOMPSON, 4, 2).phase(filled, filled)
    n, m, size = phase.plan.total, phase.plan.batches, 32
    batch = px.data.Batch(None, None, None, jnp.zeros((), jnp.int32))
    likelihood, kl = phase._scales(jnp.asarray(0), batch, jnp.float32)
    weight = n / (m * size)  # as ``train`` gives it to every row
    np.testing.assert_allclose(likelihood * weight, 1 / size, rtol=1e-6)
    np.testing.assert_allclose(kl, 1 / filled, rtol=1e-6)


def test_weights_in_one_block_are_the_same_network():
    network = as_network(px.networks.MLP(3, 2, (5,), key=0))
    flat, x = Flat(network), jnp.arange(6.0).reshape(2, 3)
    assert flat.params.shape == (1, 128)

    def total(weights, network):
        return jnp.sum(jnp.square(network.apply(weights, (), x, None, training=True)[0]))

    tree = jax.jit(jax.grad(lambda w: total(w, network)))(network.params)
    block = jax.jit(jax.grad(lambda w: total(w, flat)))(flat.params)
    np.testing.assert_allclose(flat.flatten(tree), block, rtol=1e-5)


def test_heads_by_action_train_the_action_that_was_taken():
    network = PerAction(as_network(px.networks.MLP(3, 2, (), key=0)), 3)
    x = jnp.array([[1.0, 2.0, 3.0, 0.0, 1.0]])
    outputs = lambda w: network.apply(w, (), x, None, training=True)[0]  # noqa: E731
    gradient = jax.jit(jax.grad(lambda w: outputs(w).sum()))(network.params)
    np.testing.assert_array_equal(gradient.layers[0].weight, [[0, 0, 0], [1, 2, 3]])
    assert outputs(network.params).shape == (1, 1)


def test_stored_draws_are_chosen_at_random():
    model = px.Model(px.networks.MLP(1, 1, (), key=0), likelihood=px.likelihoods.Gaussian(0.1))
    weights = jax.tree.map(lambda a: jnp.zeros((1, 10, *a.shape)), model.parameters)
    stored = Draws(model, (), px.predictive.Targets((), (1,)), draws=weights)
    draws = jax.jit(jax.vmap(lambda k: pick(stored, 1, k, at_random=True)[0]))
    ids = draws(jax.random.split(jax.random.key(0), 500))
    counts = np.bincount(np.ravel(ids), minlength=10)
    assert ((counts - 50) ** 2 / 50).sum() < 33.7  # χ² with 9 degrees of freedom, p = 0.0001


def test_how_policies_choose():
    values, weights = jnp.array([[0.0, 1.0, 3.0], [4.0, 1.0, -1.0]]), jnp.full(2, 0.5)
    key = jax.random.key(0)
    np.testing.assert_allclose(bandits.Thompson().preference(values, weights), [2, 1, 1])
    np.testing.assert_allclose(bandits.UCB(0.5).preference(values, weights), [3, 1, 2])
    assert bandits.Greedy().among(jnp.array([0.0, 2.0, 1.0]), key) == 1
    often = bandits.EpsilonGreedy(0.3)
    taken = jax.jit(jax.vmap(lambda k: often.among(jnp.array([0.0, 2.0, 1.0]), k)))(
        jax.random.split(key, 2000)
    )
    share = np.bincount(taken, minlength=3) / 2000
    expected = np.array([0.1, 0.8, 0.1])
    assert (abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / 2000)).all()


@pytest.mark.parametrize(
    "policy",
    [
        bandits.Uniform(),
        pytest.param(
            bandits.EpsilonGreedy(0.1, heads="per_action", **SMALL), marks=pytest.mark.slow
        ),
        pytest.param(bandits.Greedy(**SMALL), marks=pytest.mark.slow),
        pytest.param(bandits.UCB(1.0, **SMALL), marks=pytest.mark.slow),
        *(
            pytest.param(bandits.Thompson(None, method, **SMALL), marks=pytest.mark.slow)
            for method in (
                px.IVON(),
                px.MCDropout(),
                px.DeepEnsemble(members=3),
                px.SGLD(),
                px.BayesByBackprop(family="low_rank", rank=2),
            )
        ),
        pytest.param(
            bandits.Thompson(likelihood=px.likelihoods.Gaussian("learned"), **SMALL),
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda policy: type(getattr(policy, "method", None) or policy).__name__,
)
def test_policies_under_jit_and_vmap(policy):
    @jax.jit
    @jax.vmap
    def course(key, contexts):
        def one(state, context):
            action = policy.choose(state, context, key)
            return policy.update(state, context, action, 1.0 + action, key), action

        return jax.lax.scan(one, policy.init(4, 2, key), contexts)

    contexts = jax.random.normal(jax.random.key(1), (2, 6, 4))
    state, actions = course(jax.random.split(jax.random.key(0), 2), contexts)
    assert actions.shape == (2, 6)
    assert set(np.ravel(actions)) <= {0, 1}
    assert all(np.isfinite(a).all() for a in jax.tree.leaves(state) if a.dtype.kind == "f")


# -- refitting, live use, files


LINEAR = bandits.Thompson(
    None, px.Conjugate(), heads="per_action", hidden=(), buffer=256, refit_every=20,
    prior=px.priors.Gaussian(1.0), likelihood=px.likelihoods.Gaussian(1.0),
)  # fmt: skip


@pytest.fixture(scope="module")
def refitted() -> bandits.Played:
    return bandits.play(WORLD, LINEAR, 120, runs=2, key=7)


def test_methods_that_do_not_learn_from_minibatches_are_fitted_anew(refitted):
    assert (refitted.actions[:, :20].mean(1) > 0).all()  # at random before the first fit
    assert (refitted.actions[:, :20].mean(1) < 1).all()
    # rewards are linear in the features but for noise: a linear model finds the poison
    assert refitted.regret[:, 60:].mean() < 0.5 * 5


@pytest.mark.slow
@pytest.mark.parametrize("heads", ["joint", "per_action"])
def test_a_network_and_a_model_of_ones_own(heads):
    """Its arrays are traced within the loop; runs start from different weights."""
    sizes = (6, 1) if heads == "joint" else (4, 2)
    network = px.networks.MLP(*sizes, (8,), key=0)
    settings = {name: SMALL[name] for name in ("buffer", "batch_size", "updates")}
    prior, likelihood = px.priors.ScaleMixture(0.5, 1.0, 0.1), px.likelihoods.Gaussian(0.5)
    given = bandits.Thompson(
        network, METHOD, prior=prior, likelihood=likelihood, heads=heads, **settings
    )
    played = bandits.play(WORLD, given, 30, runs=2, key=0)
    assert np.isfinite(played.rewards).all()
    model = px.Model(network, prior, likelihood)
    again = bandits.play(
        WORLD, bandits.Thompson(model, METHOD, heads=heads, **settings), 30, runs=2, key=0
    )
    np.testing.assert_array_equal(again.actions, played.actions)
    states = [loop.first_state(given, 4, 2, jax.random.key(i)) for i in range(2)]
    one, two = (jax.tree.leaves(state.learned.state.mu.network) for state in states)
    assert any((a != b).any() for a, b in zip(one, two, strict=True))


def _live(agent: bandits.Agent, course: Any, start: int, stop: int) -> list[int]:
    actions = []
    for t in range(start, stop):
        found = DRAW(loop.step_keys(course, t)[0], t)
        actions.append(agent.choose(found.context))
        agent.update(found.context, actions[-1], found.rewards[actions[-1]])
    return actions


DRAW = jax.jit(WORLD.draw)


@pytest.mark.parametrize("how", ["thompson", "refitted"])
def test_an_agent_does_what_the_loop_does_and_goes_on_from_a_file(how, tmp_path, request):
    key, played = jax.random.fold_in(jax.random.key(7), 1), request.getfixturevalue(how)
    policy = {"thompson": THOMPSON, "refitted": LINEAR}[how]
    agent, course = bandits.Agent(policy, 4, 2, key=key), jax.random.split(key)[1]
    assert _live(agent, course, 0, 30) == played.actions[1, :30].tolist()
    agent.save(tmp_path / "agent.px")
    same = bandits.load(tmp_path / "agent.px")
    assert eqx.tree_equal(same.policy, policy)
    assert (same.choices, same.updates) == (30, 30)
    assert _live(same, course, 30, 45) == played.actions[1, 30:45].tolist()


def test_a_policy_of_ones_own_is_given_again(tmp_path):
    agent = bandits.Agent(Knows(), 4, 2, key=0)
    agent.update(np.ones(4), 0, 1.0)
    agent.save(tmp_path / "own.px")
    with pytest.raises(px.CheckpointError, match=r"px.bandits.load\(path, policy=policy\)"):
        bandits.load(tmp_path / "own.px")
    with pytest.raises(px.CheckpointError, match="other settings"):
        bandits.load(tmp_path / "own.px", policy=bandits.Uniform())
    assert bandits.load(tmp_path / "own.px", policy=Knows()).choose(np.ones(4)) == 0
    with pytest.raises(FileNotFoundError, match="no such file"):
        bandits.load(tmp_path / "nothing.px")


def test_settings_come_back_from_a_file():
    from posterax.bandits.saved import _describe, _make

    policies = [
        bandits.UCB(
            2.0, prior=px.priors.ScaleMixture(0.5, 1.0, 0.1), likelihood=px.likelihoods.StudentT(4)
        ),
        bandits.EpsilonGreedy(
            0.1, method=px.MCDropout(0.2), network=px.networks.MLP(2, 1, (), key=0)
        ),
    ]
    for policy in policies:
        assert eqx.tree_equal(_make(_describe(policy), {}), policy)


LINE = {"w": np.zeros((6, 1), "float32")}, lambda weights, x: x @ weights["w"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bandits.play(None, THOMPSON, 5, key=0), "environment must be"),
        (lambda: bandits.play(WORLD, bandits.Thompson, 5, key=0), "policy must be.*call it"),
        (lambda: bandits.play(WORLD, THOMPSON, 0, key=0), "steps must be"),
        (lambda: bandits.play(WORLD, THOMPSON, 5, runs=0, key=0), "runs must be"),
        (lambda: bandits.Thompson(buffer=0), "buffer must be"),
        (lambda: bandits.Thompson(samples=0), "samples must be"),
        (lambda: bandits.Thompson(heads="two"), "heads must be one of"),
        (lambda: bandits.Thompson(None, px.BayesByBackprop), "method must be"),
        (lambda: bandits.Thompson(reward_scale=-1.0), "reward_scale must be"),
        (lambda: bandits.Thompson(epochs=3), "epochs: of the fits of refit_every"),
        (lambda: bandits.EpsilonGreedy(1.5), "epsilon must lie"),
        (lambda: bandits.UCB(0.0), "scale must be"),
        (lambda: bandits.Thompson(data_size="all"), "data_size must be one of"),
        (lambda: bandits.Greedy(method=px.SGLD(schedule="cyclical")), "schedule='constant', or"),
        (lambda: bandits.Greedy(method=px.SGHMC(schedule="polynomial")), "schedule='polynomial'"),
        (lambda: bandits.Agent(THOMPSON, 0, 2), "features must be"),
        (lambda: bandits.Agent(Knows(), 4, 2).choose(np.ones(3)), r"context must have shape \(4,"),
        (lambda: bandits.Agent(Knows(), 1, 2).choose([np.nan]), "context must be finite"),
        (lambda: bandits.Agent(Knows(), 1, 2).update([1.0], 2, 1.0), "action must be below 2"),
        (lambda: bandits.Agent(Knows(), 1, 2).update([1.0], 0, np.nan), "reward must be one"),
        (lambda: bandits.Agent(bandits.Thompson(LINE, px.Laplace()), 4, 2), "give refit_every="),
        (lambda: bandits.Agent(bandits.Thompson(LINE, px.SWAG()), 4, 2), "give refit_every="),
        (lambda: bandits.Agent(bandits.Thompson(LINE), 3, 2), r"network must have 5 inputs"),
    ],
)
def test_errors_name_the_argument(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()

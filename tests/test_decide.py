"""Decisions: never worse than another action, Chow's rule, exact optima, and what is refused."""

import pickle
from itertools import pairwise

import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import posterax as px
from posterax import likelihoods as lk
from posterax.predictive import Targets
from tests.by_hand import GAUSSIAN, ONE, POISSON, TWO, predictive_of

pytestmark = pytest.mark.usefixtures("hasty_module")


@pytest.fixture(scope="module")
def gaussian():
    return predictive_of(GAUSSIAN, 1, ONE)


@pytest.fixture(scope="module")
def classes():
    return predictive_of(lk.Categorical(), 3, Targets((), ()))


@st.composite
def beliefs(draw, grid=64):
    """Probabilities in whole 64ths, so that sums and differences are exact."""
    classes = draw(st.integers(1, 4))
    rows = draw(st.integers(1, 4))
    cuts = [sorted(draw(st.integers(0, grid)) for _ in range(classes - 1)) for _ in range(rows)]
    return np.array([np.diff([0, *cut, grid]) / grid for cut in cuts])


# -- properties


@settings(max_examples=100, deadline=None)
@given(beliefs(), st.integers(1, 4), st.integers(0, 2**31))
def test_no_other_action_expects_less(p, actions, seed):
    loss = np.random.default_rng(seed).integers(-20, 20, (p.shape[1], actions))
    decision = px.decide(p, loss)
    by_hand = np.array([[sum(q * row[a] for q, row in zip(line, loss, strict=True))
                         for a in range(actions)] for line in p])  # fmt: skip
    np.testing.assert_allclose(decision.expected, by_hand, atol=1e-12)
    assert np.all(decision.risk[:, None] <= by_hand + 1e-12)
    chosen = np.take_along_axis(by_hand, decision.action[:, None], 1)[:, 0]
    np.testing.assert_allclose(chosen, decision.risk, atol=1e-12)
    assert not decision.abstained.any()
    np.testing.assert_allclose(decision.perfect, p @ loss.min(1), atol=1e-12)
    by_hand = decision.risk - p @ loss.min(1)
    np.testing.assert_allclose(decision.value_of_information, by_hand, atol=1e-12)


@settings(max_examples=100, deadline=None)
@given(beliefs(), st.integers(0, 64))
def test_zero_one_loss_is_the_most_probable_class_and_chows_rule(p, cost):
    cost = cost / 64
    for loss in ("zero_one", 1 - np.eye(p.shape[1]), lambda y, a: y != a):
        decision = px.decide(p, loss)
        np.testing.assert_array_equal(decision.action, p.argmax(1))
        np.testing.assert_array_equal(decision.risk, 1 - p.max(1))
        decision = px.decide(p, loss, abstain=cost)
        np.testing.assert_array_equal(decision.abstained, p.max(1) < 1 - cost)
        np.testing.assert_array_equal(decision.action == -1, decision.abstained)
        np.testing.assert_array_equal(decision.risk, np.minimum(1 - p.max(1), cost))


@settings(max_examples=50, deadline=None)
@given(beliefs(), st.lists(st.floats(0, 1), min_size=2, max_size=5), st.integers(0, 2**31))
def test_abstaining_for_less_lowers_every_risk(p, costs, seed):
    loss = np.random.default_rng(seed).uniform(size=(p.shape[1], 3))
    found = [px.decide(p, loss, abstain=cost) for cost in sorted(costs)]
    for cost, decision in zip(sorted(costs), found, strict=True):
        # who is told y may abstain too
        np.testing.assert_allclose(decision.perfect, p @ np.minimum(loss.min(1), cost), atol=1e-12)
        assert np.all(decision.perfect <= decision.risk + 1e-12)
    for cheap, dear in pairwise(found):
        assert np.all(cheap.risk <= dear.risk)
        assert cheap.accepted <= dear.accepted
        assert np.all(cheap.abstained >= dear.abstained)
        if cheap.accepted:  # those that are decided are the safest
            assert cheap.accepted_risk <= dear.accepted_risk + 1e-12


def test_realised_loss_is_the_expected_one_on_average():
    """The labels in the proportions of the probabilities: no chance is left."""
    p = np.tile([0.5, 0.25, 0.25], (4, 1))
    y = np.array([0, 0, 1, 2])
    loss = np.array([[0, 3.0], [5, 0], [1, 1]])
    decision = px.decide(p, loss)
    assert decision.realised(y).loss == pytest.approx(decision.risk.mean())
    assert decision.realised(y).accepted == 1
    assert decision.realised(y[:, None]) == decision.realised(y)


def test_realised_with_abstention_by_hand():
    p = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    decision = px.decide(p, "zero_one", abstain=[0.3, 0.3, 0.1])
    np.testing.assert_array_equal(decision.abstained, [False, True, True])
    assert decision.accepted == pytest.approx(1 / 3)
    assert decision.accepted_risk == pytest.approx(0.1)
    assert decision.realised([1, 0, 0]) == pytest.approx(((1 + 0.3 + 0.1) / 3, 1 / 3, 1.0))
    nothing = px.decide(p, "zero_one", abstain=0.0)
    assert nothing.accepted == 0
    assert np.isnan(nothing.accepted_risk)
    assert np.isnan(nothing.realised([0, 0, 0]).loss_of_accepted)


# -- classes


def test_dog_wolf_cat():
    p = [0.4, 0.3, 0.2, 0.1]
    assert px.decide(p, "zero_one").action == 0
    loss = 1 - np.eye(4)
    loss[1, 0] = 20  # taking a wolf for a dog
    decision = px.decide(p, loss)
    assert decision.action == 1
    np.testing.assert_allclose(decision.expected, [6.3, 0.7, 0.8, 0.9])
    assert decision.risk == pytest.approx(0.7)
    assert decision.value_of_information == pytest.approx(0.7)
    asked = px.decide(p, loss, abstain=0.5)
    assert asked.abstained
    assert asked.action == -1
    assert asked.accepted == 0
    assert asked.realised(1).loss == 0.5
    with pytest.raises(ValueError, match="sum to 1"):
        px.decide([0.4, 0.3, 0.2], "zero_one")


def test_named_actions_and_their_marks():
    p = [[0.9, 0.1], [0.5, 0.5]]
    loss = [[0.0, 1.0], [1.0, 0.0]]
    decision = px.decide(p, loss, actions=["stay", "go"], abstain=0.2)
    assert list(decision.action) == ["stay", None]
    decision = px.decide(p, loss, actions=[0.5, 1.5], abstain=0.2)
    np.testing.assert_array_equal(decision.action, [0.5, np.nan])
    decision = px.decide(p, lambda y, a: np.abs(y - a), actions=[0.0, 0.25, 1.0])
    np.testing.assert_allclose(decision.expected, [[0.1, 0.3, 0.9], [0.5, 0.5, 0.5]])


def test_a_predictive_of_classes_and_maps_of_them(classes):
    y = np.arange(12) % 3
    decision = px.decide(classes, "zero_one")
    np.testing.assert_array_equal(decision.action, classes.mode)
    assert decision.realised(y).loss == pytest.approx(1 - px.metrics.accuracy(classes, y))
    np.testing.assert_array_equal(decision.error, 0)
    pixels = np.asarray(classes.mean).reshape(3, 4, 3)
    again = px.decide(pixels, "zero_one")
    np.testing.assert_array_equal(again.action, classes.mode.reshape(3, 4))
    assert again.expected.shape == (3, 4, 3)


def test_a_cost_of_abstaining_for_each_example_counts_for_all_its_labels():
    p = np.random.default_rng(0).dirichlet(np.ones(3), (4, 5))
    costs = np.array([0.1, 0.3, 0.5, 0.7])
    found = px.decide(p, "zero_one", abstain=costs)
    each = px.decide(p, "zero_one", abstain=np.repeat(costs[:, None], 5, 1))
    np.testing.assert_array_equal(found.action, each.action)
    np.testing.assert_array_equal(found.perfect, each.perfect)
    assert found.realised(np.zeros((4, 5))) == each.realised(np.zeros((4, 5)))


# -- values


def test_squared_loss_is_the_mean(gaussian):
    decision = px.decide(gaussian, "squared")
    np.testing.assert_allclose(decision.action, gaussian.mean)
    np.testing.assert_allclose(decision.risk, gaussian.variance)
    np.testing.assert_array_equal(decision.error, 0)
    y = np.linspace(-1, 1, 12)
    expected = np.mean(np.square(y - gaussian.mean))
    assert decision.realised(y[:, None]).loss == pytest.approx(expected)


def test_absolute_and_pinball_losses_are_quantiles(gaussian):
    mean = gaussian.outputs().astype(np.float64)[..., 0]
    absolute = px.decide(gaussian, "absolute", samples=1000)
    np.testing.assert_allclose(absolute.action, gaussian.quantile(0.5))
    folded = stats.foldnorm(np.abs(mean - absolute.action) / 0.3, scale=0.3).mean().mean(0)
    assert np.all(np.abs(absolute.risk - folded) < 4.5 * absolute.error)
    assert np.all(absolute.error <= gaussian.std / np.sqrt(1000) * 1.2)
    pinball = px.decide(gaussian, ("pinball", 0.9), samples=1000)
    np.testing.assert_allclose(pinball.action, gaussian.quantile(0.9))
    half = px.decide(gaussian, ("pinball", 0.5), samples=1000)
    np.testing.assert_allclose(2 * half.risk, absolute.risk)


def test_a_function_finds_the_quantile_of_its_costs(gaussian):
    """Too little costs nine times too much: the best candidate is the 90 % quantile."""
    loss = lambda y, a: np.where(y > a, 9 * (y - a), a - y)  # noqa: E731
    decision = px.decide(gaussian, loss, samples=1000)
    assert decision.expected.shape == (12, 99)
    exact = px.decide(gaussian, ("pinball", 0.9), samples=1000)
    # the loss is flat about its least: in risk the candidates are as good as the quantile itself
    assert np.all(np.abs(decision.risk - 10 * exact.risk) < 3 * decision.error)
    mean = gaussian.outputs().astype(np.float64)[..., 0]
    below = stats.norm(mean, 0.3).cdf(decision.action).mean(0)
    assert np.all(np.abs(below - 0.9) < 0.06)  # six binomial errors of 1000 draws
    y = np.linspace(-1, 1, 12)
    assert decision.realised(y).loss == pytest.approx(np.mean(loss(y, decision.action)))


def test_a_function_on_given_actions_and_abstention(gaussian):
    actions = np.linspace(-10, 10, 201)
    decision = px.decide(gaussian, lambda y, a: np.square(y - a), actions=actions, samples=1000)
    nearest = actions[np.abs(actions - gaussian.mean[:, None]).argmin(1)]
    assert np.all(np.abs(decision.action - nearest) < 0.1 + 1e-9)
    assert np.all(decision.perfect <= 0.05**2)  # half a step of the grid
    cost = float(np.median(decision.risk))
    asked = px.decide(
        gaussian, lambda y, a: np.square(y - a), actions=actions, samples=1000, abstain=cost
    )
    np.testing.assert_array_equal(asked.abstained, decision.risk > cost)
    np.testing.assert_array_equal(np.isnan(asked.action), asked.abstained)
    assert np.all(asked.perfect <= decision.perfect)
    assert np.all(asked.error[asked.abstained] == 0)


def test_counts_and_several_targets():
    counts = predictive_of(POISSON, 1, ONE)
    # a thing sells for 3 and costs 1: how many to have
    loss = lambda sold, had: had - 3 * np.minimum(sold, had)  # noqa: E731
    decision = px.decide(counts, loss, actions=np.arange(60))
    rate = np.exp(counts.outputs().astype(np.float64)[..., 0])
    below, reached = (stats.poisson(rate).cdf(decision.action + k).mean(0) for k in (-1, 0))
    assert np.all(below < 2 / 3 + 0.075)  # the critical ratio, and five binomial errors
    assert np.all(reached > 2 / 3 - 0.075)
    two = predictive_of(GAUSSIAN, 2, TWO)
    decision = px.decide(two, "squared", abstain=0.5)
    np.testing.assert_allclose(decision.expected[:, 0], two.variance.sum(-1), rtol=1e-6)
    assert decision.action.shape == (12, 2)
    np.testing.assert_array_equal(np.isnan(decision.action).all(-1), decision.abstained)
    corners = [[0.0, 0.0], [1.0, 1.0]]
    decision = px.decide(two, lambda y, a: np.square(y - a).sum(-1), actions=corners)
    assert decision.action.shape == (12, 2)
    with pytest.raises(ValueError, match="actions"):
        px.decide(two, lambda y, a: np.square(y - a).sum(-1))
    with pytest.raises(ValueError, match="one number for each example"):
        px.decide(two, lambda y, a: np.square(y - a), actions=corners)


def nine_times(y, a):
    return np.where(y > a, 9 * (y - a), a - y)


def test_decisions_can_be_pickled(gaussian, classes):
    y = np.arange(12) % 3
    for decision in (
        px.decide(classes, lambda y, a: y != a, abstain=0.3),
        px.decide(gaussian, "squared", abstain=0.2),
        px.decide(gaussian, ("pinball", 0.9), samples=1000),
        px.decide(gaussian, nine_times, actions=[-1.0, 0.0, 1.0], samples=1000),
    ):
        again = pickle.loads(pickle.dumps(decision))
        np.testing.assert_array_equal(again.action, decision.action)
        np.testing.assert_array_equal(again.realised(y), decision.realised(y))  # NaN among them


# -- refused

P = [[0.5, 0.5], [0.9, 0.1]]
REFUSED = {
    "sum": (lambda: px.decide([[0.4, 0.3]], "zero_one"), "sum to 1"),
    "rows": (lambda: px.decide(P, np.zeros((3, 2))), "2 rows"),
    "columns": (lambda: px.decide(P, np.zeros((2, 2)), actions=["a", "b", "c"]), "column"),
    "vector": (lambda: px.decide(P, [1.0, 2.0]), "2 rows"),
    "empty": (lambda: px.decide(P, np.zeros((2, 0))), "2 rows"),
    "no actions": (lambda: px.decide(P, lambda y, a: y * 0, actions=[]), "at least one"),
    "nan": (lambda: px.decide(P, [[0, np.nan], [0, 0]]), "loss"),
    "nan of a function": (lambda: px.decide(P, lambda y, a: y * np.nan), "finite"),
    "names": (lambda: px.decide(P, "zero_one", actions=["x", "y"]), r"1 - np\.eye\(2\)"),
    "name": (lambda: px.decide(P, "hinge"), "hinge"),
    "name of values": (lambda: px.decide(P, "squared"), "squared"),
    "pair of values": (lambda: px.decide(P, ("pinball", 0.5)), "pinball"),
    "cost": (lambda: px.decide(P, "zero_one", abstain=np.nan), "abstain"),
    "costs": (lambda: px.decide(P, "zero_one", abstain=[0.1, 0.2, 0.3]), "abstain"),
    "y": (lambda: px.decide(P, "zero_one").realised([0, 1, 1]), "shape"),
    "label": (lambda: px.decide(P, "zero_one").realised([0, 2]), "labels"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_a_distribution_is_no_predictive():
    with pytest.raises(TypeError, match=r"Predictive.*posterior\.predict.*Normal"):
        px.decide(dist.Normal(0.0, 1.0), "squared")


def test_refused_for_values(gaussian):
    for loss, more, message in (
        (np.eye(2), {}, "matrix"),
        ("zero_one", {}, "zero_one"),
        ("pinball", {}, "pinball"),
        (("pinball", 1.5), {}, "between 0 and 1"),
        ("squared", {"actions": [1.0]}, "leave actions out"),
        (lambda y, a: y[:, :2], {}, "one number"),
        (lambda y, a: y, {"samples": 0}, "samples"),
    ):
        with pytest.raises(ValueError, match=message):
            px.decide(gaussian, loss, **{"samples": 1000, **more})

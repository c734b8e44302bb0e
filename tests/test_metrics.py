"""Metrics against scikit-learn, closed forms and values by hand; arrays that must not broadcast."""

import copy
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sk
from sklearn.calibration import calibration_curve

from posterax import likelihoods as lk
from posterax import metrics as mt
from posterax.metrics.baseline import Constant
from posterax.predictive import Targets
from tests.by_hand import GAUSSIAN, ONE, POISSON, TWO, X, predictive_of

pytestmark = pytest.mark.usefixtures("hasty_module")

module = importlib.import_module("posterax.metrics.crps")


@pytest.fixture(scope="module")
def gaussian():
    return predictive_of(GAUSSIAN, 1, ONE)


@pytest.fixture(scope="module")
def classes():
    return predictive_of(lk.Categorical(), 3, Targets((), ()))


@pytest.fixture(scope="module")
def counts():
    return predictive_of(POISSON, 1, ONE)


@pytest.fixture(scope="module")
def forecasts():
    """Probabilities with ties, labels and weights of 300 examples."""
    rng = np.random.default_rng(0)
    p = np.round(rng.dirichlet(np.ones(3), 300), 1)
    p[:, 2] = 1 - p[:, :2].sum(1)
    return np.clip(p, 0, 1), rng.integers(0, 3, 300), rng.uniform(0.1, 2, 300)


# -- scores


def test_scores_of_classes_agree_with_scikit_learn(forecasts):
    p, y, w = forecasts
    p = np.clip(p, 0.05, None)
    p /= p.sum(1, keepdims=True)
    for weight in (None, w):
        found = mt.negative_log_likelihood(p, y, weight=weight)
        np.testing.assert_allclose(found, sk.log_loss(y, p, sample_weight=weight), rtol=1e-12)
        found = mt.accuracy(p, y, weight=weight)
        expected = sk.accuracy_score(y, p.argmax(1), sample_weight=weight)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        # of one class against the rest scikit-learn counts half
        two = np.stack([1 - p[:, 0], p[:, 0]], 1)
        found = mt.brier_score(two, y == 0, weight=weight)
        expected = 2 * sk.brier_score_loss(y == 0, p[:, 0], sample_weight=weight)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    by_hand = np.mean([np.sum((q - np.eye(3)[k]) ** 2) for q, k in zip(p, y, strict=True)])
    np.testing.assert_allclose(mt.brier_score(p, y), by_hand, rtol=1e-12)


def test_an_impossible_label_costs_infinity():
    assert mt.negative_log_likelihood([[1.0, 0.0]], [1]) == np.inf
    assert mt.negative_log_likelihood([[1.0, 0.0]], [0]) == 0


def test_scores_of_values_agree_with_scikit_learn(gaussian):
    rng = np.random.default_rng(1)
    y, w = rng.normal(size=12), rng.uniform(size=12)
    found = mt.root_mean_squared_error(gaussian, y, weight=w)
    expected = sk.root_mean_squared_error(y, gaussian.mean, sample_weight=w)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    found = mt.mean_absolute_error(gaussian, y, weight=w)
    expected = sk.mean_absolute_error(y, gaussian.quantile(0.5), sample_weight=w)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert mt.root_mean_squared_error(gaussian.mean, y) == mt.root_mean_squared_error(gaussian, y)
    expected = -np.average(gaussian.log_prob(y), weights=w)
    np.testing.assert_allclose(mt.negative_log_likelihood(gaussian, y, weight=w), expected)


# -- CRPS


def normal_crps(mean, std, y):
    at = (y - mean) / std
    return std * (at * (2 * stats.norm.cdf(at) - 1) + 2 * stats.norm.pdf(at) - 1 / np.sqrt(np.pi))


def test_crps_of_one_gaussian_has_its_closed_form():
    predictive = predictive_of(GAUSSIAN, 1, ONE, spread=1e-7)
    y = predictive.mean + 0.3 * np.linspace(-6, 6, 12)
    expected = normal_crps(predictive.mean, 0.3, y)
    np.testing.assert_allclose(mt.crps_each(predictive, y), expected, rtol=2e-5, atol=1e-6)
    units = predictive.in_units(5.0, 10.0)
    expected = normal_crps(units.mean, 3.0, 5 + 10 * y)
    np.testing.assert_allclose(mt.crps_each(units, 5 + 10 * y), expected, rtol=2e-5, atol=1e-5)


def test_crps_of_a_mixture_is_its_integral(gaussian):
    y = np.linspace(-3, 3, 12)
    mean = gaussian.outputs().astype(np.float64)[..., 0]
    z = np.linspace(-15, 15, 60_001)[:, None]
    below = np.stack([stats.norm(m, 0.3).cdf(z) for m in mean]).mean(0)
    integral = np.trapezoid(np.square(below - (z >= y)), dx=z[1, 0] - z[0, 0], axis=0)
    # a step of height at most 1 inside a grid cell of 5e-4 costs at most half of it
    np.testing.assert_allclose(mt.crps_each(gaussian, y), integral, atol=3e-4)


def test_crps_of_many_samples_is_an_integral(gaussian, monkeypatch):
    """Forced for 7 samples; pairs of 64,000 would take minutes."""
    y = np.linspace(-3, 3, 12)
    light = copy.copy(gaussian)  # one sample that hardly counts must not widen the range
    weights = jnp.array([1e-12, *[1 / 6] * 6], jnp.float32)
    light._particles = gaussian._particles._replace(weights=weights)
    light._moments = gaussian._summary  # of which the shape is asked only
    pairs = mt.crps_each(light, y)
    monkeypatch.setattr(module, "PAIRS", 3)
    found = module._exact(light, y)
    np.testing.assert_array_equal(mt.crps_each(light, y), found)
    np.testing.assert_allclose(found, pairs, rtol=2e-5)
    monkeypatch.undo()
    many = copy.copy(gaussian)
    for many.samples, way in ((1024, module._of_gaussians), (1025, module._of_many_gaussians)):
        assert module._reduction(many) is way


@pytest.mark.slow
def test_crps_of_many_narrow_gaussians_goes_through_quantiles(monkeypatch):
    narrow = predictive_of(lk.Gaussian(1e-4), 1, ONE)
    y = np.linspace(-3, 3, 12)
    pairs = mt.crps_each(narrow, y)
    monkeypatch.setattr(module, "PAIRS", 3)
    assert np.all(np.isnan(module._exact(narrow, y)))
    # steps of a seventh between 200 levels
    np.testing.assert_allclose(mt.crps_each(narrow, y), pairs, rtol=0.02)


def test_crps_by_quantiles_errs_as_little_as_it_says():
    """A recalibrated predictive has no posterior samples to sum over: quantiles alone."""

    class Standard:
        kind, mean = "regression", np.zeros(25)

        def log_prob(self, y):
            return stats.norm.logpdf(y)

        def quantile(self, q):
            return np.broadcast_to(stats.norm.ppf(q)[:, None], (len(q), 25))

    y = np.linspace(-6, 6, 25)
    np.testing.assert_allclose(mt.crps_each(Standard(), y), normal_crps(0, 1, y), atol=6e-5)
    # evenly spaced levels, by scikit-learn: less exact, by 1e-3 at the most
    levels = (np.arange(200) + 0.5) / 200
    pinball = [sk.mean_pinball_loss(y, np.full(25, stats.norm.ppf(q)), alpha=q) for q in levels]
    np.testing.assert_allclose(mt.crps(Standard(), y), 2 * np.mean(pinball), atol=1.1e-3)


@pytest.mark.slow
def test_crps_of_student_t_goes_through_quantiles():
    predictive = predictive_of(lk.StudentT(5.0, 0.3), 1, ONE, samples=1)
    apart = np.linspace(-2, 2, 12)
    z = np.linspace(-40, 40, 200_001)[:, None]
    below = stats.t(5).cdf(z / 0.3)
    integral = np.trapezoid(np.square(below - (z >= apart)), dx=z[1, 0] - z[0, 0], axis=0)
    found = mt.crps_each(predictive, predictive.mean + apart)
    # heavier tails than a Gaussian's: ten times its 6e-5, and half a cell of the grid
    np.testing.assert_allclose(found, integral, atol=6e-4 * 0.3 * np.sqrt(5 / 3) + 2e-4)


def test_crps_of_counts_is_a_sum(counts):
    rate = np.exp(counts.outputs().astype(np.float64)[..., 0])
    y = np.array([0, 0, 1, 2, 3, 5, 0, 1, 2, 30, 200, 5000])
    k = np.arange(6000)
    below = np.mean([stats.poisson(r).cdf(k[:, None]) for r in rate], axis=0)
    expected = np.sum(np.square(below - (k[:, None] >= y)), axis=0)
    np.testing.assert_allclose(mt.crps_each(counts, y), expected, rtol=1e-4, atol=1e-5)


def test_crps_of_many_counts_goes_through_quantiles(counts, monkeypatch):
    """Forced: one that fits the sum by quantiles of draws, which are 1001 for 7 samples."""
    y = np.array([0, 0, 1, 2, 3, 5, 0, 1, 2, 3, 4, 5])
    summed = mt.crps_each(counts, y)
    monkeypatch.setattr(module, "_of_counts", lambda block, _: (jnp.full(12, jnp.nan),))
    # |Y − y| has a deviation of at most std; four standard errors of each mean
    np.testing.assert_array_less(
        np.abs(mt.crps_each(counts, y) - summed), 4 * counts.std / np.sqrt(1001) + 1e-3
    )


MULTINOMIAL = lk.From(lambda f: dist.Multinomial(10, logits=f), kind="counts")


def test_crps_of_counts_that_hang_together_is_not_a_sum(monkeypatch):
    monkeypatch.setattr(module, "_by_quantiles", lambda predictive, y: y)
    predictive = predictive_of(MULTINOMIAL, 3, Targets((3,), (3,)), samples=1)
    y = np.tile([5, 3, 2], (12, 1))
    np.testing.assert_array_equal(mt.crps_each(predictive, y), y)


@pytest.mark.slow
def test_crps_of_counts_that_hang_together_goes_through_quantiles():
    predictive = predictive_of(MULTINOMIAL, 3, Targets((3,), (3,)), samples=1)
    p = jax.nn.softmax(predictive.outputs()[0].astype(np.float64))
    y, k = np.tile([5, 3, 2], (12, 1)), np.arange(11)[:, None, None]
    expected = np.square(stats.binom(10, p).cdf(k) - (k >= y)).sum(0)
    # |Y − y| has a deviation of at most std; four standard errors of 1000 draws
    allowed = 4 * predictive.std / np.sqrt(1000) + 1e-3
    np.testing.assert_array_less(np.abs(mt.crps_each(predictive, y) - expected), allowed)
    # independent ones are written as one event too, and summed each alone
    apart = lk.From(lambda f: dist.Poisson(jnp.exp(f)).to_event(1), kind="counts")
    predictive, y = predictive_of(apart, 2, TWO), np.tile([5, 3], (12, 1))
    expected = mt.crps_each(predictive_of(POISSON, 2, TWO), y)
    np.testing.assert_allclose(mt.crps_each(predictive, y), expected, rtol=1e-6)


@pytest.mark.slow
def test_crps_of_several_outputs_is_for_each_alone():
    predictive = predictive_of(lk.MultivariateGaussian([[1.0, 0.6], [0.6, 0.5]]), 2, TWO, samples=1)
    y = np.concatenate([X, -X], 1)
    expected = normal_crps(predictive.mean, np.sqrt([1.0, 0.5]), y)
    np.testing.assert_allclose(mt.crps_each(predictive, y), expected, rtol=1e-5)
    w = np.arange(12.0)
    np.testing.assert_allclose(
        mt.crps(predictive, y, weight=w), np.average(expected.mean(1), weights=w), rtol=1e-5
    )


# -- calibration


@pytest.mark.parametrize("bins", [1, 5, 15])
def test_reliability_agrees_with_scikit_learn(forecasts, bins):
    p, y, _ = forecasts
    found = mt.reliability(p, y, bins=bins)
    right = p.argmax(1) == y
    share, mean = calibration_curve(right, p.max(1), n_bins=bins)
    used = found.count > 0
    assert used.sum() == len(share)
    assert np.all(np.isnan(found.accuracy[~used]))
    np.testing.assert_allclose(found.accuracy[used], share, rtol=1e-12)
    np.testing.assert_allclose(found.confidence[used], mean, rtol=1e-12)
    assert found.count.sum() == 300


@pytest.mark.parametrize("bins", [1, 7, 15])
@pytest.mark.parametrize("ties", [True, False])
def test_adaptive_bins_end_at_the_confidence_that_fills_them(forecasts, bins, ties):
    p, y, _ = forecasts
    p = p if ties else np.random.default_rng(1).dirichlet(np.ones(3), 300)
    confidence, right = p.max(1), p.argmax(1) == y
    # the least confidence that k/bins of the examples do not exceed
    ends = np.sort(confidence)[[-(-300 * k // bins) - 1 for k in range(1, bins)]]
    place = (confidence[:, None] > ends).sum(1)
    for weight in (None, np.ones(300)):
        found = mt.reliability(p, y, bins=bins, adaptive=True, weight=weight)
        np.testing.assert_array_equal(found.count, np.bincount(place, minlength=bins))
        for k in np.unique(place):
            np.testing.assert_allclose(found.accuracy[k], right[place == k].mean())
            np.testing.assert_allclose(found.confidence[k], confidence[place == k].mean())


def test_calibration_errors_by_hand():
    p = np.array([[0.55, 0.45], [0.65, 0.35], [0.95, 0.05], [0.05, 0.95], [0.9, 0.1]])
    y = [0, 1, 0, 1, 1]  # right, wrong, right, right, wrong
    # bins (0.5, 0.6], (0.6, 0.7], (0.8, 0.9], (0.9, 1]
    gaps = np.array([0.45, 0.65, 0.9, 0.05])
    found = mt.expected_calibration_error(p, y, bins=10)
    np.testing.assert_allclose(found, gaps @ [1, 1, 1, 2] / 5)
    np.testing.assert_allclose(mt.maximum_calibration_error(p, y, bins=10), 0.9)
    # equal mass: the median of the confidences is 0.9, which belongs to the lower half
    expected = (3 * abs(1 / 3 - np.mean([0.55, 0.65, 0.9])) + 2 * 0.05) / 5
    np.testing.assert_allclose(mt.adaptive_calibration_error(p, y, bins=2), expected)
    signed = mt.reliability(p, y, bins=10).gap
    assert signed[5] > 0 > signed[6]


@pytest.mark.parametrize("ties", [True, False])
def test_weights_count_like_repeated_examples(forecasts, ties):
    p, y, _ = forecasts
    p = p if ties else np.random.default_rng(1).dirichlet(np.ones(3), 300)
    often = np.arange(300) % 3
    again = np.repeat(np.arange(300), often)
    for metric in (
        mt.expected_calibration_error, mt.maximum_calibration_error, mt.adaptive_calibration_error,
        mt.brier_score, mt.sharpness,
    ):  # fmt: skip
        arguments = (p,) if metric is mt.sharpness else (p, y)
        repeated = (a[again] for a in arguments)
        np.testing.assert_allclose(metric(*arguments, weight=often), metric(*repeated), rtol=1e-9)


def test_one_class_and_certain_predictions():
    for y, error in (([0, 0], 0.0), ([1, 1], 1.0)):
        p = np.array([[1.0, 0.0], [1.0, 0.0]])
        assert mt.expected_calibration_error(p, y) == error
        assert mt.maximum_calibration_error(p, y) == error
        assert mt.adaptive_calibration_error(p, y) == error
    assert mt.expected_calibration_error(np.ones((3, 1)), [0, 0, 0]) == 0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 64), st.booleans()), min_size=1, max_size=30))
def test_calibration_errors_are_in_order(examples):
    """The mean gap is at most the largest; both lie in [0, 1], and order is of no matter."""
    first = np.array([k for k, _ in examples]) / 64
    p, y = np.stack([first, 1 - first], 1), np.array([int(b) for _, b in examples])
    expected, largest = mt.expected_calibration_error(p, y), mt.maximum_calibration_error(p, y)
    assert 0 <= expected <= largest + 1e-12 <= 1 + 2e-12
    assert 0 <= mt.adaptive_calibration_error(p, y) <= 1
    back = mt.adaptive_calibration_error(p[::-1], y[::-1])
    np.testing.assert_allclose(back, mt.adaptive_calibration_error(p, y), atol=1e-12)


# -- intervals


def test_intervals_by_hand():
    low, high, y = np.zeros(4), np.array([1.0, 1.0, 2.0, 2.0]), np.array([0.0, 1.5, -1.0, 2.0])
    assert mt.coverage((low, high), y) == 0.5  # ends belong to it
    assert mt.mean_width((low, high)) == 1.5
    expected = np.mean([1, 1 + 0.5 * 2 / 0.2, 2 + 1 * 2 / 0.2, 2])
    np.testing.assert_allclose(mt.interval_score((low, high), y, level=0.8), expected)
    np.testing.assert_allclose(mt.coverage((low, high), y, weight=[3, 1, 0, 0]), 0.75)


def test_interval_score_of_the_predictive_and_pinball(gaussian):
    """Width and penalties are the pinball losses of both ends, times 2/α."""
    y = np.linspace(-3, 3, 12)
    low, high = gaussian.interval(0.8)
    ends = sk.mean_pinball_loss(y, low, alpha=0.1) + sk.mean_pinball_loss(y, high, alpha=0.9)
    np.testing.assert_allclose(mt.interval_score(gaussian, y, 0.8), ends * 2 / 0.2, rtol=1e-6)
    np.testing.assert_allclose(mt.mean_width(gaussian, 0.8), np.mean(high - low), rtol=1e-6)
    assert mt.coverage(gaussian, y[:, None], 0.8) == mt.coverage(gaussian, y, 0.8)


def test_sharpness(gaussian, classes):
    np.testing.assert_allclose(mt.sharpness(gaussian), gaussian.std.mean(), rtol=1e-6)
    np.testing.assert_allclose(mt.sharpness(classes), classes.total.mean(), rtol=1e-5)


def test_quantile_calibration_of_values_is_the_share_below(gaussian):
    y = np.linspace(-2, 2, 12)
    expected, observed = mt.quantile_calibration(gaussian, y, [0.1, 0.5, 0.8])
    by_hand = [np.mean(y <= gaussian.quantile(q)) for q in expected]
    np.testing.assert_allclose(observed, by_hand)
    error = mt.quantile_calibration_error(gaussian, y, [0.1, 0.5, 0.8])
    np.testing.assert_allclose(error, np.mean(np.square(expected - by_hand)))
    assert mt.quantile_calibration(gaussian, y).expected.shape == (99,)


def test_a_true_predictive_is_calibrated_and_a_narrow_one_is_not():
    """n targets from the predictive: the error is Cramér's and von Mises' statistic over n.

    That has mean 1/6 and variance 1/45 in the limit.
    """
    true = predictive_of(GAUSSIAN, 1, ONE, spread=1e-7)
    n, repeats = 12, 40
    drawn = true.mean + 0.3 * np.random.default_rng(0).normal(size=(repeats, n))
    errors = [mt.quantile_calibration_error(true, y) for y in drawn]
    apart = np.mean(errors) - 1 / (6 * n)
    assert abs(apart) < 4 * np.sqrt(1 / 45 / repeats) / n
    narrow = [mt.quantile_calibration_error(true.widened(0.1), y) for y in drawn]
    # most targets lie beyond all quantiles, half on either side: ∫ (q − 1/2)² dq = 1/12
    assert np.mean(narrow) > 0.75 / 12 > np.mean(errors)


def test_quantile_calibration_of_counts_is_uniform_under_the_truth():
    """Every count weighted by its probability: the share below level q is q exactly."""
    predictive = predictive_of(POISSON, 1, ONE, spread=1e-6)
    rate = np.exp(predictive.outputs().astype(np.float64)[0, :, 0])
    levels = np.array([0.05, 0.3, 0.77])
    observed = np.zeros(3)
    for k in range(40):
        weight = stats.poisson(rate).pmf(k)
        share = mt.quantile_calibration(predictive, np.full(12, k), levels, weight=weight)
        observed += share.observed * weight.sum() / 12
    np.testing.assert_allclose(observed, levels, atol=2e-5)


# -- rejection


def test_rejection_curve_by_hand_with_ties():
    p = np.array([[0.9, 0.1], [0.7, 0.3], [0.3, 0.7], [0.6, 0.4]])
    right = [0, 1, 1, 1]  # of the two at 0.7 one is right
    curve = mt.accuracy_rejection(p, right)
    np.testing.assert_allclose(curve.rejected, [0, 0.25, 0.5, 0.75])
    # with two kept the second is either of the equals: (1 + 1/2) / 2
    np.testing.assert_allclose(curve.accuracy, [0.5, 2 / 3, 0.75, 1])
    np.testing.assert_allclose(curve.area, np.mean([0.5, 2 / 3, 0.75, 1]))
    found = mt.rejection_area(p, right)
    np.testing.assert_allclose(found, [curve.area, 0.5, np.mean([0.5, 2 / 3, 1, 1])])
    np.testing.assert_allclose(found.gained, (found.area - 0.5) / (found.oracle - 0.5))


def test_rejection_in_any_order_of_examples(forecasts):
    p, y, w = forecasts
    mixed = np.random.default_rng(1).permutation(300)
    for weight in (None, w):
        again = None if weight is None else weight[mixed]
        one = mt.rejection_area(p, y, "confidence", weight=weight)
        other = mt.rejection_area(p[mixed], y[mixed], "confidence", weight=again)
        np.testing.assert_allclose(one, other, rtol=1e-9)
        np.testing.assert_allclose(one.random, mt.accuracy(p, y, weight=weight))
        assert one.oracle >= one.area


def test_rejection_by_an_oracle_and_by_nothing():
    p, y = np.array([[0.9, 0.1]] * 4), np.array([0, 0, 1, 1])
    found = mt.rejection_area(p, y, score=y.astype(float))  # the wrong ones go first
    assert found.area == found.oracle
    np.testing.assert_allclose(found.gained, 1)
    found = mt.rejection_area(p, y)  # all equal: as good as random
    np.testing.assert_allclose(found.gained, 0)
    assert np.isnan(mt.rejection_area(p, np.zeros(4)).gained)


def test_rmse_rejection(gaussian):
    y = gaussian.mean + np.linspace(0.1, 1.2, 12)
    score = np.linspace(0, 1, 12)
    curve = mt.rmse_rejection(gaussian, y, score)
    square = np.square(np.linspace(0.1, 1.2, 12))
    expected = [np.sqrt(square[:k].mean()) for k in range(12, 0, -1)]
    np.testing.assert_allclose(curve.rmse, expected, rtol=1e-5)
    np.testing.assert_allclose(curve.rmse[0], mt.root_mean_squared_error(gaussian, y))
    found = mt.rejection_area(gaussian, y, score)
    np.testing.assert_allclose(found.gained, 1, rtol=1e-5)
    assert mt.rejection_area(gaussian, y, -score).gained < 0
    assert mt.rejection_area(gaussian, y, "epistemic").area == pytest.approx(
        mt.rmse_rejection(gaussian, y, "epistemic").area
    )


class Zero:
    """Predicts 0 for each of n examples."""

    kind = "regression"

    def __init__(self, n):
        self.mean = np.zeros(n)

    def log_prob(self, y):
        raise NotImplementedError


def test_nothing_is_gained_in_random_order():
    rng = np.random.default_rng(0)
    y = rng.standard_t(3, 20)  # a few errors are most of them: the root of a mean is no mean root
    for weight in (None, rng.uniform(0.1, 2, 20)):
        found = mt.rejection_area(Zero(20), y, np.zeros(20), weight=weight)
        assert found.gained == 0
        areas = [
            mt.rmse_rejection(Zero(20), y, rng.random(20), weight=weight).area for _ in range(1000)
        ]
        # of these and of the 1000 orders that it averages over
        assert abs(np.mean(areas) - found.random) < 4 * np.std(areas) * np.sqrt(2 / 1000)
        assert mt.root_mean_squared_error(Zero(20), y, weight=weight) > 1.02 * found.random
    back = mt.rejection_area(Zero(20), y[::-1], np.zeros(20))
    np.testing.assert_allclose(back, mt.rejection_area(Zero(20), y, np.zeros(20)), rtol=1e-12)


# -- detection


def test_detection_agrees_with_scikit_learn_with_ties():
    rng = np.random.default_rng(0)
    inside, outside = rng.integers(0, 8, 200), rng.integers(2, 10, 100)
    found = mt.detection(inside, outside)
    out = np.r_[np.zeros(200), np.ones(100)]
    both = np.r_[inside, outside]
    np.testing.assert_allclose(found.auroc, sk.roc_auc_score(out, both))
    # the probability that a random outside score is larger, equal ones counting half
    pairs = np.sign(outside[:, None] - inside[None]).mean() / 2 + 0.5
    np.testing.assert_allclose(found.auroc, pairs)
    np.testing.assert_allclose(found.aupr_out, sk.average_precision_score(out, both))
    np.testing.assert_allclose(found.aupr_in, sk.average_precision_score(1 - out, -both))
    back = mt.detection(-outside, -inside)  # the roles exchanged
    np.testing.assert_allclose(back, [found.auroc, found.aupr_in, found.aupr_out])


def test_detection_without_difference_is_chance():
    found = mt.detection(np.zeros(30), np.zeros(10))
    np.testing.assert_allclose(found, [0.5, 0.25, 0.75])


def test_detection_by_each_score(classes, gaussian):
    found = mt.detection_by_score(classes, classes)
    assert list(found) == ["epistemic", "aleatoric", "total", "confidence", "variance"]
    np.testing.assert_allclose([each.auroc for each in found.values()], 0.5)
    found = mt.detection_by_score(gaussian, gaussian)
    assert list(found) == ["epistemic", "aleatoric", "total", "variance"]
    probabilities = mt.detection_by_score(np.asarray(classes.mean), np.asarray(classes.mean))
    assert list(probabilities) == ["total", "confidence"]


def test_uncertainty_scores(classes, gaussian):
    p = classes.mean.astype(np.float64)
    np.testing.assert_array_equal(mt.uncertainty_score(classes, "epistemic"), classes.epistemic)
    found = mt.uncertainty_score(p, "total")
    np.testing.assert_allclose(found, stats.entropy(p, axis=1), rtol=1e-5)
    found = mt.uncertainty_score(classes, "variance")
    np.testing.assert_allclose(found, classes.variance.sum(-1), rtol=1e-6)
    np.testing.assert_allclose(mt.uncertainty_score(classes, "confidence"), 1 - p.max(1), rtol=1e-5)
    two = predictive_of(GAUSSIAN, 2, TWO)
    np.testing.assert_allclose(mt.uncertainty_score(two), two.total.sum(-1), rtol=1e-6)
    assert mt.uncertainty_score(gaussian, "variance").shape == (12,)


# -- all at once, and what is refused


@pytest.mark.parametrize(
    "likelihood",
    [GAUSSIAN, pytest.param(POISSON, marks=pytest.mark.slow)],
    ids=["gaussian", "poisson"],
)
def test_summary_of_values_has_what_fits(likelihood):
    predictive, y = predictive_of(likelihood, 1, ONE), np.arange(12) % 3
    found = mt.summary(predictive, y, level=0.5)
    assert found["crps"] == mt.crps(predictive, y)
    assert found["coverage"] == mt.coverage(predictive, y, 0.5)
    assert found["interval_score"] == mt.interval_score(predictive, y, 0.5)
    assert "brier_score" not in found
    assert all(isinstance(value, float) and np.isfinite(value) for value in found.values())


def test_summary_of_classes_has_what_fits(classes):
    y = np.arange(12) % 3
    found = mt.summary(classes, y)
    assert found["brier_score"] == mt.brier_score(classes, y)
    assert "crps" not in found
    assert found == pytest.approx(mt.summary(np.asarray(classes.mean), y), rel=1e-4)


def test_targets_in_a_column_are_the_same_and_others_are_refused(gaussian, classes):
    y = np.arange(12) % 3
    assert mt.summary(classes, y[:, None]) == mt.summary(classes, y)
    assert mt.summary(gaussian, y[:, None]) == mt.summary(gaussian, y)
    column = gaussian.mean[:, None]
    assert mt.root_mean_squared_error(column, y) == mt.root_mean_squared_error(gaussian, y)
    for wrong in (y[:6], y[None], np.zeros((12, 12)), np.zeros((12, 2))):
        for metric in (mt.coverage, mt.crps, mt.root_mean_squared_error, mt.interval_score):
            with pytest.raises(ValueError, match="shape"):
                metric(gaussian, wrong)
        for metric in (mt.brier_score, mt.expected_calibration_error, mt.accuracy_rejection):
            with pytest.raises(ValueError, match="shape"):
                metric(classes, wrong)


def test_maps_of_classes_count_pixels():
    p = np.random.default_rng(0).dirichlet(np.ones(3), (4, 5))
    y = np.random.default_rng(1).integers(0, 3, (4, 5))
    flat = p.reshape(-1, 3), y.ravel()
    assert mt.brier_score(p, y) == pytest.approx(mt.brier_score(*flat))
    weight = np.arange(4.0)
    assert mt.expected_calibration_error(p, y, weight=weight) == pytest.approx(
        mt.expected_calibration_error(*flat, weight=np.repeat(weight, 5))
    )
    assert mt.accuracy_rejection(p, y).area == pytest.approx(mt.accuracy_rejection(*flat).area)


P, Y = np.array([[0.5, 0.5], [0.9, 0.1]]), np.array([0, 1])
REFUSED = {
    "sums": (lambda: mt.brier_score([[0.4, 0.3]], [0]), "sum to 1"),
    "logits": (lambda: mt.reliability([[3.0, -2.0]], [0]), "softmax"),
    "nan": (lambda: mt.brier_score([[np.nan, 0.5]], [0]), "probabilities"),
    "one column": (lambda: mt.brier_score([0.3, 0.7], [0, 1]), "classes last"),
    "label": (lambda: mt.accuracy(P, [0, 2]), "labels 0 to 1"),
    "part of a label": (lambda: mt.accuracy(P, [0, 0.5]), "labels 0 to 1"),
    "bins": (lambda: mt.reliability(P, Y, bins=0), "bins"),
    "weight": (lambda: mt.brier_score(P, Y, weight=[-1, 1]), "weight"),
    "no weight": (lambda: mt.brier_score(P, Y, weight=[0, 0]), "weight"),
    "weights": (lambda: mt.brier_score(P, Y, weight=[1, 1, 1]), "weight"),
    "level": (lambda: mt.coverage((Y, Y), Y, level=1.0), "level"),
    "crossed": (lambda: mt.coverage((Y + 1, Y), Y), "in order"),
    "score": (lambda: mt.uncertainty_score(P, "doubt"), "doubt"),
    "no posterior": (lambda: mt.detection(P, P), "needs a Predictive"),
    "nobody outside": (lambda: mt.detection([0.1], []), "outside"),
    "nan score": (lambda: mt.detection([0.1, np.nan], [0.3]), "inside"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_metrics_of_the_other_kind_are_refused(gaussian, classes):
    y = np.arange(12) % 3
    for metric in (mt.brier_score, mt.expected_calibration_error, mt.accuracy_rejection):
        with pytest.raises(ValueError, match="classification"):
            metric(gaussian, y)
    for metric in (mt.crps, mt.coverage, mt.root_mean_squared_error, mt.quantile_calibration):
        with pytest.raises(ValueError, match="regression"):
            metric(classes, y)
    with pytest.raises(ValueError, match="classes"):
        mt.uncertainty_score(gaussian, "confidence")
    with pytest.raises(TypeError, match="predictive"):
        mt.crps(np.zeros(3), np.zeros(3))


@pytest.mark.parametrize("metric", [mt.crps, mt.brier_score, mt.coverage, mt.summary])
def test_a_distribution_is_no_predictive(metric):
    with pytest.raises(TypeError, match=r"redictive.*posterior\.predict.*Normal"):
        metric(dist.Normal(jnp.zeros(3), 1.0), np.zeros(3))


# -- evaluate: every score with its interval and its baseline


def laws(n=80, seed=0):
    """Gaussian predictions of numbers, with weights."""
    rng = np.random.default_rng(seed)
    mean, std = rng.normal(size=n), rng.uniform(0.5, 2, n)
    y = mean + std * rng.normal(size=n)
    return Constant(stats.norm(mean, std), (n,)), mean, std, y, rng.uniform(0, 2, n)


@pytest.mark.parametrize("weighted", [False, True])
def test_evaluate_has_the_metrics_own_values(weighted):
    given, _, _, y, weight = laws()
    w = weight if weighted else None
    found = mt.evaluate(given, y, w)
    by_metric = {
        "nll": mt.negative_log_likelihood(given, y, weight=w),
        "rmse": mt.root_mean_squared_error(given, y, weight=w),
        "mae": mt.mean_absolute_error(given, y, weight=w),
        "r2": sk.r2_score(y, given.mean, sample_weight=w),
        "crps": mt.crps(given, y, weight=w),
        "coverage": mt.coverage(given, y, 0.9, weight=w),
        "width": mt.mean_width(given, 0.9, weight=w),
        "interval_score": mt.interval_score(given, y, 0.9, weight=w),
        "calibration_error": mt.quantile_calibration_error(given, y, weight=w) ** 0.5,
    }
    assert list(found) == list(by_metric)
    for name, value in by_metric.items():
        assert found[name].value == pytest.approx(value, rel=1e-12), name
    assert found.rows == 80


@pytest.mark.parametrize("weighted", [False, True])
def test_evaluate_of_classes_has_the_metrics_own_values(forecasts, weighted):
    p, y, w = forecasts
    p = np.clip(p, 0.05, None)
    p /= p.sum(1, keepdims=True)
    w = w if weighted else None
    found = mt.evaluate(p, y, w)
    assert found["nll"].value == pytest.approx(sk.log_loss(y, p, sample_weight=w))
    assert found["error"].value == pytest.approx(1 - mt.accuracy(p, y, weight=w))
    assert found["brier"].value == pytest.approx(mt.brier_score(p, y, weight=w))
    ece = mt.expected_calibration_error(p, y, weight=w)
    assert found["calibration_error"].value == pytest.approx(ece)
    assert 0 < found["calibration_error"].chance < 1


def test_intervals_are_scipy_s_and_wilson_s():
    given, mean, _, y, weight = laws()
    found = mt.evaluate(given, y, weight, seed=3)
    surprise, square = -given.law.logpdf(y), (y - mean) ** 2

    def weighted(values, root=False):
        def statistic(rows, axis=-1):
            means = np.sum(weight[rows] * values[rows], -1) / np.sum(weight[rows], -1)
            return np.sqrt(means) if root else means

        return stats.bootstrap(
            (np.arange(80),), statistic, n_resamples=1000, vectorized=True, method="percentile",
            random_state=3,
        ).confidence_interval  # fmt: skip

    assert found["nll"][1:3] == pytest.approx(tuple(weighted(surprise)), rel=1e-9)
    assert found["rmse"][1:3] == pytest.approx(tuple(weighted(square, root=True)), rel=1e-9)
    low, high = given.interval(0.9)
    hits = int(np.sum((low <= y) & (y <= high)))
    plain = mt.evaluate(given, y)["coverage"]
    ends = stats.binomtest(hits, 80).proportion_ci(0.95, "wilson")
    assert plain[:3] == pytest.approx((hits / 80, ends.low, ends.high), abs=1e-6)
    # a weight of two is a row that is there twice, and Kish's count says what all are worth
    assert found["coverage"].high - found["coverage"].low > plain.high - plain.low


def test_the_baseline_knows_the_training_targets_alone():
    given, _, _, y, _ = laws()
    train, weight = np.array([1.0, 3.0, 8.0]), np.array([1.0, 2.0, 1.0])
    found = mt.evaluate(given, y, train_y=train, train_weight=weight)
    mean = np.average(train, weights=weight)
    law = stats.norm(mean, np.sqrt(np.average((train - mean) ** 2, weights=weight)))
    assert found["nll"].baseline == pytest.approx(-law.logpdf(y).mean())
    assert found["rmse"].baseline == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)))
    assert found["mae"].baseline == pytest.approx(np.mean(np.abs(y - mean)))
    assert found["width"].baseline == pytest.approx(2 * 1.6448536 * law.std())
    # classes: one added to each count
    p, labels = np.tile([0.2, 0.5, 0.3], (4, 1)), np.array([0, 1, 2, 1])
    found = mt.evaluate(p, labels, train_y=[0, 0, 1, 1, 1])
    assert found["nll"].baseline == pytest.approx(-np.log([3 / 8, 4 / 8, 1 / 8, 4 / 8]).mean())
    assert found["error"].baseline == 0.5
    # counts: a Poisson distribution with their mean, and its median for absolute errors
    counts = np.array([0.0, 1, 1, 4, 2, 0])
    law = stats.poisson(counts.mean())
    rate = np.full(6, 1.5)
    found = mt.evaluate(Constant(stats.poisson(rate), (6,), "counts"), counts)
    assert found["nll"].baseline == pytest.approx(-law.logpmf(counts).mean())
    assert found["mae"].baseline == pytest.approx(np.abs(counts - law.median()).mean())
    assert found["r2"].baseline == pytest.approx(0, abs=1e-12)


def test_evaluate_at_its_edges():
    given, mean, std, y, _ = laws()
    quick = mt.evaluate(given, y, only=("rmse", "coverage"), resamples=0)
    assert list(quick) == ["rmse", "coverage"]
    assert np.isnan(quick["rmse"].low)
    assert np.isfinite(quick["coverage"].low)  # Wilson's needs no resamples
    assert np.isnan(quick.beats_baseline)
    few = mt.evaluate(Constant(stats.norm(mean[:4], std[:4]), (4,)), y[:4])
    assert np.isnan(few["rmse"].low)
    # what was called impossible
    sure = mt.evaluate([[1.0, 0.0]] * 6, [0, 0, 0, 0, 0, 1])
    assert sure["nll"].value == np.inf
    assert np.isnan(sure["nll"].high)
    assert np.isnan(sure.beats_baseline)
    # two targets: the NLL is joint, the others are means over both
    both = Constant(stats.norm(np.stack([mean, 9 * mean], 1), std[:, None]), (80, 2))
    two = np.stack([y, 9 * y], 1)
    found = mt.evaluate(both, two)
    assert found["nll"].value == pytest.approx(mt.negative_log_likelihood(both, two))
    assert found["r2"].value == pytest.approx(sk.r2_score(two, both.mean))
    assert mt.evaluate(given, y, np.repeat(2.0, 80))["nll"] == mt.evaluate(given, y)["nll"]


def test_the_table_of_an_evaluation_is_for_people(gaussian):
    text = repr(mt.evaluate(gaussian, gaussian.mean))
    lines = text.splitlines()
    assert lines[0].split() == ["score", "value", "95", "%", "interval", "baseline"]
    assert lines[1].startswith("NLL ")
    assert "by chance ≤" in lines[-1]


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_order_of_classes_is_that_of_scikit_learn(classes, weighted):
    rng = np.random.default_rng(classes)
    p = rng.dirichlet(np.ones(classes), 300).round(1) + 0.01  # with ties
    p /= p.sum(1, keepdims=True)
    y = np.array([rng.choice(classes, p=row) for row in p])
    w = rng.integers(0, 4, 300).astype(float) if weighted else None
    hot, q = np.eye(classes)[y], p.round(12)  # sums differ in their last digits
    which = [1] if classes == 2 else range(classes)
    areas = [sk.roc_auc_score(hot[:, k], q[:, k], sample_weight=w) for k in which]
    precisions = [sk.average_precision_score(hot[:, k], q[:, k], sample_weight=w) for k in which]
    assert mt.auc(p, y, weight=w) == pytest.approx(np.mean(areas))
    assert mt.average_precision(p, y, weight=w) == pytest.approx(np.mean(precisions))
    counts = mt.confusion(p, y, weight=w)
    np.testing.assert_allclose(counts, sk.confusion_matrix(y, p.argmax(1), sample_weight=w))
    scores = mt.evaluate(p, y, w)
    for name, by_hand in (("auc", areas), ("average_precision", precisions)):
        score = scores[name]
        assert score.value == pytest.approx(np.mean(by_hand))
        assert score.low < score.value < score.high
    assert scores["auc"].baseline == pytest.approx(0.5)


def test_intervals_of_the_auc_hold_the_truth():
    """The chance that a normal number exceeds another is known."""
    truth, held = stats.norm.cdf(1 / np.sqrt(2)), 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        y = np.arange(200) % 2
        p = stats.norm.cdf(rng.normal(size=200) + y)
        score = mt.evaluate(np.c_[1 - p, p], y, only=["auc"], seed=seed)["auc"]
        held += score.low <= truth <= score.high
    assert held >= 52  # of 60, where 57 are expected


def test_the_threshold_with_the_largest_f1():
    rng = np.random.default_rng(0)
    p = rng.random(400).round(2)
    y = (rng.random(400) < p**3).astype(int)
    best = mt.best_threshold(np.c_[1 - p, p], y)
    precision, recall, _ = sk.precision_recall_curve(y, p)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    assert best.f1 == pytest.approx(f1.max())
    named = p >= best.value - 1e-9
    assert best.precision == pytest.approx(y[named].mean())
    assert best.recall == pytest.approx(y[named].sum() / y.sum())
    assert mt.best_threshold([[0.9, 0.1]], [0]) is None
    with pytest.raises(ValueError, match="best_threshold is for two classes, got 3"):
        mt.best_threshold(np.full((2, 3), 1 / 3), [0, 1])
    one = mt.evaluate([[0.9, 0.1], [0.8, 0.2]], [0, 0])
    assert np.isnan(one["auc"].value)

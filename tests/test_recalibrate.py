"""Recalibration: known mistakes are found and mended, and coverage is what theory says exactly."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

import posterax as px
from posterax import likelihoods as lk
from posterax import recalibrate as rc
from posterax.posteriors import Draws
from posterax.predictive import Targets
from posterax.recalibrate.conformal import order_statistic, rows_needed
from posterax.recalibrate.isotonic import _ranks

pytestmark = pytest.mark.usefixtures("hasty_module")

LEVEL = 0.9
SPLITS, HELD, NEW = 50, 99, 200


def posterior_of(likelihood, outputs, targets, draws, inputs=2, log_weights=None):
    """Hand-made draws of a linear network, f = x w: no fit is needed."""
    net = {"w": jnp.zeros((inputs, outputs))}, lambda p, x: x @ p["w"]
    model = px.Model(net, None, likelihood).for_targets(targets.inner, jnp.float32)
    w = px.Parameters({"w": jnp.asarray(draws, "float32")[None]}, {})
    log_weights = jnp.zeros(len(draws)) if log_weights is None else jnp.asarray(log_weights)
    return Draws(model, model.network.state, targets, draws=w, log_weights=log_weights[None])


class Normal:
    """A predictive N(mean, std²) in numpy."""

    kind, samples = "regression", 100

    def __init__(self, mean, std):
        self.mean, self.std = np.asarray(mean), np.asarray(std) + 0 * mean

    def __len__(self):
        return len(self.mean)

    def cdf(self, y):
        return stats.norm.cdf(y, self.mean, self.std)

    def log_prob(self, y):
        return stats.norm.logpdf(y, self.mean, self.std)

    def quantile(self, q):
        at = stats.norm.ppf(np.asarray(q)).reshape(-1, *[1] * self.mean.ndim)
        return self.mean + at * self.std

    def interval(self, level):
        return tuple(self.quantile([(1 - level) / 2, (1 + level) / 2]))

    def sample(self, n):
        # one function over all inputs
        z = np.random.default_rng(3).normal(size=(n, *[1] * self.mean.ndim))
        return self.mean + self.std * z


# -- temperature


def labelled(rng, n, factor, classes=4):
    """Labels of known logits, and probabilities that are ``factor`` times as sure as they are."""
    logits = 1.5 * rng.normal(size=(n, classes))
    y = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return logits, special.softmax(factor * logits, axis=1), y


@pytest.mark.parametrize("factor", [0.3, 1.0, 3.0])
def test_temperature_finds_a_known_factor(rng, factor):
    logits, p, y = labelled(rng, 4000, factor)
    found = rc.Temperature.fit(p, y)
    # Fisher information of log T: the variance of the logits under their own probabilities
    q = special.softmax(logits, axis=1)
    information = np.sum(np.sum(q * logits**2, 1) - np.sum(q * logits, 1) ** 2)
    assert abs(np.log(found.value / factor)) < 4 / np.sqrt(information) + 1e-3  # of the search
    assert found.after <= found.before
    np.testing.assert_allclose(found(p), special.softmax(factor / found.value * logits, 1))


@pytest.fixture(scope="module")
def held_out():
    """A predictive of averaged draws that are too sure, and labels."""
    rng = np.random.default_rng(1)
    posterior = posterior_of(lk.Categorical(), 3, Targets((), ()), 6 * rng.normal(size=(5, 2, 3)))
    predictive = posterior.predict(rng.normal(size=(300, 2)).astype("float32"))
    y = np.where(rng.random(300) < 0.7, predictive.mode, rng.integers(3, size=300))
    return predictive, y


def test_temperature_of_averaged_draws(held_out):
    predictive, y = held_out
    found = rc.Temperature.fit(predictive, y)
    f = predictive.outputs().astype(np.float64)

    def nll(t):
        return -np.mean(np.log(special.softmax(f / t, -1).mean(0)[np.arange(300), y]))

    grid = np.exp(np.linspace(np.log(0.05), np.log(20), 400))
    assert found.after == pytest.approx(nll(found.value), rel=1e-4)
    assert nll(found.value) <= min(map(nll, grid)) + 1e-5
    assert found.after < found.before
    assert px.metrics.negative_log_likelihood(found(predictive), y) == pytest.approx(found.after)
    assert f"{found.value:.4g}" in repr(found)
    with jax.no_tracing():  # T is an argument of one compiled program
        better = np.where(np.arange(300) % 2, y, predictive.mode)
        assert rc.Temperature.fit(predictive, better).value < found.value


def test_temperature_of_the_average(held_out):
    """Draws that are sure and disagree: no temperature of theirs makes the average sure."""
    predictive = held_out[0]
    y = np.where(np.arange(300) % 30, predictive.mode, held_out[1])
    draws, average = (rc.Temperature.fit(predictive, y, of=of) for of in ("draws", "average"))
    assert average.after < draws.after - 0.1
    assert average == rc.Temperature.fit(predictive.mean, y, of="average")
    p = average(predictive)
    assert -np.mean(np.log(p[np.arange(300), y])) == pytest.approx(average.after)
    assert "average" in repr(average)
    with pytest.raises(ValueError, match="of must be"):
        rc.Temperature.fit(predictive, y, of="mean")


def test_temperature_keeps_the_most_probable_class_of_one_draw(rng):
    x = rng.normal(size=(300, 2)).astype("float32")
    one = posterior_of(lk.Categorical(), 3, Targets((), ()), rng.normal(size=(1, 2, 3))).predict(x)
    found = rc.Temperature.fit(one, np.where(rng.random(300) < 0.7, one.mode, 0))
    assert found.value != 1
    np.testing.assert_array_equal(found(one).mode, one.mode)


def test_temperature_at_its_bounds():
    sure = np.array([[0.6, 0.4]] * 20)
    with pytest.warns(UserWarning, match="at its bound"):
        assert rc.Temperature.fit(sure, np.zeros(20, int)).value == pytest.approx(0.05, rel=0.01)
    with pytest.warns(UserWarning, match="at its bound"):
        assert rc.Temperature.fit(sure, np.ones(20, int)).value == pytest.approx(20, rel=0.01)
    with pytest.raises(ValueError, match="probability 0"):
        rc.Temperature.fit([[1.0, 0.0]], [1])
    flat = np.full((20, 2), 0.5)
    assert rc.Temperature.fit(flat, np.arange(20) % 2).value == pytest.approx(1)


# -- isotonic


def wrong(rng, n, outputs=()):
    """A Gaussian predictive with half the width, beside the truth; the target."""
    mean = rng.normal(size=(n, *outputs))
    return Normal(mean, 0.5), mean + 0.3 + rng.normal(size=mean.shape)


def pit_bound(n, m, gap):
    """Two-sample Kolmogorov–Smirnov at 1e-4, and what R can be off between its knots."""
    return np.sqrt(-np.log(1e-4 / 2) / 2 * (1 / n + 1 / m)) + gap / (n + 1)


@pytest.mark.parametrize("every", [None, 1])
def test_isotonic_makes_new_data_uniform(rng, every):
    n, m = 2000, 4000
    isotonic = rc.Isotonic.fit(*wrong(rng, n), every=every)
    new, y = wrong(rng, m)
    bound = pit_bound(n, m, every or 44)
    assert stats.kstest(new.cdf(y), "uniform").statistic > 2 * bound
    assert stats.kstest(isotonic(new).cdf(y), "uniform").statistic < bound
    for level in (0.5, 0.9, 0.98):
        assert abs(px.metrics.coverage(isotonic(new), y, level) - level) < 2 * bound
    assert px.metrics.crps(isotonic(new), y) < px.metrics.crps(new, y)


def test_isotonic_is_a_distribution(rng):
    isotonic = rc.Isotonic.fit(*wrong(rng, 1000))
    one = isotonic(Normal(np.zeros(3), 0.5))
    q = np.linspace(0.001, 0.999, 200)
    at = one.quantile(q)
    assert np.all(np.diff(at, axis=0) > 0)
    np.testing.assert_allclose([one.cdf(a) for a in at], np.tile(q[:, None], 3), atol=1e-9)
    assert one.quantile(0.5).shape == (3,)

    # the density is the derivative of the distribution function, and has mass 1
    y = np.linspace(-6, 6, 20001)
    many = isotonic(Normal(np.zeros(len(y)), 0.5))
    density, below = np.exp(many.log_prob(y)), many.cdf(y)
    np.testing.assert_allclose(np.trapezoid(density, y), 1, atol=1e-3)
    np.testing.assert_allclose(np.cumsum(density) * (y[1] - y[0]), below, atol=2e-3)
    # moments by quadrature against the density's
    mean = np.trapezoid(y * density, y)
    std = np.sqrt(np.trapezoid((y - mean) ** 2 * density, y))
    np.testing.assert_allclose(one.mean, mean, atol=0.01 * std)
    np.testing.assert_allclose(one.std, std, rtol=0.01)
    np.testing.assert_array_equal(one.total, one.variance)


def test_isotonic_likelihood_is_near_the_truth(rng):
    """Where R is two straight pieces, K found ones lose χ²_K / 2n nats; one a row loses 0.42."""
    n, m = 2000, 4000

    def bent(size):
        u = rng.random(size)
        v = np.where(u < 0.8, u / 1.6, 0.5 + (u - 0.8) / 0.4)  # slopes 1.6 and 0.4
        return Normal(np.zeros(size), 1.0), stats.norm.ppf(v), np.log(np.where(u < 0.8, 1.6, 0.4))

    held, y_held, _ = bent(n)
    new, y, gain = bent(m)
    isotonic = rc.Isotonic.fit(held, y_held)
    lost = new.log_prob(y) + gain - isotonic(new).log_prob(y)
    error = 4 * lost.std() / np.sqrt(m)
    assert -error < lost.mean() < stats.chi2(len(isotonic.levels)).isf(1e-5) / (2 * n) + error
    every = rc.Isotonic.fit(held, y_held, every=1)(new)
    assert np.mean(new.log_prob(y) + gain - every.log_prob(y)) == pytest.approx(0.42, abs=0.1)


def test_isotonic_draws(rng):
    isotonic = rc.Isotonic.fit(*wrong(rng, 1000))
    base = Normal(np.array([0.0, 5.0]), 0.5)
    new = isotonic(base)
    drawn = new.sample(4000)
    reached = np.stack([new.cdf(row) for row in drawn])
    for column in reached.T:  # 1e-4 level, and the table's error
        assert stats.kstest(column, "uniform").statistic < 2.3 / np.sqrt(4000) + 0.01
    # draws of the base are the same function everywhere, and so are these
    assert stats.spearmanr(drawn[:, 0], drawn[:, 1]).statistic > 0.99
    assert new.sample().shape == (100, 2)
    assert new.sample(1).shape == (1, 2)


def test_isotonic_of_several_outputs(rng):
    mean = np.zeros((2000, 2))
    y = np.array([0.5, 2.0]) * rng.normal(size=mean.shape)
    isotonic = rc.Isotonic.fit(Normal(mean, 1.0), y)
    new = isotonic(Normal(np.zeros((5, 2)), 1.0))
    assert new.quantile([0.2, 0.5, 0.8]).shape == (3, 5, 2)
    np.testing.assert_allclose(new.std[0], [0.5, 2.0], rtol=0.15)
    with pytest.raises(ValueError, match="one output"):
        new.log_prob(np.zeros((5, 2)))
    with pytest.raises(ValueError, match="targets of shape"):
        isotonic(Normal(np.zeros(5), 1.0))


class Rate(Normal):
    """A predictive of counts in numpy, Poisson(mean)."""

    kind = "counts"

    def cdf(self, y):
        assert np.all(np.asarray(y) >= 0)
        return stats.poisson.cdf(y, self.mean)

    def log_prob(self, y):
        return stats.poisson.logpmf(y, self.mean)

    def quantile(self, q):
        return stats.poisson.ppf(np.asarray(q)[:, None], self.mean)


def test_isotonic_of_counts(rng):
    """A Poisson predictive, and counts with a variance of twice the mean or more."""
    n = 2000

    def wild():
        mean = rng.uniform(2, 4, size=n)
        return Rate(mean, np.sqrt(mean)), rng.poisson(mean * rng.gamma(2.0, 0.5, size=n))

    isotonic = rc.Isotonic.fit(*wild(), key=1)
    base, y = wild()
    new = isotonic(base)
    few = isotonic(Rate(np.array([2.0, 4.0]), 1.0))
    mass = np.exp([few.log_prob([k, k]) for k in range(60)])
    np.testing.assert_allclose(mass.sum(0), 1, atol=1e-5)
    np.testing.assert_allclose(mass.cumsum(0), [few.cdf([k, k]) for k in range(60)], atol=1e-5)
    assert np.mean(new.log_prob(y) - base.log_prob(y)) > 0.1
    before = np.where(y > 0, new.cdf(np.maximum(y - 1, 0)), 0)
    reached = before + rng.random(n) * (new.cdf(y) - before)
    assert stats.kstest(reached, "uniform").statistic < pit_bound(n, n, 44)
    drawn = few.sample(50)
    np.testing.assert_array_equal(drawn, np.round(drawn))


def test_isotonic_in_single_precision():
    """A Predictive in float32, whose F close to 1 is rounded and whose weights do not sum to 1."""
    rng = np.random.default_rng(4)
    draws = np.concatenate([rng.normal(size=(75, 1, 1)), np.zeros((75, 1, 1))], 1)
    uneven = np.sin(np.arange(75), dtype="float32")  # not 1 in all
    base = posterior_of(lk.Gaussian(1.0), 1, Targets((), (1,)), draws, log_weights=uneven)
    y = np.linspace(-12, 12, 256)
    x = np.tile(np.float32([[0.3, 0]]), (256, 1))
    few, many = base.predict(x[:2]), base.predict(x)
    for edge in (1e-2, 1e-6):
        isotonic = rc.Isotonic((0, edge, 0.4, 1 - edge, 1), (0, 1 / 76, 0.5, 75 / 76, 1), 75)
        mass, centre = np.diff(isotonic(many).cdf(y), prepend=0), y - (y[1] - y[0]) / 2
        mean = np.sum(mass * centre)
        variance = np.sum(mass * (centre - mean) ** 2)
        one = isotonic(few)
        np.testing.assert_allclose(one.mean, mean, atol=0.01 * np.sqrt(variance))
        np.testing.assert_allclose(one.variance, variance, rtol=0.01)
        np.testing.assert_allclose(one.sample(2000).var(0), variance, rtol=0.02)
        np.testing.assert_array_less(np.abs(one.quantile([1e-30, 1 - 1e-15])), 14)


def test_isotonic_counts_are_those_of_their_own_cdf():
    """Rates of 0.4 to 400; and draws that disagree by a factor of 1000, where most are zeros."""
    draws = np.stack([np.ones(10), [0.0] * 9 + [7.0], 0.1 * np.arange(-4.5, 5)], 1)[:, :, None]
    base = posterior_of(lk.Poisson(), 1, Targets((), (1,)), draws, inputs=3)
    x = np.float32([[-1, 0, 1], [0, 0, 1], [4, 0, 1], [6, 0, 1], [-1, 1, 0]])
    ends = [20, 30, 300, 1500, 900]
    # too narrow, and shifted
    isotonic = rc.Isotonic((0, 0.001, 0.3, 0.99, 1), (0, 0.02, 0.5, 0.97, 1), 75)
    few = isotonic(base.predict(x))
    drawn = few.sample(4000)
    np.testing.assert_array_equal(drawn, np.floor(drawn))
    assert few.quantile(0.0).min() >= 0
    q = np.array([0.01, 0.2, 0.5, 0.9, 0.99])
    found = few.quantile(q)
    counts = np.concatenate([np.arange(end) for end in ends])
    every = isotonic(base.predict(np.repeat(x, ends, axis=0))).cdf(counts)
    for i, below in enumerate(np.split(every, np.cumsum(ends)[:-1])):
        k = np.arange(len(below))
        mean = np.sum(1 - below)
        variance = np.sum((2 * k + 1) * (1 - below)) - mean**2
        assert few.mean[i] == pytest.approx(mean, abs=0.003 * np.sqrt(variance))
        assert few.variance[i] == pytest.approx(variance, rel=0.01)
        at = np.searchsorted(below, q)
        np.testing.assert_array_equal(found[:, i], at)
        # one draw in each of 4000 layers of levels: far less than chance
        share = (drawn[:, i, None] <= at).mean(0)
        np.testing.assert_allclose(share, below[at], atol=0.002 if i < 3 else 0.01)


@given(st.integers(1, 500), st.integers(1, 60))
@settings(max_examples=100)
def test_ranks_of_knots(n, every):
    ranks = _ranks(n, every)
    assert ranks[0] >= 1
    assert ranks[-1] <= n
    assert np.all(np.diff(ranks) > 0)
    np.testing.assert_array_equal(ranks, n + 1 - ranks[::-1])


@pytest.mark.parametrize("n", [1, 2, 3, 10])
def test_isotonic_of_few_rows(n, rng):
    new = rc.Isotonic.fit(*wrong(rng, n))(Normal(np.zeros(2), 1.0))
    assert np.all(np.diff(new.quantile([0.01, 0.5, 0.99]), axis=0) > 0)
    assert np.all(np.isfinite(new.log_prob([0.0, 1.0])))


def test_isotonic_refuses():
    new = rc.Isotonic((0, 0.5, 1), (0, 0.5, 1), 1)(Normal(np.zeros(2), 1.0))
    for part in ("epistemic", "aleatoric"):
        with pytest.raises(AttributeError, match="as a whole"):
            getattr(new, part)
    with pytest.raises(ValueError, match="central"):
        new.interval(0.9, kind="highest")
    with pytest.raises(ValueError, match="between 0 and 1"):
        new.quantile(1.2)
    with pytest.warns(UserWarning, match="sees nothing"):
        rc.Isotonic.fit(Normal(np.zeros(50), 1e-3), np.linspace(-1, 1, 50))


def test_spread(rng):
    """The factor that the regressor of tables measures, on any predictive."""
    base = posterior_of(lk.Gaussian(0.5), 1, Targets((), (1,)), [[[1.0], [0.0]]] * 2)
    x = np.zeros((1000, 2), "float32")
    found = rc.Spread.fit(base.predict(x), rng.normal(size=1000))
    assert found.value == pytest.approx(2, rel=0.1)  # a deviation of 1 instead of 0.5
    np.testing.assert_allclose(found(base.predict(x)).std, found.value / 2, rtol=1e-5)


# -- conformal: in exchangeable rows without ties the number covered is beta-binomial, exactly


def as_in_theory(covered, held=HELD, new=NEW, level=LEVEL, ties=False):
    """Whether counts of covered rows, one for each split, could be those of theory (p ≈ 1e-5)."""
    rank = int(np.ceil((held + 1) * level - 1e-9))
    law = stats.betabinom(new, rank, held + 1 - rank)
    z = (np.mean(covered) - law.mean()) / (law.std() / np.sqrt(len(covered)))
    single = law.ppf(1e-6) <= np.min(covered) and (ties or np.max(covered) <= law.isf(1e-6))
    return single and -4.4 < z < (np.inf if ties else 4.4)


def rough(rng, n, ties=False):
    """A predictive that is wrong in mean, width and shape, and its targets."""
    x = rng.uniform(-2, 2, size=n)
    y = np.sin(2 * x) + (0.1 + np.abs(x)) * rng.standard_t(4, size=n)
    if ties:
        return Normal(np.zeros(n), 1.0), np.round(y)
    return Normal(0.5 * x, 0.2 + 0.1 * np.abs(x)), y


@pytest.mark.parametrize("ties", [False, True], ids=["continuous", "ties"])
@pytest.mark.parametrize("score", ["residual", "scaled", "quantile"])
def test_intervals_reach_their_coverage(score, ties):
    rng = np.random.default_rng(5)
    covered, naive = [], []
    for _ in range(SPLITS):
        conformal = rc.ConformalInterval.fit(*rough(rng, HELD, ties), level=LEVEL, score=score)
        new, y = rough(rng, NEW, ties)
        low, high = conformal.interval(new)
        covered.append(np.sum((low <= y) & (y <= high)))
        naive.append(px.metrics.coverage(new, y, LEVEL) * NEW)
    assert as_in_theory(covered, ties=ties)
    assert ties or not as_in_theory(naive)


def soft(rng, n, ties=False):
    """Class probabilities that are far too sure, and labels."""
    _, p, y = labelled(rng, n, 4.0, classes=5)
    if ties:  # three rows of probabilities and no more
        p = np.array([[0.6, 0.1, 0.1, 0.1, 0.1], [0.3, 0.3, 0.2, 0.1, 0.1], [0.2] * 5])[y % 3]
    return p, y


SCORES = {
    "probability": {"score": "probability"},
    "adaptive": {"score": "adaptive"},
    "adaptive, random": {"score": "adaptive", "key": 3},
    "regularised": {"score": "regularised"},
    "regularised, random": {"score": "regularised", "key": 3},
}


@pytest.mark.parametrize("ties", [False, True], ids=["continuous", "ties"])
@pytest.mark.parametrize("name", SCORES)
def test_sets_reach_their_coverage(name, ties):
    rng = np.random.default_rng(6)
    covered = []
    for split in range(SPLITS):
        options = dict(SCORES[name])
        key = options.pop("key", None)
        key = None if key is None else {"key": 100 * key + split}
        conformal = rc.ConformalSet.fit(*soft(rng, HELD, ties), level=LEVEL, **options, **key or {})
        p, y = soft(rng, NEW, ties)
        covered.append(conformal.sets(p, **key or {})[np.arange(NEW), y].sum())
    assert as_in_theory(covered, ties=ties and "random" not in name)


def test_sets_by_class(rng):
    """Each class alone is covered; with one threshold for all the rare class is not."""
    p, y = soft(rng, 20000)
    keep = (y > 0) | (rng.random(len(y)) < 0.2)
    p, y = p[keep] * [0.01, 1, 1, 1, 1], y[keep]
    p /= p.sum(1, keepdims=True)
    pool = rng.permutation(len(y))
    held, new = pool[:4000], pool[4000:]
    one = rc.ConformalSet.fit(p[held], y[held]).sets(p[new])
    each = rc.ConformalSet.fit(p[held], y[held], by_class=True).sets(p[new])
    for k in range(5):
        mine = y[new] == k
        n = np.sum(y[held] == k)
        assert as_in_theory([each[mine, k].sum()], held=n, new=mine.sum())
    assert not as_in_theory([one[y[new] == 0, 0].sum()], held=n, new=np.sum(y[new] == 0))
    assert one[:, 0].mean() < each[:, 0].mean()


def test_scores_of_sets_by_hand():
    p = np.array([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])

    def largest(score, at, **options):
        return rc.ConformalSet(score, 0.9, at, 10, **options).sets(p).tolist()

    assert largest("probability", 0.75) == [[False, True, True], [False, False, True]]
    assert largest("adaptive", 0.85) == [[False, True, True], [False, False, True]]
    assert largest("adaptive", 0.95) == [[False, True, True], [True, False, True]]
    assert largest("regularised", 0.95, penalty=0.2, free=1) == [
        [False, True, False], [False, False, True],
    ]  # fmt: skip
    none = rc.ConformalSet("probability", 0.9, 0.3, 10)
    assert none.sets(p).sum(1).tolist() == [0, 1]
    assert none.sets(p, nonempty=True).sum(1).tolist() == [1, 1]


@pytest.mark.parametrize("shift", [0.0, 0.1, 1e6])
@pytest.mark.parametrize("score", ["residual", "scaled", "quantile"])
def test_held_out_rows_themselves_are_covered(score, shift, rng):
    """Rounding never puts the row of the margin itself outside its interval."""
    for _ in range(100):
        n, level = rng.integers(10, 60), rng.uniform(0.1, 0.9)
        predictive = Normal(shift + rng.normal(size=n), np.exp(rng.normal(size=n)))
        y = predictive.mean + rng.normal(size=n)
        conformal = rc.ConformalInterval.fit(predictive, y, level=level, score=score)
        low, high = conformal.interval(predictive)
        assert np.sum((low <= y) & (y <= high)) >= np.ceil((n + 1) * level - 1e-9)


def test_order_statistic():
    scores = np.arange(1.0, 10.0)
    for level, expected in [(0.9, 9), (0.7, 7), (0.71, 8), (0.1, 1), (0.91, np.inf), (1e-11, 1)]:
        assert order_statistic(scores, level) == expected
    # 100 · 0.55 is a little more than 55 in floating point
    assert order_statistic(np.arange(1.0, 100.0), 0.55) == 55
    for level in (0.5, 0.9, 0.95, 0.99, 0.999):
        need = rows_needed(level)
        assert order_statistic(np.zeros(need), level) == 0
        assert order_statistic(np.zeros(need - 1), level) == np.inf


def test_too_few_rows():
    with pytest.warns(UserWarning, match="needs 99"):
        conformal = rc.ConformalInterval.fit(np.zeros(50), np.arange(50), level=0.99)
    low, high = conformal.interval(np.zeros(3))
    assert np.all(low == -np.inf)
    assert np.all(high == np.inf)
    with pytest.warns(UserWarning, match="all classes"):
        conformal = rc.ConformalSet.fit(np.full((5, 2), 0.5), np.zeros(5, int))
    assert conformal.sets(np.array([[1.0, 0.0]])).all()
    with pytest.warns(UserWarning, match=r"classes \[1\] .* in every set"):
        rc.ConformalSet.fit(np.full((50, 2), 0.5), np.zeros(50, int), by_class=True)


def test_intervals_of_several_outputs(rng):
    y = rng.normal(size=(4000, 2)) * [1.0, 10.0]
    base = np.zeros((2000, 2)), np.tile([1.0, 10.0], (2000, 1))
    for joint in (False, True):
        conformal = rc.ConformalInterval.fit(base, y[:2000], score="scaled", joint=joint)
        low, high = conformal.interval(base)
        inside = (low <= y[2000:]) & (y[2000:] <= high)
        covered = [inside.all(1).sum()] if joint else inside.sum(0)
        for count in covered:
            assert as_in_theory([count], held=2000, new=2000)
    assert np.shape(conformal.margin) == ()


def test_adaptive_width():
    """Scaled intervals are as wide as the predictive is unsure."""
    conformal = rc.ConformalInterval("scaled", 0.9, 2.0, 10)
    low, high = conformal.interval((np.zeros(2), np.array([1.0, 3.0])))
    np.testing.assert_allclose(high - low, [4, 12])
    crossing = rc.ConformalInterval("quantile", 0.9, -1.0, 10)
    low, high = crossing.interval((np.array([0.0, 0.0]), np.array([1.0, 4.0])))
    np.testing.assert_allclose([low, high], [[0.5, 1], [0.5, 3]])
    infinite = rc.ConformalInterval("scaled", 0.9, np.inf, 10)
    assert infinite.interval((np.zeros(1), np.zeros(1)))[1] == np.inf


def test_intervals_of_counts():
    predictive = Rate(np.array([0.5, 2.4, 10.2]), 1.0)
    low, high = rc.ConformalInterval("residual", 0.9, 1.5, 20).interval(predictive)
    assert low.tolist() == [0, 1, 9]
    assert high.tolist() == [2, 3, 11]
    low, high = rc.ConformalInterval("residual", 0.9, 0.1, 20).interval(predictive)
    assert low.tolist() == high.tolist() == [0, 2, 10]


# -- files, refusals


FITTED = [
    rc.Temperature(1.5, 100, 0.5, 0.4),
    rc.Temperature(1.5, 100, 0.5, 0.4, "average"),
    rc.Spread(1.2, 100),
    rc.Spread((1.2, 0.8), 100),
    rc.Isotonic((0, 0.2, 1), (0, 0.5, 1), 1),
    rc.Isotonic(((0, 0), (0.2, 0.7), (1, 1)), (0, 0.5, 1), 1),
    rc.ConformalInterval("scaled", 0.9, 1.7, 100),
    rc.ConformalInterval("scaled", 0.9, (1.7, np.inf), 100),
    rc.ConformalSet("regularised", 0.9, (0.7, 0.8), 100, True, 0.1, 2),
]


@pytest.mark.parametrize("fitted", FITTED, ids=repr)
def test_files(fitted, tmp_path):
    fitted.save(tmp_path / "it.json")
    same = rc.load(tmp_path / "it.json")
    assert type(same) is type(fitted)
    assert same == fitted
    assert str(fitted.n) in repr(fitted)


def test_wrong_files(tmp_path):
    file = tmp_path / "it.json"
    FITTED[0].save(file)
    content = json.loads(file.read_text())
    values = content["values"]
    for wrong, reason in [
        ("nonsense", "no JSON"),
        ("[1]", "wrote"),
        (json.dumps({"format": "another"}), "wrote"),
        (json.dumps(content | {"kind": "Humidity"}), "unknown kind of recalibration Humidity"),
        (json.dumps(content | {"values": values | {"value": -1}}), "above 0"),
        (json.dumps(content | {"values": {"value": 1}}), "damaged"),
        (json.dumps(content | {"kind": "Isotonic", "values": {"places": [], "levels": [], "n": 1}}),
         "damaged"),
    ]:  # fmt: skip
        file.write_text(wrong)
        with pytest.raises(px.CheckpointError, match=reason):
            rc.load(file)


def test_refusals(held_out):
    classes, line = held_out[0], Normal(np.zeros(20), 1.0)
    for fit, predictive, instead in [
        (rc.Temperature.fit, line, "Isotonic"),
        (rc.Isotonic.fit, classes, "Temperature"),
        (rc.Spread.fit, classes, "Temperature"),
        (rc.ConformalInterval.fit, classes, "ConformalSet"),
        (rc.ConformalSet.fit, line, "ConformalInterval"),
    ]:
        with pytest.raises(ValueError, match=instead):
            fit(predictive, np.zeros(20))
    with pytest.raises(ValueError, match=r"Spread is for regression.*: use px.recalibrate.Temp"):
        rc.Spread(1.2, 100)(classes)
    with pytest.raises(ValueError, match=r"Spread is for regression.*px.recalibrate.Isotonic"):
        rc.Spread(1.2, 100)(Rate(np.ones(20), 1.0))
    for call, reason in [
        (lambda: rc.ConformalInterval.fit(line, np.zeros(19)), "shape"),
        (lambda: rc.ConformalInterval.fit(line, np.full(20, np.nan)), "y"),
        (lambda: rc.ConformalInterval.fit(line, np.zeros(20), level=1.0), "level"),
        (lambda: rc.ConformalInterval.fit(line, np.zeros(20), score="best"), "score"),
        (lambda: rc.ConformalSet.fit(classes, np.full(300, 3)), "labels 0 to 2"),
        (lambda: rc.ConformalSet.fit(classes, np.zeros(300), key=0), "key"),
        (lambda: rc.ConformalSet("adaptive", 0.9, 0.5, 9, True).sets(classes), "key is needed"),
        (lambda: rc.ConformalSet("adaptive", 0.9, 0.5, 9).sets(classes, key=1), "not needed"),
        (lambda: rc.Isotonic.fit(line, np.zeros(20), every=0), "every"),
    ]:
        with pytest.raises(ValueError, match=reason):
            call()
    with pytest.raises(TypeError, match=r"\(low, high\)"):
        rc.ConformalInterval.fit(np.zeros(20), np.zeros(20), score="quantile")


# -- real data: one fit, 50 random halves of the rows that it did not see


@pytest.mark.slow
def test_intervals_on_diabetes():
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))
    seen, rest = order[:200], order[200:]
    x, y = (20 * x).astype("float32"), (y - y.mean()) / y.std()
    model = px.Model(px.networks.MLP(10, 2, (8,), key=0), None, lk.Gaussian("predicted"))
    posterior = px.fit(model, (x[seen], y[seen]), px.MaximumLikelihood(1e-2), epochs=30, key=0)
    predictive, y = posterior.predict(x[rest]), y[rest]
    low, high = predictive.interval(0.9)
    bands = {
        "residual": (predictive.mean,),
        "scaled": (predictive.mean, predictive.std),
        "quantile": (low, high),
    }
    half = len(rest) // 2
    for score, band in bands.items():
        covered = []
        for _ in range(SPLITS):
            held, new = np.split(rng.permutation(len(rest)), [half])
            known, asked = (
                tuple(part[rows] for part in band) if len(band) > 1 else band[0][rows]
                for rows in (held, new)
            )
            conformal = rc.ConformalInterval.fit(known, y[held], score=score)
            low, high = conformal.interval(asked)
            covered.append(np.sum((low <= y[new]) & (y[new] <= high)))
        assert as_in_theory(covered, held=half, new=len(new)), score


@pytest.mark.slow
def test_sets_on_digits():
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))
    seen, rest = order[:100], order[100:]
    x = (x / 16).astype("float32")
    model = px.Model(px.networks.MLP(64, 10, (16,), key=0), likelihood=lk.Categorical())
    posterior = px.fit(model, (x[seen], y[seen]), px.MaximumLikelihood(1e-2), epochs=60, key=0)
    p = posterior.predict(x).mean
    half = len(rest) // 2
    for name, options in SCORES.items():
        covered = []
        for split in range(SPLITS):
            mixed = rng.permutation(rest)
            held, new = mixed[:half], mixed[half:]
            key = {"key": split} if "key" in options else {}
            conformal = rc.ConformalSet.fit(p[held], y[held], **options | key)
            covered.append(conformal.sets(p[new], **key)[np.arange(len(new)), y[new]].sum())
        assert as_in_theory(covered, half, len(new), ties="random" not in name), name

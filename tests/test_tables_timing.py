"""Estimators with a limit of time: they end in time, say what was left out, and refuse nonsense."""

import time
import warnings

import numpy as np
import pytest
from sklearn.base import clone

import posterax as px
from posterax.callbacks import Event, StopFit
from posterax.tables import timing
from posterax.tables.timing import Clock, Pace, TooSlow, shorter

pytestmark = pytest.mark.usefixtures("hasty_compiler")

TINY = {"members": 2, "hidden_layer_sizes": (8,), "random_state": 0, "verbose": False}
rng = np.random.default_rng(0)
X = rng.normal(size=(3000, 3))
Y = X[:, 0] + 0.1 * rng.normal(size=3000)
FEW = slice(60)
FOREVER = 10**8  # steps


def quiet(estimator, *data):
    """Fit, with whatever is said of so few steps kept off the screen."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        estimator.fit(*data)
    return [str(w.message) for w in said if str(w.message).startswith(timing.SHORT)]


class TestInTime:
    def test_the_whole_call_with_both_of_its_fits(self):
        quiet(px.BayesianRegressor("map", **TINY, steps=200), X, Y)  # compiles
        regressor = px.BayesianRegressor("map", **TINY, steps=FOREVER, time_limit=3)
        began = time.monotonic()
        said = quiet(regressor, X, Y)
        assert time.monotonic() - began < 3 * 1.2 + 3  # others use the machine, too
        assert len(said) == 1
        assert "of 100,000,000 steps" in said[0]
        assert regressor.score(X, Y) > 0.5
        assert regressor.spread_ > 0
        assert "_clock" not in vars(regressor)

    def test_the_rate_falls_over_the_steps_that_there_are(self):
        """It was planned shorter, not cut off: the last steps change next to nothing."""
        classifier = px.BayesianClassifier("map", **TINY, steps=FOREVER, time_limit=1)
        quiet(classifier, X, Y > 0)
        steps = classifier.posterior_.record.settings["steps"]
        assert len(classifier.history_["nll"]) == steps < FOREVER
        assert not classifier.posterior_.record.interrupted

    def test_parts_of_a_stream(self):
        classifier = px.BayesianClassifier(**TINY, steps=FOREVER, time_limit=0.5)
        with pytest.warns(UserWarning, match=r"time_limit=0.5 was enough for"):
            classifier.partial_fit(X, Y > 0)
        with pytest.warns(UserWarning, match="of 200,000,000 steps"):  # of two members
            classifier.partial_fit(X, Y > 0)
        assert classifier.updates_ == 1

    def test_draws(self):
        method = px.NUTS(chains=2, warmup=50)
        sampled = px.BayesianRegressor(
            method, **TINY | {"hidden_layer_sizes": ()}, steps=10**5, time_limit=1
        )
        (said,) = quiet(sampled, X[FEW], Y[FEW])
        assert "of 100,000 draws of each chain" in said
        assert np.isfinite(sampled.predict(X[FEW])).all()

    def test_what_cannot_be_shortened(self):
        method = px.SMC(particles=16, groups=2, mutation_steps=1, temperatures=5)
        sampled = px.BayesianRegressor(
            method, **TINY | {"hidden_layer_sizes": ()}, time_limit=1e-3, noise=1.0
        )
        (said,) = quiet(sampled, X[FEW], Y[FEW])
        assert "does not end SMC: it goes through everything once" in said


class TestEnoughTime:
    @pytest.mark.parametrize("given", [{"steps": 60}, {"epochs": 30}])
    def test_nothing_changes(self, given):
        one = px.BayesianRegressor(**TINY, **given)
        two = clone(one).set_params(time_limit=600)
        quiet(one, X[:400], Y[:400])
        assert quiet(two, X[:400], Y[:400]) == []
        np.testing.assert_array_equal(one.predict(X[FEW]), two.predict(X[FEW]))

    def test_the_file_has_it(self, tmp_path):
        estimator = px.BayesianRegressor("map", **TINY, steps=20, time_limit=600.0)
        quiet(estimator, X[FEW], Y[FEW])
        estimator.save(tmp_path / "r.px")
        assert px.load(tmp_path / "r.px").get_params() == estimator.get_params()


class TestUntilSettled:
    def test_in_time(self, tmp_path):
        estimator = px.BayesianClassifier(
            px.BayesByBackprop(), **TINY, epochs="auto", time_limit=20.0
        )
        quiet(estimator, X[:200], Y[:200] > 0)
        assert estimator.score(X[:200], Y[:200] > 0) > 0.8
        estimator.save(tmp_path / "c.px")
        assert px.load(tmp_path / "c.px").epochs == "auto"

    def test_a_first_fit_that_is_too_long(self):
        """Its length is not known, but 4 epochs of a batch of one row are too many."""
        estimator = px.BayesianClassifier("ivon", **TINY, epochs="auto", batch_size=1)
        (said,) = quiet(estimator.set_params(time_limit=0.2), X, Y > 0)
        assert "of 12,000 steps" in said

    def test_needs_a_method_that_can(self):
        with pytest.raises(ValueError, match="epochs='auto' needs a method that can go on"):
            px.BayesianRegressor(**TINY, epochs="auto").fit(X[FEW], Y[FEW])

    def test_other_words(self):
        with pytest.raises(ValueError, match="epochs must be a number or 'auto', got 'long'"):
            px.BayesianRegressor("ivon", **TINY, epochs="long").fit(X[FEW], Y[FEW])


@pytest.mark.parametrize("limit", [0, -1.0, float("nan"), float("inf"), "3", True, [3]])
def test_no_time(limit):
    estimator = px.BayesianClassifier(**TINY, steps=5, time_limit=limit)
    with pytest.raises(ValueError, match="time_limit must be a finite number of seconds above 0"):
        estimator.fit(X[FEW], Y[FEW] > 0)
    with pytest.raises(ValueError, match="or None for no limit"):
        estimator.partial_fit(X[FEW], Y[FEW] > 0, classes=[False, True])
    assert not hasattr(estimator, "posterior_")


class Watch:
    """A clock that a test sets."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(timing.time, "monotonic", lambda: self.now)

    def event(self, at, step, total, number=0, make=None):
        self.now = at
        return Event("training", step, total, {}, make, number)


@pytest.fixture
def watch(monkeypatch):
    return Watch(monkeypatch)


class TestPace:
    def test_a_plan_that_ends_in_time(self, watch):
        pace = Pace(10.0, px.MaximumAPosteriori(), 1000, plans=True)
        pace(watch.event(1.0, 1, 1000))
        pace(watch.event(1.1, 5, 1000))  # too soon to tell
        with pytest.raises(TooSlow) as slow:
            pace(watch.event(2.0, 51, 1000))  # 50 steps a second
        assert slow.value.share == pytest.approx(0.9 * 8 * 50 / 1000)

    def test_a_training_leaves_time_for_what_follows(self, watch):
        pace = Pace(10.0, px.SWAG(), 100, plans=True)
        pace(watch.event(0.0, 1, 75))
        pace(watch.event(1.0, 12, 75))  # 75 steps in 6.8 seconds of 7.5
        pace = Pace(10.0 + watch.now, px.SWAG(), 100, plans=True)
        pace(watch.event(1.0, 1, 75))
        with pytest.raises(TooSlow):
            pace(watch.event(2.0, 10, 75))  # in 8.3

    def test_it_stops_where_the_plan_was_wrong(self, watch):
        pace = Pace(10.0, px.MaximumAPosteriori(), 1000, plans=False)
        pace(watch.event(0.0, 1, 1000))
        pace(watch.event(9.0, 100, 1000))
        with pytest.raises(StopFit):
            pace(watch.event(10.1, 120, 1000))
        assert pace.missed == 880

    def test_compilation_leaves_half_of_the_time(self, watch):
        pace = Pace(10.0, px.MaximumAPosteriori(), 1000, plans=True)
        pace(watch.event(60.0, 1, 1000))
        assert pace.end == 65.0

    def test_chains_do_not_stop_before_a_draw(self, watch):
        pace = Pace(10.0, px.NUTS(), 1000, plans=False)
        for at, step in ((1.0, 1), (30.0, 9)):
            pace(watch.event(at, step, 500))
        pace(watch.event(31.0, 1, 1000, 1, make=dict))
        with pytest.raises(StopFit):
            pace(watch.event(32.0, 9, 1000, 1, make=dict))

    def test_a_pass_after_the_training_is_whole(self, watch):
        pace = Pace(10.0, px.Laplace(), 1000, plans=True)
        for at, step, number in ((1.0, 1000, 0), (11.0, 1, 1), (20.0, 9, 1)):
            pace(watch.event(at, step, 1000, number))


def test_what_a_method_needs_at_least():
    options = {"epochs": None, "steps": 1000}
    assert shorter(px.MaximumAPosteriori(), options, 0.0, 1000)[1]["steps"] == timing.LEAST
    cyclical = px.SGLD(schedule="cyclical", cycles=50)
    assert shorter(cyclical, options, 0.0, 1000)[1]["steps"] == 200
    assert shorter(px.SWAG(every=10), options, 0.0, 1000)[1]["steps"] == 160
    assert shorter(px.MaximumAPosteriori(), options | {"steps": 5}, 0.5, 5)[1]["steps"] == 5


def test_a_clock_gives_every_fit_its_part(watch):
    clock = Clock(10.0)
    assert clock.seconds(0.6) == 6.0
    watch.now = 7.0
    assert clock.seconds(0.4) == pytest.approx(3.0)
    late = Clock(10.0)
    late.seconds(0.6)
    watch.now += 60.0  # of compilation
    assert late.seconds(0.4) == 2.0

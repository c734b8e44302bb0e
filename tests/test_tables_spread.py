"""The width of a regressor's intervals, measured on rows held out of the first part of a fit."""

import os
import signal
import threading

import numpy as np
import pytest
from scipy import stats

import posterax as px
from posterax.recalibrate import scaling

FAST = {"steps": 300, "members": 2, "hidden_layer_sizes": (16,), "random_state": 0}


def line(n=120, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    return x, 1e4 + 100 * x[:, 0] + 5 * rng.normal(size=n)


class Normal:
    """A predictive N(mean, 1), of one target or several."""

    def __init__(self, mean):
        self.mean = mean

    def quantile(self, q):
        return self.mean + stats.norm.ppf(q).reshape(-1, *[1] * self.mean.ndim)


class TestMeasure:
    def test_finds_a_known_factor(self):
        rng = np.random.default_rng(0)
        mean = rng.normal(size=4000)
        found = scaling.measure(Normal(mean), mean + 2 * rng.normal(size=4000), np.ones(4000))
        assert found == pytest.approx(2, rel=0.04)

    def test_each_target_has_its_own(self):
        rng = np.random.default_rng(0)
        mean = rng.normal(size=(4000, 2))
        y = mean + np.array([0.5, 1.5]) * rng.normal(size=(4000, 2))
        np.testing.assert_allclose(
            scaling.measure(Normal(mean), y, np.ones(4000)), [0.5, 1.5], rtol=0.04
        )

    def test_few_rows_say_little(self):
        rng = np.random.default_rng(0)
        mean = rng.normal(size=5)
        assert scaling.measure(Normal(mean), mean + 2 * rng.normal(size=5), np.ones(5)) < 1.25

    def test_weights_count_rows(self):
        rng = np.random.default_rng(0)
        mean = rng.normal(size=4000)
        y = mean + np.repeat([1.0, 3.0], 2000) * rng.normal(size=4000)
        weight = np.repeat([1.0, 1e-6], 2000)
        assert scaling.measure(Normal(mean), y, weight) == pytest.approx(1, rel=0.05)

    def test_no_width_at_all(self):
        class Point(Normal):
            def quantile(self, q):
                return np.broadcast_to(self.mean, (len(q), *self.mean.shape))

        assert scaling.measure(Point(np.ones(50)), np.ones(50), np.ones(50)) == 1


def parts_of(monkeypatch, regressor, x, y):
    """The weights and steps of each part of a fit."""
    found = []
    from posterax.tables import base

    real = base.fit

    def watched(model, data, method, **options):
        found.append((np.asarray(data[2]), options["steps"]))
        return real(model, data, method, **options)

    monkeypatch.setattr(base, "fit", watched)
    regressor.fit(x, y)
    return found


class TestRegressor:
    def test_a_fifth_is_held_out_and_then_learned(self, monkeypatch):
        regressor = px.BayesianRegressor(**FAST)
        (first, steps), (second, more) = parts_of(monkeypatch, regressor, *line())
        assert np.sum(first > 0) == 96
        assert np.sum(second > 0) == 120
        assert (steps, more) == (180, 120)  # together what was asked for
        assert len(regressor.history_["nll"]) == 300
        assert regressor.spread_ != 1

    @pytest.mark.filterwarnings("ignore:.*candidates count")
    @pytest.mark.parametrize(
        "options",
        [{"calibrate": False}, {"noise": 5.0}, {"method": "importance_sampling", "steps": None}],
        ids=str,
    )
    def test_not_where_it_would_be_wrong(self, options, monkeypatch):
        regressor = px.BayesianRegressor(**FAST | options)
        assert len(parts_of(monkeypatch, regressor, *line())) == 1
        assert regressor.spread_ == 1

    def test_not_for_a_few_rows(self, monkeypatch):
        regressor = px.BayesianRegressor(**FAST)
        assert len(parts_of(monkeypatch, regressor, *line(99))) == 1

    def test_predictions_are_wider_by_it(self):
        x, y = line()
        regressor = px.BayesianRegressor(**FAST).fit(x, y)
        mean, std = regressor.predict(x, return_std=True)
        low, high = regressor.predict_interval(x, 0.9)
        regressor.spread_ = 2 * regressor.spread_
        np.testing.assert_allclose(regressor.predict(x), mean)
        np.testing.assert_allclose(regressor.predict(x, return_std=True)[1], 2 * std, rtol=1e-6)
        wide = regressor.predict_interval(x, 0.9)
        np.testing.assert_allclose(wide[1] - wide[0], 2 * (high - low), rtol=1e-5)

    def test_several_targets(self):
        x, y = line()
        regressor = px.BayesianRegressor(**FAST).fit(x, np.column_stack([y, x[:, 1]]))
        assert regressor.spread_.shape == (2,)
        assert regressor.predict_interval(x)[0].shape == (120, 2)

    def test_travels_in_a_file(self, tmp_path):
        x, y = line()
        regressor = px.BayesianRegressor(**FAST).fit(x, y)
        regressor.save(tmp_path / "r.px")
        loaded = px.load(tmp_path / "r.px")
        np.testing.assert_array_equal(
            loaded.predict_interval(x)[0], regressor.predict_interval(x)[0]
        )

    def test_a_warm_start_keeps_it(self, monkeypatch):
        x, y = line()
        regressor = px.BayesianRegressor(**FAST, warm_start=True).fit(x, y)
        before = regressor.spread_
        assert len(parts_of(monkeypatch, regressor, x, y)) == 1
        assert regressor.spread_ == before

    def test_ctrl_c_in_the_first_part_ends_the_fit(self):
        x, y = line()
        regressor = px.BayesianRegressor(**FAST | {"steps": 10**6})
        alarm = threading.Timer(3, os.kill, (os.getpid(), signal.SIGINT))
        alarm.start()
        regressor.fit(x, y)
        alarm.join()
        assert len(regressor.history_["nll"]) < 6 * 10**5
        assert regressor.predict(x).shape == (120,)

"""Where an estimator could go wrong without a word: one test for each way."""

import datetime

import jax
import numpy as np
import optax
import pytest

import posterax as px
from posterax.recalibrate.scaling import measure
from posterax.tables.standardise import Rows, held_out, standardiser

FAST = {"steps": 300, "members": 2, "hidden_layer_sizes": (16,), "random_state": 0}
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
Y = X[:, 0] + 0.1 * rng.normal(size=60)
LABELS = np.where(X[:, 0] > 0, "b", "a")


@pytest.fixture(scope="module")
def mixture():
    """Two members that differ much."""
    return px.BayesianRegressor(**FAST | {"temperature": (0.02, 50.0)}).fit(X, Y)


class TestFewDraws:
    def test_one_draw_is_of_any_member(self, mixture):
        x = X[np.abs(Y).argmax()][None]
        single = [mixture.sample_y(x, 1, random_state=i)[0, 0] for i in range(200)]
        many = mixture.sample_y(x, 20_000)[0]
        assert abs(np.mean(single) - many.mean()) < 5 * many.std() / np.sqrt(200)

    def test_one_particle_is_of_any_component(self, mixture):
        posterior = mixture.posterior_
        found = {int(posterior.particles(jax.random.key(i), 1).ids.component[0]) for i in range(20)}
        assert found == {0, 1}


def test_copies_of_a_row_are_held_out_together():
    x = np.repeat(rng.normal(size=(300, 2)), 4, axis=0)
    held = held_out(Rows(x, x[:, 0], np.ones(1200)), 0)
    assert 240 <= len(held) <= 244
    kept = np.setdiff1d(np.arange(1200), held)
    assert not set(map(tuple, x[held])) & set(map(tuple, x[kept]))


class TestFiles:
    def test_an_optimiser_of_ones_own(self, tmp_path):
        method = px.MaximumAPosteriori(optimizer=optax.adam(1e-2))
        regressor = px.BayesianRegressor(method, steps=20, random_state=0).fit(X, Y)
        with pytest.warns(UserWarning, match="no saved form"):
            regressor.save(tmp_path / "r.px")
        np.testing.assert_array_equal(px.load(tmp_path / "r.px").predict(X), regressor.predict(X))


class TestNothingHalf:
    def test_a_fit_that_fails_changes_nothing(self):
        regressor = px.BayesianRegressor(**FAST).fit(X, Y)
        before = regressor.predict(X)
        regressor.set_params(warm_start=True, hidden_layer_sizes=(3,))
        with pytest.raises(ValueError, match="warm_start"):
            regressor.fit(X, 1000 * Y)
        np.testing.assert_array_equal(regressor.predict(X), before)

    def test_other_classes_are_no_warm_start(self):
        classifier = px.BayesianClassifier(**FAST, warm_start=True).fit(X, LABELS)
        with pytest.raises(ValueError, match=r"continues with the classes \['a', 'b'\]"):
            classifier.fit(X, np.where(LABELS == "b", "c", "a"))
        assert classifier.classes_.tolist() == ["a", "b"]

    def test_other_members_are_no_update(self):
        regressor = px.BayesianRegressor(**FAST).partial_fit(X, Y)
        regressor.set_params(members=3)
        with pytest.raises(ValueError, match="members=3, but the posterior so far has 2"):
            regressor.partial_fit(X, Y)
        assert regressor.updates_ == 0

    def test_calibration_can_be_switched_off_in_a_warm_start(self):
        x = np.vstack([X, X + 1])
        regressor = px.BayesianRegressor(**FAST, warm_start=True).fit(x, x[:, 0])
        regressor.set_params(calibrate=False).fit(x, x[:, 0])
        assert regressor.spread_ == 1


class TestEarlyStopping:
    def test_one_split_for_both_parts(self, monkeypatch):
        from posterax.tables import base

        watched, real = [], base.fit

        def fit(model, data, method, **options):
            watched.append((options["validation"].x, data[0][np.asarray(data[2]) > 0]))
            return real(model, data, method, **options)

        monkeypatch.setattr(base, "fit", fit)
        x = np.vstack([X, X + 1])
        px.BayesianRegressor(**FAST, early_stopping=True).fit(x, x[:, 0])
        (first, _), (second, _) = watched
        np.testing.assert_array_equal(first, second)
        for held, seen in watched:
            assert not set(map(tuple, held)) & set(map(tuple, seen))

    def test_weights_count(self):
        x = np.vstack([X, X])
        y = np.concatenate([Y, -Y])
        looks = [
            px.BayesianRegressor(**FAST, early_stopping=True, validation_fraction=0.5)
            .fit(x, y, sample_weight=weight)
            .history_["validation_nll"][-1]
            for weight in (np.ones(120), np.repeat([1.0, 1e-3], 60))
        ]
        assert looks[1] < looks[0] - 0.5

    def test_classes_in_proportion(self):
        y = np.array(["a"] * 54 + ["b"] * 6)
        classifier = px.BayesianClassifier(**FAST, early_stopping=True, validation_fraction=0.5)
        for seed in range(5):
            classifier._fit_seed = seed
            kept, held = classifier._hold_out(Rows(X, (y == "b").astype(int), np.ones(60)))
            assert (kept.y.sum(), held.y.sum()) == (3, 3)


def test_a_column_that_differs_by_rounding_is_constant():
    column = np.where(np.arange(60) % 2, 0.3, 0.1 + 0.2)[:, None]
    assert standardiser(column, np.ones(60)).scale[0] > 0.1


def test_the_kl_of_a_joint_prior_by_samples():
    model = px.Model(
        px.networks.MLP(3, 1, (8,), key=0), px.priors.Hierarchical(), px.likelihoods.Gaussian(0.1)
    )
    x, y = X.astype("float32"), Y.astype("float32")
    closed, sampled = (
        px.fit(model, (x, y), px.BayesByBackprop(kl=kl, learning_rate=1e-9), steps=200, key=0)
        for kl in ("auto", "monte_carlo")
    )
    want, got = (np.unique(p.history["kl"]).mean() for p in (closed, sampled))
    assert got == pytest.approx(want, rel=0.1)


class TestLabels:
    def test_a_part_without_a_class_that_has_a_weight(self):
        classifier = px.BayesianClassifier(**FAST, class_weight={"c": 3.0})
        classifier.partial_fit(X, LABELS, classes=["a", "b", "c"])
        assert classifier.predict_proba(X).shape == (60, 3)
        with pytest.raises(ValueError, match="class_weight names 'z'"):
            classifier.set_params(class_weight={"z": 1.0}).fit(X, LABELS)

    @pytest.mark.parametrize(
        ("label", "words"),
        [
            (None, "1 missing label"),
            (np.nan, "1 missing label"),
            (datetime.date(2020, 1, 1), "date"),
        ],
        ids=["None", "NaN", "date"],
    )
    def test_what_is_no_label(self, label, words):
        y = LABELS.astype(object)
        y[3] = label
        with pytest.raises(ValueError, match=words):
            px.BayesianClassifier(**FAST).fit(X, y)

    def test_dates_are_refused_before_the_fit(self):
        y = np.array([datetime.date(2020, 1, 1 + i % 2) for i in range(60)])
        with pytest.raises(ValueError, match="make them all text"):
            px.BayesianClassifier(**FAST).fit(X, y)

    def test_one_class_can_be_drawn(self):
        classifier = px.BayesianClassifier(**FAST).fit(X, ["a"] * 60)
        assert classifier.sample_y(X, 4).shape == (60, 4)


@pytest.mark.parametrize("steps", [0, -5, 1.5, "a"])
def test_steps_are_checked_before_they_are_shared(steps):
    x = np.vstack([X, X + 1])
    with pytest.raises((TypeError, ValueError), match="steps"):
        px.BayesianRegressor(steps=steps).fit(x, x[:, 0])


def test_a_mean_outside_its_interval_counts_as_a_miss():
    class Odd:
        mean = np.full(50, 10.0)

        def quantile(self, q):
            return np.broadcast_to(np.linspace(-1, 1, len(q))[:, None], (len(q), 50))

    assert measure(Odd(), np.full(50, 50.0), np.ones(50)) > 1


def test_sizes_may_be_an_array():
    sizes = np.array([4, 3])
    regressor = px.BayesianRegressor(**FAST | {"hidden_layer_sizes": sizes}).fit(X, Y)
    assert len(regressor.posterior_.model.network.params.layers) == 3

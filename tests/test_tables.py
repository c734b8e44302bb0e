"""The estimators for tables: units, weights, labels, updating, files, and honest errors."""

import pickle

import equinox as eqx
import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import posterax as px
from posterax.tables.standardise import Rows, distinct, standardiser

# one shape for most tests: 64 padded rows, 3 columns
FAST = {"steps": 300, "members": 2, "hidden_layer_sizes": (16,), "random_state": 0}


def line(n=60, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    return x, 1e4 + 100 * x[:, 0] + 5 * rng.normal(size=n)


def blobs(n=60, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return rng.normal(size=(n, 3)) + 3 * y[:, None], y


@pytest.fixture(scope="module")
def fitted():
    x, y = line()
    return px.BayesianRegressor(**FAST).fit(x, y), x, y


@pytest.fixture(scope="module")
def labelled():
    x, y = blobs()
    names = np.array(["no", "yes"])[y]
    return px.BayesianClassifier(**FAST).fit(x, names), x, names


class TestUnits:
    def test_answers_are_in_the_units_of_y(self, fitted):
        regressor, x, y = fitted
        assert regressor.score(x, y) > 0.9
        mean, std = regressor.predict(x, return_std=True)
        low, high = regressor.predict_interval(x, 0.9)
        assert mean.dtype == np.float64
        assert np.all((low < mean) & (mean < high))
        assert 1 < np.median(std) < 50
        assert 0.8 < np.mean((low < y) & (y < high)) <= 1

    @pytest.mark.parametrize(("shift", "scale"), [(0.0, 1e-6), (1e7, 1e3), (-5.0, 1e12)])
    def test_a_change_of_units_changes_nothing_else(self, fitted, shift, scale):
        regressor, x, y = fitted
        other = clone(regressor).fit(scale * (x - 3), shift + scale * y)
        back = (other.predict(scale * (x - 3)) - shift) / scale
        # standardising leaves rounding of float64, which the fit then amplifies
        np.testing.assert_allclose(back, regressor.predict(x), rtol=1e-3)
        log_p = other.predictive(scale * (x - 3)).log_prob(shift + scale * y)
        reference = regressor.predictive(x).log_prob(y) - np.log(scale)
        np.testing.assert_allclose(log_p, reference, atol=0.3)

    def test_predictive_is_consistent(self, fitted):
        regressor, x, _ = fitted
        predictive = regressor.predictive(x)
        np.testing.assert_allclose(predictive.epistemic + predictive.aleatoric, predictive.total)
        np.testing.assert_allclose(predictive.std**2, predictive.total)
        # the density integrates to one in the user's units
        grid = np.linspace(*(f(predictive.mean[0], 8 * predictive.std[0]) for f in _ends), 4001)
        p = np.exp(regressor.predictive(np.repeat(x[:1], 4001, axis=0)).log_prob(grid))
        assert np.trapezoid(p, grid) == pytest.approx(1, abs=1e-3)
        drawn = regressor.sample_y(x[:1], 4000, random_state=1)[0]
        assert drawn.mean() == pytest.approx(predictive.mean[0], abs=predictive.std[0] / 5)
        assert drawn.std() == pytest.approx(predictive.std[0], rel=0.2)

    def test_several_targets(self):
        x, y = line()
        both = np.stack([y, -1e-3 * y + 7], axis=1)
        regressor = px.BayesianRegressor(**FAST).fit(x, both)
        assert regressor.predict(x).shape == (60, 2)
        assert regressor.score(x, both) > 0.9
        low, high = regressor.predict_interval(x)
        assert low.shape == high.shape == (60, 2)
        assert regressor.sample_y(x[:4], 5).shape == (4, 2, 5)
        assert regressor.predictive(x).log_prob(both).shape == (60,)

    @pytest.mark.parametrize("noise", ["learned", 5.0])
    def test_noise_is_in_the_units_of_y(self, noise):
        x, y = line()
        regressor = px.BayesianRegressor(**FAST | {"steps": 1500}, noise=noise).fit(x, y)
        aleatoric = np.sqrt(regressor.predictive(x).aleatoric)
        assert np.ptp(aleatoric) < 1e-3 * aleatoric.mean()
        assert aleatoric.mean() == pytest.approx(5.0, rel=1e-4 if noise == 5.0 else 0.8)


_ends = (np.subtract, np.add)


class TestOddTables:
    def test_a_constant_column_and_a_constant_target(self):
        x, _ = line()
        x[:, 1] = 7.5
        for value in (0.0, 1e-6, 3e8):
            regressor = px.BayesianRegressor(**FAST).fit(x, np.full(60, value))
            unit = abs(value) or 1.0
            mean, std = regressor.predict(x, return_std=True)
            np.testing.assert_allclose(mean, value, atol=0.2 * unit)
            assert np.all(std < unit)

    def test_one_row(self):
        regressor = px.BayesianRegressor(**FAST).fit([[1.0, 2.0, 3.0]], [5.0])
        assert np.isfinite(regressor.predict([[1.0, 2.0, 3.0]], return_std=True)).all()
        assert regressor.predict([[1.0, 2.0, 3.0]])[0] == pytest.approx(5, abs=2)

    def test_one_class(self, tmp_path):
        classifier = px.BayesianClassifier(**FAST).fit(line()[0], ["a"] * 60)
        x = line()[0][:3]
        np.testing.assert_array_equal(classifier.predict(x), ["a"] * 3)
        np.testing.assert_array_equal(classifier.predict_proba(x), np.ones((3, 1)))
        classifier.save(tmp_path / "one.px")
        np.testing.assert_array_equal(px.load(tmp_path / "one.px").predict(x), ["a"] * 3)
        with pytest.raises(ValueError, match="y had one class at fit, 'a'"):
            classifier.predictive(x)

    def test_columns_of_very_different_size(self):
        x, y = line()
        scaled = x * [1e-30, 1.0, 1e30] + [0, 0, 1e31]
        regressor = px.BayesianRegressor(**FAST | {"steps": 1000}).fit(scaled, y)
        assert regressor.score(scaled, y) > 0.9

    def test_standardising_huge_values_does_not_overflow(self):
        shift, scale = standardiser(np.array([[1e200], [3e200]]), np.ones(2))
        np.testing.assert_allclose([shift[0], scale[0]], [2e200, 1e200])


class TestWeights:
    def test_a_weight_of_two_is_the_row_twice(self):
        x, y = line(20)
        weight = np.arange(20) % 3
        counted = px.BayesianRegressor(**FAST).fit(x, y, weight)
        repeated = px.BayesianRegressor(**FAST).fit(x.repeat(weight, 0), y.repeat(weight))
        np.testing.assert_array_equal(counted.predict(x), repeated.predict(x))

    def test_distinct_rows_keep_the_mass(self):
        x = np.array([[2.0], [1.0], [2.0], [3.0]])
        rows = distinct(Rows(x, x[:, 0], np.array([1.0, 2.0, 3.0, 0.0])))
        np.testing.assert_array_equal(rows.x, [[1.0], [2.0]])
        np.testing.assert_array_equal(rows.weight, [2.0, 4.0])

    def test_weights_that_sum_to_one_are_one_row(self):
        x, y = line()
        with pytest.warns(UserWarning, match="sample_weight sums to 1, so the 60 rows count as"):
            px.BayesianRegressor(**FAST).fit(x, y, np.full(60, 1 / 60))

    def test_class_weights_move_the_boundary(self):
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(60, 3)), (np.arange(60) % 6 == 0).astype(int)
        x[:, 0] += y
        plain = px.BayesianClassifier(**FAST).fit(x, y).predict_proba(x)[:, 1].mean()
        balanced = px.BayesianClassifier(**FAST, class_weight="balanced").fit(x, y)
        by_hand = px.BayesianClassifier(**FAST, class_weight={0: 60 / 100, 1: 3.0}).fit(x, y)
        assert balanced.predict_proba(x)[:, 1].mean() > plain + 0.1
        np.testing.assert_array_equal(balanced.predict_proba(x), by_hand.predict_proba(x))


class TestLabelsAndFrames:
    def test_text_labels(self, labelled):
        classifier, x, names = labelled
        assert classifier.score(x, names) > 0.9
        assert set(classifier.predict(x)) == {"no", "yes"}
        p, std = classifier.predict_proba(x, return_std=True)
        np.testing.assert_allclose(p.sum(1), 1)
        assert p.shape == std.shape == (60, 2)
        assert classifier.sample_y(x[:4], 7).shape == (4, 7)
        low, high = classifier.predict_interval(x[:4])
        assert np.all((low >= 0) & (high <= 1) & (low <= high))
        assert classifier.predictive(x).epistemic.shape == (60,)

    def test_data_frames_keep_their_names(self):
        x, y = line()
        frame = pd.DataFrame(x, columns=["a", "b", "c"])
        regressor = px.BayesianRegressor(**FAST).fit(frame, pd.Series(y))
        np.testing.assert_array_equal(regressor.feature_names_in_, ["a", "b", "c"])
        np.testing.assert_array_equal(
            regressor.predict(frame), px.BayesianRegressor(**FAST).fit(x, y).predict(x)
        )
        with pytest.raises(ValueError, match=r"[Ff]eature names"):
            regressor.predict(frame[["b", "a", "c"]])


class TestDeterminism:
    def test_a_seed_gives_the_same_bits_and_another_does_not(self, fitted):
        regressor, x, y = fitted
        np.testing.assert_array_equal(clone(regressor).fit(x, y).predict(x), regressor.predict(x))
        other = clone(regressor).set_params(random_state=1).fit(x, y)
        assert np.any(other.predict(x) != regressor.predict(x))
        free = clone(regressor).set_params(random_state=None)
        assert np.any(free.fit(x, y).predict(x) != free.fit(x, y).predict(x))

    def test_a_row_is_predicted_alike_alone_and_among_others(self, fitted):
        regressor, x, _ = fitted
        alone = np.concatenate([regressor.predict(row[None]) for row in x[:5]])
        np.testing.assert_array_equal(alone, regressor.predict(x)[:5])


def amounts():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (200, 1))
    return x, np.maximum(10 * x[:, 0] + rng.normal(0, 2, 200), 0.01)


class TestTargetsThatAreNeverBelow0:
    def test_nothing_is_said_to_lie_there(self, tmp_path):
        x, y = amounts()
        regressor = px.BayesianRegressor(**FAST).fit(x, y)
        assert regressor.target_.name == "non_negative"
        low, high = regressor.predict_interval(x)
        assert low.min() == 0
        assert 0.8 < np.mean((low <= y) & (y <= high)) < 1
        assert regressor.sample_y(x, 20).min() == regressor.predict(-x).min() == 0
        regressor.save(tmp_path / "model.px")
        np.testing.assert_array_equal(px.load(tmp_path / "model.px").predict_interval(x)[0], low)

    def test_unless_the_user_or_later_rows_say_so(self):
        x, y = amounts()
        free = px.BayesianRegressor(likelihood="student", **FAST).fit(x, y)
        assert free.predict_interval(x)[0].min() < 0
        later = px.BayesianRegressor(**FAST).partial_fit(x, y).partial_fit(x, y - 1)
        assert later.target_.name == "real"
        assert later.predict_interval(x)[0].min() < 0


class TestUpdating:
    def test_parts_one_after_another_come_close_to_all_at_once(self):
        x, y = line(180)
        settings = FAST | {"steps": 1000}
        whole = px.BayesianRegressor(**settings).fit(x, y)
        parts = px.BayesianRegressor(**settings)
        for part in np.split(np.arange(180), 3):
            parts.partial_fit(x[part], y[part])
        test, truth = line(200, seed=1)
        assert parts.score(test, truth) > 0.95
        first = px.BayesianRegressor(**settings).fit(x[:60], y[:60])
        error = lambda r, y: np.mean(np.abs(r.predict(test) - y))  # noqa: E731
        without_noise = 1e4 + 100 * test[:, 0]
        assert error(parts, without_noise) < error(first, without_noise)
        assert error(parts, truth) < 1.3 * error(whole, truth)
        assert parts.updates_ == 2

    def test_classes_are_named_at_the_first_part(self):
        x, y = blobs()
        classifier = px.BayesianClassifier(**FAST)
        classifier.partial_fit(x[y == 0], y[y == 0], classes=[0, 1])
        classifier.partial_fit(x[y == 1], y[y == 1])
        assert classifier.score(x, y) > 0.9
        with pytest.raises(ValueError, match="label 2, which is not among the classes"):
            classifier.partial_fit(x, y + 1)
        with pytest.raises(ValueError, match="classes must be the same"):
            classifier.partial_fit(x, y, classes=[0, 1, 2])

    def test_a_point_estimate_cannot_be_the_next_prior(self):
        x, y = line()
        regressor = px.BayesianRegressor("deep_ensemble", **FAST)
        with pytest.raises(ValueError, match=r"partial_fit needs .*bayes_by_backprop"):
            regressor.partial_fit(x, y)

    def test_warm_start_goes_on_from_the_last_fit(self):
        x, y = line()
        settings = FAST | {"warm_start": True, "steps": 200}
        regressor = px.BayesianRegressor(**settings).fit(x, y)
        before = np.mean(regressor.history_["nll"][:20])
        regressor.fit(x, y)
        assert np.mean(regressor.history_["nll"][:20]) < before - 0.1
        with pytest.raises(ValueError, match=r"warm_start.*3 columns"):
            regressor.fit(x[:, :2], y)


class TestMethods:
    @pytest.mark.filterwarnings("ignore:.*candidates count")
    @pytest.mark.parametrize(
        ("method", "options"),
        [
            ("deep_ensemble", {}),
            ("maximum_a_posteriori", {}),
            ("importance_sampling", {"steps": 20}),
            pytest.param("nuts", {"steps": 20}, marks=pytest.mark.slow),
            (px.BayesByBackprop(estimator="local", learning_rate=1e-2), {}),
        ],
    )
    def test_any_method_by_name_or_object(self, hasty_compiler, method, options):
        x, y = blobs()
        settings = FAST | {"hidden_layer_sizes": 3} | options
        classifier = px.BayesianClassifier(method, **settings).fit(x, y)
        assert classifier.predict_proba(x).shape == (60, 2)

    def test_prior_activation_and_layers(self):
        x, y = line()
        options = {"prior": px.priors.Laplace(1.0), "activation": "tanh"}
        regressor = px.BayesianRegressor(**FAST | {"hidden_layer_sizes": [8, 4]}, **options)
        regressor.fit(x, y)
        assert [w.bias.size for w in regressor.posterior_.model.network.params.layers] == [8, 4, 2]

    def test_early_stopping_holds_rows_out(self):
        x, y = line()
        options = FAST | {"steps": 20_000, "n_iter_no_change": 2}
        regressor = px.BayesianRegressor(**options, early_stopping=True).fit(x, y)
        assert "validation_nll" in regressor.history_
        assert len(regressor.history_["nll"]) < 20_000

    def test_defaults_grow_with_the_data(self):
        from posterax.tables import settings

        method = px.BayesByBackprop()
        small = settings.make_budget(method, 20, None, None, None)
        large = settings.make_budget(method, 100_000, None, None, None)
        assert small["batch_size"] == 20
        assert large["batch_size"] < 1000
        assert small["steps"] < large["steps"]
        given = settings.make_budget(method, 100, 3, None, 500)
        assert given == {"epochs": 3, "steps": None, "batch_size": 100}


class TestFiles:
    def test_regressor(self, fitted, tmp_path):
        regressor, x, _ = fitted
        regressor.save(tmp_path / "regressor.px")
        same = px.load(tmp_path / "regressor.px")
        assert isinstance(same, px.BayesianRegressor)
        assert same.get_params() == regressor.get_params()
        np.testing.assert_array_equal(same.predict(x), regressor.predict(x))
        np.testing.assert_array_equal(same.sample_y(x, 3), regressor.sample_y(x, 3))

    def test_classifier_with_objects_for_settings(self, tmp_path):
        x, y = blobs()
        frame = pd.DataFrame(x, columns=list("abc"))
        classifier = px.BayesianClassifier(
            px.DeepEnsemble(2, px.BayesByBackprop(learning_rate=1e-2), (0.1, 1.0)),
            prior=px.priors.ScaleMixture(0.5, 1.0, 0.1),
            class_weight={"no": 1, "yes": 2.0},
            steps=50,
            random_state=np.int64(3),
        ).fit(frame, np.array(["no", "yes"], dtype=object)[y])
        classifier.save(tmp_path / "classifier.px")
        same = px.load(tmp_path / "classifier.px")
        np.testing.assert_array_equal(same.predict_proba(frame), classifier.predict_proba(frame))
        assert list(same.feature_names_in_) == ["a", "b", "c"]
        assert same.class_weight == classifier.class_weight
        assert eqx.tree_equal(same.method, classifier.method)
        np.testing.assert_array_equal(same.predict(frame), classifier.predict(frame))
        same.partial_fit(frame, np.array(["no", "yes"], dtype=object)[y])

    def test_what_has_no_saved_form_is_said(self, tmp_path):
        x, y = line()
        state = np.random.RandomState(0)
        regressor = px.BayesianRegressor(**FAST | {"random_state": state}).fit(x, y)
        with pytest.warns(UserWarning, match="random_state=.* has no saved form"):
            regressor.save(tmp_path / "r.px")
        np.testing.assert_array_equal(px.load(tmp_path / "r.px").predict(x), regressor.predict(x))

    def test_pickle(self, labelled):
        classifier, x, _ = labelled
        same = pickle.loads(pickle.dumps(classifier))
        np.testing.assert_array_equal(same.predict_proba(x), classifier.predict_proba(x))


class TestCompany:
    """What scikit-learn users put around an estimator."""

    def test_pipeline_grid_and_cross_validation(self):
        x, y = line()
        pipeline = make_pipeline(StandardScaler(), px.BayesianRegressor(**FAST))
        assert cross_val_score(pipeline, x, y, cv=3).mean() > 0.5
        grid = {"prior": [None, px.priors.Gaussian(1.0)], "method": ["bayes_by_backprop"]}
        search = GridSearchCV(px.BayesianRegressor(**FAST), grid, cv=2).fit(x, y)
        assert search.best_score_ > 0.5
        assert set(search.best_params_) == {"prior", "method"}

    def test_calibration(self):
        x, y = blobs()
        calibrated = CalibratedClassifierCV(px.BayesianClassifier(**FAST), cv=2).fit(x, y)
        assert calibrated.score(x, y) > 0.9

    @pytest.mark.parametrize("backend", ["threading", "loky"])
    def test_joblib(self, fitted, backend):
        regressor, x, y = fitted
        with joblib.parallel_config(backend=backend, n_jobs=2):
            found = joblib.Parallel()(joblib.delayed(_fit_and_predict)(x, y) for _ in range(2))
        for predictions in found:
            np.testing.assert_allclose(predictions, regressor.predict(x), rtol=1e-6)


def _fit_and_predict(x, y):
    return px.BayesianRegressor(**FAST).fit(x, y).predict(x)


class TestDefaults:
    """With no settings at all, on rows that were not fitted."""

    def test_diabetes(self):
        x, y = load_diabetes(return_X_y=True)
        x, x_test, y, y_test = train_test_split(x, y, random_state=0)
        regressor = px.BayesianRegressor(random_state=0).fit(x, y)
        low, high = regressor.predict_interval(x_test, 0.9)
        assert regressor.score(x_test, y_test) > 0.2
        assert 0.8 < np.mean((low < y_test) & (y_test < high)) < 0.98

    def test_breast_cancer(self):
        x, y = load_breast_cancer(return_X_y=True)
        x, x_test, y, y_test = train_test_split(x, y, random_state=0, stratify=y)
        classifier = px.BayesianClassifier(random_state=0).fit(x, y)
        assert classifier.score(x_test, y_test) > 0.93
        nll = (
            -classifier.predictive(x_test)
            .log_prob(np.searchsorted(classifier.classes_, y_test))
            .mean()
        )
        assert nll < 0.25

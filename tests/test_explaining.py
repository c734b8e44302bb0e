"""Importance, dependence, changes and near rows: known truths, kinds of columns, refusals."""

import functools
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import special
from sklearn.base import BaseEstimator
from sklearn.datasets import make_friedman1
from typer.testing import CliRunner

import posterax as px
from posterax import cli
from posterax.tables import explain
from posterax.tables.explain.table import BLOCK, weighted_quantiles

pytestmark = pytest.mark.usefixtures("hasty_module")
SAMPLES = 8


class Known(BaseEstimator):
    """Predictions by a known function of a matrix, in the form of a fitted estimator."""

    def __init__(self, function, columns=2, spread=0.1, classes=None):
        self.function, self.columns, self.spread, self.classes = function, columns, spread, classes
        self.n_features_in_ = columns
        self.sizes = []
        if classes is not None:
            self.classes_ = np.array(classes)

    def fit(self, X, y):
        return self

    def predictive(self, X):
        self.sizes.append(len(X))
        mean = self.function(np.asarray(X, float))
        shifts = self.spread * np.linspace(-1, 1, SAMPLES)
        if self.classes is None:
            return SimpleNamespace(
                mean=mean, log_prob=lambda y: -np.square(y - mean),
                conditional_means=lambda: mean + shifts[:, None],
                weights=np.full(SAMPLES, 1 / SAMPLES),
                interval=lambda level: (mean - level, mean + level),
                epistemic=0 * mean + 1, aleatoric=0 * mean + 3,
            )  # fmt: skip
        p = np.stack([1 - mean, mean], -1)
        return SimpleNamespace(
            mean=p, log_prob=lambda y: np.log(np.take_along_axis(p, y[:, None], 1)[:, 0]),
            conditional_means=lambda: np.repeat(p[None], SAMPLES, 0),
            weights=np.full(SAMPLES, 1 / SAMPLES), interval=lambda level: (p, p),
        )  # fmt: skip


class TestImportance:
    def test_of_a_linear_function_it_is_what_theory_says(self):
        """Exchanging x₀ in 2 x₀ raises the squared error by 8 Var x₀; intervals hold that."""
        model, held = Known(lambda X: 2 * X[:, 0]), 0
        for seed in range(200):
            X = np.random.default_rng(seed).normal(size=(80, 2))
            y = 2 * X[:, 0] + np.random.default_rng([seed, 1]).normal(size=80)
            found = explain.importance(model, X, y, key=seed)
            value, low, high = (v[0] for v in found.scores["nll"])
            assert low < value < high
            held += low <= 8 <= high
            assert found.scores["nll"].value[1] == 0
            assert found.scores["rmse"].high[1] < 1e-12
        assert 0.82 < held / 200 < 0.97

    def test_rmse_rises_by_the_roots(self):
        X = np.random.default_rng(0).normal(size=(4000, 2))
        y = 2 * X[:, 0] + np.random.default_rng(1).normal(size=4000)
        found = explain.importance(Known(lambda X: 2 * X[:, 0]), X, y, rows=None)
        assert found.rows == 4000
        assert found.scores["rmse"].value[0] == pytest.approx(3 - 1, abs=0.1)
        assert found.base["rmse"] == pytest.approx(1, abs=0.05)

    def test_every_call_has_the_same_rows(self):
        model = Known(lambda X: X[:, 0], columns=7)
        X = np.random.default_rng(0).normal(size=(300, 7))
        seen = []
        explain.importance(model, X, X[:, 0], progress=lambda *a: seen.append(a))
        assert set(model.sizes) == {BLOCK}
        assert seen == [(i + 1, len(seen)) for i in range(len(seen))]
        assert len(seen) == len(model.sizes) == -(-71 // (BLOCK // 300))

    def test_weights(self):
        """Rows of weight 0 are of no matter; where the weight is, the column matters."""
        rng = np.random.default_rng(0)
        X = np.column_stack([rng.normal(size=200), np.arange(200) < 100])
        model = Known(lambda X: X[:, 0] * X[:, 1])
        y = X[:, 0] * X[:, 1]
        first = explain.importance(model, X, y, sample_weight=X[:, 1])
        same = explain.importance(model, X[:100], y[:100])
        assert first.scores["nll"].value.tolist() == same.scores["nll"].value.tolist()
        plain = explain.importance(model, X, y)
        assert first.scores["nll"].value[0] > 1.5 * plain.scores["nll"].value[0]
        last = explain.importance(model, X, y, sample_weight=1 - X[:, 1])
        assert last.scores["nll"].value[0] == 0
        # a whole column by its frequencies
        effect = explain.importance(model, X, by="effect", sample_weight=np.r_[np.ones(199), 50.0])
        assert effect.scores["effect"].value[1] < effect.scores["effect"].value[0]

    def test_effect_is_the_deviation_of_the_curve(self):
        X = np.random.default_rng(0).uniform(size=(500, 2))
        found = explain.importance(Known(lambda X: 6 * X[:, 0]), X, by="effect", rows=None)
        assert found.scores["effect"].value[0] == pytest.approx(6 / np.sqrt(12), rel=0.03)
        assert found.scores["effect"].value[1] == pytest.approx(0, abs=1e-9)
        assert found.base == {}
        assert "effect" in repr(found)

    def test_prints_the_largest_first(self):
        X = np.random.default_rng(0).normal(size=(50, 2))
        found = explain.importance(Known(lambda X: X[:, 1]), X, X[:, 1])
        lines = repr(found).splitlines()
        assert lines[2].startswith("x1")
        assert len({len(line) for line in lines[1:4]}) == 1
        assert list(found.to_pandas().index) == ["x1", "x0"]
        assert list(found.to_pandas())[:3] == ["nll", "nll_low", "nll_high"]

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"by": "shap"}, "by must be one of 'permutation', 'effect'"),
            ({"y": None}, "needs the targets y; without them use by='effect'"),
            ({"y": np.ones(3)}, "same number of rows, got 20 and 3"),
            ({"y": np.full(20, np.nan)}, "y "),
            ({"repeats": 0}, "repeats must be a whole number"),
            ({"level": 1.0}, "level must lie between 0 and 1"),
            ({"sample_weight": -np.ones(20)}, "sample_weight must be finite, 0 or more"),
            ({"sample_weight": np.eye(20)[0]}, "2 rows or more with a weight above 0, got 1"),
            ({"X": np.ones((20, 3))}, "X has 3 columns, the model was fitted to 2"),
        ],
    )
    def test_refuses(self, change, words):
        given = {"X": np.ones((20, 2)), "y": np.ones(20)} | change
        with pytest.raises(ValueError, match=words):
            explain.importance(Known(lambda X: X[:, 0]), **given)

    def test_refuses_what_is_not_fitted_and_labels_that_are_not_known(self):
        with pytest.raises(ValueError, match="not fitted"):
            explain.importance(px.BayesianRegressor(), np.ones((3, 1)), np.ones(3))
        model = Known(lambda X: special.expit(X[:, 0]), classes=["no", "yes"])
        with pytest.raises(ValueError, match="'maybe', which is not among the classes"):
            explain.importance(model, np.ones((2, 2)), ["no", "maybe"])


@functools.cache
def friedman():
    X, y = make_friedman1(900, n_features=10, noise=1.0, random_state=0)
    model = px.BayesianRegressor(steps=700, members=2, samples=20, random_state=0)
    return model.fit(X[:500], y[:500]), X, y


class TestFriedman:
    """y = 10 sin(π x₀ x₁) + 20 (x₂ − ½)² + 10 x₃ + 5 x₄ + noise, and five columns for nothing."""

    def test_inert_columns_have_intervals_that_hold_0(self):
        model, X, y = friedman()
        found = explain.importance(model, X[500:], y[500:], level=0.99)
        for estimates in found.scores.values():
            assert np.all(estimates.low[:5] > 0)
            assert np.all((estimates.low[5:] <= 0) & (estimates.high[5:] >= 0))
        assert set(found.order[:5]) == set(range(5))
        assert found.order[0] == 3
        again = explain.importance(model, X[500:], y[500:], level=0.99)
        assert repr(again) == repr(found)

    def test_effect_ranks_them_too(self):
        model, X, _ = friedman()
        found = explain.importance(model, X[500:], by="effect").scores["effect"]
        assert found.low[:5].min() > found.high[5:].max()

    def test_dependence_holds_the_additive_truth(self):
        model, X, _ = friedman()
        curve = explain.partial_dependence(model, X[:500], "x3", level=0.99, rows=None)
        truth = 10 * curve.positions
        truth += np.mean(
            10 * np.sin(np.pi * X[:500, 0] * X[:500, 1]) + 20 * (X[:500, 2] - 0.5) ** 2
            + 5 * X[:500, 4]
        )  # fmt: skip
        inside = (curve.low <= truth) & (truth <= curve.high)
        assert inside.mean() >= 0.85
        assert np.abs(curve.mean - truth).max() < 1
        assert len(curve.values) == 20
        assert curve.kind == "number"

    def test_what_more_rows_bring(self):
        model, X, y = friedman()
        found = explain.uncertainty(model, X[500:])
        assert 0 < found.low < found.share < found.high < 1
        predictive = model.predictive(X[500:])
        assert found.share == pytest.approx(predictive.epistemic.sum() / predictive.total.sum())
        quick = px.BayesianRegressor(steps=200, members=1, samples=10, random_state=0)
        held = X[500:], y[500:]
        curve = explain.learning_curve(quick, X[:500], y[:500], held_out=held, shares=(0.1, 1.0))
        assert curve.rows == [50, 500]
        nll = curve.scores["nll"][:, 0]
        assert nll[0] > nll[1]
        assert curve.gains[0, 0] == pytest.approx(nll[0] - nll[1])
        assert curve.gains[0, 1] > 0
        assert "from 50 to 500 rows the NLL fell" in repr(curve)
        assert list(curve.to_pandas().index) == [50, 500]
        assert not hasattr(quick, "posterior_")
        with pytest.raises(ValueError, match="shares must rise"):
            explain.learning_curve(quick, X, y, shares=(1.0, 0.5))


def frame(n=160):
    rng = np.random.default_rng(0)
    town = rng.choice(["Bern", "Lyon", "Turin"], n)
    size = rng.normal(80, 20, n).round(1)
    made = pd.DataFrame({
        "size": size, "same": size, "rooms": rng.integers(1, 7, n), "town": town,
        "colour": rng.choice(["red", "blue"], n),
        "rent": [f"€ {1000 + 10 * i:,}" for i in rng.permutation(n)],
        "sold": pd.date_range("2024-01-01", periods=n).astype(str), "unit": 1.0,
    })  # fmt: skip
    made.loc[::9, "size"] = np.nan
    return made, np.where(town == "Bern", "dear", "cheap")


@functools.cache
def towns():
    """A classifier of a table with columns of all kinds, of which the town is all that counts."""
    X, y = frame()
    options = {"steps": 250, "members": 2, "samples": 20, "random_state": 0}
    return px.BayesianClassifier(columns="auto", **options).fit(X[:100], y[:100]), X, y


class TestKinds:
    def test_importance_of_a_classifier(self):
        model, X, y = towns()
        found = explain.importance(model, X[100:], y[100:], level=0.99)
        nll = found.scores["nll"]
        assert found.columns[found.order[0]] == "town"
        assert nll.low[3] > 0
        assert found.scores["error"].low[3] > 0.1
        colour, unit = found.columns.index("colour"), found.columns.index("unit")
        assert nll.low[colour] <= 0 <= nll.high[colour]
        assert nll.value[unit] == nll.low[unit] == 0  # left out at fit

    def test_cells_stay_what_they_are(self):
        model, X, _ = towns()
        by = {c: explain.partial_dependence(model, X, c, grid=6) for c in X.columns[:-1]}
        assert sorted(by["town"].values) == ["Bern", "Lyon", "Turin"]
        assert by["town"].kind == "text"
        assert all(str(v).startswith("€ ") for v in by["rent"].values)
        assert by["rent"].positions.tolist() == sorted(by["rent"].positions)
        assert by["sold"].values[0] == "2024-01-01"
        assert by["sold"].positions[0] == 19723  # days since 1970
        assert np.isfinite(by["size"].values).all()  # gaps are never tried
        assert by["rooms"].values == [1, 2, 3, 4, 5, 6]
        assert by["rooms"].kind == "whole number"
        table = by["town"].to_pandas()
        assert list(table)[:4] == ["town", "mean_cheap", "low_cheap", "high_cheap"]
        assert table["mean_dear"].iloc[by["town"].values.index("Bern")] > 0.6
        assert "mean prediction of 160 rows by 'town'" in repr(by["town"])
        with pytest.raises(ValueError, match="'unit' was left out when the model was fitted"):
            explain.partial_dependence(model, X, "unit")
        with pytest.raises(ValueError, match="column must be one of 'size', 'same'"):
            explain.partial_dependence(model, X, "sizes")

    def test_columns_in_another_order_and_more_of_them(self):
        model, X, _ = towns()
        other = X[X.columns[::-1]].assign(more="x")
        a, b = (explain.partial_dependence(model, t, "town", rows=None) for t in (X, other))
        assert np.allclose(a.mean, b.mean, atol=1e-6)

    def test_the_town_flips_the_class(self):
        model, X, _ = towns()
        row = X.iloc[np.flatnonzero(X["town"][100:] == "Bern")[0] + 100]
        found = explain.what_if(model, row, X[:100])
        assert found.now.label == "dear"
        assert found.flips[0].column == "town"
        assert found.flips[0].label == "cheap"
        assert found.fall.column == "town"
        assert {o.column for o in found.outcomes} == set(X.columns[:-1])
        assert {o.value for o in found.outcomes if o.column == "rooms"} == set(range(1, 7))
        assert "smallest change of class" in repr(found)
        as_dict = explain.what_if(model, dict(row), X[:100], columns=["town"])
        assert {o.column for o in as_dict.outcomes} == {"town"}
        assert as_dict.now.mean == pytest.approx(found.now.mean, abs=1e-6)

    def test_a_training_row_finds_itself(self):
        model, X, _ = towns()
        found = explain.nearest(model, X[:100], X.iloc[7], k=3)
        assert found.rows[0] == 7
        assert found.distances[0] == 0
        assert found.percentile == 0
        assert found.to_pandas().shape == (3, 9)
        odd = X.iloc[[7]].assign(size=900.0, town="Oslo")
        far = explain.nearest(model, X[:100], odd)
        assert far.percentile == 100
        assert "100 of 100 training rows are closer" in repr(far)

    def test_two_texts_are_the_root_of_two_apart(self):
        X = pd.DataFrame({"a": list("xyzxyz" * 5), "b": np.arange(30.0) % 7})
        model = px.BayesianRegressor(columns="auto", steps=2, members=1, random_state=0)
        model.fit(X, X["b"])
        row = {"a": "x", "b": 0.0}
        found = explain.nearest(model, X[X["b"] == 0], row, k=5)
        assert set(np.round(found.distances, 6)) == {0, round(np.sqrt(2), 6)}


class TestChanges:
    def test_the_smallest_change_that_flips(self):
        model = Known(lambda X: special.expit(10 * X[:, 0] - 5), classes=["no", "yes"])
        X = np.column_stack([np.linspace(0, 1, 101), np.arange(101) % 4])
        found = explain.what_if(model, [0.0, 2], X, grid=101)
        assert found.now.label == "no"
        assert [o.column for o in found.flips] == ["x0"]
        assert found.flips[0].value == pytest.approx(0.51)
        assert found.flips[0].moved == pytest.approx(0.51 / X[:, 0].std())
        assert found.rise is None  # it is as sure as can be
        assert found.fall.value == 1.0
        assert len(set(model.sizes)) == 1

    def test_of_numbers(self):
        X = np.column_stack([np.linspace(-1, 1, 50), np.linspace(0, 1, 50)])
        found = explain.what_if(Known(lambda X: 3 * X[:, 0] - X[:, 1]), [0.0, 0.0], X)
        assert (found.rise.column, found.rise.value) == ("x0", 1.0)
        assert (found.fall.column, found.fall.value) == ("x0", -1.0)
        assert [o.column for o in found.by_column(-1)] == ["x0", "x1"]
        assert found.flips == []
        assert found.to_pandas()["mean"][0] == 0
        assert "largest rise" in repr(found)

    def test_refuses(self):
        X = np.ones((5, 2))
        with pytest.raises(ValueError, match="x must be one row of 2 columns"):
            explain.what_if(Known(lambda X: X[:, 0]), [1.0, 2.0, 3.0], X)
        with pytest.raises(ValueError, match="x lacks the column 'x1'"):
            explain.what_if(Known(lambda X: X[:, 0]), {"x0": 1.0}, X)
        with pytest.raises(ValueError, match="x must be one row, got 5"):
            explain.nearest(Known(lambda X: X[:, 0]), X, X)
        with pytest.raises(ValueError, match="for one target, and the model has 2"):
            explain.what_if(Known(lambda X: X), [1.0, 2.0], X)


def test_weighted_quantiles():
    values = np.random.default_rng(0).normal(size=(4000, 2))
    low, high = weighted_quantiles(values, np.full(4000, 1 / 4000), [0.05, 0.95])
    assert np.allclose([low, high], [[-1.645] * 2, [1.645] * 2], atol=0.12)
    heavy = weighted_quantiles(np.array([0.0, 1.0]), np.array([0.01, 0.99]), [0.5])
    assert heavy[0] > 0.95


class TestScikitLearn:
    """Its own inspection takes the estimators as they are."""

    @pytest.mark.parametrize("text", [False, True], ids=["numbers", "text"])
    @pytest.mark.parametrize("kind", ["regressor", "classifier"])
    def test_inspection(self, kind, text):
        pytest.importorskip("matplotlib").use("Agg")
        from sklearn.inspection import (
            PartialDependenceDisplay,
            partial_dependence,
            permutation_importance,
        )

        rng = np.random.default_rng(0)
        X = pd.DataFrame(
            {"a": rng.normal(size=80), "b": rng.normal(size=80), "t": rng.choice(["x", "y"], 80)}
        )
        y = 2 * X["a"] + 3 * (X["t"] == "x")
        X = X if text else X[["a", "b"]]
        make = px.BayesianRegressor if kind == "regressor" else px.BayesianClassifier
        y = y if kind == "regressor" else np.where(y > 1.5, "hi", "lo")
        columns = "auto" if text else None
        model = make(columns=columns, steps=60, members=1, samples=4, random_state=0).fit(X, y)
        found = permutation_importance(model, X, y, n_repeats=2, random_state=0)
        assert found.importances_mean[0] > found.importances_mean[1]
        more = {"categorical_features": ["t"]} if text else {}
        result = partial_dependence(model, X, ["a"], grid_resolution=4, **more)
        assert result["average"].shape == (1, 4)
        shown = PartialDependenceDisplay.from_estimator(
            model, X, ["a", "t"] if text else ["a", "b"], grid_resolution=4, **more
        )
        assert shown.axes_.size == 2
        assert not hasattr(model, "feature_importances_")  # see docs/explaining.md


# -- posterax explain --importance


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explained")
    X, _ = frame()
    X = X[["size", "town", "rooms"]].assign(size=X["same"])
    y = 2 * X["size"] + 50 * (X["town"] == "Bern")
    model = px.BayesianRegressor(columns="auto", steps=150, members=1, samples=8, random_state=0)
    model.fit(X, y)
    model.card_ = {"target": "price"}
    model.save(folder / "house.px")
    X.assign(price=y).to_csv(folder / "new.csv", index=False)
    X.to_csv(folder / "bare.csv", index=False)
    model.posterior_.save(folder / "plain.px")
    return folder


def run(*arguments):
    return CliRunner().invoke(cli.app, ["explain", *map(str, arguments)])


class TestCommand:
    def test_prints_a_table(self, place):
        done = run(place / "house.px", "--importance", "--data", place / "new.csv")
        assert done.exit_code == 0, done.output
        lines = done.stdout[done.stdout.index("importance of the columns") :].splitlines()
        assert next(line.split()[0] for line in lines[3:6]) == "size"
        assert "rise of NLL" in lines[1]

    def test_json(self, place):
        done = run(place / "house.px", "--importance", "--data", place / "new.csv", "--json")
        found = json.loads(done.stdout)["importance"]
        assert next(iter(found["columns"])) == "size"
        value, low, high = found["columns"]["rooms"]["nll"]
        assert low <= value <= high
        assert found["scores"] == ["nll", "rmse"]
        assert "decimals" not in found

    def test_without_targets_it_is_the_effect(self, place):
        done = run(place / "house.px", "--importance", "--data", place / "bare.csv")
        assert done.exit_code == 0, done.output
        assert "effect on the mean" in done.stdout
        assert "has no 'price'" in done.output

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["house.px"], "--importance needs rows to look at: add --data rows.csv"),
            (["house.px", "--data", "bare.csv", "--target", "price"], "no column 'price'"),
            (["plain.px", "--data", "new.csv"], "--data is for estimators"),
        ],
    )
    def test_refuses(self, place, monkeypatch, arguments, words):
        monkeypatch.chdir(place)
        done = run(*arguments, "--importance")
        assert done.exit_code in (1, 2)
        assert words in " ".join(done.output.split())

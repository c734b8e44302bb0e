"""The benchmark of tables: measures against known answers, the store, the pairing and the bars."""

import argparse

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats
from sklearn.linear_model import LinearRegression

import posterax as px
from benchmarks.tables_peers import bars, cells, data, measures, report, run, simulated, summary
from benchmarks.tables_peers.contenders import CONTENDERS, base, make
from benchmarks.tables_peers.store import Run, Store


def test_gaussian_scores():
    y, mean, std = np.array([0.3, -2.0, 11.0]), np.array([0.0, 1.0, 2.0]), np.array([1.0, 0.2, 3.0])
    said = measures.gaussian(mean, std).judge(y, True)
    np.testing.assert_allclose(said.nll, -stats.norm(mean, std).logpdf(y))
    for i in range(3):
        below = integrate.quad(lambda v, i=i: stats.norm.cdf(v, mean[i], std[i]) ** 2, -60, y[i])[0]
        above = integrate.quad(lambda v, i=i: stats.norm.sf(v, mean[i], std[i]) ** 2, y[i], 60)[0]
        assert said.crps[i] == pytest.approx(below + above, rel=1e-5)
    mass = stats.norm.cdf(y + 0.5, mean, std) - stats.norm.cdf(y - 0.5, mean, std)
    np.testing.assert_allclose(said.mass, -np.log(mass), rtol=1e-6)
    far = measures.gaussian(np.zeros(1), 0.01).judge(np.array([3.0]), True).mass
    assert 30_000 < far[0] < 32_000  # (2.5 / 0.01)² / 2, where cdf has no digits left


def test_mass_of_few_digits():
    normal = stats.norm(0, 2)
    y = np.array([0.0, 3.0, 60.0])
    exact = measures.gaussian(np.zeros(3), 2.0).judge(y, True).mass
    rough = measures.mass_of(lambda v: normal.cdf(v).astype("float32"), y, -normal.logpdf(y))
    np.testing.assert_allclose(rough[:2], exact[:2], rtol=1e-4)
    assert rough[2] == pytest.approx(exact[2], rel=0.05)


def test_calibration_error_is_that_of_posterax():
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet(np.ones(3), 200), rng.integers(0, 3, 200)
    found = measures.of_classes(p, y)
    expected = px.metrics.expected_calibration_error(p, y)
    assert found["calibration"] == pytest.approx(expected)
    assert found["nll"] == pytest.approx(-np.log(p[np.arange(200), y]).mean())


def test_probabilities_of_zero_are_clipped():
    found = measures.of_classes(np.tile([1.0, 0.0], (20, 1)), np.arange(20) % 2)
    assert found["nll"] == pytest.approx(-np.log(1e-15) / 2)


@pytest.mark.parametrize("name", list(simulated.TRUTHS))
def test_truth_is_calibrated(name):
    x, y, splits = simulated.draw(name, 2)
    assert not set(splits[0][0]) & set(splits[1][1])
    said = measures.truth(simulated.TRUTHS[name](x))
    found = measures.of_values(said, y, whole=name == "counts")
    assert found["inside"] == pytest.approx(0.9, abs=0.05)
    other = measures.of_values(measures.gaussian(said.mean, y.std()), y, whole=name == "counts")
    assert found["nll"] < other["nll"]
    assert found["crps"] < other["crps"]


def test_names_and_tasks_of_sets_and_contenders():
    assert len(data.names()) >= 16
    assert {plan.group for plan in data.SETS.values()} == {"main", "gap", "bde"}
    assert data.SETS["covertype"].cells(2) == [(0, 0), (0, 1)]
    assert data.SETS["yacht"].cells(2) == [(0, 0), (1, 1)]
    assert all(entry.home in ("own", "peers", "bde") for entry in CONTENDERS.values())


def test_text_columns_for_trees_and_networks():
    frame = pd.DataFrame({"a": ["x", "y", "x"], "b": [1, 2, 3]})
    assert base.text_columns(frame) == ["a"]
    seen = base.Categories(frame)(pd.DataFrame({"a": ["y", "z", "x"], "b": [1, 2, 3]}))
    assert seen["a"].isna().tolist() == [False, True, False]
    assert base.one_hot(frame).fit(frame).transform(frame).shape == (3, 3)


def test_a_mean_gets_the_residuals_of_a_held_out_tenth():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    y = x @ [1.0, 2.0, 3.0] + rng.normal(size=400)
    model = make("mlp", "regression", 0)
    model.estimator = LinearRegression
    model.fit(x, y)
    said = model.values(x)
    assert said.std[0] == pytest.approx(1, abs=0.3)
    assert len(set(said.std)) == 1


def line(value, **more):
    return {"error": value, "nll": value, "crps": value, "inside": 0.9, "width": 1.0,
            "nll_moments": value, "fit_seconds": 1.0, "predict_seconds": 0.1, "peak_mib": 9,
            "test_rows": 400, "train_rows": 600, "versions": {}, "date": "2026-01-01 00:00",
            } | more  # fmt: skip


def a_store(folder, ours, theirs, name="skewed"):
    store = Store(folder)
    for split, pair in enumerate(zip(ours, theirs, strict=True)):
        for who, value in zip(("posterax", "catboost"), pair, strict=True):
            store.add(Run(name, split, who, split), line(value))
    return store


def test_differences_are_paired(tmp_path):
    store = a_store(tmp_path, [1.0, 2.0, 3.0, 4.0, 5.0], [1.1, 2.1, 3.1, 4.1, 5.1])
    (group,) = summary.groups(store.runs(), data.names())
    apart = group.difference("posterax", "catboost", "nll")
    assert apart.mean == pytest.approx(-0.1)
    assert apart.error == pytest.approx(0, abs=1e-12)
    assert group.value("posterax", "nll").error == pytest.approx(np.sqrt(0.5))
    assert group.best("nll") == "posterax"


def test_one_split_has_errors_by_parts_of_its_rows(tmp_path):
    rng = np.random.default_rng(0)
    square = rng.chisquare(1, 1000)
    store = Store(tmp_path)
    for seed in range(3):
        parts = {"error": measures.parts(square), "nll": measures.parts(square)}
        store.add(Run("CO2", 0, "gp", seed), line(float(np.sqrt(square.mean())), parts=parts))
    (group,) = summary.groups(store.runs(), ["CO2"])
    expected = square.std() / np.sqrt(1000) / (2 * np.sqrt(square.mean()))
    assert group.value("gp", "error").error == pytest.approx(expected, rel=0.6)
    assert group.test_rows == 400  # one split, three seeds


def test_bars(tmp_path):
    store = a_store(tmp_path / "a", [1.0, 2.0, 3.0, 4.0, 5.0], [1.1, 2.1, 3.1, 4.1, 5.1])
    found = bars.all_bars(summary.groups(store.runs(), data.names()), [])
    assert [bar.passed for bar in found["Regression"]] == [True] * 6
    store = a_store(tmp_path / "b", [2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 2.0, 3.0, 4.0, 5.0])
    found = bars.all_bars(summary.groups(store.runs(), data.names()), [])
    assert [bar.passed for bar in found["Regression"]] == [False] * 4 + [True] * 2
    assert "skewed +33% (catboost)" in str(found["Regression"][0])


def test_demsars_example_of_a_critical_difference():
    assert summary.critical_difference(4, 14) == pytest.approx(1.25, abs=0.01)


def test_what_is_stored_is_not_run_again(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(run, "measured", lambda r, *_: asked.append(r) or {"error_text": "no"})
    options = argparse.Namespace(out=tmp_path, again=False, jobs=2, until=0)
    runs = [Run("wine", i, "gp", i) for i in range(3)]
    run.fill(runs[:2], options)
    run.fill(runs, options)
    assert sorted(asked) == runs
    options.again = True
    run.fill(runs, options)
    assert len(asked) == 6
    assert summary.groups(Store(tmp_path).runs(), ["wine"]) == []


def test_a_failure_is_named_and_a_capped_run_apart(tmp_path):
    store = a_store(tmp_path, [1.0, 2.0, 3.0, 4.0, 5.0], [1.1, 2.1, 3.1, 4.1, 5.1])
    store.add(Run("skewed", 0, "ngboost", 0), {"error_text": "not done after 9 s"})
    store.add(Run("skewed", 0, "posterax", 0, 100), line(9.0))
    (group,) = summary.groups(store.runs(), data.names())
    assert group.failed == {"ngboost": "not done after 9 s"}
    assert group.value("posterax", "nll").mean == pytest.approx(3)
    assert "failed" in cells.per_set([group], "nll")


def test_the_page_has_a_place_for_every_section(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "PICTURE", tmp_path / "picture.png")
    store = a_store(tmp_path, [1.0, 2.0, 3.0, 4.0, 5.0], [1.1, 2.1, 3.1, 4.1, 5.1])
    page = report.PAGE.read_text()
    for marker in report.sections(store):
        assert f"<!-- {marker} -->" in page
        assert f"<!-- /{marker} -->" in page

"""The UCI and curve experiments: splits, units, who chooses what, pages; no fit but a slow one."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import experiments
from experiments import regression, regression_report, uci, uci_data, uci_report
from experiments.store import Store
from experiments.uci_arms import ARMS, WORK, Work
from experiments.uci_data import SETS, Rows, Standard, load_uci, splits
from posterax import demo

RESULTS = Path(__file__).parents[1] / "docs/results"


def drawn(name, seed=0):
    """Linear data of a set's shape."""
    source, rng = SETS[name], np.random.default_rng(seed)
    x = rng.normal(3, 5, (source.rows, source.columns))
    return Rows(x, x @ rng.normal(size=source.columns) + rng.normal(size=source.rows) + 100)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Made-up sets where the experiment looks for them."""
    (tmp_path / "uci").mkdir()
    for name in uci.SMALL:
        rows = drawn(name)
        np.savez(tmp_path / "uci" / f"{SETS[name].file}.npz", x=rows.x, y=rows.y)
    monkeypatch.setenv("POSTERAX_DATA", str(tmp_path))
    return tmp_path


class Line:
    """Least squares in place of a network, off by what its settings say."""

    seen: list = []  # noqa: RUF012

    def __init__(self, arm, data, width, work, settings, key):
        x, y = data
        self.w = np.linalg.lstsq(np.c_[x, np.ones(len(x))], y, rcond=None)[0]
        self.bias = 0.1 * abs(settings["scale"] - 1.0)
        Line.seen.append((arm.title, settings, key, x, y))

    def predict(self, x, *, samples, key):
        mean = np.c_[x, np.ones(len(x))] @ self.w + self.bias
        density = lambda y: -0.5 * ((y - mean) / 0.1) ** 2 - np.log(0.1) - 0.5 * np.log(2 * np.pi)  # noqa: E731
        return SimpleNamespace(mean=mean[:, None], log_prob=density)


@pytest.fixture
def lines(monkeypatch):
    monkeypatch.setattr(uci, "train", Line)
    monkeypatch.setattr(Line, "seen", [])
    return Line


# -- data


@pytest.mark.parametrize("name", SETS)
def test_splits_are_partitions_of_the_published_sizes(name):
    source = SETS[name]
    found = splits(source.rows, 2)
    for train, test in found:
        assert np.array_equal(np.sort(np.r_[train, test]), np.arange(source.rows))
        assert len(train) == round(0.9 * source.rows)
    assert not np.array_equal(found[0][1], found[1][1])


@pytest.mark.parametrize("name", ["boston", "yacht", "concrete", "wine"])
def test_splits_are_those_of_the_literature(name, data_dir):
    """Against the index files that Gal and Ghahramani published."""
    source = SETS[name]
    with np.load(data_dir / "uci" / f"{source.file}.npz", allow_pickle=False) as stored:
        for k, (train, test) in enumerate(splits(source.rows, source.splits)):
            np.testing.assert_array_equal(train, stored[f"train_idx_{k:02d}"])
            np.testing.assert_array_equal(test, stored[f"test_idx_{k:02d}"])


def test_a_constant_column_is_centred_and_not_blown_up():
    x = np.c_[np.arange(9.0), np.full(9, 0.1)]
    x[:, 1] += 1e-17 * np.arange(9)  # rounding noise
    standard = Standard.of(Rows(x, np.arange(9.0)))
    standardised, y = standard.of_rows(Rows(x, np.arange(9.0)))
    assert np.abs(standardised[:, 1]).max() < 1e-6
    assert standardised[:, 0].std() == pytest.approx(1, rel=1e-6)
    assert (y.mean(), y.std()) == (pytest.approx(0, abs=1e-6), pytest.approx(1, rel=1e-6))


def test_what_is_nowhere_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("POSTERAX_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(FileNotFoundError, match=r"uci/yacht\.npz \(x: 308 × 6.*is not in .*cache"):
        load_uci("yacht")
    with pytest.raises(ValueError, match="name must be one of boston"):
        load_uci("york")
    monkeypatch.setattr(uci_data, "_fetch", lambda name, version: Rows(np.ones((3, 2)), np.ones(3)))
    with pytest.raises(FileNotFoundError, match="506 rows of 13 columns"):  # another set's shape
        load_uci("boston")
    monkeypatch.setattr(uci_data, "_fetch", lambda name, version: drawn("boston"))
    np.testing.assert_array_equal(load_uci("boston").x, drawn("boston").x)
    monkeypatch.setattr(uci_data, "_fetch", None)  # it was kept
    np.testing.assert_array_equal(load_uci("boston").y, drawn("boston").y)


# -- what is measured, and what chooses


def test_figures_are_in_the_units_of_the_targets(lines):
    rows, settings = drawn("yacht"), {"scale": 1.0}
    train, test = splits(308, 1)[0]

    def found(factor):
        scaled = Rows(rows.x, factor * rows.y)
        arguments = (scaled.at(train), scaled.at(test), 50, WORK["yacht"], settings, 0)
        return uci.one(ARMS["bbb"], *arguments)

    one, ten = found(1.0), found(10.0)
    design = np.c_[rows.x, np.ones(308)]
    w = np.linalg.lstsq(design[train], rows.y[train], rcond=None)[0]
    miss = rows.y[test] - design[test] @ w
    assert one["rmse"] == pytest.approx(np.sqrt(np.mean(miss**2)), rel=1e-4)
    noise = 0.1 * rows.y[train].std()
    density = -0.5 * (miss / noise) ** 2 - np.log(noise) - 0.5 * np.log(2 * np.pi)
    assert one["log likelihood"] == pytest.approx(density.mean(), rel=1e-4)
    assert ten["rmse"] == pytest.approx(10 * one["rmse"], rel=1e-4)
    assert ten["log likelihood"] == pytest.approx(one["log likelihood"] - np.log(10), abs=1e-4)


def test_held_out_training_rows_choose_and_test_rows_do_not(folder, lines, monkeypatch):
    work = Work(32, 1, 2, 3, study=2)
    monkeypatch.setitem(uci.WORK, "yacht", work)
    looked = []
    real = uci.one
    monkeypatch.setattr(
        uci,
        "one",
        lambda arm, learn, test, *rest: looked.append(test) or real(arm, learn, test, *rest),
    )
    store = Store(None, uci.settings_of("full"))
    uci.one_set("yacht", load_uci("yacht"), "full", 2, store)
    assert list(store.runs) == [
        name for arm in ARMS for name in uci.names_of("yacht", "full", 2) if f"{arm}/y" in name
        and name.removeprefix("study/").startswith(f"{arm}/")
    ]  # fmt: skip
    every, rows = splits(308, 2), load_uci("yacht")
    for name, test in zip(store.runs, looked, strict=True):
        training, own = every[int(name[-2:])]
        if name.startswith("study/"):
            assert set(test.y) <= set(rows.y[training])
            assert len(test.y) == len(training) // 5
        else:
            np.testing.assert_array_equal(test.y, rows.y[own])
            assert store.runs[name]["settings"]["scale"] == 1.0  # the only one without a bias
    # a study's fit never saw the rows that judge it
    held = [(len(y), key) for _, _, key, _, y in lines.seen if key >= 1000]
    assert {n for n, _ in held} == {277 - 277 // 5}
    found = uci_report.study(store)
    assert {by["yacht"]["settings"]["scale"] for by in found.values()} == {1.0}


def test_the_method_is_chosen_by_held_out_rows_over_all_sets():
    found = {
        "bbb": {"wine": {"log likelihood": -1.0}, "yacht": {"log likelihood": -1.0}},
        "mclmc": {"wine": {"log likelihood": -1.1}, "yacht": {"log likelihood": -0.5}},
    }
    assert uci_report.best_arm(found) == "mclmc"
    assert uci_report.best_arm({}) is None


# -- the whole


def test_uci_by_one_command(folder, lines, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "uci.md").write_text("# kept\n<!-- uci -->old<!-- /uci -->\n")
    store = experiments.reproduce("uci", out, budget="cpu", seeds=2)
    assert len(store.runs) == len(ARMS) * 4 * 2
    page = (out / "uci.md").read_text()
    assert page.startswith("# kept")
    assert "old" not in page
    assert "| PBP, published | 3.01 | 5.67 | 0.64 | 1.02 |" in page
    found = json.loads((out / "uci.json").read_text())["summary"]["arms"]["bbb"]["yacht"]
    own = [store.runs[f"bbb/yacht/{k:02d}"]["rmse"] for k in (0, 1)]
    assert found["rmse"]["mean"] == pytest.approx(np.mean(own))
    assert found["rmse"]["error"] == pytest.approx(np.std(own, ddof=1) / np.sqrt(2))
    assert (out / "uci.png").stat().st_size > 10_000
    done = len(lines.seen)
    experiments.reproduce("uci", out, budget="cpu", seeds=2)
    assert len(lines.seen) == done  # all was there


def test_sets_that_are_missing_are_told_before_anything_is_trained(folder, lines, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    (folder / "uci/yacht.npz").unlink()  # the last of the four
    with pytest.raises(FileNotFoundError, match=r"uci/yacht\.npz \(.*\) is not in"):
        experiments.reproduce("uci", None, budget="cpu", seeds=1)
    assert lines.seen == []


@pytest.mark.parametrize("name", ["uci", "regression"])
def test_results_of_other_settings_are_not_mixed_in(name, folder, lines, tmp_path, monkeypatch):
    monkeypatch.setattr(regression, "train_arm", lambda *arguments: Curve())
    experiments.reproduce(name, tmp_path, budget="quick", seeds=1)
    if name == "uci":
        candidates = lambda work: [{"scale": 3.0, "temperature": 1.0, "epochs": 1}]  # noqa: E731
        monkeypatch.setitem(ARMS, "bbb", ARMS["bbb"]._replace(candidates=candidates))
    else:
        slower = regression.ARMS["bbb"]._replace(options=lambda size: {"learning_rate": 1e-3})
        monkeypatch.setitem(regression.ARMS, "bbb", slower)
    with pytest.raises(ValueError, match=r"'bbb/.*' in .* was made with .*delete that entry"):
        experiments.reproduce(name, tmp_path, budget="quick", seeds=1)


def test_the_stored_run_is_whole(tmp_path, monkeypatch):
    """The command, given the file in docs/results, finds nothing left to make."""
    shutil.copy(RESULTS / "uci.json", tmp_path)
    monkeypatch.setattr(uci, "load_uci", drawn)
    monkeypatch.setattr(uci, "one", lambda *arguments: pytest.fail("made again"))
    keep = lambda settings: Store(tmp_path / "uci.json", settings)  # noqa: E731
    store = uci.run("full", 20, keep)
    names = [n for name in SETS for n in uci.names_of(name, "full", 20)]
    assert store.runs.keys() == set(names)


def test_what_misses_its_mark_is_said():
    store = Store(None, uci.settings_of("cpu"))
    values = {
        "boston": (2.9, -2.5),
        "concrete": (6.0, -3.2),
        "wine": (0.63, -0.95),
        "yacht": (1, 1),
    }
    for arm in ARMS:
        for name, (rmse, density) in values.items():
            made = {"rmse": rmse, "log likelihood": density, "settings": {}}
            store.get(f"{arm}/{name}/00", lambda made=made: made)
    page = uci_report.page(store)
    assert "against VI: better RMSE on 4 of 4, better log likelihood on 4 of 4" in page
    assert "against PBP: better RMSE on 3 of 4 (not concrete)" in page


class Law:
    """Predictions with a law of scipy's."""

    kind = "regression"

    def __init__(self, law, epistemic):
        self.law, self.mean, self.epistemic = law, law.mean(), epistemic

    def log_prob(self, y):
        return self.law.logpdf(y)

    def quantile(self, q):
        return self.law.ppf(q[:, None])

    def interval(self, level):
        return self.law.interval(level)


class Curve:
    """Knows the curve and its noise; off the data its weights disagree by the distance."""

    def predict(self, x, *, samples, key):
        place = x[:, 0].astype(float)
        away = np.maximum(0, np.maximum(-place, place - 0.5))
        epistemic = (0.01 + away) ** 2
        law = stats.norm(demo.curve(place), np.sqrt(epistemic + 0.06**2))
        return Law(law, epistemic)


def test_the_curve_by_one_command(tmp_path, monkeypatch):
    monkeypatch.setattr(regression, "train_arm", lambda *arguments: Curve())
    store = experiments.reproduce("regression", tmp_path, budget="quick", seeds=2)
    assert set(store.runs) == {f"{arm}/{seed}" for arm in regression.ARMS for seed in (0, 1)}
    run = store.runs["bbb/0"]
    assert run["inside"] == pytest.approx(0.01)
    assert run["outside"] == pytest.approx(0.01 + np.mean([0.2, 0.25, 0.5]))
    # 100 points, right on average: four standard deviations of a binomial share
    assert run["coverage"] == pytest.approx(0.9, abs=4 * np.sqrt(0.9 * 0.1 / 100))
    assert run["deviation"]["1"] == pytest.approx(0.51)
    lower, upper = (np.array(run["band"]["quantiles"][q]) for q in ("0.025", "0.975"))
    assert np.all(lower < upper)
    assert "band" not in store.runs["bbb/1"]  # one picture, one seed
    assert (tmp_path / "regression.png").stat().st_size > 10_000
    page = (tmp_path / "regression.md").read_text()
    assert "it is not for" not in page
    for name in list(store.runs):
        if name.startswith("map/"):
            store.runs[name]["outside"] = 2 * store.runs[name]["inside"]
    assert "it is not for: maximum a posteriori." in regression_report.page(store)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # so few steps leave chains unwell
def test_every_method_runs(folder):
    store = experiments.reproduce("uci", None, budget="quick", seeds=1)
    assert set(store.runs) == {f"{arm}/yacht/00" for arm in ARMS}
    assert all(np.isfinite(run["log likelihood"]) for run in store.runs.values())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_method_runs_on_the_curve():
    store = experiments.reproduce("regression", None, budget="quick", seeds=1)
    assert all(np.isfinite(run["nll"]) for run in store.runs.values())

"""compare, explain, prune and doctor: their figures by hand, their files, their refusals."""

import contextlib
import json
import os
import signal
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

import posterax as px
from posterax import cli
from posterax._util.progress import Watch
from posterax.commands import doctor as checks
from posterax.commands import folds, scoring
from posterax.commands.scoring import score
from posterax.diagnostics.course import rest
from posterax.metrics.baseline import Constant
from posterax.report.scores import measure
from tests import report_pages as made

pytestmark = pytest.mark.usefixtures("hasty_module")


def invoke(*arguments):
    return CliRunner().invoke(cli.app, list(map(str, arguments)))


def table(n=60, seed=0):
    random = np.random.default_rng(seed)
    size, town = random.uniform(40, 200, n), random.choice(["Aa", "Bb"], n)
    price = 2 * size + 50 * (town == "Bb") + random.normal(0, 9, n)
    return pd.DataFrame({"size": size, "town": town, "price": price}).round(2)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with a table, and models of it as ``posterax fit`` writes them."""
    folder = tmp_path_factory.mktemp("models")
    frame = table()
    frame.to_csv(folder / "house.csv", index=False)
    options = {"hidden_layer_sizes": (8,), "columns": "auto", "random_state": 0, "verbose": False}
    options |= {"samples": 10, "calibrate": False, "noise": "learned"}
    X, y = frame[["size", "town"]], frame["price"].to_numpy()
    gaussian = px.priors.Gaussian(1.0)
    wide = px.BayesianRegressor(px.BayesByBackprop(), prior=gaussian, steps=60, **options)
    wide.fit(X, y)
    wide.card_ = {"target": "price", "scores": {"nll": [4.0, 3.9, 4.1]}, "fitted": "2026-01-01"}
    wide.save(folder / "house.px")
    point = px.BayesianRegressor("maximum_a_posteriori", steps=20, **options).fit(X, y)
    point.save(folder / "point.px")
    return folder


# -- compare


class Stub:
    """An estimator that knows one thing: a Gaussian about the mean of its targets."""

    def __init__(self, method, **settings):
        self.name = type(method).__name__.lower() if not isinstance(method, str) else method
        self.settings = settings
        self.posterior_ = SimpleNamespace(record=SimpleNamespace(interrupted=False))

    def fit(self, X, y, sample_weight=None):
        if self.name == "maximum_likelihood":
            raise ValueError("cannot\nbe")
        if self.name == "maximum_a_posteriori":
            raise KeyboardInterrupt
        self.mean = np.mean(y) + 30.0 * (self.name == "laplace")  # which is so much off
        return self

    def predictive(self, X):
        return Constant(stats.norm(float(self.mean), 50.0), (len(X),))


@pytest.fixture
def stubs(monkeypatch):
    monkeypatch.setattr(scoring, "BayesianRegressor", Stub)


class TestCompare:
    def test_scores_are_those_of_the_folds_by_hand(self, place, stubs):
        done = invoke(
            "compare", place / "house.csv", "--target", "price", "--methods", "ivon,laplace",
            "--folds", 4, "--seed", 3, "--json",
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)
        assert [m["name"] for m in found["methods"]] == ["mean alone", "ivon", "laplace"]
        y = pd.read_csv(place / "house.csv")["price"].to_numpy()
        order = np.arange(60)
        np.random.RandomState(3).shuffle(order)  # as scikit-learn's KFold does
        nll, rmse, cover = [], [], []
        for part in range(4):
            test = np.sort(order[15 * part : 15 * (part + 1)])
            train = np.setdiff1d(np.arange(60), test)
            law = stats.norm(y[train].mean() + 30.0, 50.0)
            nll.append(-law.logpdf(y[test]).mean())
            rmse.append(np.sqrt(np.mean((y[test] - law.mean()) ** 2)))
            cover.append(np.mean(np.abs(y[test] - law.mean()) < 1.6448536 * 50))
        scores = found["methods"][2]["scores"]
        for name, hand in (("nll", nll), ("rmse", rmse), ("coverage", cover)):
            assert scores[name]["folds"] == pytest.approx(hand), name
            assert scores[name]["mean"] == pytest.approx(np.mean(hand))
            error = np.std(hand, ddof=1) / 2
            assert scores[name]["standard_error"] == pytest.approx(error)

    def test_one_that_fails_tells_why_and_the_others_go_on(self, place, stubs, tmp_path):
        out = tmp_path / "scores.csv"
        done = invoke(
            "compare", place / "house.csv", "--target", "price", "--folds", 3, "--out", out,
            "--methods", "mle,ivon",
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        assert "maximum_likelihood failed: cannot be" in done.stdout
        assert "ivon, fold 3" in done.stderr
        written = pd.read_csv(out)
        assert written["method"].tolist() == ["mean alone", "maximum_likelihood", "ivon"]
        assert written["failed"].tolist()[1] == "cannot be"
        assert np.isnan(written["nll"][1])
        assert np.isfinite(written["nll"][2])

    def test_where_all_fail_so_does_the_command(self, place, stubs):
        done = invoke("compare", place / "house.csv", "-t", "price", "--methods", "mle")
        assert done.exit_code == 1
        assert done.stderr.splitlines()[-1].startswith("error: every method failed")

    def test_ctrl_c_prints_what_is_whole(self, place, stubs, tmp_path):
        out = tmp_path / "scores.csv"
        done = invoke(
            "compare", place / "house.csv", "-t", "price", "--methods", "ivon,map,laplace",
            "--out", out,
        )  # fmt: skip
        assert done.exit_code == 130
        assert "ivon" in done.stdout
        assert "laplace" not in done.stdout
        assert not out.exists()

    def test_a_fit_that_was_stopped_is_no_result(self, place, monkeypatch, ctrl_c):
        """Also where Python swallowed the exception, in a destructor for instance."""

        class Stopped(Stub):
            def fit(self, X, y, sample_weight=None):
                with contextlib.suppress(KeyboardInterrupt):
                    signal.raise_signal(signal.SIGINT)
                return super().fit(X, y)

        monkeypatch.setattr(scoring, "BayesianRegressor", Stopped)
        done = invoke("compare", place / "house.csv", "-t", "price", "--methods", "ivon", "--json")
        assert done.exit_code == 130
        assert json.loads(done.stdout)["complete"] is False
        assert len(json.loads(done.stdout)["methods"]) == 1

    def test_the_data_are_not_written_over(self, place, stubs):
        before = (place / "house.csv").read_bytes()
        data = place / "house.csv"
        done = invoke("compare", data, "-t", "price", "--methods", "ivon", "--out", data)
        assert done.exit_code == 1
        assert (place / "house.csv").read_bytes() == before
        mine = place / "mine.csv"
        mine.write_text("payment_method,amount\n")
        words = ["compare", data, "-t", "price", "--methods", "ivon", "--out", mine]
        assert "--force writes over it" in invoke(*words).stderr
        assert invoke(*words, "--force").exit_code == 0
        assert mine.read_text().startswith("method,")
        assert invoke(*words).exit_code == 0  # over its own

    def test_classes_have_the_same_shares_in_all_folds(self):
        frame, y = table(30), np.array(["a"] * 20 + ["b"] * 10)
        study = folds.Study(frame, y, None, "classification", folds=5)
        assert all((y[test] == "b").sum() == 2 for _, test in study.parts)
        row = study.baseline()
        # 16 and 8 rows to learn from, one added to each count
        assert row.scores["nll"] == pytest.approx([-(2 * np.log(17 / 26) + np.log(9 / 26)) / 3] * 5)
        assert row.scores["error"] == pytest.approx([1 / 3] * 5)
        assert folds.Study(frame[:12], y[-12:], None, "classification", folds=5).folds == 2
        with pytest.raises(ValueError, match="'b' has one row"):
            folds.Study(frame[:21], y[:21], None, "classification")

    def test_fit_compare_and_the_report_say_the_same_of_the_same_rows(self, stubs):
        X, y = table(60), np.random.default_rng(0).normal(200, 60, 60)
        train, test = np.arange(40), np.arange(40, 60)
        study = folds.Study(X, y, None, "regression", folds=2)
        study.parts = [(train, test)]
        row, base = study.row("laplace", Watch()), study.baseline()
        stub = Stub("laplace").fit(X.iloc[train], y[train])
        scored = score(stub, X.iloc[test], y[test], train_y=y[train])
        predictive = stub.predictive(X.iloc[test])
        subject = made.subject_of(predictive, y[test], y[train], X.iloc[test])
        page = measure(subject, None)
        for name in study.scores:
            assert row.scores[name] == [scored[name].value] == [page[name].value], name
            assert base.scores[name] == [scored[name].baseline] == [page[name].baseline], name
        assert page == scored  # intervals and what is due to chance, too
        # what fit hands to its report is what the report shows
        card = {"baseline": scored.baselines(), "chance": scored.chances()}
        assert measure(subject, scored.intervals(), card) == scored

    def test_marks_need_more_than_chance(self):
        """The baseline, and when a lead is clear: by the corrected t test of the differences."""

        def row(name, values, method="m"):
            return folds.Row(name, method, {"nll": list(values)})

        noise = np.array([0.3, -0.2, 0.1, -0.3, 0.1])
        best, worse = row("best", 1 + noise), row("worse", 2 + noise + 0.01 * noise**2)
        near = row("near", 1.05 + noise[::-1])
        assert folds.marks([best, worse], ("nll",))["best"] == {"nll": "*"}
        three = folds.marks([best, worse, near], ("nll",))
        assert three == {"best": {"nll": "~"}, "near": {"nll": "~"}, "worse": {}}
        assert folds.marks([best, near], ("nll",)) == {"best": {}, "near": {}}
        # the limit is where Nadeau and Bengio have it: t · s · √(1/k + 1/(k − 1))
        apart = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
        limit = stats.t.ppf(0.975, 4) * apart.std(ddof=1) * np.sqrt(1 / 5 + 1 / 4)
        assert not folds.clearly_above(apart - 3 + 0.99 * limit, np.zeros(5))
        assert folds.clearly_above(apart - 3 + 1.01 * limit, np.zeros(5))

    def test_a_real_method(self, place):
        """The estimator itself, columns and all, at its least."""
        done = invoke(
            "compare", place / "house.csv", "-t", "price", "--methods", "map", "--quick",
            "--folds", 2, "--json",
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        base, found = json.loads(done.stdout)["methods"]
        assert found["failed"] is None
        assert found["scores"]["rmse"]["mean"] < 1.5 * base["scores"]["rmse"]["mean"]


# -- explain


class TestExplain:
    def test_an_estimator(self, place):
        done = invoke("explain", place / "house.px")
        assert done.exit_code == 0, done.output
        for words in ("BayesianRegressor", "MLP", "Gaussian(scale=1.0", "BayesByBackprop", "town"):
            assert words in done.stdout
        assert "held-out scores" in done.stdout

    def test_json_has_the_numbers(self, place):
        done = invoke("explain", place / "house.px", "--json")
        found = json.loads(done.stdout)
        held = px.load(place / "house.px")
        assert found["file"]["bytes"] == (place / "house.px").stat().st_size
        # inputs: size and two towns, or one; the network has a bias for each unit
        width = held.x_scaling_.shift.shape[0]
        assert found["model"]["random_weights"] == (width + 1) * 8 + 9 + 1  # and the noise
        nll = held.history_["nll"]
        assert found["training"]["steps"] == len(nll) == 60
        assert found["training"]["last_nll"] == pytest.approx(nll[-6:].mean(), rel=1e-5)
        # computed at some steps only, and stored apart
        assert found["training"]["last_kl"] == pytest.approx(
            held.history_["kl"][-6:].mean(), rel=0.1
        )
        assert [row["name"] for row in found["columns"]] == ["size", "town"]
        ratio = np.concatenate([
            10 * np.log10(np.abs(mu) / np.log1p(np.exp(rho))).ravel()
            for mu, rho in zip(*_leaves(held.posterior_), strict=True)
        ])  # fmt: skip
        assert found["signal_to_noise"]["median_db"] == pytest.approx(np.median(ratio), abs=1e-3)

    def test_scores_of_other_data(self, place):
        done = invoke("explain", place / "house.px", "--data", place / "house.csv", "--json")
        frame = table()
        mean = px.load(place / "house.px").predict(frame[["size", "town"]])
        rmse = np.sqrt(np.mean((mean - frame["price"]) ** 2))
        assert json.loads(done.stdout)["scores"]["rmse"][0] == pytest.approx(rmse, rel=1e-4)

    def test_a_posterior_of_a_network_of_ones_own(self, tmp_path):
        """The header is told where nothing can be loaded."""
        params = {"w": np.ones((1, 1), np.float32)}
        model = px.Model(
            (params, lambda p, x: x @ p["w"]), px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.5)
        )
        x = np.ones((4, 1), np.float32)
        posterior = px.fit(model, (x, x[:, 0]), px.MaximumAPosteriori(), steps=2, key=0)
        posterior.save(tmp_path / "own.px")
        done = invoke("explain", tmp_path / "own.px", "--json")
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)
        assert found["model"]["network"] == "of your own making"
        assert found["model"]["likelihood"].startswith("Gaussian(noise=0.5")
        assert "px.load(path, model=model)" in found["diagnostics"]["not_loaded"]
        assert found["model"]["arrays"] == ["w"]

    def test_an_agent(self, tmp_path):
        agent = px.bandits.Agent(px.bandits.Uniform(), features=3, actions=2, key=0)
        agent.save(tmp_path / "agent.px")
        done = invoke("explain", tmp_path / "agent.px", "--json")
        assert done.exit_code == 0, done.output
        told = json.loads(done.stdout)
        assert "bandit agent" in told["is"]
        assert (told["model"]["policy"], told["model"]["actions"]) == ("Uniform", 2)
        assert invoke("explain", tmp_path / "agent.px").exit_code == 0

    def test_a_point_says_that_it_knows_no_doubt(self, place):
        assert "one network" in invoke("explain", place / "point.px").stdout

    def test_a_damaged_file_is_refused(self, place, tmp_path):
        content = bytearray((place / "house.px").read_bytes())
        content[-5] ^= 4
        (tmp_path / "bad.px").write_bytes(content)
        done = invoke("explain", tmp_path / "bad.px")
        assert done.exit_code == 1
        assert "damaged" in done.stderr
        assert done.stderr.count("\n") == 1

    def test_course_of_a_training(self):
        random = np.random.default_rng(0)
        flat = 1 + 0.5 * random.normal(size=1000)
        assert rest(flat).words == "level at its end"
        assert rest(np.linspace(3, 1, 1000)).words.startswith("still falling, by 0.2")
        assert rest(np.linspace(1, 3, 1000)).words.startswith("still rising")
        assert rest(np.ones(9)).words == "too short to tell"
        flat[700] = np.nan
        assert rest(flat).words == "not finite from step 701"


def _leaves(posterior):
    import jax

    return [jax.tree.leaves(tree.network) for tree in (posterior.mu, posterior.rho)]


# -- prune


class TestPrune:
    def test_a_smaller_model_that_predicts(self, place, tmp_path):
        out = tmp_path / "small.px"
        done = invoke("prune", place / "house.px", "--out", out, "--fraction", 0.5, "--json")
        assert done.exit_code == 0, done.output
        found, small = json.loads(done.stdout), px.load(out)
        before = found["weights"]["before"]
        # exactly half goes, and with units that died of it some more
        assert found["weights"]["kept"] <= before - round(before / 2)
        assert found["bytes"]["after"] == out.stat().st_size
        frame = table()[["size", "town"]]
        assert small.predict(frame).shape == (60,)
        assert np.isfinite(small.predict(frame)).all()
        assert small.card_["target"] == "price"
        assert "scores" not in small.card_  # those were the whole model's
        page = invoke("explain", out)
        assert "hidden units" in page.stdout
        assert "weights kept" in page.stdout

    def test_nothing_removed_predicts_the_same(self, place, tmp_path):
        out = tmp_path / "same.px"
        assert invoke("prune", place / "house.px", "--out", out, "--fraction", 0).exit_code == 0
        frame = table()[["size", "town"]]
        both = [px.load(p).predict(frame) for p in (place / "house.px", out)]
        np.testing.assert_allclose(*both, rtol=1e-5)

    def test_within_a_tolerance_measured_on_data(self, place, tmp_path):
        out, data = tmp_path / "small.px", place / "house.csv"
        done = invoke(
            "prune", place / "house.px", "--out", out, "--tolerance", 0.05, "--data", data, "--json"
        )
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)
        first, chosen = found["search"][0][1], dict(map(tuple, found["search"]))
        assert chosen[found["settings"]["fraction"]] <= first + 0.05
        frame = table()
        nll = [
            -np.mean(px.load(p).predictive(frame[["size", "town"]]).log_prob(frame["price"]))
            for p in (place / "house.px", out)
        ]
        told = [found["scores"][when]["nll"][0] for when in ("before", "after")]
        assert told == pytest.approx(nll, rel=1e-4)
        assert nll[1] - nll[0] < 0.1  # other draws than the search's

    def test_a_point_has_no_ratio_and_is_told_what_to_do(self, place, tmp_path):
        done = invoke("prune", place / "point.px", "--out", tmp_path / "small.px")
        assert done.exit_code == 1
        assert done.stderr.count("\n") == 1
        assert "--method ivon, or prune --by-magnitude" in done.stderr
        assert "px." not in done.stderr
        assert not list(tmp_path.iterdir())
        out = tmp_path / "small.px"
        done = invoke("prune", place / "point.px", "--out", out, "--by-magnitude")
        assert done.exit_code == 0, done.output
        assert px.load(out).predict(table()[["size", "town"]]).shape == (60,)

    def test_the_model_is_not_written_over(self, place):
        before = (place / "house.px").read_bytes()
        assert invoke("prune", place / "house.px", "--out", place / "house.px").exit_code == 1
        assert (place / "house.px").read_bytes() == before


# -- doctor


class TestDoctor:
    @pytest.fixture
    def light(self, monkeypatch):
        """Without those that compile."""
        for name in ("gradients", "speed"):
            monkeypatch.delitem(checks.CHECKS, name)

    def test_all_is_well_here(self, light):
        done = invoke("doctor", "--json")
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)
        assert found["ok"]
        assert {c["name"] for c in found["checks"]} == set(checks.CHECKS)

    def test_a_failure_is_told_and_is_1(self, light, monkeypatch):
        def broken():
            raise OSError("no\nspace")

        monkeypatch.setitem(checks.CHECKS, "files", broken)
        done = invoke("doctor")
        assert done.exit_code == 1
        assert "fail  files          OSError: no space" in done.stdout
        assert "1 failed" in done.stdout

    def test_a_warning_is_no_failure(self, light, monkeypatch):
        monkeypatch.setenv("POSTERAX_DATA", "/nowhere at all")
        done = invoke("doctor")
        assert done.exit_code == 0
        assert "POSTERAX_DATA: /nowhere at all is not a directory" in done.stdout

    def test_wrong_mathematics_is_found(self, monkeypatch):
        """The closed form is computed apart from the library: another noise does not pass."""
        model, x, y = checks._model()
        assert checks.closed_form()[0] == "ok"
        other = px.Model(
            px.networks.MLP(2, 1, (), key=0), px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.4)
        )
        monkeypatch.setattr(checks, "_model", lambda: (other, x, y))
        assert checks.closed_form()[0] == "fail"
        del model

    @pytest.mark.slow
    def test_what_compiles(self):
        assert checks.gradients()[0] == "ok"
        assert checks.speed()[0] in ("ok", "warn")


@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c")  # a child inherits whether it is ignored
def test_ctrl_c_of_the_real_program(place, tmp_path):
    """A signal in the middle of a fit: what was whole is printed, and the code is 130."""
    import subprocess
    import sys

    out = tmp_path / "scores.csv"
    command = [sys.executable, "-m", "posterax", "compare", str(place / "house.csv")]
    command += ["--target", "price", "--methods", "map,ivon", "--folds", "2", "--out", str(out)]
    command += ["--steps", "400000"]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ),
    )  # fmt: skip
    time.sleep(25)
    running.send_signal(signal.SIGINT)
    stdout, stderr = running.communicate(timeout=120)
    assert running.returncode == 130, stderr
    assert "mean alone" in stdout
    assert "Traceback" not in stderr
    assert not out.exists()

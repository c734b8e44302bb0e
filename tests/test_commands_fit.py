"""``posterax fit`` and ``posterax predict``: from a file to a file, and what they refuse."""

import gzip
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import posterax as px
from posterax._util.writing import write_file, written
from posterax.cli import app
from posterax.commands import METHODS, Refused, method_arguments, reading, scoring
from posterax.commands.fitting import fit_table
from posterax.commands.predict import predict_table
from posterax.commands.scoring import score

ROWS = 60


def house(seed=0, rows=ROWS):
    random = np.random.default_rng(seed)
    size = random.uniform(30, 200, rows).round(1)
    town = random.choice(["Bern", "=Lyon"], rows)
    return pd.DataFrame({"size": size, "town": town, "price": (20 * size + 7).round(2)})


def run(*words, **options):
    return CliRunner().invoke(app, [str(word) for word in words], **options)


@pytest.fixture(scope="module")
def folder(hasty_module, tmp_path_factory):
    """A fitted regression and a classification."""
    folder = tmp_path_factory.mktemp("commands")
    house().to_csv(folder / "house.csv", index=False)
    before = Path.cwd()
    os.chdir(folder)
    try:
        first = run("fit", "house.csv", "--target", "price", "--quick")
        assert first.exit_code == 0, first.output
        more = ["-m", "map", "--quick", "-o", "town.px", "--json", "-q"]  # the quickest
        second = run("fit", "house.csv", "-t", "town", *more)
        assert second.exit_code == 0, second.output
    finally:
        os.chdir(before)
    return folder, first, second


@pytest.fixture
def inside(folder, monkeypatch):
    monkeypatch.chdir(folder[0])
    return folder


def test_fit_says_what_it_did_and_where(inside):
    folder, first, _ = inside
    assert first.stdout.rstrip().splitlines()[-1] == "house.px"
    assert "a column for each of 2 texts" in first.stdout
    assert "95 % interval" in first.stdout
    assert "\nUse with care: Too few rows to tell" in first.stdout
    assert first.stderr.splitlines()[0].startswith("regression: ")
    assert "fitting again, to all rows" in first.stderr
    assert sorted(p.name for p in folder.iterdir()) == ["house.csv", "house.px", "town.px"]


def test_card_has_the_facts(inside):
    card = json.loads(inside[2].stdout)
    assert card["task"] == "classification"
    assert card["data"]["rows"] == ROWS
    digest = hashlib.sha256(Path("house.csv").read_bytes()).hexdigest()
    assert card["data"]["sha256"] == digest
    held = {"rows": 12, "refit": True, "from": None, "split": "random", "by": None}
    assert card["held_out"] == held
    names = {"nll", "error", "brier", "auc", "average_precision", "calibration_error"}
    assert names == set(card["scores"])
    assert np.sum(card["confusion"]["counts"]) == 12
    assert card["threshold"]["class"] == "Bern"
    assert card["verdict"]["level"] == "care"
    assert any("Too few rows to tell" in reason for reason in card["verdict"]["reasons"])
    for name, (value, low, high) in card["scores"].items():
        if name != "calibration_error":
            assert low <= value <= high
    assert card["scores"]["calibration_error"][1:] == [None, None]
    assert 0 < card["chance"]["calibration_error"] < 1
    assert {"posterax", "jax", "numpy", "python", "scikit-learn"} <= set(card["versions"])
    stored = px.load("town.px").card_
    assert {key: card[key] for key in stored} == stored


def test_predictions_are_the_models_own(inside):
    result = run("predict", "house.px", "house.csv", "--keep", "town,price")
    assert result.exit_code == 0, result.output
    table = pd.read_csv(io.StringIO(result.stdout))
    assert list(table) == [
        "town", "price", "mean", "std", "epistemic_std", "aleatoric_std", "low", "high", "outside",
    ]  # fmt: skip
    assert table["outside"].isna().all()
    frame = pd.read_csv("house.csv")
    predictive = px.load("house.px").predictive(frame)
    np.testing.assert_allclose(table["mean"], predictive.mean, rtol=1e-5)
    np.testing.assert_allclose(table["std"] ** 2, predictive.variance, rtol=1e-5)
    both = table["epistemic_std"] ** 2 + table["aleatoric_std"] ** 2
    np.testing.assert_allclose(both, table["std"] ** 2, rtol=1e-5)
    np.testing.assert_allclose(table["low"], predictive.interval(0.9)[0], rtol=1e-5)
    assert table["price"].tolist() == frame["price"].tolist()  # not rounded
    # a formula is text with a quote in front
    assert set(table["town"]) == {"Bern", "'=Lyon"}


def test_classes_as_json(inside):
    result = run("predict", "town.px", "house.csv", "--json", "--all-columns")
    rows = json.loads(result.stdout)
    assert len(rows) == ROWS
    row = rows[0]
    np.testing.assert_allclose(row["p_Bern"] + row["p_=Lyon"], 1, atol=1e-6)
    assert row["probability"] == max(row["p_Bern"], row["p_=Lyon"])
    assert row["predicted"] in ("Bern", "'=Lyon")


def test_blocks_give_the_same_as_the_whole(inside):
    whole = pd.concat(predict_table("house.px", "house.csv"))
    blocks = list(predict_table("house.px", "house.csv", rows=25))
    assert [len(block) for block in blocks] == [25, 25, 10]
    both = (table.drop(columns="outside").to_numpy(float) for table in (pd.concat(blocks), whole))
    np.testing.assert_allclose(*both, rtol=1e-5)


def test_out_is_whole_and_safe(inside, tmp_path):
    out = tmp_path / "predictions.csv"
    assert run("predict", "house.px", "house.csv", "--out", out).exit_code == 0
    assert run("predict", "house.px", "house.csv", "--out", out).exit_code == 0  # over its own
    before = Path("house.csv").read_bytes()
    for target in ("house.csv", "house.px"):
        refused = run("predict", "house.px", "house.csv", "--out", target)
        assert (refused.exit_code, len(refused.stderr.splitlines())) == (1, 1)
    refused = run("fit", "house.csv", "--target", "price", "--quick", "--out", "house.csv")
    assert "own input" in refused.stderr
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    refused = run("fit", "house.csv", "--target", "price", "--quick", "--out", other)
    assert "--force writes over it" in refused.stderr
    assert (other.read_text(), Path("house.csv").read_bytes()) == ("mine", before)
    with pytest.raises(ZeroDivisionError), written(tmp_path / "half.csv") as file:
        file.write("half" * (1 // 0))
    write_file(other, b"new")
    assert other.read_bytes() == b"new"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt", "predictions.csv"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["fit", "none.csv", "-t", "y"], 1, "none.csv: no such file"),
        (["fit", "..", "-t", "y"], 1, "the folder holds no table"),
        (["fit", "house.csv", "-t", "prize"], 2, "did you mean 'price'"),
        (["fit", "house.csv", "-t", "price", "-m", "magic"], 2, "bayes_by_backprop, deep_ensemble"),
        (["fit", "house.csv", "-t", "town", "--task", "regression"], 1, "needs numbers"),
        (["fit", "house.csv", "-t", "price", "--ignore", "size,town"], 1, "no column is left"),
        (["fit", "house.csv", "-t", "price", "--weight", "town"], 1, "numbers of 0 or more"),
        (["fit", "house.csv", "-t", "price", "--test-fraction", "2"], 2, "between 0 and 1"),
        (["fit", "none.csv", "-t", "price", "--seed", str(2**32)], 2, "--seed must lie"),
        (["fit", "none.csv", "-t", "price", "--epochs", "nan"], 2, "--epochs must be"),
        (["compare", "none.csv", "-t", "price", "--seed", str(2**32)], 2, "--seed must lie"),
        (["fit", "house.csv", "-t", "price", "--test", "house.csv"], 2, "to learn from"),
        (["fit", "house.csv", "-t", "price", "-o", "no/where.px"], 1, "there is no directory no"),
        (["fit", "house.px", "-t", "price"], 1, "binary"),
        (["predict", "house.csv", "house.csv"], 1, "not a posterax file"),
        (["predict", "none.px", "house.csv"], 1, "none.px: no such file"),
        (["predict", "house.px", "house.csv", "--level", "2"], 2, "--level"),
        (["predict", "house.px", "house.csv", "--keep", "sise"], 2, "did you mean 'size'?"),
    ],
)
def test_wrong_use_ends_in_one_line(words, code, said, inside):
    result = run(*words)
    assert result.exit_code == code
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert said in line


def test_missing_column_and_plain_posterior_are_told(inside, tmp_path):
    house()[["town"]].assign(x=1).to_csv(tmp_path / "new.csv", index=False)
    result = run("predict", "house.px", tmp_path / "new.csv")
    assert "column 'size' is missing" in result.stderr
    px.load("house.px").posterior_.save(tmp_path / "posterior.px")
    result = run("predict", tmp_path / "posterior.px", "house.csv")
    assert "holds a GaussianMixture posterior" in result.stderr
    assert result.exit_code == 1


def test_what_is_new_in_the_data_is_counted(inside, tmp_path):
    new = house(1, 12).drop(columns="price").assign(more=1)
    new.loc[:2, "town"] = "Rom"
    new.loc[5, "size"] = None
    new.to_csv(tmp_path / "new.csv", index=False)
    result = run("predict", "house.px", tmp_path / "new.csv", "-o", tmp_path / "p.csv")
    assert result.stdout == ""
    told = pd.read_csv(tmp_path / "p.csv")["outside"].fillna("").tolist()
    assert told == ["town"] * 3 + [""] * 9
    assert "column 'town': 3 cells hold a text that was rare or not there" in result.stderr
    assert "column 'size': 1 cell is missing" in result.stderr
    assert "does not use 'more'" in result.stderr


def test_readers_agree(tmp_path, monkeypatch):
    frame = house()
    plain = tmp_path / "a.csv"
    frame.to_csv(plain, index=False)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    frame.to_csv(tmp_path / "a.tsv", index=False, sep="\t")
    frame.to_csv(tmp_path / "b.csv", index=False, sep=";", decimal=",")
    frame.to_parquet(tmp_path / "a.parquet")
    for name in ("a.csv", "a.csv.gz", "a.tsv", "b.csv", "a.parquet"):
        found = reading.read_table(tmp_path / name)
        assert found.astype(object).equals(frame.astype(object)), name
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Refused, match=r"posterax\[parquet\]"):
        reading.read_table(tmp_path / "a.parquet")


def test_standard_input(inside):
    result = run("predict", "house.px", "-", input=Path("house.csv").read_text())
    assert len(result.stdout.splitlines()) == ROWS + 1


@pytest.mark.parametrize(
    ("y", "task"),
    [
        ([True, False] * 9, "classification"),
        (list("ab") * 9, "classification"),
        ([0, 1] * 9, "classification"),
        ([1, 2, 3] * 9, "classification"),
        ([1.5, 2.5, 3.5] * 9, "regression"),
        (list(range(40)), "regression"),
        ([1, 2, 3, 4], "regression"),
    ],
)
def test_task_is_recognised(y, task):
    assert reading.recognise_task(y)[0] == task


def test_rows_without_a_target_are_left_out():
    frame = house()
    frame.loc[::10, "price"] = np.nan
    parts = reading.split_target(frame, "price", weight=None, ignore=["town"])
    assert parts.left_out == 6
    assert len(parts.X) == len(parts.y) == ROWS - 6
    assert list(parts.X) == ["size"]


def test_scores_by_hand(inside):
    frame = house(3)
    regressor = px.load("house.px")
    found = score(regressor, frame, frame["price"].to_numpy())
    predictive = regressor.predictive(frame)
    error = predictive.mean - frame["price"].to_numpy()
    np.testing.assert_allclose(found["rmse"].value, np.sqrt(np.mean(error**2)), rtol=1e-6)
    summary = px.metrics.summary(predictive, frame["price"].to_numpy())
    np.testing.assert_allclose(found["nll"][0], summary["negative_log_likelihood"], rtol=1e-5)
    root = np.sqrt(summary["quantile_calibration_error"])
    np.testing.assert_allclose(found["calibration_error"][0], root, atol=1e-3)
    assert found["coverage"][0] == summary["coverage"]


@pytest.fixture
def no_fit(inside, monkeypatch):
    """What is written around a fit, without one."""
    monkeypatch.setattr(scoring, "learn", lambda *_: px.load("house.px"))


def test_rows_of_another_file_and_weights(no_fit, tmp_path):
    train, other = house().assign(w=1.0), house(1, 5).assign(w=[0, 1, 2, 0, 3])
    train.loc[:9, "w"] = 7
    train.to_csv("weighted.csv", index=False)
    other.to_csv(tmp_path / "other.csv", index=False)
    card = fit_table(
        "weighted.csv", " Price", weight="W", test=tmp_path / "other.csv", out=tmp_path / "w.px",
        tell=lambda line: None,
    ).card  # fmt: skip
    os.unlink("weighted.csv")
    assert card["held_out"] == {"rows": 5, "refit": False, "from": "other.csv"}
    assert (card["target"], card["settings"]["weight"]) == ("price", "w")
    assert card["data"]["decimal"] == "."
    mean = np.average(train["price"], weights=train["w"])
    rmse = np.sqrt(np.average((other["price"] - mean) ** 2, weights=other["w"]))
    assert card["baseline"]["rmse"] == pytest.approx(rmse)
    # scores of --data count the same way
    said = run("explain", tmp_path / "w.px", "--data", tmp_path / "other.csv", "--json")
    assert json.loads(said.stdout)["scores"]["rmse"][0] == pytest.approx(card["scores"]["rmse"][0])


def test_few_rows_of_one_class_are_scored_as_predict_reads_them(inside, tmp_path):
    frame = house(1, 30)
    alike = frame[frame["town"] == "Bern"].head(4)
    alike.to_csv(tmp_path / "few.csv", index=False, sep=";", decimal=",")
    said = run("explain", "town.px", "--data", tmp_path / "few.csv", "--json")
    assert said.exit_code == 0, said.output
    share = px.load("town.px").predict_proba(alike)[:, 1]  # =Lyon, then Bern
    nll = json.loads(said.stdout)["scores"]["nll"][0]
    assert nll == pytest.approx(-np.log(share).mean(), rel=1e-4)


def test_report_is_asked_for_the_model_that_has_not_seen_the_rows(no_fit, tmp_path, monkeypatch):
    import posterax.report

    asked = {}

    def stub(path, estimator, X, y, **more):
        asked.update(more, estimator=estimator, rows=len(X))
        Path(path).write_text("<!doctype html>")

    monkeypatch.setattr(posterax.report, "write_report", stub)
    page = tmp_path / "house.html"
    fitted = fit_table(
        "house.csv", "price", quick=True, out=tmp_path / "h.px", report=page, tell=lambda line: None
    )
    assert (asked["rows"], len(asked["held_out"][0])) == (48, 12)
    assert asked["held_out"][2] is asked["sample_weight"] is None
    assert asked["estimator"] is not fitted.estimator
    assert asked["card"]["scores"] == asked["scores"]
    assert fitted.report == page


def test_interrupted_fit_leaves_nothing(inside, tmp_path, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(scoring, "learn", stopped)
    result = run("fit", "house.csv", "--target", "price", "--out", tmp_path / "h.px")
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1].startswith("error: stopped")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_ctrl_c_in_a_process(inside, tmp_path):
    words = ["fit", "house.csv", "-t", "price", "--steps", "10000000", "-o", str(tmp_path / "h.px")]
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from posterax.cli import app; app()"
    process = subprocess.Popen([sys.executable, "-c", code, *words], stderr=subprocess.PIPE)
    time.sleep(40)
    process.send_signal(signal.SIGINT)
    stderr = process.communicate(timeout=120)[1].decode()
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_method_by_name(method, inside, tmp_path):
    for target in ("price", "town"):
        out = tmp_path / f"{target}.px"
        result = run("fit", "house.csv", "-t", target, "-m", method, "--quick", "-o", out)
        assert result.exit_code == 0, result.output
        assert run("predict", out, "house.csv").exit_code == 0


def test_names_of_methods():
    assert method_arguments("BBB") == {"method": "bayes_by_backprop"}
    assert method_arguments("laplace") == {"method": "laplace"}
    assert isinstance(method_arguments("mclmc", quick=True)["method"], px.MCLMC)
    assert method_arguments("map") == {"method": "maximum_a_posteriori"}

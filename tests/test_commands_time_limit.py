"""``--time-limit`` of the commands that fit: what it does, what it leaves out, what it refuses."""

import json
import os

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import posterax as px
from posterax.cli import app

pytestmark = pytest.mark.usefixtures("hasty_compiler")


@pytest.fixture
def table(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    size = random.uniform(30, 200, 60).round(1)
    pd.DataFrame({"size": size, "price": 20 * size + 7}).to_csv(tmp_path / "house.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return "house.csv"


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


class TestFit:
    def test_too_short(self, table):
        more = ["-m", "map", "--steps", 10**8, "--time-limit", 1, "--json"]
        result = run("fit", table, "-t", "price", *more)
        assert result.exit_code == 0, result.output
        assert result.stderr.count("note: time_limit=") >= 1
        assert "steps: the fit may not have settled; give more time" in result.stderr
        card = json.loads(result.stdout)
        assert card["settings"]["time_limit"] == 1.0
        assert card["held_out"]["refit"] is True
        assert "--time-limit 1.0" in card["command"]
        assert np.isfinite(px.load("house.px").predict(pd.read_csv(table)[["size"]])).all()

    def test_without_it_nothing_is_said_of_it(self, table):
        result = run("fit", table, "-t", "price", "-m", "map", "--quick", "--json")
        card = json.loads(result.stdout)
        assert "time_limit" not in card["settings"]
        assert "time-limit" not in card["command"]
        assert px.load("house.px").time_limit is None


class TestCompare:
    def test_methods_that_were_not_tried_are_named(self, table):
        more = ["--methods", "map,ml", "--folds", 2, "--quick", "--time-limit", 0.01, "--json"]
        result = run("compare", table, "-t", "price", *more)
        assert result.exit_code == 0, result.output
        assert "maximum_likelihood failed: not tried: --time-limit was over" in result.stderr
        _, first, second = json.loads(result.stdout)["methods"]
        assert first["failed"] is None
        assert len(first["scores"]["nll"]["folds"]) == 2
        assert second["failed"].startswith("not tried")

    def test_what_was_left_out_is_said_once_a_method(self, table):
        more = ["--methods", "map", "--folds", 2, "--steps", 10**8, "--time-limit", 1, "--json"]
        result = run("compare", table, "-t", "price", *more)
        assert result.exit_code == 0, result.output
        told = json.loads(result.stdout)["methods"][1]["warnings"]
        assert sum(text.startswith("time_limit=") for text in told) == 1


@pytest.mark.parametrize("command", ["fit", "compare"])
@pytest.mark.parametrize("limit", ["0", "-3", "nan", "inf", "soon"])
def test_refused(table, command, limit):
    result = run(command, table, "-t", "price", f"--time-limit={limit}")
    assert result.exit_code == 2
    assert "--time-limit" in result.stderr
    assert os.listdir() == [table]

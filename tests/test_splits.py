"""Which rows ``posterax fit`` and ``compare`` hold out: at random, the last in time, or groups."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import posterax as px
from posterax.cli import app
from posterax.commands import Refused
from posterax.commands.splitting import Split, choose_split, folds_of, hold_out, in_order
from posterax.commands.targets import Parts

ROWS = 100


def sales(rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    day = pd.date_range("2024-01-01", periods=rows).strftime("%d.%m.%Y")
    size, shop = rng.normal(size=rows), rng.integers(0, 10, rows)
    return pd.DataFrame(
        {"day": day, "size": size, "shop": shop, "sold": 2 * size + rng.random(rows)}
    )


def parts_of(frame, target="sold"):
    return Parts(frame.drop(columns=target), frame[target].to_numpy(), notes=[], columns=4)


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def divided(frame, *, share=0.2, kind="regression", seed=0, **asked):
    parts, way = choose_split(parts_of(frame), **asked)
    train, held = hold_out(parts, kind, share, seed, way)
    return way, train, held, parts


@pytest.mark.parametrize("turned", [1, -1])
def test_a_date_that_orders_the_rows_holds_out_the_last_in_time(turned):
    frame = sales()[::turned]
    way, train, held, parts = divided(frame)
    assert way.facts() == {"split": "time", "by": "day"}
    days = pd.to_datetime(frame["day"], format="%d.%m.%Y")
    assert sorted(held.X.index) == sorted(days.nlargest(20).index)
    assert len(train.y) == 80
    assert "in the order of 'day': the last ones are held out; --split random" in parts.notes[0]


def test_a_date_in_disorder_or_with_few_values_does_not():
    frame = sales()
    shuffled = frame.assign(day=frame["day"].sample(frac=1, random_state=0).to_numpy())
    assert divided(shuffled)[0] == Split("random")
    few = frame.assign(day=np.repeat(frame["day"][:4].to_numpy(), 25))
    assert divided(few)[0] == Split("random")
    assert divided(frame, split="random")[0] == Split("random")
    assert divided(shuffled, split="time")[0].column == "day"
    # nearly in order is enough, and a few gaps
    nearly = frame["day"].to_numpy().copy()
    nearly[[10, 11]], nearly[50] = nearly[[11, 10]], None
    way, train, _, _ = divided(frame.assign(day=nearly))
    assert way.way == "time"
    assert 50 in train.X.index  # a row without a time is learned from
    assert not in_order(np.array([np.nan, np.nan, 1.0, 2.0]))


def test_rows_of_one_time_stay_together():
    frame = sales().assign(year=np.repeat([2019, 2020, 2021, 2022, 2023], 20))
    _, train, held, _ = divided(frame, time="year", share=0.25)
    assert set(held.X["year"]) == {2023}
    assert set(train.X["year"]) == {2019, 2020, 2021, 2022}


def test_groups_are_held_out_whole_and_are_no_input():
    way, train, held, parts = divided(sales(), group="Shop")
    shops = sales()["shop"]
    assert not {*shops[train.X.index]} & {*shops[held.X.index]}
    assert len(train.y) + len(held.y) == ROWS
    assert (way.column, "shop" in parts.X) == ("shop", False)
    other = divided(sales(), group="shop", seed=1)[2]
    assert {*other.X.index} != {*held.X.index}


def test_classes_that_only_later_rows_have_are_learned():
    frame = sales().assign(sold=["a", "b"] * 45 + ["c"] * 10)
    _, train, held, _ = divided(frame, kind="classification")
    assert set(held.y) == {"a", "b"}
    assert "c" in set(train.y)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--split", "weekly"], "--split must be random, time or group, got 'weekly'"),
        (["--split", "group"], "--split group: name the column of groups, --group COLUMN"),
        (["--time", "day", "--group", "shop"], "give --time or --group, not both"),
        (["--split", "random", "--time", "day"], "--split random takes no --time"),
        (["--time", "days"], "--time: no column 'days'; did you mean 'day'?"),
        (["--time", "word"], "--time: column 'word' holds neither dates nor numbers"),
        (["--group", "same"], "--group: column 'same' has one value in every row"),
        (["--split", "time", "--ignore", "day"], "--time COLUMN; none holds dates"),
        (["--split", "time", "--test-fraction", "0"], "need --test-fraction"),
        (["--categorical", "sop"], "--categorical: no column 'sop'; did you mean 'shop'?"),
        (["--categorical", "shop", "--numeric", "shop"], "'shop' is named as category too"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sales().assign(word=["x", "y"] * 50, same=1).to_csv("sales.csv", index=False)
    done = run("fit", "sales.csv", "-t", "sold", "--quick", *words)
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.splitlines()
    assert said in line


@pytest.mark.usefixtures("hasty_compiler")
def test_fit_says_how_it_held_out_and_takes_kinds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sales().to_csv("sales.csv", index=False)
    quick = ["-t", "sold", "--quick", "-m", "map"]
    done = run("fit", "sales.csv", *quick)
    assert done.exit_code == 0, done.output
    assert "note" not in done.stdout
    assert "the last ones are held out; --split random" in done.stderr
    assert "Scores on 20 rows held out, the last by day" in done.stdout
    kinds = ["--categorical", "shop", "--ordinal", "size", "--split", "random"]
    card = json.loads(run("fit", "sales.csv", *quick, *kinds, "--json").stdout)
    assert (card["held_out"]["split"], card["held_out"]["by"]) == ("random", None)
    assert {c["name"]: c["kind"] for c in card["columns"]} == {
        "day": "date", "size": "ordinal", "shop": "category"
    }  # fmt: skip
    assert "--split random --categorical shop --ordinal size" in card["command"]
    # the file knows its columns
    sales().head(3).assign(shop=[1, 77, 2]).to_csv("new.csv", index=False)
    told = run("predict", "sales.px", "new.csv", "--json")
    assert [row["outside"] for row in json.loads(told.stdout)] == ["", "shop", ""]
    grouped = json.loads(run("fit", "sales.csv", *quick, "--group", "shop", "--json").stdout)
    assert grouped["held_out"]["by"] == "shop"
    assert "shop" not in [column["name"] for column in grouped["columns"]]
    assert "does not use" not in run("predict", "sales.px", "new.csv").stderr
    assert px.load("sales.px").columns == "auto"


def test_folds_by_time_and_by_group():
    frame = sales()
    y, X = frame["sold"].to_numpy(), frame.drop(columns="sold")
    _, time = choose_split(parts_of(frame))
    folds = folds_of(X, y, False, 4, 0, time)
    assert len(folds) == 4
    assert all(a.max() < b.min() for a, b in folds)
    _, group = choose_split(parts_of(frame), group="shop")
    shops = frame["shop"].to_numpy()
    folds = folds_of(X, y, False, 5, 0, group)
    assert all(not {*shops[a]} & {*shops[b]} for a, b in folds)
    assert sorted(np.concatenate([b for _, b in folds])) == list(range(ROWS))
    with pytest.raises(Refused, match="12 folds need as many groups, there are 10"):
        folds_of(X, y, False, 12, 0, group)
    late = np.array(["a", "b"] * 30 + ["c"] * 40)
    assert all({*late[b]} <= {*late[a]} for a, b in folds_of(X, late, True, 2, 0, time))


@pytest.mark.usefixtures("hasty_compiler")
def test_compare_by_group(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sales().to_csv("sales.csv", index=False)
    words = ["--methods", "map", "--folds", 2, "--quick", "--group", "shop", "--json"]
    done = run("compare", "sales.csv", "-t", "sold", *words)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["split"], found["by"], found["columns"]) == ("group", "shop", 2)
    assert "--group shop" in found["command"]

"""The report's section on what drives the predictions: numbers, bounds, foreign text."""

import re

import numpy as np
import pandas as pd
import pytest

import posterax as px
from posterax.report import influence, render
from posterax.report.subject import make_subject
from tests.report_pages import HOSTILE, Page, numbers

pytestmark = pytest.mark.usefixtures("hasty_module")


def table(n=120):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=HOSTILE[:3])
    X["sold"] = pd.date_range("2024-01-01", periods=n).astype(str)
    X["town"] = rng.choice([HOSTILE[3], "Bern", "<b>Lyon</b>"], n)
    X.loc[5, HOSTILE[0]] = 40.0  # the most unusual row
    y = 3 * X.iloc[:, 1] + 4 * (X["town"] == "Bern") + rng.normal(size=n) / 3
    return X, pd.Series(y, name="<i>price</i> $1")


@pytest.fixture(scope="module")
def regressor():
    X, y = table()
    model = px.BayesianRegressor(
        columns="auto", members=1, steps=200, hidden_layer_sizes=8, samples=8, random_state=0
    )
    return model.fit(X[40:], y[40:]), X, y


@pytest.fixture(scope="module")
def page(regressor):
    model, X, y = regressor
    return render(model, X[40:], y[40:], held_out=(X[:40], y[:40]))


def test_it_is_on_the_page_and_whole(page):
    read = Page(page)
    assert read.wrong == []
    assert len(read.ids) == len(set(read.ids))
    assert "drives" in read.ids
    assert "<script" not in page
    assert "<b>Lyon" not in page
    section = page[page.index('id="drives"') :]
    section = section[: section.index("</section>")]
    assert len(re.findall("<svg", section)) >= 4  # bars, and a curve for each that matters
    inside = " ".join(re.findall(r"<[^>]+>", section))
    assert re.findall(r"#[0-9a-f]{6}\b|rgb", inside, re.IGNORECASE) == []
    words = read.text["drives"]
    assert not re.search(r"\b(nan|inf|None)\b", words)
    assert "Row 5 is the most unusual of 40 rows" in words


def test_the_columns_that_matter_come_first(page):
    rows = Page(page).table("drives", "Rise of NLL")
    assert {rows[0]["Column"], rows[1]["Column"]} == {"town", Page(page).table(
        "data", "What was done")[1]["Column"]}  # fmt: skip
    low = float(rows[0]["90 %"].split(" to ")[0].replace("−", "-"))
    assert low > 0


def test_what_would_change_a_row_is_what_the_model_says(page, regressor):
    model, X, _ = regressor
    read = Page(page)
    (where, rows) = next(t for t in read.tables if t[1][0][-2:] == ["Change", "90 % interval"])
    assert where == "drives"
    for row in rows[1:]:
        change = float(row[4].replace("−", "-"))
        assert change != 0
    captions = re.findall(r'<p class="caption"[^>]*>([^<]*least certain: predicted[^<]*)', page)
    number = int(re.search(r"Row (\d+)", captions[0])[1])
    predicted = float(re.search(r"predicted (\S+)", captions[0])[1].replace("−", "-"))
    assert model.predict(X.iloc[[number]])[0] == pytest.approx(predicted, abs=0.06)
    std = model.predictive(X[:40]).std
    assert number == int(np.argmax(std))


def test_the_same_arguments_give_the_same_bytes(regressor, page):
    model, X, y = regressor
    assert render(model, X[40:], y[40:], held_out=(X[:40], y[:40])) == page


def test_classes(regressor):
    _, X, y = regressor
    labels = pd.Series(np.where(y > 2, HOSTILE[0], np.where(y < -2, "low", "mid")), name="kind")
    model = px.BayesianClassifier(
        columns="auto", members=1, steps=200, hidden_layer_sizes=8, samples=8, random_state=0
    ).fit(X, labels)
    subject = make_subject(model, X, labels, None, None)
    (section,) = influence.sections(subject)
    heads = [block.heads for block in section.blocks if block.kind == "table"]
    assert any(head[4].startswith("Probability of ") for head in heads if len(head) == 6)
    said = " ".join(block.text for block in section.blocks if block.kind == "text")
    assert "These are training rows" in said
    # the nearest row of a training row is another one
    near = next(b for b in section.blocks if b.kind == "table" and b.heads[1] == "Distance")
    assert all(float(row[1].replace(",", "")) > 0 for row in near.rows[1:])


def test_posteriors_and_wide_tables_have_none():
    assert influence.sections(numbers()) == []
    X = np.random.default_rng(0).normal(size=(20, influence.MOST_COLUMNS + 1))
    model = px.BayesianRegressor("maximum_a_posteriori", steps=2, hidden_layer_sizes=2)
    subject = make_subject(model.fit(X, X[:, 0]), X, X[:, 0], None, None)
    assert influence.sections(subject) == []


def test_several_targets_and_few_rows():
    X = np.random.default_rng(0).normal(size=(12, 2))
    model = px.BayesianRegressor(steps=20, members=1, hidden_layer_sizes=2, samples=4)
    model.fit(X, X)
    (section,) = influence.sections(make_subject(model, X, X, None, None))
    assert not any("Instead" in getattr(block, "heads", ()) for block in section.blocks)
    assert influence.sections(make_subject(model, X, X, (X[:1], X[:1]), None)) == []

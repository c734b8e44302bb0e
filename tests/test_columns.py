"""Tables with text, gaps and dates: what becomes of each column, and how it lies in a file."""

import copy
import json
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import posterax as px
from posterax.files.container import CheckpointError, read, write
from posterax.tables.cells import as_dates, as_numbers
from posterax.tables.columns import Columns

ROWS = 40


def house(rows=ROWS, seed=0):
    """One column of every kind."""
    random = np.random.default_rng(seed)
    size = random.uniform(30, 200, rows)
    town = random.choice(["Bern", "Köln", "Lyon"], rows)
    built = pd.Timestamp("1990-01-01") + pd.to_timedelta(random.integers(0, 9000, rows), "D")
    frame = pd.DataFrame({
        "number": range(rows), "size": size, "town": town, "built": built.strftime("%d.%m.%Y"),
        "rent": [f"€ {v:,}" for v in random.integers(500, 5000, rows)],
        "garden": random.random(rows) < 0.5, "nothing": [None] * rows, "same": 3,
        "name": [f"house {i}" for i in range(rows)],
    })  # fmt: skip
    frame.loc[::7, "size"] = np.nan
    frame.loc[::9, "town"] = None
    return frame, 2000 * size + 9000 * (town == "Bern")


def test_every_kind_by_hand():
    frame, _ = house()
    columns = Columns.learn(frame)
    by_name = dict(zip(columns.names_out, columns.transform(frame).T, strict=True))
    median = frame["size"].median()
    np.testing.assert_array_equal(by_name["size"], frame["size"].fillna(median))
    np.testing.assert_array_equal(by_name["size is missing"], frame["size"].isna())
    for town in ("Bern", "Köln", "Lyon"):
        np.testing.assert_array_equal(by_name[f"town = {town}"], frame["town"] == town)
    np.testing.assert_array_equal(by_name["town = (missing)"], frame["town"].isna())
    rent = [float(cell[2:].replace(",", "")) for cell in frame["rent"]]
    np.testing.assert_array_equal(by_name["rent"], rent)
    np.testing.assert_array_equal(by_name["garden"], frame["garden"])
    day = pd.to_datetime(frame["built"], format="%d.%m.%Y")
    np.testing.assert_allclose(by_name["built"], (day - pd.Timestamp("1970-01-01")).dt.days)
    sine, cosine = by_name["built, weekday sine"], by_name["built, weekday cosine"]
    weekday = np.round(np.arctan2(sine, cosine) * 7 / (2 * np.pi)) % 7
    np.testing.assert_array_equal(weekday, day.dt.day_of_week)
    kinds = {row["name"]: (row["kind"], row["missing"]) for row in columns.summary()}
    assert kinds == {
        "number": ("number", 0), "size": ("number", 6), "town": ("category", 5),
        "built": ("date", 0), "rent": ("number", 0), "garden": ("boolean", 0),
        "nothing": ("left out", ROWS), "same": ("left out", 0), "name": ("left out", 0),
    }  # fmt: skip


def test_new_rows_in_another_order_with_gaps_and_unseen_texts():
    frame, _ = house()
    columns = Columns.learn(frame)
    new = frame.head(4)[frame.columns[::-1]].drop(columns=["same", "nothing"])
    np.testing.assert_array_equal(columns.transform(new), columns.transform(frame)[:4])
    new = new.assign(extra=1, rent=["$ 900", "much", "€ 900", None])
    new.loc[new.index[0], "town"] = "Rom"
    matrix = columns.transform(new)
    assert np.isfinite(matrix).all()
    by_name = dict(zip(columns.names_out, matrix.T, strict=True))
    median = np.median([float(cell[2:].replace(",", "")) for cell in frame["rent"]])
    assert by_name["rent"].tolist() == [median, median, 900, median]  # dollars are no euros
    assert by_name["town = (rare)"].tolist() == [1, 0, 0, 0]
    assert sum(by_name[name][0] for name in by_name if name.startswith("town")) == 1
    assert columns.look(new) == {
        ("extra", "extra"): 4, ("unseen", "town"): 1, ("unreadable", "rent"): 2, ("gap", "rent"): 1,
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"column 'town' is missing.*is it 'Town' here"):
        columns.transform(new.rename(columns={"town": "Town"}))


def test_rare_texts_share_a_column_and_unseen_ones_go_there():
    cells = ["often"] * 30 + [f"once {i}" for i in range(5)]
    columns = Columns.learn(pd.DataFrame({"c": cells}))
    assert columns.names_out == ["c = often", "c = (rare)"]
    new = pd.DataFrame({"c": ["often", "once 3", "never"]})
    assert columns.transform(new).tolist() == [[1, 0], [0, 1], [0, 1]]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1,234", "12,000.5", "7"], [1234, 12000.5, 7]),
        (["1,5", "2,25"], [1.5, 2.25]),
        (["1.234,5", "7,25"], [1234.5, 7.25]),
        (["12 %", "7%"], [12, 7]),
        (["-$5", "$7.50"], [-5, 7.5]),
        (["3 kg", "4.5 kg"], [3, 4.5]),
        (["1 234", "5"], [1234, 5]),
        (["−3", "4e2"], [-3, 400]),
        (["1'000", "20"], [1000, 20]),
        (["1\u00a0234", "12\u202f000"], [1234, 12000]),  # no-break spaces
        (["€ 1.234", "€ 999"], [1234, 999]),  # money has no three decimals
        (["1.250 kg", "0.500 kg"], [1.25, 0.5]),
        (["10.1.2.3", "192.168.100.200"], None),  # addresses
        (["3 kg", "4 lb"], None),
        (["5 %", "0.05"], None),
        (["A1", "A2"], None),
        (["1.2.3", "4.5.6"], None),
    ],
)
def test_numbers_in_text(cells, expected):
    read = as_numbers(pd.Series(cells))
    assert (read and read.values.tolist()) == expected


def test_a_few_words_among_numbers_count_as_missing():
    read = as_numbers(pd.Series([*map(str, range(50)), "unknown"]))
    assert read.odd == ["unknown"]
    assert np.isnan(read.values.iloc[-1])


@pytest.mark.parametrize(
    ("cells", "form"),
    [
        (["2024-02-29", "1999-12-31"], "ISO8601"),
        (["2024-02-29T10:00:00+02:00", "2024-03-01T00:00:00Z"], "ISO8601"),
        (["29.2.2024", "31.12.1999"], "%d.%m.%Y"),
        (["02/29/2024", "01/02/2024"], "%m/%d/%Y"),
        (["29/02/2024", "01/02/2024"], "%d/%m/%Y"),
        (["29 Feb 2024 10:30", "1 Mar 2024 11:00"], "%d %b %Y %H:%M"),
        (["08:15", "23:59"], "%H:%M"),
        (["2024-02-30", "2024-13-01"], None),
        (["12-5", "12-6"], None),
    ],
)
def test_dates_in_text(cells, form):
    read = as_dates(pd.Series(cells))
    assert (read and read.form) == form


def test_a_date_that_could_be_read_both_ways_says_so():
    for cells in (["01/02/2024", "03/04/2024"], ["01-02-2024", "03-04-2024"]):
        assert "would fit too" in as_dates(pd.Series(cells)).said
    assert "would fit too" not in as_dates(pd.Series(["13-02-2024", "03-04-2024"])).said
    assert "may be thousands" in as_numbers(pd.Series(["1.234", "12.500"])).said


def test_hours_of_times_with_a_zone_are_told_to_be_utc():
    text = pd.Series(["2024-02-29T10:00:00+02:00", "2024-03-01T00:00:00+01:00"])
    assert as_dates(text).said == "times in UTC"
    assert as_dates(text.str[:19]).said == ""
    columns = Columns.learn(pd.DataFrame({"a": pd.to_datetime(text, utc=True), "b": text}))
    assert all("UTC" in column.done for column in columns.columns)


def test_dates_outside_the_nanoseconds():
    frame = pd.DataFrame({"d": ["0001-01-01", "9999-12-31", "2000-01-01"]})
    matrix = Columns.learn(frame).transform(frame)
    assert matrix[:, 0].tolist() == [-719162, 2932896, 10957]


def test_json_gives_the_same_matrix():
    frame, _ = house()
    columns = Columns.learn(frame)
    same = Columns.from_json(json.loads(json.dumps(columns.as_json())))
    np.testing.assert_array_equal(same.transform(frame), columns.transform(frame))
    assert same.summary() == columns.summary()


def test_nothing_to_learn_from_says_why():
    with pytest.raises(ValueError, match=r"no column is left.*'a': constant"):
        Columns.learn(pd.DataFrame({"a": [1, 1], "b": [None, None]}))
    with pytest.raises(ValueError, match="column 'a' holds an infinite number"):
        Columns.learn(pd.DataFrame({"a": [1.0, np.inf]}))


# -- what a user says of columns, and what is new in later rows


def coded(rows=600, seed=0):
    random = np.random.default_rng(seed)
    return pd.DataFrame({
        "zip": random.choice([1003, 1204, 8001, 9000], rows),
        "grade": random.choice(list("BAC"), rows),
        "stars": random.integers(1, 6, rows), "size": random.normal(size=rows),
        "floor": random.choice(["floor 10", "floor 2", "floor 1"], rows),
        "income": np.exp(2.5 * random.normal(size=rows)), "house_id": random.permutation(rows),
        "mixed": random.choice(["1", "2", "about 3", "many"], rows),
    })  # fmt: skip


def test_codes_are_known_by_name_and_amounts_are_said():
    by_name = {c.name: c for c in Columns.learn(coded()).columns}
    assert (by_name["zip"].kind, by_name["zip"].kept) == (
        "category",
        ["1003", "1204", "8001", "9000"],
    )
    assert "codes by the column's name" in by_name["zip"].done
    assert by_name["house_id"].kind == "number"  # no two rows share one
    assert by_name["stars"].done == "5 whole numbers as amounts; standardised"
    few = coded(120)
    assert Columns.learn(few[["stars"]]).columns[0].done == "standardised"
    # a code that a file has as 1003, 1003.0 or text is the same
    columns = Columns.learn(coded()[["zip"]])
    for cells in ([1003, 8001], [1003.0, 8001.0], ["1003", "08001"]):
        assert columns.transform(pd.DataFrame({"zip": cells}))[:, [0, 2]].tolist() == [
            [1, 0],
            [0, 1],
        ]


def test_columns_become_what_a_user_says():
    frame = coded()
    kinds = {"zip": "number", "stars": "category", "grade": "ordinal", "floor": "ordinal"}
    columns = Columns.learn(frame, kinds | {"mixed": "number"})
    by_name = {c.name: c for c in columns.columns}
    assert {name: by_name[name].kind for name in kinds} == kinds
    assert "3 values in alphabetical order (A < B < C)" in by_name["grade"].done
    assert "by the number within (floor 1 < floor 2 < floor 10)" in by_name["floor"].done
    matrix = dict(zip(columns.names_out, columns.transform(frame).T, strict=True))
    np.testing.assert_array_equal(matrix["grade"], frame["grade"].map({"A": 0, "B": 1, "C": 2}))
    np.testing.assert_array_equal(matrix["zip"], frame["zip"])
    np.testing.assert_array_equal(matrix["stars = 3"], frame["stars"] == 3)
    assert "cells hold no number and count as missing" in by_name["mixed"].done
    own = pd.Categorical(frame["grade"], categories=["C", "A", "B"], ordered=True)
    (column,) = Columns.learn(frame[[]].assign(grade=own), {"grade": "ordinal"}).columns
    assert column.kept == ["C", "A", "B"]
    # numbers keep their order, and one between two levels lies between their ranks
    columns = Columns.learn(pd.DataFrame({"n": [1, 10, 100] * 9}), {"n": "ordinal"})
    assert columns.transform(pd.DataFrame({"n": [10, 55, 500]})).ravel().tolist() == [1, 1.5, 2]
    same = Columns.from_json(json.loads(json.dumps(columns.as_json())))
    assert same.columns == columns.columns


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ({"zip": "text"}, "'zip' cannot be 'text': allowed are 'number', 'category', 'ordinal'"),
        ({"zap": "category"}, "there is no column 'zap' in X; is it 'zip'?"),
        ({"grade": "number"}, "'grade' is to be a number but holds"),
        ({"size": "ordinal"}, "'size' has 600 different values, and an ordinal at most 200"),
    ],
)
def test_what_a_user_cannot_say_is_told(kinds, said):
    with pytest.raises(ValueError, match=f"columns: {re.escape(said)}"):
        Columns.learn(coded(), kinds)


def test_long_tails_are_drawn_together():
    frame = coded()
    income = frame["income"]
    assert (income - income.mean()).abs().max() > 10 * income.std()
    columns = Columns.learn(frame[["income", "size"]])
    squashed, size = columns.transform(frame).T
    assert np.abs((squashed - squashed.mean()) / squashed.std()).max() < 5
    assert np.array_equal(np.argsort(squashed), np.argsort(income))  # nothing is clipped
    np.testing.assert_array_equal(size, frame["size"])
    assert "signed logarithm of its long tails" in columns.columns[0].done
    centre, scale = columns.columns[0].squash
    np.testing.assert_allclose(np.sinh(0) + centre, income.median())
    below = income < centre
    by_hand = np.where(below, -1, 1) * np.log1p(np.abs(income - centre) / scale)
    np.testing.assert_allclose(squashed, by_hand)
    # a gap lies at the median, in the same units
    gap = Columns.learn(frame[["income"]].mask(frame["zip"] == 1003))
    assert gap.transform(pd.DataFrame({"income": [None]}))[0].tolist() == [0.0, 1.0]
    assert gap.look(pd.DataFrame({"income": [None]})) == {}


def test_some_rows_stand_in_for_unseen_texts():
    frame = coded()
    columns = Columns.learn(frame[["grade", "size"]])
    learned, plain = (columns.transform(frame, learning=on) for on in (True, False))
    rare = columns.names_out.index("grade = (rare)")
    assert plain[:, rare].sum() == 0
    assert learned[:, rare].sum() == round(0.015 * len(frame)) == columns.columns[0].spare
    assert (learned[:, 1:].sum(1) == 1).all()
    np.testing.assert_array_equal(learned, columns.transform(frame, learning=True))
    # by their cells: in any order, and with their copies
    turned = columns.transform(frame[::-1], learning=True)[::-1]
    np.testing.assert_array_equal(turned, learned)
    twice = columns.transform(pd.concat([frame, frame]), learning=True)
    np.testing.assert_array_equal(twice, np.concatenate([learned, learned]))
    # where texts are rare anyway, these are enough
    cells = pd.DataFrame({"c": ["often"] * 30 + [f"once {i}" for i in range(5)]})
    assert Columns.learn(cells).columns[0].spare == 0


def test_rows_outside_the_table_of_the_fit():
    frame = coded().assign(day=pd.date_range("2024-01-01", periods=600).strftime("%Y-%m-%d"))
    columns = Columns.learn(frame, {"stars": "ordinal", "grade": "ordinal"})
    assert (columns.outside(frame) == "").all()
    new = frame.head(6).copy()
    new.loc[0, "size"] = 99.0
    new.loc[1, "zip"] = 7777
    new.loc[2, ["day", "stars"]] = ["2031-01-01", 9]
    new.loc[3, "income"] = 1e9
    new.loc[4, ["size", "grade"]] = [None, "Z"]
    told = ["size", "zip", "stars, day", "income", "grade", ""]
    assert columns.outside(new[new.columns[::-1]]).tolist() == told
    assert columns.look(new)["level", "grade"] == 1


# -- with the estimators

TINY = {"method": "maximum_a_posteriori", "hidden_layer_sizes": 4, "steps": 20, "random_state": 0}


@pytest.fixture(scope="module")
def fitted(hasty_module):
    frame, price = house()
    return px.BayesianRegressor(**TINY, columns="auto").fit(frame, price), frame


def test_estimator_takes_the_frame(fitted):
    regressor, frame = fitted
    mean = regressor.predict(frame)
    assert mean.shape == (ROWS,)
    np.testing.assert_array_equal(regressor.predict(frame[frame.columns[::-1]]), mean)
    assert regressor.n_features_in_ == frame.shape[1]
    assert list(regressor.feature_names_in_) == list(frame.columns)
    with pytest.raises(ValueError, match="columns must be None, 'auto' or a dict"):
        px.BayesianRegressor(**TINY, columns="all").fit(frame, mean)
    with pytest.raises(ValueError, match="columns='auto'"):  # an array has no names
        px.BayesianRegressor(**TINY).fit(frame[["town"]].fillna("?").to_numpy(), mean)


def test_frames_with_more_than_numbers_are_encoded_unasked(fitted, tmp_path):
    regressor, frame = fitted
    price = house()[1]
    plain = px.BayesianRegressor(**TINY).fit(frame, price)
    np.testing.assert_array_equal(plain.predict(frame), regressor.predict(frame))
    plain.save(tmp_path / "plain.px")
    loaded = px.load(tmp_path / "plain.px")
    np.testing.assert_array_equal(loaded.predict(frame), plain.predict(frame))
    # then numbers alone: as they are
    numbers = pd.DataFrame({"code": np.arange(ROWS) % 3, "size": np.linspace(0, 1, ROWS)})
    plain.fit(numbers, price)
    assert not hasattr(plain, "columns_")
    assert plain.predict(numbers).shape == (ROWS,)


def test_frames_of_others_are_frames(fitted):
    frame = house()[0][["size", "town"]]
    price = house()[1]
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    one, other = (px.BayesianRegressor(**TINY).fit(x, price) for x in (frame, arrow))
    assert [*other.feature_names_in_] == ["size", "town"]
    np.testing.assert_array_equal(other.predict(arrow), one.predict(frame))


def test_estimator_is_the_plain_one_on_the_matrix(fitted):
    """Another way to the same answer: encode first, then fit numbers."""
    regressor, frame = fitted
    columns, price = Columns.learn(frame), house()[1]
    plain = px.BayesianRegressor(**TINY).fit(columns.transform(frame, learning=True), price)
    np.testing.assert_array_equal(plain.predict(columns.transform(frame)), regressor.predict(frame))


def test_estimator_takes_kinds_by_name():
    frame = coded(80)
    y = frame["size"].to_numpy()
    regressor = px.BayesianRegressor(**TINY, columns={"zip": "number", "grade": "ordinal"})
    regressor.fit(frame, y)
    kinds = {row["name"]: row["kind"] for row in regressor.columns_.summary()}
    assert (kinds["zip"], kinds["grade"]) == ("number", "ordinal")
    with pytest.raises(ValueError, match="'zip' cannot be 'code': allowed are"):
        px.BayesianRegressor(**TINY, columns={"zip": "code"}).fit(frame, y)


def test_columns_of_a_file_of_before_have_their_matrix():
    frame, _ = house()
    nodes = Columns.learn(frame).as_json()
    for node in nodes:
        for name in ("codes", "squash", "low", "high", "spare"):
            node.pop(name, None)
    old = Columns.from_json(nodes)
    assert "town = (rare)" not in old.names_out
    assert (old.outside(frame) == "").all()
    assert old.transform(frame).shape == (ROWS, len(old.names_out))


def test_file_keeps_columns_and_card(fitted, tmp_path):
    regressor, frame = fitted
    regressor.card_ = {"target": "price", "rows": ROWS}
    regressor.save(tmp_path / "house.px")
    same = px.load(tmp_path / "house.px")
    np.testing.assert_array_equal(same.predict(frame), regressor.predict(frame))
    assert same.card_ == regressor.card_
    assert same.columns_.summary() == regressor.columns_.summary()


def test_mutated_columns_are_refused():
    """Changed entries raise ValueError, and nothing else, or are a choice that could be made."""
    nodes = Columns.learn(house()[0]).as_json()
    free = ("name", "done", "missing", "categories", "rare", "form", "gaps", "codes")
    places = [(i, key) for i, node in enumerate(nodes) for key in node if key not in free]
    odd = [None, -1, 1e999, "x", [], ["a", "a"], {"a": 1}, [[1]], True, "category", 10**30]
    refused = 0
    for i, key in places:
        for value in odd:
            if value == nodes[i][key]:
                continue
            changed = copy.deepcopy(nodes)
            changed[i][key] = value
            with pytest.raises(ValueError, match="columns: "):
                Columns.from_json(changed)
            refused += 1
    assert refused > 400
    for wrong in (None, {}, [1], [{}], [nodes[0], nodes[0]], [{**nodes[0], "more": 1}]):
        with pytest.raises(ValueError, match="columns: "):
            Columns.from_json(wrong)


@pytest.mark.parametrize("change", ["entry", "fewer", "none"])
def test_mutated_columns_in_a_file_are_refused(change, fitted, tmp_path):
    path = tmp_path / "house.px"
    fitted[0].save(path)
    arrays, header = read(path)
    estimator = header["estimator"]
    nodes = estimator["fitted"]["columns"]
    if change == "entry":
        nodes[1]["fill"] = ["a"]
    elif change == "fewer":
        del nodes[1]
    else:
        del estimator["fitted"]["columns"]
    write(path, arrays, header)
    with pytest.raises(CheckpointError, match=r"house\.px"):
        px.load(path)

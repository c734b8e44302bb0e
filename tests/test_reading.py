"""Tables from files: marks of decimals and thousands, odd lines, targets, and what is ours."""

import sys
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from posterax.__main__ import main
from posterax.commands import Refused
from posterax.commands.predict import tell_new
from posterax.commands.reading import read_blocks, read_table, recognise_task, split_target
from posterax.commands.targets import as_labels
from posterax.commands.writing import check_out, safe_text
from posterax.metrics import evaluate
from posterax.metrics.baseline import Constant
from posterax.tables.columns import Columns


@pytest.fixture
def file(tmp_path):
    def made(content, name="t.csv"):
        (tmp_path / name).write_text(content)
        return tmp_path / name

    return made


# -- decimals and thousands


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["1.234", "12.500", "999"], [1234, 12500, 999]),  # the other column has decimal commas
        (["1.234,5", "-12.500", "7,25"], [1234.5, -12500, 7.25]),
        (["1.5", "2.25", "10.125"], [1.5, 2.25, 10.125]),  # these have not
        (["192.168.100.200", "10.100.100.100", "10.100.100.101"], None),
    ],
)
def test_points_between_thousands(cells, numbers, file):
    rows = "".join(f"{cell};{i},5;{i},25\n" for i, cell in enumerate(cells))
    frame = read_table(file(f"n;a;b\n{rows}"))
    assert frame["a"].tolist() == [0.5, 1.5, 2.5]
    if numbers is None:
        assert frame["n"].tolist() == cells
        assert Columns.learn(pd.concat([frame] * 2)).columns[0].kind == "category"
        return
    matrix = Columns.learn(frame[["n"]]).transform(frame[["n"]])
    np.testing.assert_array_equal(matrix[:, 0], numbers)


def test_points_that_may_be_either_are_told(file):
    notes = []
    frame = read_table(file("n;m\n1.234;7\n12.500;8\n"), notes)
    assert frame["n"].tolist() == [1.234, 12.5]
    assert notes[-1].endswith("1.234 is read as a decimal; it may be thousands")
    # a third group, or the model's own table, tells
    assert read_table(file("n;m\n1.234;7\n1.234.567;8\n"))["n"].tolist() == [1234, 1234567]
    notes = []
    told = read_table(file("n;m\n1.234;7\n12.500;8\n"), notes, decimal=",")
    assert told["n"].tolist() == [1234, 12500]
    assert not any("may be" in note for note in notes)


def test_new_rows_are_read_as_the_fits(file):
    """One word in a block leaves the others' marks what they were."""
    cells = ["unknown", *(f"{i}.250" for i in range(1, 60))]
    fit = read_table(file("n;m\n" + "".join(f"{cell};{i},5\n" for i, cell in enumerate(cells))))
    assert fit.attrs["decimal"] == ","
    columns = Columns.learn(fit)
    new = file("n;m\n1.234;?\nunknown;1,5\n")
    frame = read_table(new, text=columns.text, decimal=",")
    assert columns.transform(frame)[0, columns.names_out.index("n")] == 1234


def test_one_row_with_a_decimal_comma(file):
    for content in ("a;b\n10,5;7\n", "a;b\n10,5;7"):
        assert read_table(file(content))["a"].tolist() == [10.5]
    # a column alone: its comma splits nothing
    assert read_table(file("a\n10,5\n"), decimal=",", least=1)["a"].tolist() == [10.5]


# -- lines and columns


def test_a_quoted_nothing_is_a_cell_and_a_blank_line_none(file):
    assert len(read_table(file("a,b\n1,2\n   \n\n3,4\n"))) == 2
    with pytest.raises(Refused, match="line 3 has 1 cell where the header has 2"):
        read_table(file('a,b\n1,2\n""\n3,4\n'))
    assert read_table(file('a\n1\n""\n'), least=1)["a"].isna().tolist() == [False, True]


def test_one_column_is_enough_for_a_model_that_has_one(file, tmp_path):
    assert read_table(file("x\n0.5\n1\n"), least=1)["x"].tolist() == [0.5, 1]
    pd.DataFrame({"x": [0.5]}).to_parquet(tmp_path / "x.parquet")
    assert read_table(tmp_path / "x.parquet", least=1)["x"].tolist() == [0.5]
    for path in (file("x\n0.5\n"), tmp_path / "x.parquet"):
        with pytest.raises(Refused, match="has one column"):
            read_table(path)


def test_kept_columns_are_the_files_text(file):
    path = file("code,big,lat\n00045,123456834,52.5200516\n,NA,1e3\n12,7,0.10\n")
    given = read_blocks(path, rows=2, keep=lambda names: ["code", "lat", "big"])
    kept = pd.concat([kept for _, kept in given])
    assert kept["code"].tolist() == ["00045", "", "12"]
    assert kept["big"].tolist() == ["123456834", "NA", "7"]
    assert kept["lat"].tolist() == ["52.5200516", "1e3", "0.10"]


# -- targets


def test_large_whole_numbers_stay_apart():
    big = 2**53
    frame = pd.DataFrame({"x": range(20), "y": [big, big + 1] * 10})
    assert set(split_target(frame, "y").y.tolist()) == {big, big + 1}
    text = frame.assign(y=frame["y"].map(lambda v: f"{v}123"))
    assert len(set(split_target(text, "y").y.tolist())) == 2


def test_rows_to_score_may_be_few_and_alike():
    frame = pd.DataFrame({"x": [1, 2], "y": ["a", "a"]})
    assert split_target(frame, "y", scoring=True).y.tolist() == ["a", "a"]
    with pytest.raises(Refused, match="the least to learn"):
        split_target(frame, "y")


def test_the_cell_that_is_no_number_is_named():
    y = np.array(["kg", *map(str, np.arange(0, 20, 0.5))], dtype=object)
    with pytest.raises(Refused, match="'kg' in line 2 is not a number"):
        recognise_task(y, None, range(2, 60))
    with pytest.raises(Refused, match="'kg' in row 1 is not a number"):
        recognise_task(y, "regression")
    assert recognise_task(np.array(["a", "b"] * 9, dtype=object))[1] == "the target holds text"


def test_names_are_the_tables():
    frame = pd.DataFrame({"w": range(12), "A b": range(12), "y": range(12)})
    frame["x"] = 0
    names = split_target(frame, " Y", "a B", "W").names
    assert names == {"target": "y", "ignore": ["A b"], "weight": "w"}
    with pytest.raises(Refused, match="'w' is the target"):
        split_target(frame, "w", weight="W")


def test_labels_of_another_file():
    assert as_labels(np.array([1, 0]), np.array(["0.0", "1.0"], dtype=object)).tolist() == [
        "1.0",
        "0.0",
    ]
    assert as_labels(np.array(["1", "no"], dtype=object), np.array(["1", "no"])).tolist() == [
        "1",
        "no",
    ]
    assert as_labels(np.array([2]), np.array([0, 1])).tolist() == [2]  # which is then refused


@pytest.mark.parametrize("y", [np.array([1.0, 2.0, 5.0, 2.5]), np.array(["a", "b", "b", "a"])])
def test_the_baseline_counts_rows_as_often_as_their_weight_says(y):
    weight, other = [1, 3, 2, 5], [2, 0, 1, 1]
    labels = y.dtype.kind == "U"
    y = np.searchsorted(["a", "b"], y) if labels else y

    def baseline(y, new, weight=None, other=None):
        given = np.full((len(new), 2), 0.5) if labels else Constant(stats.norm(0, 1), new.shape)
        scores = evaluate(given, new, other, train_y=y, train_weight=weight, resamples=0)
        return scores.baselines()

    found = baseline(y, y[::-1], weight, other)
    again = baseline(np.repeat(y, weight), np.repeat(y[::-1], other))
    assert found == pytest.approx(again)
    assert found != pytest.approx(baseline(y, y[::-1]))


# -- columns and files


def test_part_of_a_table_has_the_same_row_numbers():
    whole = pd.DataFrame({"id": range(1, 101), "x": np.random.default_rng(0).normal(size=100)})
    rows = np.sort(np.random.default_rng(1).choice(100, 60, replace=False))
    for frame in (whole, whole.iloc[rows]):
        assert [c.name for c in Columns.learn(frame).used] == ["x"]
    assert len(Columns.learn(whole.assign(id=whole["id"] * 1000)).used) == 2


def test_booleans_with_gaps():
    cells = pd.array([True, None, False, True], dtype="boolean")
    (column,) = Columns.learn(pd.DataFrame({"b": cells})).columns
    assert (column.kind, column.missing) == ("boolean", 1)


def test_what_stands_for_a_gap_is_told_by_kind():
    kinds = {"n": "number", "c": "category", "b": "boolean"}
    n, c, b = sorted(tell_new({("gap", name): 1 for name in kinds}, kinds), reverse=True)
    assert n == "column 'n': 1 cell is missing, where none was at fit: the fit's median stands in"
    assert "median" not in b + c
    assert "rare" in c


def test_only_our_own_files_are_written_over(file):
    ours = {
        "report": '<!doctype html>\n<meta name="generator" content="posterax 0.1.0">',
        "table": "method,nll,nll_standard_error,rmse\n",
        "predictions": "town,mean,std,epistemic_std,aleatoric_std,low,high\n",
    }
    users = {
        "report": "<!doctype html><title>my site</title>",
        "table": "payment_method,amount\n",
        "predictions": "mean,epistemic_std\n",
    }
    for what, content in ours.items():
        check_out(file(content), what)
    for what, content in users.items():
        with pytest.raises(Refused, match="--force"):
            check_out(file(content), what)
        check_out(file(content), what, force=True)


def test_negative_numbers_are_no_formulas():
    assert [safe_text(t) for t in ("-1,5", "+41 31", "-1+2", "@x")] == [
        "-1,5",
        "+41 31",
        "'-1+2",
        "'@x",
    ]


def test_ctrl_c_before_there_is_a_command(monkeypatch, capsys):
    class Stopped(ModuleType):
        def __getattr__(self, name):
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "posterax.cli", Stopped("posterax.cli"))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", "")

"""Tables in files, larger than memory: sampled, stored standardised, learned in minibatches."""

import builtins
import tempfile
from collections import namedtuple

import numpy as np
import pandas as pd
import pytest

import posterax as px
from posterax.commands.fitting import fit_table
from posterax.commands.large import read_any
from posterax.commands.predict import predict_table
from posterax.commands.splitting import Split, hold_out
from posterax.tables import files, large, portfolio, stored
from posterax.tables.base import BayesianEstimator
from posterax.tables.files import chunks, files_of
from posterax.tables.folds import fold_of
from posterax.tables.large import LargeTable, numbered, open_table, take_sample
from posterax.tables.standardise import Rows
from posterax.tables.stored import Stored, Whole

ROWS = 900


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (ROWS, 2))
    town = random.choice(["Aldea", "Brook"], ROWS)
    y = 3 * x[:, 0] + (town == "Brook") + random.normal(0, 0.2, ROWS)
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "town": town, "y": y})
    frame.loc[::50, "b"] = np.nan
    return frame


@pytest.fixture(scope="module")
def folder(table, tmp_path_factory):
    place = tmp_path_factory.mktemp("parts")
    for i in range(3):
        table[300 * i : 300 * (i + 1)].to_parquet(place / f"part-{i}.parquet", index=False)
    (place / "_SUCCESS").touch()
    return place


def quick(maker):
    part = maker.variational("trees, Bayes by Backprop", (4,), 1.0, 1.0, based=True)
    return [part._replace(steps=40)]


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Limits so low that these tables are large, fits that take no time, a folder of their own."""
    monkeypatch.setattr(files, "LARGE", 1000)
    monkeypatch.setattr(files, "CELLS", 400)
    monkeypatch.setattr(large, "SAMPLE_ROWS", 300)
    monkeypatch.setattr(large, "MOST_LABELS", 5)
    monkeypatch.setattr(stored, "BATCH", 50)
    monkeypatch.setattr(portfolio, "MEMBERS", 5)
    monkeypatch.setattr(portfolio._Maker, "quick", quick)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    return scratch


def plain(**more):
    return px.BayesianRegressor("maximum_a_posteriori", steps=3, random_state=0, **more)


class TestSmall:
    def test_it_is_as_if_pandas_had_read_it(self, table, tmp_path):
        numbers = table.drop(columns="town").dropna()
        numbers.to_csv(tmp_path / "t.csv", index=False)
        numbers.to_csv(tmp_path / "t.csv.gz", index=False)
        (tmp_path / "parts").mkdir()
        numbers[:500].to_parquet(tmp_path / "parts" / "1.parquet", index=False)
        numbers[500:].to_parquet(tmp_path / "parts" / "2.parquet", index=False)
        read = pd.read_csv(tmp_path / "t.csv")
        x = read.drop(columns="y")
        expected = plain().fit(x, read["y"]).predict(x)
        for name in ("t.csv", "t.csv.gz", "parts"):
            given = open_table(str(tmp_path / name), "y")
            pd.testing.assert_frame_equal(given.X, x)
            np.testing.assert_array_equal(given.y, read["y"])
        np.testing.assert_array_equal(plain().fit(tmp_path / "t.csv", "y").predict(x), expected)

    def test_a_column_of_weights(self, folder):
        given = open_table(folder, "y", "a")
        assert [*given.X.columns] == ["b", "town"]
        assert len(given.weight) == ROWS


class TestSample:
    def test_rows_are_drawn_once_each_from_everywhere(self, tiny, folder):
        sample = take_sample(lambda text: numbered(chunks(files_of(folder), text)), "y", 0)
        assert sample.rows == ROWS
        assert 300 <= len(sample.frame) <= 300 + 5 + 3
        assert sample.frame.index.is_unique
        assert abs(sample.frame.index.to_numpy().mean() - ROWS / 2) < 60

    def test_what_tells_most_about_the_target_is_there(self, tiny):
        y = np.ones(5000)
        y[[7, 4000, 4999]] = -3.0, 0.5, 8.0
        frames = [pd.DataFrame({"y": y[i : i + 500], "x": 1.0}) for i in range(0, 5000, 500)]
        got = take_sample(lambda text: numbered(frames), "y", 0).frame["y"]
        assert {-3.0, 0.5, 8.0} <= set(got)
        assert got.loc[4999] == 8.0

    def test_a_column_of_text_and_numbers_is_text_in_all_chunks(self, tiny, tmp_path):
        codes = ["007"] * 300 + ["x1"] * 300
        pd.DataFrame({"code": codes, "y": range(600)}).to_csv(tmp_path / "t.csv", index=False)
        table = open_table(tmp_path / "t.csv", "y")
        assert isinstance(table, LargeTable)
        assert set(table.sample.given.X["code"]) == {"007", "x1"}


class TestStored:
    def rows(self, n, folds=5):
        number = np.arange(n)
        x = np.stack([number, fold_of(number, folds)], axis=1).astype(float)
        return Rows(x, number.astype(float), np.ones(n)), number

    def test_every_epoch_has_every_row_once_at_a_place_of_its_fold(self, tiny):
        rows, number = self.rows(1003)
        with Whole(1003, lambda: iter([(rows, number)]), number[:10], seed=0) as whole:
            whole.store(None, lambda line: None)
            assert whole.total == 1003
            source = whole.stored.batches(based=False)
            epochs = [[*source] for _ in range(2)]
        orders = []
        for batches in epochs:
            x, y, weight = (np.concatenate(parts) for parts in zip(*batches, strict=True))
            place = np.arange(len(x))
            there = weight > 0
            np.testing.assert_array_equal(x[there, 1], place[there] % 5)
            assert sorted(y[there]) == [*range(1003)]
            orders.append(y[there])
        assert (orders[0] != orders[1]).mean() > 0.9
        assert not [*tiny.iterdir()]

    def test_a_fold_without_rows(self, tiny):
        with Stored((1, 0, 1), folds=2, rows=10) as held:
            x = np.arange(10.0)[:, None]
            held.add(x, x[:, :0], x[:, 0], np.ones(10), np.zeros(10, int))
            ((_, y, weight),) = [*held.batches(based=False)]
        np.testing.assert_array_equal(weight, np.tile([1, 0], 10))
        assert sorted(y[::2]) == [*range(10)]

    def test_a_disk_without_room(self, monkeypatch):
        usage = namedtuple("usage", "total used free")
        monkeypatch.setattr(stored.shutil, "disk_usage", lambda place: usage(10, 9, 1000))
        with pytest.raises(OSError, match=r"^X: its 1,000 rows take .* TMPDIR to a folder"):
            Stored((9, 0, 1), folds=5, rows=1000)


class TestFit:
    def test_all_rows_are_learned_and_nothing_is_left(self, tiny, folder, table):
        made = px.BayesianRegressor(quality="fast", columns="auto", random_state=0, verbose=False)
        made.set_params(calibrate=False).fit(folder, "y")
        assert made.posterior_.record.settings["examples"] == ROWS
        assert made.columns_.names_out[:2] == ["a", "b"]
        error = made.predict(table) - table["y"]
        assert np.sqrt(np.mean(np.square(error))) < 0.5 * table["y"].std()
        assert not [*tiny.iterdir()]

    def test_classes_that_few_rows_have(self, tiny, table, tmp_path, monkeypatch):
        seen = []

        def look(self, rows, task, *, several, whole):
            whole.store(None, lambda line: None)
            seen.extend(whole.stored.batches(based=False))

        monkeypatch.setattr(px.BayesianClassifier, "_blend", BayesianEstimator._blend)
        monkeypatch.setattr(px.BayesianClassifier, "_fit_blend", look)
        towns = table.assign(town=["Crag", *table["town"][1:-1], "Dune"])
        towns.to_csv(tmp_path / "t.csv", index=False)
        made = px.BayesianClassifier(columns="auto", class_weight="balanced", random_state=0)
        made.fit(tmp_path / "t.csv", "town")
        assert made.classes_.tolist() == ["Aldea", "Brook", "Crag", "Dune"]
        _, y, weight = (np.concatenate(parts) for parts in zip(*seen, strict=True))
        assert y.dtype == np.int32
        assert np.bincount(y[weight > 0]).tolist()[2:] == [1, 1]
        # as heavy in each chunk as in the sample
        assert np.unique(weight[(y == 0) & (weight > 0)]).size == 1
        assert weight[y == 2].max() > 50

    @pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
    def test_what_was_written_is_deleted_whatever_happens(self, tiny, folder, monkeypatch, error):
        def fails(self, *, based):
            assert [*tiny.iterdir()]
            raise error

        monkeypatch.setattr(Whole, "stream", fails)
        made = px.BayesianRegressor(quality="fast", columns="auto", verbose=False)
        with pytest.raises(error):
            made.fit(folder, "y")
        assert not [*tiny.iterdir()]
        assert not hasattr(made, "columns_")


class TestRefusals:
    def test_a_target_that_is_not_there(self, folder, tiny):
        with pytest.raises(
            ValueError, match=r"^y: .* has no column 'price'; name one .*: 'a', 'b'"
        ):
            plain().fit(folder, "price")
        with pytest.raises(ValueError, match=r"^sample_weight: .* has no column 'w'"):
            plain().fit(folder, "y", "w")
        with pytest.raises(ValueError, match=r"^y: name the column to predict"):
            plain().fit(folder)

    def test_another_method(self, folder, tiny):
        with pytest.raises(ValueError, match=r"^method: a table of 900 rows .* method='auto'"):
            plain(columns="auto").fit(folder, "y")

    def test_folders(self, table, tmp_path):
        with pytest.raises(FileNotFoundError, match="holds no table"):
            plain().fit(tmp_path, "y")
        table.to_csv(tmp_path / "1.csv", index=False)
        table.rename(columns={"b": "c"}).to_csv(tmp_path / "2.csv", index=False)
        with pytest.raises(ValueError, match=r"2.csv: has no column 'b', which 1.csv has: the fil"):
            plain().fit(str(tmp_path), "y")
        table.to_parquet(tmp_path / "3.parquet")
        with pytest.raises(ValueError, match="holds Parquet and CSV files"):
            plain().fit(tmp_path, "y")

    def test_without_pyarrow(self, folder, monkeypatch):
        known = builtins.__import__

        def without(name, *more):
            if name.startswith("pyarrow"):
                raise ImportError(name)
            return known(name, *more)

        monkeypatch.setattr(builtins, "__import__", without)
        with pytest.raises(ImportError, match=r"pip install 'posterax\[parquet\]'"):
            plain().fit(folder, "y")


class TestCommands:
    def test_fit_and_predict(self, tiny, folder, table, tmp_path):
        out = tmp_path / "m.px"
        said = []
        options = {"quality": "fast", "out": out, "verbose": False, "tell": said.append}
        card = fit_table(folder, "y", **options).card
        assert card["data"]["rows"] == ROWS
        assert card["held_out"]["refit"] is False
        assert card["verdict"]["words"]
        assert any(f"random rows of {ROWS}" in line for line in said)
        blocks = [*predict_table(out, folder, rows=100)]
        assert max(map(len, blocks)) == 100
        mean = pd.concat(blocks)["mean"]
        assert np.corrcoef(mean, table["y"])[0, 1] > 0.9

    def test_what_is_held_out_is_not_learned(self, tiny, folder):
        parts, kind, _ = read_any(folder, "y", None, None, None, 0, False)
        train, held = hold_out(parts, kind, 0.2, 0, Split("random"))
        learned = [part.numbers for part in parts.source.table(train, kind).chunks(["town"])]
        learned = np.concatenate(learned)
        held = held.X.index.to_numpy() - 1
        assert len(learned) + len(held) == ROWS
        assert not np.isin(held, learned).any()

    def test_rows_of_time_are_not_sorted_out(self, tiny, folder, tmp_path):
        with pytest.raises(ValueError, match=r"--time: of 900 rows some are held out at random"):
            fit_table(folder, "y", time="a", out=tmp_path / "m.px", tell=lambda line: None)

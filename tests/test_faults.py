"""Every saver of the package on a disk that fails: the old file stays, and one line says so."""

import json
import shutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

import experiments
import posterax as px
from experiments import pages
from experiments.store import Store
from posterax import cli, demo
from posterax.bandits import tables
from posterax.callbacks import CSVWriter
from posterax.commands import fitting, scoring
from posterax.errors import CheckpointError
from posterax.files import container
from posterax.fitting.callbacks import Event
from posterax.report import build, write_report
from tests import faults

X = np.linspace(-1, 1, 40, dtype=np.float32)[:, None]
FRAME = pd.DataFrame({"a": X[:, 0], "price": 2 * X[:, 0] + 0.1 * np.sin(9 * X[:, 0])})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One of each that can be saved."""
    folder = tmp_path_factory.mktemp("made")
    network = px.networks.MLP(1, 1, (2,), key=0)
    model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
    posterior = px.prior_posterior(model, X)
    estimator = px.BayesianRegressor(
        "maximum_a_posteriori", columns="auto", steps=3, hidden_layer_sizes=(2,), verbose=False
    ).fit(FRAME[["a"]], FRAME["price"])
    estimator.save(folder / "model.px")
    FRAME.to_csv(folder / "data.csv", index=False)
    return {
        "posterior": posterior,
        "estimator": estimator,
        "agent": px.bandits.Agent(px.bandits.LinearThompson(), 2, 2, key=0),
        "learner": px.active.Learner(
            model, px.MaximumAPosteriori(), X, X[:, 0], posterior=posterior
        ),
        "temperature": px.recalibrate.Temperature(1.5, n=100, before=0.4, after=0.3),
        "folder": folder,
    }


def command(*words):
    """A command's run; where it fails, one line, and an error that a test can look at."""
    result = CliRunner().invoke(cli.app, list(map(str, words)))
    if result.exit_code:
        assert result.exit_code == 1, result.output
        lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, result.stderr
        raise OSError(lines[0])


def event(made, path):
    CSVWriter(path)(Event("fitting", 50, 99, {"nll": np.ones(50)}))


def figure(made, path):
    drawn = Figure(figsize=(1, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "pyplot", lambda: type("P", (), {"close": lambda *_: None}))
        pages.save(drawn, path, dpi=20)


def stored(made, path):
    store = Store(path, {})
    store.runs["a"] = {"value": 1}
    store.write()


def page(made, path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "render", lambda *_, **__: "<!doctype html>" * 20)
        write_report(path, made["estimator"], X, X[:, 0])


def one_row(study, names):
    """In the place of fits: a method that is as good as the baseline."""
    row = replace(study.baseline(), method="ivon", name="ivon", times=[1.0] * study.folds)
    return [study.baseline(), row], True


def compared(made, path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("posterax.commands.compare"), "_run", one_row)
        command("compare", made["folder"] / "data.csv", "-t", "price", "-o", path, "--folds", "2")


def predicted(made, path):
    command("predict", made["folder"] / "model.px", made["folder"] / "data.csv", "-o", path)


def checkpoint(made, path):
    container.write(path, {"w": np.ones(100)}, {"format": 1})


SAVERS = {
    "model.px": lambda made, path: made["posterior"].save(path),
    "estimator.px": lambda made, path: made["estimator"].save(path),
    "agent.px": lambda made, path: made["agent"].save(path),
    "learner.safetensors": lambda made, path: made["learner"].save(path.parent),
    "temperature.json": lambda made, path: made["temperature"].save(path),
    "report.html": page,
    "compared.csv": compared,
    "predicted.csv": predicted,
    "picture.png": figure,
    "history.csv": event,
    "state.safetensors": checkpoint,
    "store.json": stored,
    "page.md": lambda made, path: experiments.put(path, "page", "text " * 40),
}


@pytest.mark.parametrize("fault", faults.SAVING)
@pytest.mark.parametrize("name", SAVERS)
def test_a_failed_save_leaves_what_was_there(name, fault, made, tmp_path):
    path, save = tmp_path / name, SAVERS[name]
    save(made, path)
    old = path.read_bytes()
    assert len(old) > 20
    with faults.SAVING[fault](), pytest.raises(OSError) as failed:  # noqa: PT011
        save(made, path)
    assert path.read_bytes() == old
    assert [p.name for p in tmp_path.iterdir()] == [name]
    said = str(failed.value)
    assert str(path) in said
    assert "\n" not in said
    assert "as it was" in said


def test_a_picture_of_the_demo_is_written_whole(tmp_path, monkeypatch):
    def band(axes, x, *_, **__):
        axes.plot(x, x, label="x")

    monkeypatch.setattr("posterax.plot.regression_band", band)
    monkeypatch.setattr(demo, "_predict", lambda *_: None)
    path, drawn = tmp_path / "curve.png", ({"prior": None}, (X, X[:, 0]))
    demo.draw_curve(*drawn, path)
    old = path.read_bytes()
    with faults.full(100), pytest.raises(OSError, match=r"curve\.png"):
        demo.draw_curve(*drawn, path)
    assert path.read_bytes() == old
    assert old.startswith(b"\x89PNG")


def test_half_a_table_is_not_kept_for_the_next_time(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "folders", lambda: [tmp_path])
    monkeypatch.setattr(tables, "_fetch", lambda name: FRAME)
    with faults.full(100), pytest.raises(OSError, match=r"mushroom\.csv\.gz"):
        tables.table("mushroom")
    assert not list(tmp_path.iterdir())
    pd.testing.assert_frame_equal(tables.table("mushroom"), tables.table("mushroom"))


def test_rows_that_do_not_fit_are_not_there_in_part(tmp_path, made):
    path = tmp_path / "history.csv"
    writer = CSVWriter(path)
    writer(Event("fitting", 2, 9, {"nll": np.ones(2)}))
    old = path.read_bytes()
    with faults.full(5), pytest.raises(OSError, match=r"the file there is as it was: .*history"):
        writer(Event("fitting", 4, 9, {"nll": np.ones(2)}))
    assert path.read_bytes() == old
    writer(Event("fitting", 4, 9, {"nll": np.ones(2)}))
    assert path.read_text().splitlines()[-1] == "fitting,4,1"


@pytest.mark.parametrize("number", [5, None], ids=["failing", "short"])
def test_reads_that_fail_or_end_early(number, made, tmp_path):
    """A sentence, not half a result."""
    made["temperature"].save(tmp_path / "t.json")
    with faults.unreadable(30, number), pytest.raises((CheckpointError, OSError)) as failed:
        px.recalibrate.load(tmp_path / "t.json")
    assert len(str(failed.value).splitlines()) == 1
    (tmp_path / "s.json").write_text(json.dumps({"settings": {}, "facts": {}, "runs": {}}))
    with faults.unreadable(20, number), pytest.raises((ValueError, OSError), match="out: "):
        Store(tmp_path / "s.json", {})


# -- posterax fit keeps what it has learned


@pytest.fixture
def learned(made, monkeypatch):
    """Fits take no time here."""
    estimator = made["estimator"]
    monkeypatch.setattr(scoring, "learn", lambda *_: estimator)
    return made["folder"] / "data.csv"


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_model_that_cannot_be_written_is_written_elsewhere(
    learned, tmp_path, monkeypatch, elsewhere
):
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setattr(fitting.tempfile, "gettempdir", lambda: str(other))
    real = type(px.BayesianRegressor()).save

    def save(self, path):
        if Path(path).parent == other and elsewhere:
            return real(self, path)
        with faults.full(100):
            return real(self, path)

    monkeypatch.setattr(type(px.BayesianRegressor()), "save", save)
    place = tmp_path / "model.px"
    words = ["fit", learned, "-t", "price", "-o", place, "--test-fraction", "0"]
    with pytest.raises(OSError, match=r"model\.px: No space left on device") as failed:
        command(*words)
    kept = list(other.iterdir())
    assert not place.exists()
    if elsewhere:
        assert f"the model is in {kept[0]} instead" in str(failed.value)
        assert px.load(kept[0]).predict(FRAME[["a"]]).shape == (40,)
    else:
        assert "nor could the model be written anywhere else" in str(failed.value)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_report_that_fails_does_not_lose_the_model(learned, tmp_path, monkeypatch, stop):
    def fail(*_, **__):
        raise stop

    monkeypatch.setattr("posterax.report.write_report", fail)
    place = tmp_path / "model.px"
    words = ["fit", learned, "-t", "price", "-o", place, "--report", tmp_path / "report.html"]
    result = CliRunner().invoke(cli.app, [*map(str, words), "--test-fraction", "0"])
    assert result.exit_code in (1, 130)
    assert f"the model is in {place}" in result.stderr
    assert px.load(place).predict(FRAME[["a"]]).shape == (40,)


def test_a_table_that_cannot_be_written_is_shown(made, tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("posterax.commands.compare"), "_run", one_row)
    words = ["compare", made["folder"] / "data.csv", "-t", "price", "-o", tmp_path / "c.csv"]
    with faults.full():
        result = CliRunner().invoke(cli.app, list(map(str, words)))
    assert result.exit_code == 1
    assert "NLL" in result.stdout
    assert "c.csv: No space left on device; nothing was written" in result.stderr


# -- learners and histories that do not part


def test_a_learner_is_one_file_and_old_pairs_load(made, tmp_path):
    learner = made["learner"]
    given = learner.model, learner.method
    learner.save(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["learner.safetensors"]
    again = px.active.Learner.load(tmp_path, *given)
    np.testing.assert_array_equal(again.y, learner.y)
    old = tmp_path / "old"  # as posterax 0.1.0 wrote them
    old.mkdir()
    learner.posterior.save(old / "posterior.safetensors")
    np.savez(old / "labels.npz", **{"y": learner.y, "rounds": 3, "x/": learner.x})
    assert px.active.Learner.load(old, *given).rounds == 3
    learner.save(old)  # and the one file counts from then on
    assert px.active.Learner.load(old, *given).rounds == learner.rounds
    shutil.copy(old / "posterior.safetensors", tmp_path / "learner.safetensors")
    with pytest.raises(CheckpointError, match=r"learner\.safetensors: .*'learner'"):
        px.active.Learner.load(tmp_path, *given)
    with pytest.raises(FileNotFoundError, match=r"learner\.safetensors"):
        px.active.Learner.load(tmp_path / "none", *given)


def rows(path):
    lines = [line.split(",") for line in path.read_text().splitlines()]
    return [(phase, int(step)) for phase, step, *_ in lines if step != "step"]


def test_a_resumed_fit_has_every_step_once(tmp_path):
    """Killed after step 6, while a row was being written; its checkpoint has step 4."""
    path = tmp_path / "history.csv"
    first = CSVWriter(path)
    first(Event("warming up", 3, 3, {"step size": np.ones(3)}, None, 0))
    first(Event("sampling", 4, 9, {"energy": np.ones(4)}, None, 1))
    first(Event("sampling", 6, 9, {"energy": np.ones(2)}, None, 1))
    with path.open("a") as file:
        file.write("sampling,1")
    CSVWriter(path)(Event("sampling", 9, 9, {"energy": np.zeros(5)}, None, 1))
    whole = [("warming up", i) for i in (1, 2, 3)] + [("sampling", i) for i in range(1, 10)]
    assert rows(path) == whole
    assert path.read_text().splitlines()[-1] == "sampling,9,0"
    assert path.read_text().count("phase,step") == 2
    # one that begins a later phase anew keeps what came before it
    again = CSVWriter(path)
    again(Event("sampling", 2, 9, {"energy": np.zeros(2)}, None, 1))
    assert rows(path) == whole[:5]
    # the same object, in a fit that failed and was called again, and then in a new fit
    again(Event("sampling", 3, 9, {"energy": np.zeros(2)}, None, 1))
    assert rows(path) == whole[:6]
    again(Event("warming up", 2, 3, {"step size": np.ones(2)}, None, 0))
    assert rows(path) == whole[:2]


def test_a_fit_that_goes_on_from_its_checkpoint_goes_on_in_its_history(tmp_path):
    network = px.networks.MLP(1, 1, (2,), key=0)
    model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
    path = tmp_path / "history.csv"

    def fit(*callbacks):
        given = {"steps": 200, "key": 0, "checkpoint": px.Checkpoint(tmp_path / "c", every=1e-9)}
        return px.fit(
            model, (X, X), px.MaximumAPosteriori(), callbacks=[CSVWriter(path), *callbacks], **given
        )

    def die(event):
        if event.step > 20:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fit(die)
    with path.open("a") as file:  # rows after the checkpoint, as a fit that is killed leaves them
        file.writelines(f"optimising,{i},1,1\r\n" for i in range(150, 170))
    fit()
    assert rows(path) == [("optimising", i) for i in range(1, 201)]

"""Files of the first format, kept as they were written: every later version reads them."""

import dataclasses
import json
import stat
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from safetensors import safe_open

import posterax as px
from posterax.files import container as checkpoint
from posterax.files import saved
from tests.data import make_format1 as format1

pytestmark = pytest.mark.usefixtures("hasty_module")

EXPECTED = np.load(format1.HERE / "expected.npz")
load = format1.load


def test_there_is_one_of_every_kind():
    names = {path.stem for path in format1.HERE.glob("*.px")}
    assert names == set(EXPECTED.files)
    assert names >= set(saved._POSTERIORS)
    kinds = {name: header_of(name).get("posterior") for name in names}
    assert all(kinds[name] == name for name in saved._POSTERIORS)
    assert header_of("per_weight")["model"]["prior"]["name"] == "PerWeight"
    for name in names:  # as they were, before files said what wrote them
        assert header_of(name)["format"] == 1
        assert ("written" in header_of(name)) == (name == "columns")


def header_of(name):
    with safe_open(format1.HERE / f"{name}.px", framework="numpy") as file:
        return json.loads(file.metadata()["posterax"])


@pytest.mark.parametrize("name", EXPECTED.files)
def test_loads_and_is_written_again_as_it_was(name, tmp_path):
    path = format1.HERE / f"{name}.px"
    load(path).save(tmp_path / "again.px")
    (arrays, header), (before, said) = map(checkpoint.read, (tmp_path / "again.px", path))
    assert arrays.keys() == before.keys()
    for key, array in arrays.items():
        assert array.dtype == before[key].dtype
        np.testing.assert_array_equal(array, before[key])
    for part in ("posterior", "family", "targets", "model", "method", "settings", "evidence"):
        assert header.get(part) == said.get(part)
    if "estimator" in said:
        assert header["estimator"]["fitted"] == said["estimator"]["fitted"]
        assert header["estimator"].get("card") == said["estimator"].get("card")


def test_a_policy_of_before_is_recognised():
    """Its file has no ``random_first``, which is 0 where nobody set it."""
    small = {"hidden": (3,), "buffer": 8, "batch_size": 4, "updates": 2}
    given = {"Thompson": lambda **more: px.bandits.Thompson(**small, **more)}
    given["own"] = lambda **more: dataclasses.replace(format1.own_policy(), **more)
    for name, policy in given.items():
        path = format1.HERE / f"{name}.px"
        if name == "Thompson":
            assert "random_first" not in header_of(name)["agent"]["policy"]["with"]
        px.bandits.load(path, policy=policy())
        for other in ({"random_first": 3}, {"samples": 5}):
            with pytest.raises(px.CheckpointError, match="other settings"):
                px.bandits.load(path, policy=policy(**other))


# a compiled program for each: a few stand for all, which make test-all runs
FEW = ("Draws", "FullGaussian", "DropoutPosterior", "Point", "frozen", "LinearThompson")


@pytest.mark.parametrize(
    "name", [n if n in FEW else pytest.param(n, marks=pytest.mark.slow) for n in EXPECTED.files]
)
def test_predicts_as_when_it_was_written(name):
    found, expected = format1.numbers(name, load(format1.HERE / f"{name}.px")), EXPECTED[name]
    assert found.shape == expected.shape
    # relative to the size of the numbers: a mean near 0 has no digits to compare
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


def test_a_new_file_says_how_it_came_about(tmp_path):
    before = px.load(format1.HERE / "MeanFieldGaussian.px")
    before.save(tmp_path / "new.px")
    header = px.files.about(tmp_path / "new.px")
    written = header["written"]
    assert written["posterax"] == px.__version__
    assert written["numpy"] == np.__version__
    assert set(written) >= {"jax", "python", "device"}
    assert abs(datetime.now(UTC) - datetime.fromisoformat(written["when"])) < timedelta(minutes=5)
    assert header["method"] == "BayesByBackprop"
    assert "learning_rate=0.05" in header["settings"]["method"]
    assert (header["settings"]["steps"], header["settings"]["examples"]) == (4, 12)
    after = px.load(tmp_path / "new.px")
    assert after.record.settings == before.record.settings
    for name, values in before.history.items():
        np.testing.assert_array_equal(after.history[name], values)
    # others may read it, as any file that is made here
    (tmp_path / "plain").touch()
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("new.px", "plain")]
    assert modes[0] == modes[1]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new.px", "plain"]


def test_what_is_no_file_of_ours_is_said(tmp_path):
    with pytest.raises(px.CheckpointError, match="is a directory; give the file"):
        px.load(tmp_path)
    with pytest.raises(px.CheckpointError, match="is a directory; give the file"):
        px.bandits.load(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"none\.px: no such file"):
        px.files.about(tmp_path / "none.px")

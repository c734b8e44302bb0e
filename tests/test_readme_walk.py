"""The README's walk, from a table to predictions, by its own commands word for word."""

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from posterax.cli import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
WALK = re.search(r"<!-- walk -->.*?^```sh\n(.*?)^```$.*?<!-- /walk -->", README, re.M | re.S)
PYTHON = re.search(r"<!-- walk -->\s+^```py\n(.*?)^```$", README, re.M | re.S)
COLUMNS = ["mean", "std", "epistemic_std", "aleatoric_std", "low", "high"]


def commands() -> list[list[str]]:
    assert WALK, "the README has no walk"
    lines = [shlex.split(line, comments=True) for line in WALK[1].splitlines() if line.strip()]
    assert all(line[0] == "posterax" for line in lines)
    return [line[1:] for line in lines]


def walk(folder: Path, monkeypatch, more: list[str] | None = None) -> list[str]:
    """What each command printed, in a folder with the README's data.

    ``more`` takes the place of the report, most of whose cost is drawing.
    """
    shutil.copytree(ROOT / "docs" / "data", folder / "docs" / "data")
    monkeypatch.chdir(folder)
    printed = []
    for arguments in commands():
        if more is not None and arguments[0] == "fit":
            at = arguments.index("--report")
            arguments = [*arguments[:at], *more, *arguments[at + 2 :]]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, (arguments, result.output)
        printed.append(result.stdout)
    python(folder)
    return printed


def python(folder: Path) -> None:
    """The README's lines that read the same file, which say what ``predict`` said."""
    namespace: dict = {}
    exec(compile(PYTHON[1], "README.md", "exec"), namespace)
    said = pd.read_csv(folder / "predictions.csv")
    for name in ("mean", "std", "low", "high"):
        np.testing.assert_allclose(namespace[name], said[name], rtol=1e-3)


def check(folder: Path) -> pd.DataFrame:
    new = pd.read_csv(folder / "docs/data/new_houses.csv")
    predictions = pd.read_csv(folder / "predictions.csv")
    assert len(predictions) == len(new)
    parts = predictions[COLUMNS]
    assert np.isfinite(parts.to_numpy()).all()
    squares = parts["epistemic_std"] ** 2 + parts["aleatoric_std"] ** 2
    np.testing.assert_allclose(parts["std"] ** 2, squares, rtol=1e-3)
    assert (parts["low"] < parts["high"]).all()
    return predictions


def test_walk_with_a_few_steps(tmp_path, monkeypatch):
    # one network in the place of six: the same way through the commands
    printed = walk(tmp_path, monkeypatch, ["--quick", "--method", "maximum_a_posteriori"])
    check(tmp_path)
    assert "houses.px" in printed[0]
    assert "price" in printed[2]


def scores_in(text: str) -> dict[str, list[float]]:
    """Value and interval of each score of a table that ``fit`` prints, or the README quotes."""
    from posterax.metrics.evaluate import TITLES as SCORES

    names = "|".join(SCORES.values())
    rows = re.findall(rf"^({names}) +(\S+) +(?:(\S+) … (\S+)|by chance ≤ (\S+))", text, re.M)
    return {row[0]: [float(cell.rstrip("%")) for cell in row[1:] if cell] for row in rows}


def compare(printed: str, predictions: pd.DataFrame) -> None:
    """What the README quotes, within what another machine's rounding makes of it."""
    quoted, found = scores_in(README), scores_in(printed)
    assert list(quoted) == list(found)
    for name, (value, *ends) in found.items():
        if len(ends) == 2:
            low, high = quoted[name][1:]
            assert low <= value <= high, name
            assert ends == pytest.approx([low, high], rel=0.25), name
        else:
            assert value <= 2 * ends[0], name
            assert ends == pytest.approx(quoted[name][1:], rel=1e-3)
    table = re.search(r"^mean +std +epistemic_std.*?\n(.*?)^```", README, re.M | re.S)[1]
    rows = np.array([[float(cell) for cell in row.split()[:6]] for row in table.splitlines()])
    assert len(rows) == len(predictions)
    mean, std = rows[:, 0], rows[:, 1]
    assert (np.abs(predictions["mean"] - mean) < std).all()
    assert (np.abs(np.log2(predictions["std"] / std)) < 1).all()


@pytest.mark.slow
def test_walk_word_for_word(tmp_path, monkeypatch):
    printed = walk(tmp_path, monkeypatch)
    predictions = check(tmp_path)
    compare(printed[0], predictions)
    report = (tmp_path / "houses.html").read_text()
    assert report.lstrip().lower().startswith("<!doctype html>")
    assert "price" in report
    usual, unlike = predictions.loc[:3, "std"].mean(), predictions.loc[[5, 7], "std"]
    assert (unlike > 2 * usual).all()  # 600 m², 45 km out


def test_data_are_made_by_the_script(tmp_path, monkeypatch):
    namespace = {"__file__": str(tmp_path / "houses.py"), "__name__": "houses"}
    exec(compile((ROOT / "docs/data/houses.py").read_text(), "houses.py", "exec"), namespace)
    namespace["main"]()
    for name in ("houses.csv", "new_houses.csv"):
        made = pd.read_csv(tmp_path / name)
        pd.testing.assert_frame_equal(made, pd.read_csv(ROOT / "docs" / "data" / name))


def test_table_of_scores_names_what_fit_prints():
    from posterax.metrics.evaluate import TITLES as SCORES

    quoted = scores_in(README)
    assert len(quoted) == 7
    assert set(quoted) <= set(SCORES.values())
    assert quoted["RMSE"][1] < quoted["RMSE"][0] < quoted["RMSE"][2]

"""The gallery's page about the evidence: what it says of its figures, and its picture."""

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"


def stored():
    return json.loads((GALLERY / "evidence.json").read_text())


def test_the_evidence_picks_the_truth_and_the_training_error_the_largest():
    result = stored()
    for kind in ("degree", "width"):
        found = result[kind]
        assert found["best"] == found["truth"]
        assert np.all(np.diff(found["train"]) < 0)
        assert found["new"][-1] > found["new"][found["sizes"].index(found["truth"])]


def test_the_page_has_its_numbers():
    result, page = stored(), (GALLERY / "evidence.md").read_text()
    chosen = result["degree"]["chosen"]
    right = sum(degree == result["degree"]["truth"] for degree in chosen)
    assert f"{right} of {len(chosen)}" in page
    for kind in ("degree", "width"):
        found = result[kind]
        best = max(found["evidence"])
        rows = zip(
            found["sizes"], found["train"], found["new"], found["evidence"], found["error"],
            strict=True,
        )  # fmt: skip
        for size, train, new, value, error in rows:
            gap = f"{value - best:.1f}" if error == 0 else f"{value - best:.1f} ± {error:.1f}"
            assert f"| {size} | {train:.3f} | {new:.3f} | {gap} |" in page


def test_draws_what_was_measured(tmp_path, monkeypatch):
    (tmp_path / "picture.json").write_text(json.dumps(stored()))
    script, out = str(GALLERY / "evidence.py"), str(tmp_path / "picture.png")
    monkeypatch.setattr(sys, "argv", [script, "--draw", "--out", out])
    runpy.run_path(script, run_name="__main__")
    assert 20_000 < Path(out).stat().st_size < 300_000


@pytest.mark.slow
def test_measures(tmp_path, monkeypatch):
    script, out = str(GALLERY / "evidence.py"), str(tmp_path / "picture.png")
    monkeypatch.setattr(sys, "argv", [script, "--quick", "--out", out])
    runpy.run_path(script, run_name="__main__")
    found = json.loads((tmp_path / "picture.json").read_text())
    assert found["degree"]["best"] == found["degree"]["truth"]
    assert len(found["width"]["evidence"]) == 2

"""The gallery's scripts about samplers run, in small."""

import json
import runpy
import sys
from pathlib import Path

import pytest

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"


def test_exact_or_fast_draws_what_was_measured(tmp_path, monkeypatch):
    stored = json.loads((GALLERY / "exact_or_fast.json").read_text())
    (tmp_path / "picture.json").write_text(json.dumps(stored))
    script, out = str(GALLERY / "exact_or_fast.py"), str(tmp_path / "picture.png")
    monkeypatch.setattr(sys, "argv", [script, "--draw", "--out", out])
    runpy.run_path(script, run_name="__main__")
    assert 30_000 < Path(out).stat().st_size < 300_000


def test_exact_methods_get_there_and_approximations_stay_where_they_are():
    """What the page says of its figures."""
    curves = json.loads((GALLERY / "exact_or_fast.json").read_text())["curves"]

    def last(name):
        points = curves[name]["points"]
        budget = max(point["budget"] for point in points)
        return min(point["error"] for point in points if point["budget"] == budget)

    for name in ("HMC", "NUTS", "MCLMC, adjusted"):
        assert last(name) < 0.1
    for name in ("Bayes by Backprop", "deep ensemble", "maximum a posteriori"):
        assert last(name) > 2 * last("NUTS")


@pytest.mark.slow
def test_exact_or_fast_measures_every_method(tmp_path, monkeypatch):
    script, out = str(GALLERY / "exact_or_fast.py"), str(tmp_path / "picture.png")
    monkeypatch.setattr(sys, "argv", [script, "--quick", "--out", out])
    runpy.run_path(script, run_name="__main__")
    found = json.loads((tmp_path / "picture.json").read_text())
    assert all(curve["points"] for curve in found["curves"].values())
    assert len(found["curves"]) == 12

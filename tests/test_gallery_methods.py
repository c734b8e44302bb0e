"""The picture of all methods: epistemic deviation grows outside of the data."""

import json
import runpy
import sys
from pathlib import Path

import pytest

import posterax as px
from posterax.infer import Method

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"
POINTS = ("maximum likelihood", "maximum a posteriori", "simulated annealing")


def check(deviations):
    for name, deviation in deviations.items():
        if name in POINTS:
            assert deviation["outside"] == 0, name
        else:
            assert deviation["outside"] > 2 * deviation["inside"] > 0, name


def test_every_method_has_a_panel_and_the_page_its_numbers():
    panels = runpy.run_path(str(GALLERY / "methods.py"))["PANELS"]
    shown = {type(panel.method) for panel in panels.values()}
    public = [getattr(px, name) for name in px.__all__]
    assert shown == {m for m in public if isinstance(m, type) and issubclass(m, Method)}
    deviations = json.loads((GALLERY / "methods.json").read_text())["deviations"]
    assert list(deviations) == list(panels)
    check(deviations)
    page = (GALLERY / "methods.md").read_text()
    for name, deviation in deviations.items():
        row = f"| {name} | {deviation['inside']:.3f} | {deviation['outside']:.2f} |"
        assert name in POINTS or row in page


@pytest.mark.slow
def test_deviations_grow_outside_of_the_data(tmp_path, monkeypatch):
    script, out = str(GALLERY / "methods.py"), tmp_path / "methods.png"
    monkeypatch.setattr(sys, "argv", [script, "--out", str(out)])
    runpy.run_path(script, run_name="__main__")
    check(json.loads(out.with_suffix(".json").read_text())["deviations"])

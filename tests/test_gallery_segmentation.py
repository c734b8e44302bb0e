"""The gallery's segmentation: aleatoric on borders, epistemic on patterns never seen."""

import importlib.util
import re
import textwrap
from pathlib import Path

import numpy as np
import pytest

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"


@pytest.fixture(scope="module")
def segmentation():
    spec = importlib.util.spec_from_file_location("gallery_seg", GALLERY / "segmentation.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def posterior(segmentation):
    return segmentation.fit(1, n=400, steps=250)  # another seed than the page's, and less of all


def test_both_maps_light_up_where_they_should(segmentation, posterior):
    found = segmentation.scores(posterior, segmentation.held_out(1, 25))
    assert found["interior, right class"] > 0.95
    # aleatoric: the borders, and there as much as the wobble of the labels
    assert found["aleatoric, border"] > 3 * found["aleatoric, interior"]
    assert found["aleatoric, border"] > 5 * found["aleatoric, background"]
    assert found["aleatoric and label noise, correlation"] > 0.85
    # epistemic: the unseen patterns, not the borders
    assert found["AUROC, all unseen"] > 0.9
    for kind in segmentation.UNSEEN:
        assert found[f"epistemic, {kind}"] > 5 * found["epistemic, seen"]


def test_wobble_of_the_labels_is_what_the_script_says(segmentation):
    made = segmentation.scenes(300, segmentation.SEEN, 5)
    # P(inside) at distance d is Φ(−d / σ): compare in bands, away from a second cell
    from scipy.special import ndtr

    for low in (-2.0, -1.0, 0.0, 1.0):
        band = (low <= made.distance) & (made.distance < low + 0.2)
        share = np.mean(made.labels[band] > 0)
        assert share == pytest.approx(ndtr(-(low + 0.1) / segmentation.WOBBLE), abs=0.06)


def test_picture(segmentation, posterior, tmp_path):
    segmentation.picture(posterior, tmp_path / "segmentation.png")
    assert 20_000 < (tmp_path / "segmentation.png").stat().st_size < 300_000


def test_the_page_shows_the_script():
    script = (GALLERY / "segmentation.py").read_text()
    page = (GALLERY / "segmentation.md").read_text()
    blocks = re.findall(r"^```py\n(.*?)^```$", page, re.M | re.S)
    assert blocks
    for block in blocks:
        assert textwrap.indent(block, "    ") in script, block

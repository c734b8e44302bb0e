"""Every method page has its parts: equation, call, picture, when to use it, when not, options."""

import re
import struct
import sys
from pathlib import Path

import pytest

METHODS = Path(__file__).parents[1] / "docs" / "methods"
PAGES = sorted(page for page in METHODS.glob("*.md") if page.name != "index.md")
PARTS = {
    "an equation": r"^\$\$\n.+?^\$\$$",
    "a call that runs": r"^```python\n.*?px\.fit\(.*?^```$",
    "when to use": r"^\*\*When to use\.\*\*",
    "when not": r"^\*\*When not\.\*\*",
    "options": r"^(\*\*Options\.\*\*|## (Other o|O)ptions$)",
    "a reference": r"^\*\*References?\.\*\* .*?(19|20)\d\d",
}
WIDEST, LARGEST = 1000, 120_000  # pixels, bytes


@pytest.fixture(scope="module")
def drawn() -> set[str]:
    """The names that the script draws, without drawing."""
    sys.path.insert(0, str(METHODS))
    try:
        from pictures import PICTURES
    finally:
        sys.path.remove(str(METHODS))
    return set(PICTURES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_has_its_parts(page):
    text = page.read_text()
    missing = [part for part, form in PARTS.items() if not re.search(form, text, re.M | re.S)]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_shows_its_picture(page):
    shown = re.search(
        rf"^!\[(?P<words>[^\]]+)\]\({page.stem}\.png\)\n\n(?P<caption>.+?)\n\n",
        page.read_text(),
        re.M | re.S,
    )
    assert shown, "no picture of its own"
    assert len(shown["words"]) > 20, "those who cannot see it want to know what it shows"
    assert "docs/methods/pictures.py" in shown["caption"]
    picture = page.with_suffix(".png").read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", picture[16:24])
    assert 800 <= width <= WIDEST and 300 <= height <= 450  # noqa: PT018
    assert len(picture) < LARGEST


def test_script_draws_the_picture_of_every_page_and_no_other(drawn):
    assert drawn == {page.stem for page in PAGES}
    assert {p.stem for p in METHODS.glob("*.png")} == drawn


@pytest.mark.slow
def test_script_runs(drawn, tmp_path):
    sys.path.insert(0, str(METHODS))
    try:
        from pictures import PICTURES, save
    finally:
        sys.path.remove(str(METHODS))
    save(PICTURES["point_estimates"], tmp_path / "point_estimates.png")
    assert (tmp_path / "point_estimates.png").stat().st_size > 5_000

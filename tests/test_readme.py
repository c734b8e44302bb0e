"""Every python block of the README and the docs runs, in order, one namespace a page."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# pages that compile much and compute little
HASTY = ("docs/explaining.md", "docs/report.md", "docs/equations.md", "docs/adding_a_method.md")
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_code_runs(page, tmp_path, monkeypatch, request):
    if name(page) in HASTY:
        request.getfixturevalue("hasty_compiler")
    monkeypatch.chdir(tmp_path)  # what a page saves is not left behind
    text = page.read_text()
    namespace = {"__name__": "page"}
    for match in BLOCK.finditer(text):
        # blank lines in front, so that a traceback has the line numbers of the page
        above = text[: match.start(1)].count("\n")
        exec(compile("\n" * above + match.group(1), str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target

"""The page of equations: its places exist in the source, and its slips are flagged and listed.

``test_readme.py`` runs its blocks, each of which compares the code with a computation by hand.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "posterax"
TEXT = (ROOT / "docs" / "equations.md").read_text()
ROWS = [row for row in TEXT.splitlines() if row.startswith("|") and ".py`" in row]
FILES = sorted({f for row in ROWS for f in re.findall(r"`([\w/]+\.py)`", row)})


def places() -> list[tuple[str, str]]:
    """A file and a name in it, for every ``file.py`, `name`` of the tables."""
    found = []
    for row in ROWS:
        for file, names in re.findall(r"`([\w/]+\.py)`(?:'s)?((?:,? (?:and )?`\w+`)+)", row):
            found += [(file, name) for name in re.findall(r"`(\w+)`", names)]
    return sorted(set(found))


def path_of(file: str) -> Path:
    """Tables name a file by its place in the package, or by its name where that is enough."""
    hits = [SOURCE / file] if (SOURCE / file).exists() else [*SOURCE.rglob(Path(file).name)]
    assert len(hits) == 1, f"{file}: {hits}"
    return hits[0]


def test_tables_name_many_places():
    assert len(FILES) >= 25
    assert len(places()) >= 25


@pytest.mark.parametrize("file", FILES)
def test_file_exists(file):
    assert path_of(file).is_file()


@pytest.mark.parametrize(("file", "name"), places())
def test_name_is_defined_where_the_page_says(file, name):
    tree = ast.walk(ast.parse(path_of(file).read_text()))
    defined = {n.name for n in tree if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    assert name in defined


def test_every_slip_is_flagged_once_and_listed():
    boxes = [int(n) for n in re.findall(r'^!!! warning "Slip (\d+): ', TEXT, re.M)]
    listed = [int(n) for n in re.findall(r"^\| (\d+) \| ", TEXT, re.M)]
    assert boxes == listed == list(range(1, len(boxes) + 1))
    assert len(boxes) >= 10


def test_blocks_assert_something():
    blocks = re.findall(r"^```python\n(.*?)^```$", TEXT, re.M | re.S)
    assert sum("assert" in block for block in blocks) >= len(blocks) - 1  # the first imports

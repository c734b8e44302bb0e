"""The documentation site, without building it: what it names is there, and nothing is left out."""

import ast
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import posterax as px

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
FENCE = re.compile(r"^ *```.*?^ *```$|<!--.*?-->|\$\$.*?\$\$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
REFERENCE = re.compile(r"^::: (\S+)\n    options:\n      heading: (\S+)$", re.MULTILINE)


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def pages_of(nav) -> list[str]:
    """The files that a navigation names, in order."""
    if isinstance(nav, str):
        return [nav]
    return [
        page for part in nav for page in pages_of(part.values() if type(part) is dict else part)
    ]


def anchors(page: Path) -> set[str]:
    """What a heading is called in a link, as Python-Markdown makes it."""
    names = set(re.findall(r"\{ *#([^ }]+)", page.read_text()))
    names |= {where for where, _ in REFERENCE.findall(page.read_text())}
    for heading in HEADING.findall(prose(page)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).encode("ascii", "ignore").decode()
        name = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())
        names.add(name if name not in names else f"{name}_1")
    return names


def test_navigation_has_every_page_once():
    nav = pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert [page for page, count in Counter(nav).items() if count > 1] == []
    assert sorted(nav) == [page.relative_to(DOCS).as_posix() for page in PAGES]


def test_links_and_anchors_lead_somewhere():
    wrong = []
    for page in PAGES:
        for target in LINK.findall(CODE.sub("", prose(page))):
            if "://" not in target and (why := misled(page, target)):
                wrong.append(f"{page.relative_to(ROOT)}: {target} {why}")
    assert wrong == []


def misled(page: Path, target: str) -> str:
    file, _, anchor = target.partition("#")
    found = (page.parent / file).resolve() if file else page
    if not found.is_relative_to(DOCS):
        return "is not in docs/, and the site has nothing else"
    if not found.is_file():
        return "is no file"
    return f"has no heading #{anchor}" if anchor and anchor not in anchors(found) else ""


def test_lists_are_lists_on_the_site_too():
    """Python-Markdown takes a list that follows a line of text for more of that text."""
    item = re.compile(r"([-*]|\d{1,2}\.) +\S")
    wrong = []
    for page in PAGES:
        for paragraph in prose(page).split("\n\n"):
            first, *rest = paragraph.strip("\n").splitlines() or [""]
            if not item.match(first.lstrip()) and any(map(item.match, rest)):
                wrong.append(f"{page.relative_to(ROOT)}: {first}")
    assert wrong == [], "a blank line is missing before the list"


# -- the reference


def public() -> dict[str, object]:
    """Every public name: those of ``px`` and of its modules."""
    names: dict[str, object] = {}
    for name in px.__all__:
        value = getattr(px, name)
        if not isinstance(value, ModuleType):
            names[f"px.{name}"] = value
        for inner in getattr(value, "__all__", ()) if isinstance(value, ModuleType) else ():
            names[f"px.{name}.{inner}"] = getattr(value, inner)
    names.pop("px.__version__")
    return names


def resolved(path: str) -> object:
    """The object at ``package.module.Class``, a module where the longest one is."""
    parts = path.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:cut])
        if name in sys.modules or importlib.util.find_spec(name):
            value = importlib.import_module(name)
            for part in parts[cut:]:
                value = getattr(value, part)
            return value
    raise AssertionError(path)


def test_reference_has_every_public_name_once():
    entries = [
        e
        for page in sorted((DOCS / "api").glob("*.md"))
        for e in REFERENCE.findall(page.read_text())
    ]
    assert [where for where, count in Counter(e[0] for e in entries).items() if count > 1] == []
    shown = {id(resolved(where)): heading for where, heading in entries}
    words = "".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    for name, value in public().items():
        if inspect.isclass(value) or inspect.isfunction(value):
            assert id(value) in shown, f"{name} is missing from docs/api"
        else:  # colours, tables, types: a word on the page
            assert words.count(f"`{name}`") == 1, f"{name} must be on a page of docs/api once"
    for where, heading in entries:  # and is called what a user calls it
        if heading.count(".") == 1 or heading in public():
            assert public()[heading] is resolved(where), heading


# -- messages


def texts() -> list[str]:
    """Every string of the source as it is joined, with … for what is put into it."""
    found = []
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.BinOp | ast.JoinedStr | ast.Constant):
                found.append(flat(node))
    return found


def flat(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else "…"
    if isinstance(node, ast.JoinedStr):
        return "".join(map(flat, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return flat(node.left) + flat(node.right)
    return "…"


def quoted() -> list[str]:
    page = (DOCS / "messages.md").read_text()
    return re.findall(r"^\| `([^`]+)`", page, re.MULTILINE)


def test_messages_are_still_said():
    page = quoted()
    assert len(page) >= 60
    source = "\0".join(text for text in set(texts()) if len(text) > 8)
    silent = []
    for message in page:
        parts = [part for part in message.split("…") if part.strip()]
        if not re.search("[^\0]*?".join(map(re.escape, parts)), source):
            silent.append(message)
    assert silent == [], "no longer said in src"


# -- results


def test_results_in_short_are_those_of_their_pages():
    """Every figure of the table stands on the page it links to; what is not run says so."""
    table = (DOCS / "results" / "index.md").read_text()
    rows = re.findall(r"^\| \[[^\]]+\]\(([\w.]+)\) \| (.*) \|$", table, re.MULTILINE)
    pages = {page.name for page in (DOCS / "results").glob("*.md")} - {"index.md"}
    assert {name for name, _ in rows} == pages
    for name, words in rows:
        page = (DOCS / "results" / name).read_text()
        assert ("to come" in words) == ("Not run" in page), name
        for figure in re.findall(r"\d[\d,.]*(?: ± \d[\d,.]*\d)?(?<![,.])", words):
            assert re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d])", page), (name, figure)


# -- the build itself


@pytest.mark.slow
def test_site_builds_without_a_warning(tmp_path):
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed: make docs installs and runs it")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    fetched = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=["'](?:https?:)?//""")
    for page in tmp_path.rglob("*.html"):
        text = page.read_text()
        assert not fetched.search(text), page  # nothing comes from elsewhere
        assert 'class="arithmatex"' not in text, page


@pytest.mark.slow
def test_first_walk_works_word_for_word(tmp_path, monkeypatch):
    """Every block of start.md, in its order: Python in one namespace, commands in one directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    namespace: dict[str, object] = {}
    ran = []
    for kind, code in re.findall(
        r"^```(\w+)\n(.*?)^```$", (DOCS / "start.md").read_text(), re.MULTILINE | re.DOTALL
    ):
        if kind in ("python", "py"):
            exec(code, namespace)
        elif kind == "sh" and "pip install" not in code:
            done = subprocess.run(code, shell=True, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            ran.append(done.stdout)
    assert "inside the 90 % interval" in ran[0]
    header = "mean,std,epistemic_std,aleatoric_std,low,high"
    assert (tmp_path / "predictions.csv").read_text().startswith(header)
    assert (tmp_path / "homes.html").stat().st_size > 10_000

"""The programs for releases: what they refuse, and that their pages are up to date."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import advisories, hashes, licences, release, versions

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().split()
    return {canonicalize_name(name): number for name, number in (x.split("==") for x in lines)}


class TestLicences:
    cells = r"^\| (\S+) \| (\S+) \| (.+?) \| (\S+) \|$"
    rows = re.findall(cells, licences.PAGE.read_text(), re.MULTILINE)[2:]  # below the heading

    def test_the_page_has_every_dependency_in_its_pinned_version(self):
        listed = {name: number for name, number, *_ in self.rows}
        asked = [*PROJECT["dependencies"]]
        for extra in licences.EXTRAS:
            asked += PROJECT["optional-dependencies"][extra]
        names = {canonicalize_name(Requirement(text).name) for text in asked}
        assert names <= set(listed)
        pinned = constraints()
        assert listed == {name: pinned[name] for name in listed}

    def test_none_is_unknown_or_a_strong_copyleft(self):
        for name, _, licence, _ in self.rows:
            assert name in licences.NOTES or not licences.STRONG.search(licence), name
            assert licence != "unknown", name

    @pytest.mark.parametrize(
        ("field", "text", "short"),
        [
            ("License-Expression", "MIT AND Zlib", "MIT AND Zlib"),
            ("Classifier", "License :: OSI Approved :: BSD License", "BSD"),
            ("License", "Apache License, Version 2.0\n\n    long", "Apache-2.0"),
            ("License", "GNU General Public License v3\nlong", "GNU General Public License v3"),
            ("License", "", "unknown"),
        ],
    )
    def test_from_the_metadata(self, field, text, short, monkeypatch):
        from email.message import Message

        class Distribution:
            metadata = Message()

        Distribution.metadata[field] = text
        monkeypatch.setattr(licences, "distribution", lambda name: Distribution)
        assert licences.licence("some") == short

    def test_an_unknown_one_needs_a_note(self, monkeypatch):
        monkeypatch.setattr(licences, "packages", lambda: {"numpy": "posterax"})
        monkeypatch.setattr(licences, "licence", lambda name: "GPL-3.0-only")
        with pytest.raises(SystemExit, match=r"need a note .* numpy: GPL-3.0-only"):
            licences.page()


class TestRelease:
    def test_the_wheel_is_the_package_and_its_description(self):
        wanted = release.expected_wheel("0.0.0")
        assert {"posterax/__init__.py", "posterax/py.typed", "posterax/report/style.css"} <= wanted
        outside = {name for name in wanted if not name.startswith("posterax/")}
        assert outside == {f"posterax-0.0.0.dist-info/{name}" for name in release.ABOUT}

    def test_a_file_of_another_kind_is_refused(self, monkeypatch):
        monkeypatch.setattr(release, "tracked", lambda under: ["src/posterax/notes.txt"])
        with pytest.raises(SystemExit, match=r"not a kind of file .*notes\.txt"):
            release.expected_wheel("0.0.0")

    def test_what_is_missing_and_what_is_too_much(self):
        found = release.differences({"a", "tests/b"}, {"a", "c"})
        assert found == ["missing: c", "should not be there: tests/b"]


WEAK = {"name": "a", "version": "1", "vulns": [{"id": "X-1", "fix_versions": ["2"]}]}
FINE = {"name": "b", "version": "1", "vulns": []}
SKIPPED = {"name": "c", "skip_reason": "not found"}


class TestAdvisories:
    def test_what_was_not_looked_up_is_not_called_safe(self):
        found = advisories.verdict([[WEAK, FINE, SKIPPED], []])
        assert found == (["a 1: X-1, mended in 2"], ["a", "b"], ["c"])

    def test_a_weakness_fails_and_no_answer_says_so(self, monkeypatch, capsys):
        monkeypatch.setattr(advisories, "ask", lambda *_: ([WEAK], ""))
        with pytest.raises(SystemExit, match="X-1"):
            advisories.main("pip-audit")
        monkeypatch.setattr(advisories, "ask", lambda *_: ([SKIPPED], ""))
        advisories.main("pip-audit")
        assert "NOTHING WAS CHECKED" in capsys.readouterr().out

    def test_a_program_that_is_not_there(self):
        packages, trouble = advisories.ask("/nowhere/pip-audit", "osv")
        assert packages == []
        assert "No such file" in trouble


class TestVersions:
    stored = json.loads(versions.STORED.read_text())

    def test_the_page_is_that_of_its_figures(self):
        assert versions.SHOWN.read_text() == versions.show(self.stored)

    def test_every_case_was_tried_with_every_fit(self):
        assert [result["case"] for result in self.stored["results"]] == list(versions.CASES)
        for result in self.stored["results"]:
            if result["outcome"] == "passed":
                assert set(result["hashes"]) == set(hashes.FITS)

    def test_other_bits_with_the_same_jaxlib_are_named(self):
        def result(case, jaxlib, digest):
            return {"case": case, "versions": {"jaxlib": jaxlib}, "hashes": {"hmc": digest}}

        results = [result("a", "1", "x"), result("b", "1", "y"), result("c", "2", "y")]
        assert versions.disagreements(results) == ["hmc: a and b differ"]

    def test_a_python_that_is_not_there_is_not_tried(self):
        case = versions.Case("3.99", [], "any")
        outcome = versions.attempt("uv", "3.99 any", case)["outcome"]
        assert outcome == "not tried: no Python 3.99 on this machine"

"""The attacks of ``tests/attack`` for a few seconds each: what was found once, and a little more.

``make attack SECONDS=3600 SEED=7`` goes on for hours.
"""

import json
import os
import types

import pytest

from tests.attack import findings, mutations
from tests.attack.__main__ import NAMES

# seconds for new cases beside those of the corpus
BUDGETS = {"files": 3, "checkpoints": 3, "cards": 1, "writers": 2, "identity": 6}
SEED = 22
KILLS = [
    {"fits": ["thinned"], "kills": [["before", 6], ["behind", 3]], "every": 1e-6},
    {"fits": ["point"], "kills": [["after", 0.55]], "every": 0.25},
]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_found(name):
    if name == "kill":  # its corpus alone takes a minute
        outcome = findings.run(name, only=KILLS)
    else:
        outcome = findings.run(name, seed=SEED, seconds=BUDGETS[name])
    assert outcome.tried > 0
    assert not outcome.findings, outcome.summary()


@pytest.mark.slow
def test_nothing_is_found_by_the_killer():
    outcome = findings.run("kill", seed=SEED, seconds=120)
    assert not outcome.findings, outcome.summary()


# -- the attacks see what they are for


@pytest.fixture
def planted(monkeypatch, tmp_path):
    """An attack whose even cases are findings, with a corpus of one."""

    def judge(case, scratch):
        if case["n"] % 2 == 0:
            raise findings.Found("an even number", case["n"])

    def cases(rng, scratch, wide):
        for n in rng.integers(100, size=20).tolist():
            yield {"n": n}

    attack = types.SimpleNamespace(GUARDED=False, judge=judge, cases=cases)
    monkeypatch.setattr(findings, "import_module", lambda name: attack)
    monkeypatch.setattr(findings, "CORPUS", tmp_path)
    (tmp_path / "planted.json").write_text('[{"n": 2}]')


def test_the_corpus_comes_first_and_seeds_repeat(planted):
    one, again = (findings.run("planted", seed=3, seconds=60) for _ in range(2))
    assert one == again
    assert one.tried == 21
    assert one.findings[0].case == {"n": 2}
    assert findings.run("planted", seed=4, seconds=60) != one
    assert findings.run("planted", seconds=60, only=[{"n": 3}]) == (1, [])
    assert "1 kinds" in one.summary()


def test_findings_can_be_kept(planted, tmp_path):
    found = findings.run("planted", only=[{"n": 4}, {"n": 6}]).findings
    findings.keep(found)
    kept = json.loads((tmp_path / "planted.json").read_text())
    assert kept == [{"n": 2}, {"why": "an even number", "n": 4}]  # one of a kind
    findings.keep(found)
    assert json.loads((tmp_path / "planted.json").read_text()) == kept


@pytest.fixture
def guarded(tmp_path, monkeypatch):
    """A child that runs an attack written for the test."""
    from tests.attack import guarded as module

    source = """
import os, time
import numpy as np
from tests.attack.findings import Found
GUARDED = True
def cases(rng, scratch, wide):
    yield {"do": "nothing"}
def judge(case, scratch):
    match case["do"]:
        case "find": raise Found("found", "it")
        case "break": raise KeyError("this")
        case "end": os._exit(7)
        case "take": np.ones(10 * 2**27, "int8")
"""
    (tmp_path / "attack_for_tests.py").write_text(source)
    paths = (str(tmp_path), os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    child = module.Guarded("attack_for_tests", tmp_path, 0, False)
    yield child
    child.end()


def test_a_child_is_watched_and_replaced(guarded):
    assert guarded.ask({"do": "find"}) == ({"do": "find"}, ["found", "it"])
    assert guarded.ask({"do": "break"})[1][0] == "the attack itself: KeyError"
    assert guarded.ask({"do": "take"})[1][0] == "takes more than 1 GB"
    assert guarded.ask({"do": "end"})[1][0] == "ends the process"
    assert guarded.ask(None) == ({"do": "nothing"}, None)  # by another child
    assert guarded.ask(None) == (None, None)


def test_changes_are_made_as_they_are_written(tmp_path):
    file = tmp_path / "some.json"
    file.write_text('{"a": {"b": [1, 2]}}')
    made = {
        b'{"a": {"b": [1]}}': ["header", ["a", "b", 1], "delete", None],
        b'{"a": {"b": [1, null]}}': ["header", ["a", "b", 1], "set", None],
        b'{"a": {"b": ["xxx", 2]}}': ["header", ["a", "b", 0], "set", {"$repeat": ["x", 3]}],
        b'{"a"': ["cut", 4],
        b'z"a": {"b": [1, 2]}}': ["flip", [[0, 0]]],
    }
    for content, change in made.items():
        assert mutations.applied(file, change) == content

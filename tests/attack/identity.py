"""Checkpoints of another fit are refused with what differs, those of the same fit are taken up.

A checkpoint of the same fit is made in another process: what it is known by must not be an address
or the order of a set.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import posterax as px
from tests.attack import pairs
from tests.attack.files import sentence
from tests.attack.findings import Case, Found
from tests.attack.guarded import ROOT, environment
from tests.attack.mutations import parts_of, signed

GUARDED = True
VERSIONS = ("posterax", "jax")


def cases(rng: np.random.Generator, scratch: Path, wide: bool) -> Iterator[Case]:
    """Every pair once, those with the same checkpoint together; then those that are right."""
    for base in rng.permutation(list(pairs.FIRST)).tolist():
        yield from ({"wrong": name} for name, pair in pairs.WRONG.items() if pair[0] == base)
    yield from ({"version": name} for name in VERSIONS)
    yield from ({"right": name} for name in rng.permutation(pairs.RIGHT).tolist())


def prepare(case: Case, scratch: Path) -> None:
    """The checkpoint of the first call."""
    if "right" in case:
        folder = scratch / "elsewhere"
        if not folder.exists():
            words = [sys.executable, "-m", "tests.attack.pairs", str(folder), *pairs.RIGHT]
            subprocess.run(words, cwd=ROOT, env=environment(), check=True, capture_output=True)
    else:
        _first(_base(case), scratch)


def judge(case: Case, scratch: Path) -> None:
    """Make the other call on a copy of the checkpoint."""
    if "right" in case:
        _taken_up(case["right"], scratch)
        return
    folder = scratch / "other"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(_first(_base(case), scratch), folder)
    if "version" in case:
        _by_another(folder, case["version"])
        name, call, words = f"version of {case['version']}", pairs.point, (case["version"],)
    else:
        name = case["wrong"]
        _, call, words = pairs.WRONG[name]
    pairs.SIGMA = 0.4 if name == "global" else 0.3
    try:
        call().fit(folder)
    except px.CheckpointError as error:
        sentence(str(error), folder)
        said = str(error).replace(str(folder), "").lower()
        if not any(word in said for word in words):
            raise Found("a refusal that does not say what differs", f"{name}: {said}") from None
    except Exception as error:
        raise Found(
            f"a wrong checkpoint raises {type(error).__name__}", f"{name}: {error}"
        ) from None
    else:
        raise Found(f"a checkpoint of another {name} is accepted")
    finally:
        pairs.SIGMA = 0.3


def _base(case: Case) -> str:
    return pairs.WRONG[case["wrong"]][0] if "wrong" in case else "point"


def _first(name: str, scratch: Path) -> Path:
    folder = scratch / "first" / name
    if not folder.exists():
        pairs.FIRST[name]().fit(folder)
    return folder


def _by_another(folder: Path, name: str) -> None:
    """The same checkpoint, as another version of posterax or JAX has written it."""
    import jax

    own = {"posterax": px.__version__, "jax": jax.__version__}[name]
    for file in sorted(folder.glob("*.safetensors")):
        arrays, header = parts_of(file)
        assert arrays is not None
        identity, found = header.get("identity"), []
        if isinstance(identity, dict):
            header["identity"] = _replaced(identity, own, found)
        if not found and file.name == "state.safetensors":
            raise Found(f"a checkpoint of another version of {name} is accepted", "it has none")
        header["written"][name] = "0.0.1"
        file.write_bytes(signed(arrays, json.dumps(header)))


def _replaced(tree: Any, text: str, found: list[Any]) -> Any:
    if isinstance(tree, dict):
        return {key: _replaced(value, text, found) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_replaced(value, text, found) for value in tree]
    if tree == text:
        found.append(tree)
        return "0.0.1"
    return tree


def _taken_up(name: str, scratch: Path) -> None:
    """The same call goes on where the other process broke off, and ends as if nothing had been."""
    folder = scratch / "same"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(scratch / "elsewhere" / name, folder)
    seen: list[tuple[int, int]] = []

    def note(event: Any) -> None:
        before = event.step - max(len(v) for v in event.terms.values())
        seen.append((event.number, before))

    try:
        pairs.FIRST[name]().fit(folder, callbacks=[note])
    except Exception as error:
        raise Found("a checkpoint of the same fit is refused", f"{name}: {error}") from None
    if not seen or seen[0] == (0, 0):
        raise Found("a checkpoint of the same fit is not taken up", name)

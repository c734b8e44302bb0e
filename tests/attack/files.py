"""Mutated files: each is refused in a sentence that names it, or says finite numbers.

A file that loads after *damage* must say what it said before.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import posterax as px
from tests.attack import mutations, subjects
from tests.attack.findings import Case, Found

GUARDED = True
TOGETHER = 20  # cases of one subject in a row: its programs are compiled once
_expected: dict[str, np.ndarray] = {}


def cases(rng: np.random.Generator, scratch: Path, wide: bool) -> Iterator[Case]:
    """Changes to every file of every subject."""
    names = subjects.names(wide)
    while True:
        for name in rng.permutation(names).tolist():
            folder = subjects.build(name, scratch)
            files = sorted(file for file in folder.rglob("*") if file.is_file())
            for _ in range(TOGETHER):
                file = files[rng.integers(len(files))]
                change = mutations.drawn(file, rng)
                if rng.random() < 0.03:
                    change = ["header of", str(rng.choice(names))]
                yield {"subject": name, "file": str(file.relative_to(folder)), "do": change}


def prepare(case: Case, scratch: Path) -> None:
    """The subject as it was saved, loaded and asked, so that its programs are there."""
    name = case["subject"]
    if name not in _expected:
        folder = subjects.build(name, scratch)
        subjects.numbers(name, subjects.load(name, folder))
        _expected[name] = subjects.numbers(name, subjects.load(name, folder))


def judge(case: Case, scratch: Path) -> None:
    """Load the changed file, and ask what it says."""
    name, change = case["subject"], list(case["do"])
    original, folder = subjects.build(name, scratch), scratch / "changed"
    if change[0] == "header of":
        other = subjects.build(change[1], scratch)
        change[1] = str(next(file for file in other.rglob("*") if file.is_file()))
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original, folder)
    found = original / case["file"]
    if not found.exists():  # a case of an older layout: there is nothing to change any more
        return
    try:
        content = mutations.applied(found, change)
    except (KeyError, IndexError, TypeError):  # a place that files of this kind no longer have
        return
    (folder / case["file"]).write_bytes(content)
    loaded = refused_or(folder, lambda: subjects.load(name, folder))
    if loaded is None:
        return
    if mutations.unsound(found, change):
        raise Found("NaN or infinite weights load", f"{name}: {change[1]}")
    said = _asked(case["do"][1] if change[0] == "header of" else name, loaded)
    if not np.all(np.isfinite(said)):
        raise Found("NaN or infinite predictions without an error", name)
    if change[0] in mutations.DAMAGE and not np.array_equal(said, _expected[name]):
        raise Found("other predictions after damage", name)


def refused_or(folder: Path, act: Any) -> Any:
    """What ``act`` returns, or ``None`` where it refused as documented."""
    try:
        return act()
    except px.CheckpointError as error:
        sentence(str(error), folder)
    except FileNotFoundError as error:
        raise Found("a missing file, where there is one", error) from None
    except Exception as error:
        raise Found(f"loading raises {type(error).__name__}", error) from None
    return None


def sentence(text: str, folder: Path) -> None:
    """Refuse an explanation that is not one line with the path in it."""
    if str(folder) not in text:
        raise Found("a refusal that does not name the file", text)
    if len(text.splitlines()) != 1 or len(text) > 600 + len(str(folder)):
        raise Found("a refusal of more than a line", text)
    if not text.isprintable():
        raise Found("a refusal with control characters", repr(text))


def _asked(name: str, loaded: Any) -> np.ndarray:
    try:
        return subjects.numbers(name, loaded)
    except MemoryError as error:  # refused before it was allocated
        if "bytes" in str(error) or "iB" in str(error) or "GB" in str(error):
            return np.zeros(1)
        raise Found("what was loaded raises MemoryError", error) from None
    except Exception as error:
        raise Found(f"what was loaded raises {type(error).__name__}", error) from None

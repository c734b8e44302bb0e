"""The killer: fits that are killed and started again give the bits of those that were not.

And nothing is left beside them: no half file, no part of the draws that does not count. Two
processes on one checkpoint never give a third result.
"""

import itertools
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.attack.findings import Case, Found
from tests.attack.guarded import ROOT, environment

GUARDED = False
NAMES = (
    "variational", "minibatches", "stream", "point", "validation", "early stopping", "augmented",
    "weighted", "classes", "ensemble", "laplace", "swag", "hmc", "thinned", "few bytes", "sgld",
    "sghmc stream", "metropolis", "smc",
)  # fmt: skip
START = 120.0  # seconds to import and compile, whatever else the machine has to do
_numbers = itertools.count()
_hits: list[str] = []  # how each victim was ended


def cases(rng: np.random.Generator, scratch: Path, wide: bool) -> Iterator[Case]:
    """Every fit in turn, ended several times: at a time, or around a change of a file's name."""
    while True:
        for name in rng.permutation(NAMES).tolist():
            kills: list[Any] = []
            for _ in range(6):
                how = rng.choice(["after", "int", "before", "behind"], p=[0.5, 0.1, 0.2, 0.2])
                timed = how in ("after", "int")
                n = round(float(rng.uniform(0, 1.5)), 3) if timed else int(rng.integers(1, 40))
                kills.append([str(how), n])
            yield {"fits": [name], "kills": kills, "every": float(rng.choice([1e-6, 0.2]))}
        yield {"rivals": str(rng.choice(["hmc", "sgld", "thinned"])), "count": 2}


def judge(case: Case, scratch: Path) -> None:
    """Run the fits with their kills, then once more to the end, and compare."""
    folder = scratch / f"killed {next(_numbers)}"
    try:
        if "rivals" in case:
            _rivals(case["rivals"], case["count"], folder, scratch)
            return
        names = case["fits"]
        if all(_killed(folder, names, kill, case["every"]) for kill in case["kills"]):
            code, said = _ended(_victim(folder, names, death="quick"))
            if code:
                raise Found("a killed fit does not go on", said)
        for name in names:
            _same(name, folder / name, scratch)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def reference(name: str, scratch: Path) -> Path:
    """The folder of the fit that nobody disturbs; made when missing."""
    folder = scratch / "reference"
    if not (folder / name / "bits.npz").exists():
        code, said = _ended(_victim(folder, [name], death="quick"))
        if code:
            raise Found("a fit that nobody disturbs fails", f"{name}: {said}")
    return folder / name


def _victim(
    folder: Path, names: list[str], tag: str = "", death: str = "-", every: float = 1e-6
) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "tests.attack.victim", str(folder), tag, death]
    words += [str(every), *names]
    return subprocess.Popen(
        words, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        bufsize=0,
    )  # fmt: skip


def _ended(victim: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Exit code and last words of a victim that is let live."""
    try:
        out, error = victim.communicate(timeout=START)
    except subprocess.TimeoutExpired:
        victim.kill()
        victim.communicate()
        raise Found("a fit hangs") from None
    lines = (out + error).decode(errors="replace").strip().splitlines()
    return victim.returncode, lines[-1] if lines else ""


def _killed(folder: Path, names: list[str], kill: list[Any], every: float) -> bool:
    """Start the fits and end them; ``False`` where they were done before."""
    how, when = kill
    deaths = {"before": f"before {when}", "behind": f"after {when}"}
    victim = _victim(folder, names, "", deaths.get(how, "-"), every)
    assert victim.stdout is not None
    ready, _, _ = select.select([victim.stdout], [], [], START)
    stepping = bool(ready) and victim.stdout.readline().startswith(b"stepping")
    if stepping and how in ("after", "int"):
        time.sleep(when)
        victim.send_signal(signal.SIGKILL if how == "after" else signal.SIGINT)
    code, said = _ended(victim)
    if code not in (0, 3, -signal.SIGKILL, -signal.SIGINT):
        raise Found("a fit fails after a kill", f"{names} {how} {when}: {said}")
    if code:
        _hits.append(how)
    return code != 0


def tally() -> str:
    """How many victims were ended on their way."""
    return f"{len(_hits)} kills"


def _same(
    name: str, folder: Path, scratch: Path, bits: str = "bits.npz", logged: bool = True
) -> None:
    """The bits and the log of the undisturbed fit, and nothing beside what counts."""
    from tests.attack.fits import difference

    wanted = reference(name, scratch)
    with np.load(folder / bits) as found, np.load(wanted / "bits.npz") as whole:
        wrong = difference(dict(found), dict(whole))
    if wrong is not None:
        raise Found("other bits after a kill", f"{name}: {wrong}")
    left = orphans(folder)
    if left:
        raise Found("orphans after the finished run", f"{name}: {left}")
    log = "log.csv"
    if not (logged and (wanted / log).exists()):
        return
    if (folder / log).read_bytes() != (wanted / log).read_bytes():
        rows = [len((place / log).read_text().splitlines()) for place in (folder, wanted)]
        raise Found("another CSV after a kill", f"{name}: {rows[0]} rows of {rows[1]}")


def orphans(folder: Path) -> list[str]:
    """Files that no reader of this folder will look at."""
    from posterax.files.container import read

    state = folder / "checkpoint" / "state.safetensors"
    parts = read(state)[1].get("parts", 0) if state.exists() else 0
    left = []
    for file in folder.rglob("*"):
        part = re.fullmatch(r"draws-(\d+)\.safetensors", file.name)
        known = file.name in (state.name, "log.csv") or file.name.startswith("bits")
        counts = part is not None and int(part[1]) < parts
        if not (file.is_dir() or known or counts or "lock" in file.name):
            left.append(file.name)
    return sorted(left)


def _rivals(name: str, count: int, folder: Path, scratch: Path) -> None:
    """Several processes on one checkpoint: each is refused, or has the right bits."""
    victims = [_victim(folder, [name], str(i)) for i in range(count)]
    ends = [_ended(victim) for victim in victims]
    for i, (code, said) in enumerate(ends):
        if code == 0:
            _same(name, folder / name, scratch, f"bits{i}.npz", logged=False)
        elif not said.startswith("refused") or str(folder) not in said:
            raise Found("one of two processes on a checkpoint fails", said)
    if all(code for code, _ in ends):
        raise Found("two processes on a checkpoint refuse each other", ends[0][1])
    code, said = _ended(_victim(folder, [name], "again", "quick"))
    if code:
        raise Found("a checkpoint of two processes is not taken up", said)
    _same(name, folder / name, scratch, "bitsagain.npz", logged=False)

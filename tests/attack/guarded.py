"""A child process that tries cases: its time and memory are watched, and its end is survived."""

import importlib
import json
import os
import resource
import select
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SECONDS, MEMORY = 10.0, 2**30  # of one case, the promise
PATIENCE = 180.0  # after which a silent child is ended, whatever else the machine has to do
# addresses a child may take beyond those of JAX, for the machine's sake; threads take some by core
RESERVE = (8 + (os.cpu_count() or 1)) * 2**30


class Guarded:
    """The parent's side.

    Args:
        attack: the name of the module whose ``judge`` the child calls.
        scratch: a folder for what it writes.
        seed: of the cases that it draws.
        wide: whether there is time for every kind of them.
    """

    def __init__(self, attack: str, scratch: Path, seed: int, wide: bool):
        self.attack, self.scratch, self.seed, self.wide = attack, scratch, seed, wide
        self.started = 0
        self._child: subprocess.Popen[bytes] | None = None

    def ask(self, case: dict[str, Any] | None) -> tuple[Any, list[str] | None]:
        """Try this case, or the next that the child draws: the case, and what it found if any."""
        if self._child is None:
            self._child = self._start()
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(case).encode() + b"\n")
        self._child.stdin.flush()
        drawn, gone = self._line()
        if gone is not None:
            return case, [f"before a case: {gone[0]}", gone[1]]
        if drawn is None:  # there are no more
            return None, None
        found, gone = self._line()
        return drawn, found if gone is None else gone

    def _line(self) -> tuple[Any, list[str] | None]:
        """What the child says, and what became of it where it says nothing."""
        child = self._child
        assert child is not None
        assert child.stdout is not None
        ready, _, _ = select.select([child.stdout], [], [], PATIENCE)
        line = child.stdout.readline() if ready else b""
        if line:
            return json.loads(line), None
        if ready:
            child.wait()
        self.end()
        if not ready:
            return None, ["hangs", f"no answer for {PATIENCE:.0f} s"]
        said = (self.scratch / "stderr").read_text(errors="replace").splitlines()[-1:]
        return None, ["ends the process", f"exit code {child.returncode}: {said}"]

    def end(self) -> None:
        """End the child, if there is one."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def _start(self) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "tests.attack.guarded", self.attack, str(self.scratch)]
        words += [str(self.seed), str(self.started), str(int(self.wide))]
        self.started += 1  # one that takes its place draws others
        with (self.scratch / "stderr").open("wb") as said:
            return subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said,
                cwd=ROOT, env=environment(), bufsize=0,  # so that select sees every line
            )  # fmt: skip


def environment() -> dict[str, str]:
    """That of a child: this checkout's modules, and programs that are compiled once for all."""
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR") or str(ROOT / ".cache" / "jax")
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "JAX_COMPILATION_CACHE_DIR": cache,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def main(name: str, folder: str, *seeds: str) -> None:
    """The child's side: a case a line in, or ``null`` for the next; it and a finding out."""
    import jax
    import numpy as np

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the package prints is no answer
    jax.config.update("jax_disable_most_optimizations", True)
    attack = importlib.import_module(name)
    resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + RESERVE,) * 2)
    seed, again, wide = map(int, seeds)
    drawn = attack.cases(np.random.default_rng([seed, again]), Path(folder), bool(wide))
    for line in sys.stdin:
        case = json.loads(line) or next(drawn, None)
        print(json.dumps(case), file=answers, flush=True)
        if case is not None:
            print(json.dumps(_watched(attack, case, Path(folder))), file=answers, flush=True)


def _watched(attack: Any, case: dict[str, Any], scratch: Path) -> list[str] | None:
    from tests.attack.findings import Found

    try:
        if hasattr(attack, "prepare"):  # what the same case unchanged has to compile
            attack.prepare(case, scratch)
        _forget_peak()
        before, began = _status("VmRSS"), time.process_time()
        attack.judge(case, scratch)
    except Found as found:
        return [found.what, found.detail]
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return [f"the attack itself: {type(error).__name__}", f"{error}, {where.name}"]
    took, grew = time.process_time() - began, _status("VmHWM") - before
    if took > SECONDS:
        return [f"takes more than {SECONDS:.0f} s", f"{took:.1f} s"]
    if grew > MEMORY:
        return ["takes more than 1 GB", f"{grew / 2**30:.2f} GiB"]
    return None


def _status(name: str) -> int:
    """Bytes by the name that Linux has for them; 0 elsewhere."""
    file = Path("/proc/self/status")
    lines = file.read_text().splitlines() if file.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), 0)


def _forget_peak() -> None:
    with suppress(OSError):  # then the peak of all cases so far counts
        Path("/proc/self/clear_refs").write_text("5")


if __name__ == "__main__":
    main(*sys.argv[1:])

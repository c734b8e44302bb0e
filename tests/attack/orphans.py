"""Half files of dead writers, made by one that dies in the middle of a write."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.attack.guarded import ROOT, environment


def leave_behind(path: Path) -> None:
    """Let a process die while it writes this file."""
    words = [sys.executable, "-m", "tests.attack.orphans", str(path)]
    done = subprocess.run(words, cwd=ROOT, env=environment(), check=False, capture_output=True)
    if done.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the writer did not die in the middle: {done.stderr[-200:]!r}")


def main(path: str) -> None:
    """Write the file, and die before it gets its name."""
    from posterax._util import writing

    writing.replace = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
    with writing.written(path, binary=True) as file:
        file.write(b"half")


if __name__ == "__main__":
    main(sys.argv[1])

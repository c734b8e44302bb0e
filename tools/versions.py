"""Does posterax run on every Python and every version of its dependencies that it allows?

``make versions`` makes an environment for each case below, installs posterax there, imports it,
runs some tests and hashes small fits (``tools/hashes.py``). Hashes must agree between cases with
the same jaxlib. What was found is stored in docs/data/versions.json and shown in
docs/development.md. Names of cases as arguments run only these. A case whose Python is not on this
machine is reported as not tried.
"""

import datetime
import glob
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".cache" / "versions"
STORED = ROOT / "docs" / "data" / "versions.json"
SHOWN = ROOT / "docs" / "development.md"
BEGIN, END = "<!-- versions: written by tools/versions.py -->\n", "<!-- end of versions -->"
EXTRAS = ".[flax,parquet,tensorboard]"
TOOLS = ["pytest>=8.3", "hypothesis>=6.100", "pyyaml>=6"]
# a dependency that warns of its own future does not fail a case
PYTEST = ["-m", "pytest", "-q", "-x", "-W", "default::DeprecationWarning"]
TESTS = [f"tests/test_{name}.py" for name in ("private_names", "files_format1", "conjugate")]
KINDS = ("[bayes_by_backprop", "[mc_dropout", "[nuts", "[mclmc-", "[laplace-", "[importance")
CONTRACT = ["tests/test_contract.py", "-k", f"regression and equinox and ({' or '.join(KINDS)})"]


class Case(NamedTuple):
    python: str
    options: list[str]  # of uv pip install
    words: str


PINNED = ["--constraint", "constraints.txt"]
CASES = {
    "3.11 pinned": Case("3.11", PINNED, "the versions of constraints.txt"),
    "3.12 pinned": Case("3.12", PINNED, "the versions of constraints.txt"),
    "3.13 pinned": Case("3.13", PINNED, "the versions of constraints.txt"),
    "3.11 oldest": Case("3.11", ["--resolution", "lowest-direct"], "the oldest that are allowed"),
    "3.11 newest": Case("3.11", [], "the newest that there are"),
    "3.12 jax 0.11": Case("3.12", ["jax==0.11.*"], "jax 0.11, else the newest"),
    "3.12 newest": Case("3.12", [], "the newest that there are"),
    "3.13 newest": Case("3.13", [], "the newest that there are"),
}


def find_python(number: str) -> str | None:
    """An interpreter of this version that starts: on the path, or one that pyenv installed."""
    pyenv = os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))
    installed = sorted(glob.glob(f"{pyenv}/versions/{number}.*/bin/python"))
    for path in (*installed[::-1], shutil.which(f"python{number}")):
        if path and run(path, "-c", "").returncode == 0:
            return path
    return None


def run(*command: str, **env: str) -> subprocess.CompletedProcess[str]:
    bare = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        command, cwd=ROOT, env=bare | env, capture_output=True, text=True, timeout=1800,
        check=False,
    )  # fmt: skip


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[-1][:200] if lines else f"exit status {done.returncode}"


def install(uv: str, name: str, case: Case, interpreter: str) -> tuple[str, str]:
    """The Python of a fresh environment with posterax, and what went wrong, if anything."""
    folder = CACHE / name.replace(" ", "-")
    python = str(folder / "bin" / "python")
    made = run(uv, "venv", "--quiet", "--clear", "--python", interpreter, str(folder))
    if made.returncode:
        return python, last_line(made)
    pip = [uv, "pip", "install", "--quiet", "--python", python]
    for what in ([*case.options, "--editable", EXTRAS], TOOLS):
        done = run(*pip, *what)
        if done.returncode:
            return python, last_line(done)
    return python, ""


def attempt(uv: str, name: str, case: Case) -> dict[str, Any]:
    """Everything of one case: ``outcome`` is "passed", or the first thing that failed."""
    today = datetime.date.today().isoformat()
    result: dict[str, Any] = {
        "case": name, "date": today, "python": case.python, "dependencies": case.words
    }  # fmt: skip
    interpreter = find_python(case.python)
    if interpreter is None:
        return result | {"outcome": f"not tried: no Python {case.python} on this machine"}
    python, trouble = install(uv, name, case, interpreter)
    if trouble:
        return result | {"outcome": f"failed to install: {trouble}"}
    flags = {"JAX_COMPILATION_CACHE_DIR": str(CACHE / "jax")}
    steps = {
        "import": ["-W", "error", "-c", "from posterax import *"],
        "hashes": ["-m", "tools.hashes"],
        "tests": [*PYTEST, *TESTS],
        "contract": [*PYTEST, *CONTRACT],
    }
    for step, arguments in steps.items():
        # hashes are of programs that each case compiles itself
        done = run(python, *arguments, **({} if step == "hashes" else flags))
        if done.returncode:
            (CACHE / f"{name.replace(' ', '-')}.log").write_text(done.stdout + done.stderr)
            return result | {"outcome": f"failed: {step}: {last_line(done)}"}
        if step == "hashes":
            found = json.loads(done.stdout)
            result |= {"versions": found["versions"], "hashes": found["hashes"]}
    return result | {"outcome": "passed"}


def disagreements(results: list[dict[str, Any]]) -> list[str]:
    """Fits whose hashes differ between cases with the same jaxlib."""
    first: dict[str, dict[str, Any]] = {}
    found = []
    for result in results:
        if "hashes" not in result:
            continue
        other = first.setdefault(result["versions"]["jaxlib"], result)
        for fit, digest in result["hashes"].items():
            if other["hashes"].get(fit, digest) != digest:
                found.append(f"{fit}: {other['case']} and {result['case']} differ")
    return found


def table(stored: dict[str, Any]) -> str:
    """The outcomes as Markdown."""
    lines = [
        "| Python | dependencies | jax | numpy | tried on | outcome |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for result in stored["results"]:
        versions = result.get("versions", {})
        cells = (
            versions.get("python", result["python"]), result["dependencies"],
            versions.get("jax", "–"), versions.get("numpy", "–"), result["date"],
            result["outcome"],
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    groups: dict[str, int] = {}
    for result in stored["results"]:
        if "hashes" in result:
            jaxlib = result["versions"]["jaxlib"]
            groups[jaxlib] = groups.get(jaxlib, 0) + 1
    shared = ", ".join(f"{n} with jaxlib {name}" for name, n in groups.items() if n > 1)
    different = stored["disagreements"]
    words = "; ".join(different) if different else "every fit has the same bits in all of them"
    return "\n".join([*lines, "", f"Cases with the same jaxlib ({shared or 'none'}): {words}.", ""])


def show(stored: dict[str, Any]) -> str:
    """The page with this table between its two marks."""
    before, rest = SHOWN.read_text().split(BEGIN)
    return before + BEGIN + "\n" + table(stored) + "\n" + END + rest.split(END, 1)[1]


def main(names: list[str]) -> None:
    uv = os.environ.get("UV") or shutil.which("uv")
    if uv is None:
        raise SystemExit("uv was not found: set UV=... or put it on the path")
    CACHE.mkdir(parents=True, exist_ok=True)
    before = json.loads(STORED.read_text())["results"] if STORED.exists() else []
    known = {result["case"]: result for result in before}
    for name in names or CASES:
        began = time.time()
        known[name] = attempt(uv, name, CASES[name])
        print(f"{name}: {known[name]['outcome']} ({time.time() - began:.0f} s)", flush=True)
    results = [known[name] for name in CASES if name in known]
    stored = {"results": results, "disagreements": disagreements(results)}
    STORED.write_text(json.dumps(stored, indent=1) + "\n")
    SHOWN.write_text(show(stored))
    wrong = [f"{r['case']}: {r['outcome']}" for r in results if r["outcome"].startswith("failed")]
    if wrong or stored["disagreements"]:
        raise SystemExit("\n".join([*wrong, *stored["disagreements"]]))


if __name__ == "__main__":
    main(sys.argv[1:])

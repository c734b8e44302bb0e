"""Cells of the benchmark: one fit each, in a process of its own, judged and kept in a JSON file.

A cell is a problem, a prior, a contender, its settings and a seed. One that the file has is not run
again, so that a run that was interrupted goes on where it was.
"""

import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from posterax._util.writing import write_file

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks/results"
SEEDS = 5
CORES = 1  # of every process: seconds of the processor are then those of an idle machine


class Cell(NamedTuple):
    """One fit."""

    problem: str
    contender: str  # a method of posterax, or another library
    settings: dict[str, Any]
    seed: int = 0
    prior: str = "own"

    @property
    def key(self) -> str:
        """Its name in the file."""
        return json.dumps(self._asdict(), sort_keys=True)

    def __str__(self) -> str:
        settings = ", ".join(f"{k}={v}" for k, v in self.settings.items())
        prior = "" if self.prior == "own" else f", {self.prior} prior"
        return f"{self.problem}: {self.contender}({settings}){prior}, seed {self.seed}"


class Store:
    """A JSON file of cells; each is written when it is there."""

    def __init__(self, path: str | Path):
        self.path = Path(path)

    def cells(self) -> dict[str, Any]:
        """What there is, by key."""
        return json.loads(self.path.read_text())["cells"] if self.path.exists() else {}

    def add(self, cell: Cell, found: dict[str, Any]) -> None:
        """Put one cell to the others, those of another process too."""
        cells = self.cells() | {cell.key: cell._asdict() | found}
        about = {"machine": platform.processor() or platform.machine(), "cores": CORES}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_file(self.path, json.dumps({"about": about, "cells": cells}, indent=1) + "\n")

    def fill(
        self, cells: Sequence[Cell], run: Callable[[Cell], dict[str, Any]], again: bool = False
    ) -> list[dict[str, Any]]:
        """Run what is missing (with ``again``, also what failed); all of the cells asked for."""
        for cell in cells:
            known = self.cells().get(cell.key)
            if known is not None and not (again and "error" in known):
                continue
            found = run(cell) | {"date": time.strftime("%Y-%m-%d")}
            self.add(cell, found)
            print(f"{cell}: {told(found)}", flush=True)
        there = self.cells()
        return [there[cell.key] for cell in cells]


def told(found: dict[str, Any]) -> str:
    """A result in one line."""
    if "points" not in found:
        return str(found.get("error") or found.get("skipped"))
    last = found["points"][-1]
    value = f"{last['per_row']:.4f} ± {last['error_per_row']:.4f}" if "per_row" in last else "–"
    return f"{value} nats a row after {last['seconds']:.1f} s and {last['steps']} steps"


def process(command: list[str], cell_seconds: float | None = None) -> tuple[dict[str, Any], Path]:
    """Run a worker that leaves npz files in a folder and says JSON; what it said, and the folder.

    Nothing compiled before is there for it: compilation counts.
    """
    own = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "BENCH_THREADS")
    threads = dict.fromkeys(names, str(CORES))
    own |= threads | {"JAX_PLATFORMS": "cpu"}
    folder = Path(tempfile.mkdtemp(prefix="convergence"))
    try:
        with _few_cores():
            done = subprocess.run(
                [*command, str(folder)], capture_output=True, text=True, env=own, cwd=ROOT,
                check=False, timeout=cell_seconds,
            )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {cell_seconds:g} s"}, folder
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        why = [line for line in done.stderr.splitlines() if "Error" in line]
        return {"error": why[-1] if why else "the process ended"}, folder
    return json.loads(lines[-1]), folder


@contextmanager
def _few_cores() -> Iterator[None]:
    """One core for the process that is started here, whatever library it has."""
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(all_of_them)[:CORES])
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_of_them)


def judged(cell: Cell, said: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The ELBO of every point; all but the last with fewer draws, as they only draw the course."""
    from benchmarks.convergence import elbo, readout

    if "points" not in said:
        return said
    points = []
    for i, point in enumerate(said["points"]):
        full = elbo.problem(cell.problem).samples
        samples = full if i == len(said["points"]) - 1 else full // 5
        mu, sigma = readout.load(folder / point["file"])
        found = elbo.evaluate(cell.problem, mu, sigma, cell.prior, samples)
        points.append({k: v for k, v in point.items() if k != "file"} | found)
    return said | {"points": points}

"""``python -m benchmarks.convergence.peers``: other libraries on the same twelve posteriors.

Each trains with Adam, one weight sample a step and the batch size of the problem, with five
learning rates; the best by its last ELBO is then repeated with other seeds. What a library has no
layer or no prior for is skipped, and the reason is kept.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.convergence import cells, elbo
from benchmarks.convergence.problems import NAMES, Problem
from benchmarks.convergence.search import best_of

FILE = "convergence-peers.json"
PEERS = ("bayesian-torch", "torchbnn", "blitz", "pyro", "numpyro")
RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
GAUSSIAN_ONLY = ("bayesian-torch", "torchbnn")
NO_LAYER_NORM = ("bayesian-torch", "torchbnn", "blitz")


def unable(peer: str, problem: Problem) -> str | None:
    """Why a library cannot run a problem; ``None`` where it can."""
    if problem.mixture and peer in GAUSSIAN_ONLY:
        return f"{peer} has no scale mixture prior"
    if any(kind == "layer_norm" for kind, *_ in problem.layers) and peer in NO_LAYER_NORM:
        return f"{peer} has no layer norm with random weights"
    return None


def runner(python: str) -> Any:
    """A function that runs a cell of a peer."""

    def run(cell: cells.Cell) -> dict[str, Any]:
        problem = elbo.problem(cell.problem)
        if why := unable(cell.contender, problem):
            return {"skipped": why}
        ours = cell.contender == "numpyro"
        worker = f"benchmarks.convergence.worker_{'numpyro' if ours else 'torch'}"
        with tempfile.TemporaryDirectory() as place:
            data = str(Path(place) / "data.npz")
            np.savez(data, x=problem.x, y=problem.y)
            asked = {"peer": cell.contender, "spec": problem.spec(), "data": data}
            asked |= {"seed": cell.seed, **cell.settings}
            command = [sys.executable if ours else python, "-m", worker, json.dumps(asked)]
            said, folder = cells.process(command, 4 * cell.settings["limit"] + 120)
        try:
            return cells.judged(cell, said, folder)
        finally:
            shutil.rmtree(folder)

    return run


def main() -> None:
    """Fill the cells that are missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", default=str(cells.ROOT / ".cache/peers/bin/python"))
    parser.add_argument("--only", nargs="*", choices=PEERS, default=PEERS)
    parser.add_argument("--problems", nargs="*", choices=NAMES, default=NAMES)
    parser.add_argument("--rates", nargs="*", type=float, default=RATES)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of a training")
    parser.add_argument("--seeds", type=int, default=cells.SEEDS, help="of the best rate")
    parser.add_argument("--again", action="store_true", help="what failed, too")
    parser.add_argument("--out", default=str(cells.RESULTS / FILE))
    options = parser.parse_args()
    store, run = cells.Store(options.out), runner(options.peers)
    for problem in options.problems:
        for peer in options.only:
            if not Path(options.peers).exists() and peer != "numpyro":
                print(f"{peer}: no environment with PyTorch: make bench-convergence installs it")
                continue
            settings = [{"learning_rate": r, "limit": options.limit} for r in options.rates]
            rows = store.fill([cells.Cell(problem, peer, s) for s in settings], run, options.again)
            best = best_of(rows)
            if best is not None:
                seeds = range(options.seeds)
                repeated = [cells.Cell(problem, peer, best["settings"], s) for s in seeds]
                store.fill(repeated, run, options.again)


if __name__ == "__main__":
    main()

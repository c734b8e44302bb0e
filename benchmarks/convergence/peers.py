"""``python -m benchmarks.convergence.peers``: other libraries on the same twelve posteriors.

Each trains with Adam, one weight sample a step and the batch size of the problem. Five learning
rates run for as long as twice our own defaults take; the best of them then for ten times as long,
or until it is within 0.1 nats a row of the best known. What a library has no layer or no prior for
is skipped, and the reason is kept. Our own defaults have to be run before.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.convergence import cells, elbo, summary
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
            said, folder = cells.process(command, 8 * cell.settings["limit"] + 300)
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
    parser.add_argument("--times", type=float, nargs=2, default=(2.0, 10.0),
                        help="our seconds: to choose a rate, and for the best")  # fmt: skip
    parser.add_argument("--seeds", type=int, default=1, help="of the best rate")
    parser.add_argument("--again", action="store_true", help="what failed, too")
    parser.add_argument("--out", default=str(cells.RESULTS / FILE))
    options = parser.parse_args()
    store, run = cells.Store(options.out), runner(options.peers)
    for problem in options.problems:
        goal = goal_of(problem)
        for peer in options.only:
            if not Path(options.peers).exists() and peer != "numpyro":
                print(f"{peer}: no environment with PyTorch: make bench-convergence installs it")
                continue
            few, many = ({"limit": round(t * goal.seconds, 1)} for t in options.times)
            few["target"] = many["target"] = round(goal.target, 4)
            tried = [cells.Cell(problem, peer, {"learning_rate": r, **few}) for r in options.rates]
            best = best_of(store.fill(tried, run, options.again))
            if best is not None:
                settings = {"learning_rate": best["settings"]["learning_rate"], **many}
                longest = [cells.Cell(problem, peer, settings, s) for s in range(options.seeds)]
                store.fill(longest, run, options.again)


class Goal(NamedTuple):
    """Seconds that our defaults take, and the ELBO a row at which a training has arrived."""

    seconds: float
    target: float


def goal_of(problem: str) -> Goal:
    """Of one problem, by what has been run so far."""
    found = summary.of(summary.groups(summary.load()), problem)
    best = summary.reference(found)
    ours = [g.seconds for g in found if g.contender == "BayesByBackprop" and not g.settings]
    if best is None or not ours:
        raise SystemExit(
            f"{problem}: run benchmarks.convergence.run first, for the seconds to beat"
        )
    return Goal(min(ours), best.median - summary.NEAR)


if __name__ == "__main__":
    main()

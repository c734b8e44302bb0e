"""``python -m benchmarks.convergence.run``: posterax at given settings on the twelve problems.

Settings are JSON, one object a run: names that ``px.fit`` knows go there, the others to the method.
Without any, the defaults run with nothing set and at two budgets of steps.
"""

import argparse
import json
import shutil
import sys
from typing import Any

from benchmarks.convergence import cells
from benchmarks.convergence.problems import NAMES, PRIORS

BUDGETS: tuple[dict[str, Any], ...] = ({}, {"steps": 1000}, {"steps": 4500})
METHODS = ("BayesByBackprop", "IVON")
FILE = "convergence.json"


def run(cell: cells.Cell) -> dict[str, Any]:
    """One fit in a fresh process, judged."""
    command = [sys.executable, "-m", "benchmarks.convergence.worker_posterax", cell.key]
    said, folder = cells.process(command)
    try:
        return cells.judged(cell, said, folder)
    finally:
        shutil.rmtree(folder)


def main() -> None:
    """Fill the cells that are missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", nargs="*", choices=NAMES, default=NAMES)
    parser.add_argument("--methods", nargs="*", default=METHODS, help="names of px")
    parser.add_argument("--settings", nargs="*", type=json.loads, default=list(BUDGETS))
    parser.add_argument("--seeds", type=int, default=cells.SEEDS, help="0 … so many less one")
    parser.add_argument("--prior", choices=PRIORS, default="own")
    parser.add_argument("--again", action="store_true", help="what failed, too")
    parser.add_argument("--out", default=str(cells.RESULTS / FILE))
    options = parser.parse_args()
    asked = [
        cells.Cell(problem, method, settings, seed, options.prior)
        for problem in options.problems
        for settings in options.settings
        for method in options.methods
        for seed in range(options.seeds)
        if (problem, options.prior) != ("mixture", "fan_in")  # which is that of digits
    ]
    cells.Store(options.out).fill(asked, run, options.again)


if __name__ == "__main__":
    main()

"""``python -m benchmarks.convergence.search``: posterax tuned by hand, as a user with time would.

Every setting of a grid with one seed; the best by its ELBO then with all seeds. Settings that an
earlier run tried are not tried again.
"""

import argparse
import itertools
import json
from typing import Any

from benchmarks.convergence import cells
from benchmarks.convergence.problems import NAMES, PRIORS
from benchmarks.convergence.run import run

FILE = "convergence-search.json"
GRID: dict[str, list[Any]] = {
    "learning_rate": [1e-3, 3e-3, 1e-2, 3e-2],
    "initial_rho": [-5.0, -3.0],
    "estimator": ["weight", "local"],
    "schedule": ["cosine"],
    "steps": [4500, 18_000],
}
CONSTANT: dict[str, list[Any]] = {
    "learning_rate": [1e-3, 3e-3],
    "initial_rho": [-3.0],
    "estimator": ["weight", "local"],
    "schedule": ["constant"],
    "steps": [18_000],
}


def settings_of(grid: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Every combination."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def best_of(found: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The cell of the highest ELBO; ``None`` where all failed."""
    sound = [cell for cell in found if "per_row" in cell.get("points", [{}])[-1]]
    return max(sound, key=lambda cell: cell["points"][-1]["per_row"], default=None)


def main() -> None:
    """Search each problem, then repeat the best."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", nargs="*", choices=NAMES, default=NAMES)
    parser.add_argument("--method", default="BayesByBackprop")
    parser.add_argument("--grid", nargs="*", type=json.loads, default=[GRID, CONSTANT],
                        help="JSON of lists by name")  # fmt: skip
    parser.add_argument("--seeds", type=int, default=cells.SEEDS, help="of the best setting")
    parser.add_argument("--prior", choices=PRIORS, default="own")
    parser.add_argument("--again", action="store_true", help="what failed, too")
    parser.add_argument("--out", default=str(cells.RESULTS / FILE))
    options = parser.parse_args()
    store = cells.Store(options.out)
    grid = [settings for grid in options.grid for settings in settings_of(grid)]
    for problem in options.problems:
        tried = [cells.Cell(problem, options.method, s, 0, options.prior) for s in grid]
        best = best_of(store.fill(tried, run, options.again))
        if best is None:
            print(f"{problem}: no setting gave a posterior")
            continue
        print(f"{problem}: best is {best['settings']}", flush=True)
        repeated = [
            cells.Cell(problem, options.method, best["settings"], seed, options.prior)
            for seed in range(options.seeds)
        ]
        store.fill(repeated, run, options.again)


if __name__ == "__main__":
    main()

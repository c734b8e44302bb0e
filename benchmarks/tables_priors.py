"""``python -m benchmarks.tables_priors``: which prior each method should have on a table.

Every method with three priors, the rest as the estimators have it, on rows that are test rows in no
split of a set: two thirds of those are scored, and a fit sees the training rows of one split but
them. Writes ``benchmarks/results/tables-study-priors.json``, from which a run that was stopped goes
on, and prints the docs' tables.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split

import posterax as px
from benchmarks.tables import OURS, facts, score_classifier, score_regressor
from benchmarks.tabular import UCI, Table, _folder, random_splits, tables
from posterax._util.writing import write_file
from posterax.commands import method_arguments

RESULTS = Path(__file__).parent / "results" / "tables-study-priors.json"
FEW = ", 50 rows"  # behind the name of a set: no more to learn from
CLASSES = ("iris", "wine", "breast cancer", "digits")
VALUES = ("diabetes", "yacht", "concrete", "wine-red", f"diabetes{FEW}", f"concrete{FEW}")
PRIORS: dict[str, Any] = {
    "learned widths": {
        True: px.priors.Hierarchical(1.0, 1.0),
        False: px.priors.Hierarchical(1.0, 1.0, relevance=True),
    },
    "Gaussian(1)": px.priors.Gaussian(1.0),
    "Gaussian(1, fan_in)": px.priors.Gaussian(1.0, fan_in=True),
}
METHODS = (
    *("maximum_a_posteriori", "deep_ensemble", "mc_dropout", "laplace", "ivon", "swag"),
    *("one Gaussian", "sghmc", "mclmc", "importance_sampling"),
)
OWN: dict[str, Any] = {  # a few draws of two chains; the rest as the command line has it
    "one Gaussian": px.BayesByBackprop(),
    "mclmc": px.MCLMC(chains=2, warmup=500),
}
DRAWS = {"mclmc": 300, "importance_sampling": None}
SLOW = ("mclmc", "importance_sampling")  # on the smallest tables alone
SMALL = ("iris", f"diabetes{FEW}")
MOST_ROWS = 400  # to learn from, which spares time with the larger sets
STEPS = 2000  # a quarter of the default's for 200 rows and more
SPLITS = 2


def sets(names: tuple[str, ...]) -> list[Table]:
    """The sets of the benchmarks, and iris."""
    x, y = load_iris(return_X_y=True)
    iris = Table("iris", True, x, y, random_splits(y, True))
    found = {table.name: table for table in [iris, *tables()]}
    return [found[name.removesuffix(FEW)]._replace(name=name) for name in names]


def rows_of(table: Table, split: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn from, and rows to score that no split of the set tests on."""
    tests = [test for _, test in table.splits]
    name = table.name.removesuffix(FEW)
    if name in UCI:  # their published tables have all twenty splits
        stored = np.load(_folder() / "uci" / f"{UCI[name]}.npz", allow_pickle=False)
        tests = [stored[key] for key in stored if key.startswith("test_idx")]
    free = np.setdiff1d(np.arange(len(table.y)), np.concatenate(tests))
    labels = table.y[free] if table.classes else None
    held, _ = train_test_split(free, train_size=2 / 3, random_state=2000 + split, stratify=labels)
    train = np.setdiff1d(table.splits[split][0], held)
    most = MOST_ROWS if name == table.name else 50
    if len(train) > most:
        labels = table.y[train] if table.classes else None
        train, _ = train_test_split(train, train_size=most, random_state=split, stratify=labels)
    return train, held


def score(table: Table, split: int, method: str, prior: str) -> dict[str, float]:
    """One method with one prior on one split."""
    warnings.simplefilter("ignore")
    train, held = rows_of(table, split)
    data = table.x[train], table.y[train], table.x[held], table.y[held]
    chosen = PRIORS[prior]
    options: dict[str, Any] = {"method": OWN[method]} if method in OWN else method_arguments(method)
    options |= {"prior": chosen[table.classes] if isinstance(chosen, dict) else chosen}
    options |= {"steps": DRAWS.get(method, STEPS), "random_state": split, "verbose": False}
    began = time.perf_counter()
    if table.classes:
        found = score_classifier(px.BayesianClassifier(**options), *data)
        counts = np.unique(data[1], return_counts=True)[1] / len(train)
        shares = counts[np.searchsorted(np.unique(data[1]), data[3])]
        found["frequencies_nll"] = float(-np.mean(np.log(shares)))
    else:
        found = score_regressor(OURS, px.BayesianRegressor(**options), *data)
        found["constant_error"] = float(np.sqrt(np.mean((data[3] - data[1].mean()) ** 2)))
    sizes = {"rows": len(train), "held_out": len(held)}
    return found | sizes | {"seed": split, "seconds": time.perf_counter() - began}


def markdown(results: dict[str, Any], names: tuple[str, ...]) -> str:
    """Error / NLL, a row for each method and prior, by the splits that all priors have."""
    lines = ["| | prior | " + " | ".join(names) + " |", "| --- | --- |" + " ---: |" * len(names)]
    for method, by_prior in results.items():
        for prior, by_set in by_prior.items():
            cells = []
            for name in names:
                common = set.intersection(*(set(_seeds(results, method, p, name)) for p in PRIORS))
                cells.append(_cell([s for s in by_set.get(name, []) if s["seed"] in common]))
            lines.append(f"| `{method}` | {prior} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(splits: list[dict[str, float]]) -> str:
    if not splits:
        return "–"
    error, nll = (np.mean([s[what] for s in splits]) for what in ("error", "nll"))
    classes = "frequencies_nll" in splits[0]
    return f"{100 * error:.1f} % / {nll:.3f}" if classes else f"{error:.3g} / {nll:.3f}"


def _seeds(results: dict[str, Any], method: str, prior: str, table: str) -> list[int]:
    splits = results.get(method, {}).get(prior, {}).get(table, [])
    return [split["seed"] for split in splits]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="*", default=CLASSES + VALUES, choices=CLASSES + VALUES)
    parser.add_argument("--methods", nargs="*", default=METHODS, choices=METHODS)
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    found = sets(tuple(options.sets))
    results: dict[str, Any] = {}
    if options.out.exists():  # a run that was stopped goes on
        results = json.loads(options.out.read_text())["results"]
    tasks = [
        (table, split, method, prior)
        for split in range(options.splits)
        for method in options.methods
        for table in found
        if method not in SLOW or table.name in SMALL
        for prior in PRIORS
        if split not in _seeds(results, method, prior, table.name)
    ]
    about = facts() | {"steps": STEPS, "most_rows": MOST_ROWS}
    scores = Parallel(options.jobs, verbose=5, return_as="generator")(
        delayed(score)(*task) for task in tasks
    )
    for (table, _, method, prior), result in zip(tasks, scores, strict=True):
        by_set = results.setdefault(method, {}).setdefault(prior, {})
        by_set.setdefault(table.name, []).append(result)
        write_file(options.out, json.dumps(about | {"results": results}, indent=1) + "\n")
    print(markdown(results, CLASSES), markdown(results, VALUES), sep="\n\n")


if __name__ == "__main__":
    main()

"""``python -m benchmarks.tables_study``: how the estimators' defaults were chosen.

Every candidate differs from the defaults in what its name says, and is scored on validation rows:
a fifth of the training rows of each split. No test row of a split is seen in that split. Writes
``benchmarks/results/tables-study-{regressor,classifier}.json`` and prints the docs' table.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import posterax as px
from benchmarks.tables import SCALED, classifiers, regressors, score_classifier, score_regressor
from benchmarks.tabular import Table, tables

RESULTS = Path(__file__).parent / "results"
relevance = px.priors.Hierarchical(relevance=True)
arrays = px.priors.Hierarchical()

REGRESSORS: dict[str, dict[str, Any]] = {
    "the defaults": {},
    "temperature 1": {"temperature": 1.0},
    "temperature 0.22": {"temperature": 0.22},
    "temperatures 0.05 to 1": {"temperature": (0.05, 1.0)},
    "one noise for all rows": {"noise": "learned"},
    "one network": {"members": 1},
    "prior Gaussian(1)": {"prior": px.priors.Gaussian(1.0)},
    "prior Hierarchical()": {"prior": arrays},
    "one layer of 100": {"hidden_layer_sizes": (100,)},
    "two layers of 50": {"hidden_layer_sizes": (50, 50)},
    "a quarter of the steps": {"steps": 2000},
}
CLASSIFIERS: dict[str, dict[str, Any]] = {
    "the defaults": {},
    "temperature 1": {"temperature": 1.0},
    "temperature 0.1": {"temperature": 0.1},
    "temperatures 0.1 to 0.5": {"temperature": (0.1, 0.5)},
    "temperatures 0.01 to 1": {"temperature": (0.01, 1.0)},
    "one network": {"members": 1},
    "prior Gaussian(0.3)": {"prior": px.priors.Gaussian(0.3)},
    "prior Gaussian(1)": {"prior": px.priors.Gaussian(1.0)},
    "prior Hierarchical(relevance=True)": {"prior": relevance},
    "one layer of 100": {"hidden_layer_sizes": (100,)},
    "two layers of 50": {"hidden_layer_sizes": (50, 50)},
    "a quarter of the steps": {"steps": 2000},
}


def score(table: Table, split: int, settings: dict[str, Any] | None) -> Any:
    """One candidate on one validation split; ``None`` is scikit-learn's MLP, standardised."""
    train, held = table.validation(split)
    data = table.x[train], table.y[train], table.x[held], table.y[held]
    kinds = classifiers if table.classes else regressors
    name = SCALED if settings is None else "posterax"
    model = kinds(split)[name]
    began = time.perf_counter()
    if settings is not None:
        model.set_params(**settings)
    scores = (
        score_classifier(model, *data) if table.classes else score_regressor(name, model, *data)
    )
    return scores | {"seconds": time.perf_counter() - began}


def markdown(results: dict[str, Any], classes: bool) -> str:
    """NLL of each candidate on each set, and how far it is from the defaults on average."""
    names = list(next(iter(results.values())))
    lines = ["| candidate | " + " | ".join(names) + " |", "| --- |" + " ---: |" * len(names)]
    for candidate, by_table in results.items():
        cells = []
        for splits in by_table.values():
            mean = {k: np.mean([s[k] for s in splits]) for k in splits[0]}
            error = f"{100 * mean['error']:.2f} %" if classes else f"{mean['error']:.3g}"
            inside = "" if classes else f" / {100 * mean['inside']:.0f} %"
            cells.append(f"{error} / {mean['nll']:.3f}{inside}")
        lines.append(f"| {candidate} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("regressor", "classifier"))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--candidates", nargs="*", default=[])
    options = parser.parse_args()
    classes = options.kind == "classifier"
    candidates: dict[str, Any] = dict(CLASSIFIERS if classes else REGRESSORS)
    candidates = {k: v for k, v in candidates.items() if k in (options.candidates or candidates)}
    candidates["scikit-learn's MLP, standardised"] = None
    path = RESULTS / f"tables-study-{options.kind}.json"
    results: dict[str, Any] = {}
    for candidate, settings in candidates.items():
        results[candidate] = {}
        for table in (t for t in tables() if t.classes == classes):
            splits = [score(table, split, settings) for split in range(options.splits)]
            results[candidate][table.name] = splits
        print(candidate, file=sys.stderr, flush=True)
        print(
            markdown({candidate: results[candidate]}, classes).splitlines()[-1],
            file=sys.stderr,
            flush=True,
        )
        path.write_text(json.dumps(results, indent=1) + "\n")
    print(markdown(results, classes))


if __name__ == "__main__":
    main()

"""``python -m benchmarks.tables_study``: how the estimators' defaults were chosen.

Every candidate differs from the defaults in what its name says, and is scored on validation rows:
a fifth of the training rows of each split. No test row of a split is seen in that split. Writes
``benchmarks/results/tables-study-{regressor,classifier,large}.json`` and prints the docs' table.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed

import posterax as px
from benchmarks.tables import (
    SCALED,
    classifiers,
    facts,
    regressors,
    score_classifier,
    score_regressor,
)
from benchmarks.tabular import Table, large_tables, tables
from posterax._util.writing import write_file

RESULTS = Path(__file__).parent / "results"
relevance = px.priors.Hierarchical(relevance=True)
arrays = px.priors.Hierarchical()

REGRESSORS: dict[str, dict[str, Any]] = {
    "the defaults": {},
    "temperature 1": {"temperature": 1.0},
    "temperature 0.25": {"temperature": 0.25},
    "temperatures 0.05 to 1": {"temperature": (0.05, 1.0)},
    "Gaussian noise": {"noise": "gaussian"},
    "one noise for all rows": {"noise": "learned"},
    "not calibrated": {"calibrate": False},
    "one network": {"members": 1},
    "prior Gaussian(1)": {"prior": px.priors.Gaussian(1.0)},
    "prior Hierarchical()": {"prior": arrays},
    "one layer of 100": {"hidden_layer_sizes": (100,)},
    "two layers of 50": {"hidden_layer_sizes": (50, 50)},
    "a quarter of the steps": {"steps": 2500},
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
LARGE: dict[str, dict[str, Any]] = {
    "the defaults": {},
    "two layers of 50": {"hidden_layer_sizes": (50, 50)},
    "two layers of 200": {"hidden_layer_sizes": (200, 200)},
    "one layer of 100": {"hidden_layer_sizes": (100,)},
    "two layers of 50, 100 epochs": {"hidden_layer_sizes": (50, 50), "epochs": 100},
    "100 epochs": {"epochs": 100},
}
KINDS: dict[str, Any] = {
    "regressor": (REGRESSORS, lambda: [t for t in tables() if not t.classes], 3),
    "classifier": (CLASSIFIERS, lambda: [t for t in tables() if t.classes], 5),
    "large": (LARGE, large_tables, 1),
}


class GaussianNoise(px.BayesianRegressor):
    """The regressor with thin tails."""

    def _likelihood(self) -> Any:
        return px.likelihoods.Gaussian("predicted")


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
        if settings.get("noise") == "gaussian":
            model = GaussianNoise(**model.get_params() | {"noise": "predicted"})
    scores = (
        score_classifier(model, *data) if table.classes else score_regressor(name, model, *data)
    )
    return scores | {"seconds": time.perf_counter() - began}


def row(results: dict[str, Any]) -> str:
    """Error, NLL and the share of 90 % intervals that hold y, for each set."""
    cells = []
    for splits in results.values():
        mean = {k: np.mean([s[k] for s in splits]) for k in splits[0]}
        classes = "inside" not in mean
        error = f"{100 * mean['error']:.2f} %" if classes else f"{mean['error']:.3g}"
        inside = "" if classes else f" / {100 * mean['inside']:.0f} %"
        cells.append(f"{error} / {mean['nll']:.3f}{inside}")
    return " | ".join(cells)


def markdown(results: dict[str, Any]) -> str:
    """One row for each candidate."""
    names = list(next(iter(results.values())))
    lines = ["| | " + " | ".join(names) + " |", "| --- |" + " ---: |" * len(names)]
    lines += [f"| {candidate} | {row(by_table)} |" for candidate, by_table in results.items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    candidates, load, splits = KINDS[options.kind]
    candidates = candidates | {"scikit-learn's MLP, standardised": None}
    found = load()
    tasks = [(c, table, split) for c in candidates for table in found for split in range(splits)]
    scores = Parallel(options.jobs, verbose=5)(
        delayed(score)(table, split, candidates[c]) for c, table, split in tasks
    )
    results: dict[str, Any] = {c: {table.name: [] for table in found} for c in candidates}
    for (candidate, table, _), result in zip(tasks, scores, strict=True):
        results[candidate][table.name].append(result)
    path = options.out / f"tables-study-{options.kind}.json"
    write_file(path, json.dumps(facts() | {"results": results}, indent=1) + "\n")
    print(markdown(results))


if __name__ == "__main__":
    main()

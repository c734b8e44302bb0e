"""``python -m benchmarks.tables``: the estimators with no settings, beside scikit-learn's.

Nine data sets, five splits each. The regressors of scikit-learn that predict no deviation get the
mean squared residual of a tenth of the training rows, held out, and are then fitted to all. Writes
``benchmarks/results/tables.json`` and prints the table that docs/results/tables.md shows.
"""

import argparse
import json
import os
import platform
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import sklearn
from joblib import Parallel, delayed
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import posterax as px
from benchmarks.tabular import SPLITS, Table, tables
from posterax._util.writing import write_file

RESULTS = Path(__file__).parent / "results" / "tables.json"
GP_ROWS = {False: 1000, True: 500}  # a Gaussian process takes the cube of its rows, by class
LEVEL = 0.9
Z90 = 1.6448536269514722
OURS, RAW, SCALED = "posterax", "MLP", "MLP, standardised"


def regressors(seed: int) -> dict[str, Any]:
    """By name, with default settings; the last MLP has inputs and targets standardised."""
    scaled = TransformedTargetRegressor(
        make_pipeline(StandardScaler(), MLPRegressor(random_state=seed)),
        transformer=StandardScaler(),
    )
    kernel = ConstantKernel() * RBF() + WhiteKernel()
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)
    return {
        OURS: px.BayesianRegressor(random_state=seed),
        RAW: MLPRegressor(random_state=seed),
        SCALED: scaled,
        "Gaussian process": make_pipeline(StandardScaler(), process),
        "gradient boosting": HistGradientBoostingRegressor(random_state=seed),
        "random forest": RandomForestRegressor(random_state=seed),
    }


def classifiers(seed: int) -> dict[str, Any]:
    """By name, with default settings."""
    process = GaussianProcessClassifier(1.0 * RBF(), random_state=seed)
    return {
        OURS: px.BayesianClassifier(random_state=seed),
        RAW: MLPClassifier(random_state=seed),
        SCALED: make_pipeline(StandardScaler(), MLPClassifier(random_state=seed)),
        "Gaussian process": make_pipeline(StandardScaler(), process),
        "gradient boosting": HistGradientBoostingClassifier(random_state=seed),
        "random forest": RandomForestClassifier(random_state=seed),
    }


def score_regressor(name: str, model: Any, x: Any, y: Any, x_test: Any, y_test: Any) -> Any:
    """RMSE, NLL in nats and the share of 90 % intervals that hold y."""
    if name == OURS:
        model.fit(x, y)
        predictive = model.predictive(x_test)
        low, high = predictive.interval(LEVEL)
        mean, nll = predictive.mean, -np.mean(predictive.log_prob(y_test))
    else:
        if name == "Gaussian process":
            model.fit(x, y)
            mean, std = model.predict(x_test, return_std=True)
        else:
            part, held = train_test_split(np.arange(len(y)), test_size=0.1, random_state=0)
            model.fit(x[part], y[part])
            std = np.sqrt(np.mean(np.square(model.predict(x[held]) - y[held])))
            mean = model.fit(x, y).predict(x_test)
        z = (y_test - mean) / std
        nll = np.mean(0.5 * np.square(z) + np.log(std) + 0.5 * np.log(2 * np.pi))
        low, high = mean - Z90 * std, mean + Z90 * std
    error = np.sqrt(np.mean(np.square(mean - y_test)))
    inside = np.mean((y_test >= low) & (y_test <= high))
    return {"error": float(error), "nll": float(nll), "inside": float(inside)}


def score_classifier(model: Any, x: Any, y: Any, x_test: Any, y_test: Any) -> Any:
    """The share of wrong labels, and NLL in nats."""
    p = model.fit(x, y).predict_proba(x_test)
    of_truth = p[np.arange(len(y_test)), np.searchsorted(model.classes_, y_test)]
    # scikit-learn's trees give classes a probability of exactly 0
    nll = -np.mean(np.log(np.clip(of_truth, 1e-15, 1)))
    wrong = np.mean(model.classes_[p.argmax(1)] != y_test)
    return {"error": float(wrong), "nll": float(nll)}


def run(table: Table, split: int, rows: tuple[np.ndarray, np.ndarray], only: set[str]) -> Any:
    """All methods on one split."""
    warnings.filterwarnings("ignore", module="sklearn")  # an MLP's 200 epochs are often too few
    train, test = rows
    x, y, x_test, y_test = table.x[train], table.y[train], table.x[test], table.y[test]
    found = {}
    for name, model in (classifiers if table.classes else regressors)(split).items():
        if only and name not in only:
            continue
        n = min(len(y), GP_ROWS[table.classes]) if name == "Gaussian process" else len(y)
        data = x[:n], y[:n], x_test, y_test
        began = time.perf_counter()
        if table.classes:
            scores = score_classifier(model, *data)
        else:
            scores = score_regressor(name, model, *data)
        found[name] = scores | {"seconds": time.perf_counter() - began, "test_rows": len(y_test)}
    return found


def pooled(splits: list[Any], name: str, what: str) -> float:
    """The mean over splits; intervals are pooled over all test rows."""
    weights = [s[name]["test_rows"] if what == "inside" else 1 for s in splits]
    return float(np.average([s[name][what] for s in splits], weights=weights))


def markdown(results: dict[str, Any]) -> str:
    """One row for each data set, error / NLL for each method."""
    names = list(next(iter(results.values()))["splits"][0])
    lines = ["| | " + " | ".join(names) + " | 90 % intervals hold |"]
    lines.append("| --- |" + " ---: |" * (len(names) + 1))
    for table, result in results.items():
        splits, percent = result["splits"], 100 if result["classes"] else 1
        best = min(pooled(splits, name, "nll") for name in names)
        cells = []
        for name in names:
            error, nll = percent * pooled(splits, name, "error"), pooled(splits, name, "nll")
            shown = f"{nll:.3f}" if nll > best else f"**{nll:.3f}**"
            cells.append(f"{error:.3g}{' %' if result['classes'] else ''} / {shown}")
        inside = "–" if result["classes"] else f"{100 * pooled(splits, OURS, 'inside'):.1f} %"
        lines.append(f"| {table} | " + " | ".join(cells) + f" | {inside} |")
    return "\n".join(lines)


def verdict(results: dict[str, Any]) -> list[str]:
    """What the defaults should reach and do not, one line each."""
    missed = []
    for table, result in results.items():
        splits = result["splits"]
        ours = {what: pooled(splits, OURS, what) for what in ("error", "nll")}
        for other in (RAW, SCALED):
            theirs = {what: pooled(splits, other, what) for what in ("error", "nll")}
            if ours["nll"] >= theirs["nll"]:
                missed.append(f"{table}: NLL {ours['nll']:.4f}, {other} {theirs['nll']:.4f}")
            if ours["error"] > 1.02 * theirs["error"]:
                missed.append(f"{table}: error {ours['error']:.4f}, {other} {theirs['error']:.4f}")
        if not result["classes"]:
            inside = pooled(splits, OURS, "inside")
            if not 0.86 <= inside <= 0.94:
                missed.append(f"{table}: 90 % intervals hold {100 * inside:.1f} %")
    return missed


def facts() -> dict[str, Any]:
    """Where the figures come from."""
    versions = {module.__name__: module.__version__ for module in (jax, sklearn, np, px)}
    machine = {"python": platform.python_version(), "cores": os.cpu_count()}
    return machine | {"device": jax.default_backend(), "versions": versions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="*", default=[], help="names of data sets (default: all)")
    parser.add_argument("--methods", nargs="*", default=[], help="names of methods (default: all)")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    chosen = [t for t in tables() if not options.sets or t.name in options.sets]
    tasks = [(table, split) for table in chosen for split in range(SPLITS)]
    scores = Parallel(options.jobs, verbose=5)(
        delayed(run)(table, split, table.splits[split], set(options.methods))
        for table, split in tasks
    )
    results: dict[str, Any] = {t.name: {"classes": t.classes, "splits": []} for t in chosen}
    for (table, _), result in zip(tasks, scores, strict=True):
        results[table.name]["splits"].append(result)
    write_file(options.out, json.dumps(facts() | {"results": results}, indent=1) + "\n")
    print(markdown(results))
    if {OURS, RAW, SCALED} <= set(scores[0]):
        print("\n".join(verdict(results)) or "every line holds against both MLPs")


if __name__ == "__main__":
    main()

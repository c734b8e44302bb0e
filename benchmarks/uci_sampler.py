"""``python -m benchmarks.uci_sampler study|final``: MCLMC on three UCI sets, 50 hidden units.

``study`` compares priors and likelihoods on validation rows, a fifth of each split's training rows;
``final`` takes the one that was best there, over all sets, and scores the test rows of five splits
once. Writes ``benchmarks/results/uci-sampler-study.json`` and ``uci-sampler.json``.
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
from joblib import Parallel, delayed

import posterax as px
from benchmarks.tabular import SPLITS, Table, tables

RESULTS = Path(__file__).parent / "results"
SETS = ("Boston", "concrete", "yacht")
STUDY_SPLITS = 3
# Lakshminarayanan, Pritzel and Blundell 2017, table 1: test log likelihood of deep ensembles
ENSEMBLES = {"Boston": -2.41, "concrete": -3.06, "yacht": -1.18}
PRIORS = {
    "fan-in": lambda: px.priors.Gaussian(1.0, fan_in=True),
    "hierarchical": lambda: px.priors.Hierarchical(1.0, 1.0),
    "relevance": lambda: px.priors.Hierarchical(1.0, 1.0, relevance=True),
}
LIKELIHOODS = {
    "Gaussian, learned": (1, lambda: px.likelihoods.Gaussian(noise="learned", initial=0.3)),
    "Gaussian, predicted": (2, lambda: px.likelihoods.Gaussian(noise="predicted")),
    "Student t, learned": (1, lambda: px.likelihoods.StudentT(noise="learned", initial=0.3)),
}
ACTIVATIONS = ("tanh", "silu")


def score(table: Table, rows: tuple[Any, Any], setting: tuple[str, ...], seed: int) -> dict:
    """RMSE, mean test log likelihood, coverage and chain agreement of one fit."""
    prior, likelihood, activation = setting
    train, test = rows
    x, y = table.x, table.y
    mean, std = x[train].mean(0), x[train].std(0)
    scale = np.where(std > 0, std, 1)
    inputs = ((x - mean) / scale).astype("float32")
    shift, unit = y[train].mean(), y[train].std()
    outputs, make = LIKELIHOODS[likelihood]
    network = px.networks.MLP(x.shape[1], outputs, (50,), activation=activation, key=seed)
    model = px.Model(network, PRIORS[prior](), make())
    data = (inputs[train], ((y[train] - shift) / unit).astype("float32"))
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = px.fit(model, data, px.MCLMC(chains=8), steps=250, key=seed, progress=False)
    seconds = time.perf_counter() - began
    predictive = posterior.predict(inputs[test]).in_units(shift, unit)
    low, high = predictive.interval(0.9)
    diagnosis = posterior.diagnose(inputs[test][:50])
    return {
        "set": table.name, "setting": list(setting), "seed": seed, "seconds": seconds,
        "rmse": float(np.sqrt(np.mean(np.square(predictive.mean - y[test])))),
        "log_likelihood": float(np.mean(predictive.log_prob(y[test]))),
        "coverage": float(np.mean((low <= y[test]) & (y[test] <= high))),
        "rhat": float(np.nanmax(diagnosis.predictions.rhat)),
        "divergences": float(posterior.history["divergences"].sum()),
    }  # fmt: skip


def about() -> dict[str, Any]:
    """Where the figures come from."""
    return {
        "machine": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version(),
        "jax": jax.__version__, "posterax": px.__version__, "backend": jax.default_backend(),
    }  # fmt: skip


def run(tasks: list[tuple], jobs: int) -> list[dict]:
    """All tasks, a process each at a time."""
    return Parallel(n_jobs=jobs, batch_size=1, verbose=5)(delayed(score)(*t) for t in tasks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("study", "final"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    found = [table for table in tables() if table.name in SETS]
    settings = [(p, q, a) for p in PRIORS for q in LIKELIHOODS for a in ACTIVATIONS]
    if options.what == "study":
        tasks = [
            (table, table.validation(split), setting, split)
            for setting in settings for table in found for split in range(STUDY_SPLITS)
        ]  # fmt: skip
    else:
        study = json.loads((RESULTS / "uci-sampler-study.json").read_text())
        tasks = [
            (table, table.splits[split], tuple(study["chosen"]), split)
            for table in found for split in range(SPLITS)
        ]  # fmt: skip
    rows = run(tasks, options.jobs)
    outcome: dict[str, Any] = {"about": about(), "rows": rows}
    if options.what == "study":
        # the mean over sets of the gain over deep ensembles' published figure, on validation rows
        gain = {
            setting: np.mean([r["log_likelihood"] - ENSEMBLES[r["set"]] for r in rows
                              if tuple(r["setting"]) == setting])
            for setting in settings
        }  # fmt: skip
        outcome["chosen"] = list(max(gain, key=lambda s: gain[s]))
        for setting, value in sorted(gain.items(), key=lambda item: -item[1]):
            print(f"{value:+.3f}  {', '.join(setting)}")
    for name in SETS:
        mine = [r for r in rows if r["set"] == name]
        if options.what == "final":
            mean = {k: np.mean([r[k] for r in mine]) for k in ("rmse", "log_likelihood", "rhat")}
            print(name, {k: round(float(v), 3) for k, v in mean.items()}, ENSEMBLES[name])
    file = "uci-sampler-study.json" if options.what == "study" else "uci-sampler.json"
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / file).write_text(json.dumps(outcome, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""``python -m benchmarks.uci_sampler study|final``: MCLMC on three UCI sets, 50 hidden units.

``study`` compares priors and likelihoods on validation rows, a fifth of each split's training rows;
``final`` takes the one that was best there, over all sets, and scores the test rows of five splits
once. Writes ``benchmarks/results/uci-sampler-study.json`` and ``uci-sampler.json``.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

import posterax as px
from benchmarks.tabular import SPLITS, Table, tables
from posterax._util.writing import write_file

RESULTS = Path(__file__).parent / "results"
SETS = ("Boston", "concrete", "yacht")
STUDY_SPLITS = 1
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
SIZE = {"study": (4, 150), "final": (8, 250)}  # chains, draws of each
PATIENCE = 600.0  # seconds after which no further process is begun


def score(
    table: Table, rows: tuple[Any, Any], setting: tuple[str, ...], seed: int, what: str
) -> dict:
    """RMSE, mean test log likelihood, coverage and chain agreement of one fit."""
    (prior, likelihood), (chains, draws) = setting, SIZE[what]
    train, test = rows
    x, y = table.x, table.y
    mean, std = x[train].mean(0), x[train].std(0)
    scale = np.where(std > 0, std, 1)
    inputs = ((x - mean) / scale).astype("float32")
    shift, unit = y[train].mean(), y[train].std()
    outputs, make = LIKELIHOODS[likelihood]
    network = px.networks.MLP(x.shape[1], outputs, (50,), activation="tanh", key=seed)
    model = px.Model(network, PRIORS[prior](), make())
    data = (inputs[train], ((y[train] - shift) / unit).astype("float32"))
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = px.fit(model, data, px.MCLMC(chains), steps=draws, key=seed)
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
        "device": str(jax.devices()[0].device_kind), "cores": os.cpu_count(),
        "jax": jax.__version__, "python": platform.python_version(), "posterax": px.__version__,
        "method": repr(px.MCLMC()), "chains and draws": SIZE,
    }  # fmt: skip


def work(name: str, setting: tuple[str, ...], what: str, folder: str) -> None:
    """All splits of one set with one setting, in this process: they share compiled programs."""
    table = next(table for table in tables() if table.name == name)
    for split in range(STUDY_SPLITS if what == "study" else SPLITS):
        rows = table.validation(split) if what == "study" else table.splits[split]
        outcome = score(table, rows, setting, split, what)
        file = Path(folder) / f"{what}-{name}-{'-'.join(setting)}-{split}.json"
        write_file(file, json.dumps(outcome))  # at once: a run that is cut off keeps what it has


def run(what: str, settings: list[tuple[str, ...]], jobs: int) -> list[dict]:
    """The outcomes of all sets with all settings, a process each at a time."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        waiting = [(name, setting) for setting in settings for name in SETS]
        running: list[subprocess.Popen] = []
        while waiting or running:
            running = [process for process in running if process.poll() is None]
            while waiting and len(running) < jobs and time.monotonic() - began < PATIENCE:
                name, setting = waiting.pop(0)
                code = (
                    f"from benchmarks import uci_sampler as u; u.work{name, setting, what, folder}"
                )
                running.append(subprocess.Popen([sys.executable, "-c", code]))
            if waiting and not running:
                print(f"{len(waiting)} of {len(settings) * len(SETS)} left out for want of time")
                break
            time.sleep(0.2)
        return [json.loads(file.read_text()) for file in sorted(Path(folder).iterdir())]


def choose(rows: list[dict]) -> list[str]:
    """The setting with the best mean over sets of the gain on deep ensembles' published figure."""
    gains: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        gain = row["log_likelihood"] - ENSEMBLES[row["set"]]
        gains.setdefault(tuple(row["setting"]), []).append(gain)
    whole = {s: np.mean(g) for s, g in gains.items() if len(g) == STUDY_SPLITS * len(SETS)}
    for setting, value in sorted(whole.items(), key=lambda item: -item[1]):
        print(f"{value:+.3f}  {', '.join(setting)}")
    return list(max(whole, key=lambda s: whole[s]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("study", "final"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    study = options.out / "uci-sampler-study.json"
    if options.what == "study":
        rows = run("study", [(p, q) for p in PRIORS for q in LIKELIHOODS], options.jobs)
        options.out.mkdir(parents=True, exist_ok=True)
        outcome = {"about": about(), "rows": rows, "chosen": choose(rows)}
        write_file(study, json.dumps(outcome, indent=1) + "\n")
        return
    chosen = json.loads(study.read_text())["chosen"]
    rows = run("final", [tuple(chosen)], options.jobs)
    for name in SETS:
        mine = [row for row in rows if row["set"] == name]
        keys = ("rmse", "log_likelihood", "coverage", "rhat", "seconds")
        mean = {key: round(float(np.mean([row[key] for row in mine])), 3) for key in keys}
        print(f"{name}: {mean}; deep ensembles {ENSEMBLES[name]}")
    outcome = {"about": about(), "chosen": chosen, "rows": rows}
    write_file(options.out / "uci-sampler.json", json.dumps(outcome, indent=1) + "\n")


if __name__ == "__main__":
    main()

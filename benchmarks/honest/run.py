"""``python -m benchmarks.honest.run PHASE [DATA …]``: the fits of the study, one after another.

Phases are "reference", "methods", "sampler", "length", "cold", "settled" and "compare", which reads
predictions that the others left under ``build/honest`` and adds their distance to the reference.
Results go to ``benchmarks/results/honest.json`` as they come: the same call goes on where it was.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import posterax as px
from benchmarks.honest import data, measure
from benchmarks.honest.contenders import METHODS, Cell, budget, cells
from posterax._util.writing import write_file

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks/results/honest.json"
KEPT = ROOT / "build/honest"
PHASES = ("reference", "methods", "sampler", "length", "cold", "settled")
SAMPLES = 1000
STORED = ("DeepEnsemble",)  # its members are all its draws
PLACES = ("test", "far")
KEYS = {
    "reference": 0,
    "second": 100,
    "MCLMC": 200,
}  # chains that share nothing with those of the reference


def results() -> dict[str, Any]:
    """What there is, by the key of its cell."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def add(key: str, found: dict[str, Any]) -> None:
    """Put one cell to the others."""
    write_file(RESULTS, json.dumps(results() | {key: found}, indent=1) + "\n")


def fitted(cell: Cell, fit: dict[str, Any], first: bool) -> dict[str, Any]:
    """Fit one cell, score it, and keep its predictions."""
    split = data.load(cell.data, cell.split)
    model = data.model(cell.data, cell.split, cell.prior, split.x.shape[1])
    method = METHODS[cell.method](cell.temperature)
    key = KEYS.get(cell.method, 0) + cell.split
    began, busy = time.perf_counter(), time.process_time()
    try:
        posterior = px.fit(model, (split.x, split.y), method, key=key, progress=False, **fit)
    except px.NonFiniteError as error:
        return cell._asdict() | {"error": str(error)}
    seconds, busy = time.perf_counter() - began, time.process_time() - busy
    samples = None if cell.method in STORED else 2 * SAMPLES if cell.method in KEYS else SAMPLES
    seen = {
        place: posterior.predict(x, samples=samples, key=1)
        for place, x in (("val", split.x_val), ("test", split.x_test), ("far", split.x_far))
    }
    KEPT.mkdir(parents=True, exist_ok=True)
    kept = {f"{p}_{k}": v for p in PLACES for k, v in measure.moments(seen[p]).items()}
    np.savez(KEPT / f"{cell.key.replace(' | ', '-')}.npz", **kept)
    return cell._asdict() | {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(busy, 2),
        "first": first,
        "budget": fit,
        "validation": measure.scores(seen["val"], split.y_val),
        "test": measure.scores(seen["test"], split.y_test),
        **about(posterior, split),
    }


def about(posterior: Any, split: data.Split) -> dict[str, Any]:
    """Steps, the ELBO a row, and what the diagnosis finds; of chains also R-hat of predictions."""
    known = posterior.record.settings
    found: dict[str, Any] = {"steps": known.get("steps")}
    if known.get("bound") and known["bound"]["value"] is not None:
        found["elbo"] = known["bound"]["value"] / len(split.y)
        found["elbo_error"] = known["bound"]["error"] / len(split.y)
    chains = hasattr(posterior, "stats")
    diagnosis = posterior.diagnose(split.x_test[:50]) if chains else posterior.diagnose()
    found["kinds"] = list(diagnosis.kinds)
    if chains and diagnosis.predictions is not None:
        space = diagnosis.predictions.to_dict()
        found |= {k: space[k] for k in ("rhat_max", "rhat_median", "ess_bulk_median")}
    return found


def compared(found: dict[str, Any]) -> dict[str, Any]:
    """Every cell with its distance to the reference of its data and prior."""
    for entry in found.values():
        cell = Cell(*(entry[field] for field in Cell._fields))
        reference = _kept(cell._replace(method="reference", temperature=1.0))
        own = _kept(cell)
        if own and reference and cell.method != "reference":
            entry["distance"] = {p: measure.distance(own[p], reference[p]) for p in PLACES}
    return found


def _kept(cell: Cell) -> dict[str, dict[str, np.ndarray]] | None:
    path = KEPT / f"{cell.key.replace(' | ', '-')}.npz"
    if not path.exists():
        return None
    with np.load(path) as stored:
        fields = ("mean", "epistemic", "total")
        return {p: {k: stored[f"{p}_{k}"] for k in fields} for p in PLACES}


def main() -> None:
    """Fit what is missing of a phase, within the time that is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("phase", choices=(*PHASES, "compare"))
    parser.add_argument("data", nargs="*", default=list(data.NAMES))
    parser.add_argument("--seconds", type=float, default=float("inf"))
    given = parser.parse_args()
    if given.phase == "compare":
        write_file(RESULTS, json.dumps(compared(results()), indent=1) + "\n")
        return
    warnings.simplefilter("ignore", px.ConvergenceWarning)  # what they say is in the results
    began = time.perf_counter()
    for name in given.data:
        met: set[str] = set()
        for cell in cells(name, given.phase):
            found = results()
            if cell.key in found:
                continue
            if time.perf_counter() - began > given.seconds:
                return
            got = fitted(cell, budget(cell, found), cell.method not in met)
            met.add(cell.method)
            add(cell.key, got)
            print(cell.key, got.get("seconds"), got.get("steps"), got.get("test"), got.get("kinds"),
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()

"""One run in a process of its own: ``python -m benchmarks.tables_peers.worker '{"set": …}'``.

Prints one JSON line. Seconds are those of the wall and, as ``cpu``, of the processor, which do not
depend on what else runs on the machine; compilation counts, reading the data does not. Memory is
the peak of the process, its imports and data included.
"""

import json
import os
import platform
import resource
import sys
import time
import warnings
from importlib.metadata import PackageNotFoundError, version
from typing import Any

CORES_OF = ("posterax", "bde")  # JAX takes every core it may run on


def bound_to(cores: int, slot: int) -> None:
    """JAX has no other way to be told how many threads."""
    allowed = sorted(os.sched_getaffinity(0))
    first = slot * cores
    chosen = {allowed[(first + i) % len(allowed)] for i in range(cores)}
    os.sched_setaffinity(0, chosen)


def processor() -> str:
    """Its name only."""
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    """Those that are installed."""
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def run(asked: dict[str, Any]) -> dict[str, Any]:
    """Fit, predict, judge."""
    import numpy as np
    from sklearn.model_selection import train_test_split

    from benchmarks.tables_peers import contenders, data, measures

    warnings.filterwarnings("ignore")  # an MLP's 200 epochs are often too few
    entry = contenders.CONTENDERS[asked["contender"]]
    table = data.load(asked["set"])
    train, test = table.splits[asked["split"]]
    if asked["rows"] and len(train) > asked["rows"]:
        labels = table.y[train] if table.task == data.CLASSES else None
        options = {"train_size": asked["rows"], "random_state": asked["seed"]}
        train, _ = train_test_split(train, stratify=labels, **options)
    model = contenders.make(asked["contender"], table.task, asked["seed"])
    model.name = table.name
    x, y, x_test = table.rows(train), table.y[train], table.rows(test)
    began, busy = time.perf_counter(), time.process_time()
    model.fit(x, y)
    fitted, busy_fitted = time.perf_counter(), time.process_time()
    said = model.classes(x_test) if table.task == data.CLASSES else model.values(x_test)
    done, busy_done = time.perf_counter(), time.process_time()
    # before the judging; bytes on a Mac, KiB elsewhere
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if table.task == data.CLASSES:
        found = measures.of_classes(np.asarray(said), table.y[test])
    else:
        found = measures.of_values(said, table.y[test], table.whole)
    if not data.SETS[table.name].fixed:
        del found["parts"]  # several splits tell the error of a mean
    return found | {
        "fit_seconds": round(fitted - began, 4),
        "predict_seconds": round(done - fitted, 4),
        "fit_cpu": round(busy_fitted - busy, 4),
        "predict_cpu": round(busy_done - busy_fitted, 4),
        "judge_seconds": round(time.perf_counter() - done, 4),
        "peak_mib": round(peak / 1024 if sys.platform == "darwin" else peak),
        "train_rows": len(train),
        "test_rows": len(test),
        "columns": int(x_test.shape[1]),
        "versions": versions(entry.packages),
        "device": {"processor": processor(), "cores": os.cpu_count(), "used": asked["cores"]},
    }


if __name__ == "__main__":
    task = json.loads(sys.argv[1])
    if task["contender"] in CORES_OF and hasattr(os, "sched_setaffinity"):
        bound_to(task["cores"], task["slot"])
    print(json.dumps(run(task)))

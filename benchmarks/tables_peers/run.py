"""``python -m benchmarks.tables_peers.run``: fill the runs that are missing.

Each is a set, a split, a contender and a seed, in a process of its own with a time limit. What is
stored is not run again, so that a stopped program goes on where it was.
"""

import argparse
import json
import os
import queue
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.tables_peers import data
from benchmarks.tables_peers.contenders import CONTENDERS
from benchmarks.tables_peers.store import RESULTS, ROOT, Run, Store

LIMIT = 1800.0  # seconds of a run, import to answer
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "LOKY_MAX_CPU_COUNT")
HOMES = {
    "own": sys.executable,
    "peers": str(ROOT / ".cache/table-peers/bin/python"),
    "bde": str(ROOT / ".cache/table-peers-bde/bin/python"),
}


def planned(options: argparse.Namespace) -> list[Run]:
    """What was asked for, first splits first, so that a stopped program has some of all."""
    found = []
    for name in options.sets or data.names(options.group):
        plan = data.SETS[name]
        for split, seed in plan.cells(options.splits):
            for contender in options.contenders:
                if plan.task not in CONTENDERS[contender].tasks:
                    continue
                if contender == "truth" and name not in data.simulated.TRUTHS:
                    continue
                found.append(Run(name, split, contender, seed, options.rows))
    order = {name: i for i, name in enumerate(options.contenders)}
    return sorted(found, key=lambda run: (run.seed >= 5, order[run.contender]))


def measured(run: Run, options: argparse.Namespace, slot: int) -> dict[str, Any]:
    """What a worker says, or why it said nothing."""
    asked = run._asdict() | {"cores": options.cores, "slot": slot}
    home = {"own": HOMES["own"], "peers": options.peers, "bde": options.bde}
    python = home[CONTENDERS[run.contender].home]
    own = os.environ | dict.fromkeys(THREADS, str(options.cores)) | {"JAX_PLATFORMS": "cpu"}
    if not options.compiled:
        own.pop("JAX_COMPILATION_CACHE_DIR", None)
    command = [python, "-m", "benchmarks.tables_peers.worker", json.dumps(asked)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=own, cwd=ROOT, check=False,
            timeout=options.limit,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error_text": f"not done after {options.limit:g} s", "limit": options.limit}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        why = done.stderr.strip().splitlines()
        said = why[-1].replace(str(ROOT), "") if why else f"ended with {done.returncode}"
        return {"error_text": said[:300]}
    found = json.loads(lines[-1])
    return found | ({"compiled_before": True} if options.compiled else {})


def fill(runs: list[Run], options: argparse.Namespace) -> None:
    """All that are missing, in several processes."""
    store = Store(options.out)
    known = store.runs()
    missing = [
        run for run in runs if run not in known or (options.again and "error_text" in known[run])
    ]
    print(f"{len(missing)} of {len(runs)} runs to do", flush=True)
    slots: queue.Queue[int] = queue.Queue()
    for slot in range(options.jobs):
        slots.put(slot)

    def one(run: Run) -> None:
        if options.until and time.time() - began > options.until:
            return
        slot = slots.get()
        try:
            found = measured(run, options, slot) | {"date": time.strftime("%Y-%m-%d %H:%M")}
        finally:
            slots.put(slot)
        store.add(run, found)
        print(f"{time.strftime('%H:%M:%S')} {told(run, found)}", flush=True)

    began = time.time()
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(one, missing))


def told(run: Run, found: dict[str, Any]) -> str:
    """A run in one line."""
    what = f"{run.set} {run.split}/{run.seed} {run.contender}"
    if "error_text" in found:
        return f"{what}: {found['error_text']}"
    seconds = found["fit_seconds"] + found["predict_seconds"]
    return f"{what}: {found['error']:.4g} / {found['nll']:.4f}, {seconds:.1f} s"


def arguments(description: str | None) -> argparse.ArgumentParser:
    """What this program and the protocol of bde share."""
    peers = [name for name in CONTENDERS if name not in ("posterax", "bde")]
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--contenders", nargs="*", choices=[*CONTENDERS], default=peers)
    parser.add_argument("--sets", nargs="*", choices=[*data.SETS], default=[])
    parser.add_argument("--group", choices=("main", "gap", "bde"), default="main")
    parser.add_argument("--splits", type=int, default=None, help="at most (default: as planned)")
    parser.add_argument("--rows", type=int, default=0, help="at most, to learn from (0: all)")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--cores", type=int, default=1, help="of each process")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of a run")
    parser.add_argument("--until", type=float, default=0, help="begin no run after these seconds")
    parser.add_argument("--again", action="store_true", help="what failed, too")
    parser.add_argument("--compiled", action="store_true", help="keep JAX's compilation cache")
    parser.add_argument("--peers", default=HOMES["peers"], help="their Python")
    parser.add_argument("--bde", default=HOMES["bde"], help="the Python that has bde")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    return parser


def main() -> None:
    options = arguments(__doc__).parse_args()
    fill(planned(options), options)


if __name__ == "__main__":
    main()

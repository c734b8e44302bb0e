"""``python -m benchmarks.ensemble``: eight networks 1-100-100-1, beside a loop over PyTorch's.

1000 points of the regression curve, batches of 100 and of all, Adam, float32, two threads, the same
objective and number of steps for all; see ``benchmarks.worker_ensemble``. Each contender lives in a
process of its own and they take turns; a time is that of whole training runs, ``px.fit`` from call
to posterior, over the number of their steps, and a ratio the median of the ratios within a round.
The first run of a fresh process, compilation included and imports not, is timed besides. Writes
``benchmarks/results/ensemble.json``.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.problem import THREADS
from benchmarks.run import ROOT, Worker
from posterax._util.writing import write_file

OURS, BASE = "posterax", "PyTorch loop"
CONTENDERS = (
    OURS, "posterax vmapped", "posterax unrolled", BASE, "PyTorch loop, torch.compile",
    "PyTorch torch.func.vmap", "PyTorch torch.func.vmap, torch.compile",
)  # fmt: skip
STEPS = {100: 2000, 1000: 400}  # by batch size
FIRST = {100: 2000}
FROM_FRESH = (OURS, BASE, CONTENDERS[-1])


def python_of(name: str, peers: str) -> str:
    return sys.executable if name.startswith("posterax") else peers


def in_turns(names: list[str], peers: str, batch: int, steps: int, rounds: int) -> dict[str, Any]:
    """Milliseconds a step, all members; ratios to the loop over PyTorch networks."""
    module = "benchmarks.worker_ensemble"
    workers = {name: Worker(module, python_of(name, peers), "cpu", name) for name in names}
    results: dict[str, Any] = {}
    for name, worker in workers.items():
        trial = worker.ask("train", str(batch), 50)  # compiles
        if "error" in trial:
            results[name] = trial
    runs: dict[str, list[float]] = {name: [] for name in names if name not in results}
    for _ in range(rounds):
        for name, row in runs.items():
            row.append(1e3 * workers[name].ask("train", str(batch), steps)["seconds"])
    for name, row in runs.items():
        faster = [b / a for a, b in zip(row, runs[BASE], strict=True)]
        results[name] = {
            "milliseconds": statistics.median(row),
            "best_milliseconds": min(row),
            "times_faster": statistics.median(faster),
            "times_faster_each": faster,
        }
    for worker in workers.values():
        worker.close()
    return results


def first_run(name: str, peers: str, batch: int, steps: int) -> dict[str, Any]:
    """One run in a fresh process without a compilation cache."""
    bare = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    bare |= {"BENCH_PEER": name, "OMP_NUM_THREADS": str(THREADS)}
    command = [python_of(name, peers), "-m", "benchmarks.worker_ensemble"]
    said = subprocess.run(
        [*command, "--first", str(batch), str(steps)], capture_output=True, text=True, env=bare,
        cwd=ROOT, check=False,
    )  # fmt: skip
    if said.returncode:
        return {"error": (said.stderr.strip().splitlines() or ["the process ended"])[-1]}
    return json.loads(said.stdout.strip().splitlines()[-1])


def versions(name: str, peers: str) -> dict[str, str]:
    worker = Worker("benchmarks.worker_ensemble", python_of(name, peers), "cpu", name)
    found = worker.versions()
    worker.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", default=str(ROOT / ".cache/peers/bin/python"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--share", type=float, default=1.0, help="of the steps, for a quick look")
    parser.add_argument("--only", nargs="*", default=CONTENDERS)
    parser.add_argument("out", nargs="?", default=str(ROOT / "benchmarks/results/ensemble.json"))
    options = parser.parse_args()
    names = [*options.only]
    lengths = {batch: round(options.share * steps) for batch, steps in STEPS.items()}
    firsts = {batch: round(options.share * steps) for batch, steps in FIRST.items()}
    if not Path(options.peers).exists():
        raise SystemExit("no environment with PyTorch: make bench installs it")
    began = time.time()
    everything: dict[str, Any] = {"steps": {}, "first": {}}
    for batch, steps in lengths.items():
        print(f"\neight networks 1-100-100-1, batch {batch}: milliseconds a step of all eight")
        found = in_turns(names, options.peers, batch, steps, options.rounds)
        for name in names:
            row = found[name]
            print(
                f"  {name:42s} {row['error'][:70]}" if "error" in row
                else f"  {name:42s} {row['milliseconds']:9.3f} ms  {row['times_faster']:6.2f} × as "
                f"fast as the loop  (best {row['best_milliseconds']:.3f} ms)",
                flush=True,
            )  # fmt: skip
        everything["steps"][str(batch)] = found
    for batch, steps in firsts.items():
        print(f"\n{steps} steps, batch {batch}, in a fresh process, compilation included")
        rows = {}
        for name in [name for name in names if name in FROM_FRESH]:
            rows[name] = row = first_run(name, options.peers, batch, steps)
            said = row.get("error") or (
                f"{row['seconds']:.1f} s, mean squared error {row['mean_squared_error']:.2g}"
            )
            print(f"  {name:42s} {said}", flush=True)
        everything["first"][str(batch)] = rows
    everything["about"] = {
        "members": 8, "network": "1-100-100-1", "examples": 1000, "optimizer": "Adam",
        "steps": lengths, "first_steps": firsts, "rounds": options.rounds, "seed": 0,
        "device": "cpu", "threads": THREADS,
        "machine": platform.processor() or platform.machine(),
        "ours": versions(OURS, options.peers), "peers": versions(BASE, options.peers),
        "python": platform.python_version(), "date": time.strftime("%Y-%m-%d"),
        "load_average": os.getloadavg()[2], "seconds": round(time.time() - began),
    }  # fmt: skip
    write_file(options.out, json.dumps(everything, indent=1) + "\n")
    print(f"\n{everything['about']}")


if __name__ == "__main__":
    main()

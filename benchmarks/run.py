"""``python -m benchmarks.run``: posterax beside its peers, in turns, as ratios.

Every library runs in a process of its own and they take turns; reported is the median over rounds
of the ratio within a round, so that a busy machine slows all alike. Writes
``benchmarks/results/DEVICE.json``, from which ``benchmarks.report`` makes the README's table.
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

from benchmarks.problem import BATCH, INPUTS, SAMPLES, THREADS

ROOT = Path(__file__).parent.parent
PEERS = ("bayesian-torch reparameterization", "bayesian-torch flipout", "torchbnn", "blitz", "pyro")
LARGE, MIDDLE, SMALL = "784-1200-1200-10", "784-400-400-10", "1-100-100-1"
STEPS = ("bayes gaussian", "bayes mixture", "bayes local", "bayes flipout")


class Worker:
    """A process that holds one library and answers with seconds."""

    def __init__(self, module: str, python: str, device: str, peer: str = ""):
        settings = {"BENCH_DEVICE": device, "BENCH_PEER": peer, "PYTHONUNBUFFERED": "1"}
        threads = {"OMP_NUM_THREADS": str(THREADS), "MKL_NUM_THREADS": str(THREADS)}
        self.process = subprocess.Popen(
            [python, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env=os.environ | settings | threads, cwd=ROOT,
        )  # fmt: skip

    def ask(self, task: str, network: str, times: int) -> dict[str, Any]:
        """Run a task so many times; seconds for one time."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            request = {"task": task, "network": network, "times": times}
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError):
            return {"error": "the process ended"}

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()


def measure(
    entries: dict[str, tuple[Worker, str]], network: str, base: str, seconds: float, rounds: int
) -> dict[str, Any]:
    """Interleaved rounds, each about ``seconds`` long for every entry; ratios to ``base``."""
    times: dict[str, int] = {}
    results: dict[str, Any] = {}
    for name, (worker, task) in entries.items():
        trial = worker.ask(task, network, 1)
        trial = trial if "error" in trial else worker.ask(task, network, 32)
        if "error" in trial:
            results[name] = trial
            continue
        times[name] = max(1, round(seconds / max(trial["seconds"], 1e-6)))
        times[name] = -(-times[name] // 32) * 32 if "predict" not in task else times[name]
    runs: dict[str, list[float]] = {name: [] for name in times}
    for _ in range(rounds):
        for name, count in times.items():
            worker, task = entries[name]
            runs[name].append(worker.ask(task, network, count)["seconds"])
    for name, row in runs.items():
        ratios = [a / b for a, b in zip(row, runs[base], strict=True)]
        results[name] = {
            "milliseconds": 1e3 * statistics.median(row),
            "best_milliseconds": 1e3 * min(row),
            "ratio": statistics.median(ratios),
        }
    return results


def show(title: str, results: dict[str, Any], base: str) -> None:
    """One table, on standard output."""
    print(f"\n{title}")
    for name, row in results.items():
        if "error" in row:
            print(f"  {name:36s} {row['error'][:60]}")
        else:
            print(f"  {name:36s} {row['milliseconds']:10.3f} ms   {row['ratio']:7.2f} × {base}")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--peers", default=str(ROOT / ".cache/peers/bin/python"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.6)
    parser.add_argument("--out", default=str(ROOT / "benchmarks/results"))
    options = parser.parse_args()
    began = time.time()
    ours = Worker("benchmarks.worker_jax", sys.executable, options.device)
    torch_device = "cuda" if options.device == "gpu" else "cpu"
    peers = {p: Worker("benchmarks.worker_torch", options.peers, torch_device, p) for p in PEERS}
    everything: dict[str, Any] = {"steps": {}, "memory": {}}
    base = "deterministic JAX"
    for network in (LARGE, MIDDLE, SMALL):
        entries = {base: (ours, "deterministic")}
        entries |= {f"posterax {task}": (ours, task) for task in STEPS}
        entries |= {peer: (worker, "step") for peer, worker in peers.items()}
        results = measure(entries, network, base, options.seconds, options.rounds)
        show(f"training step, {network}, batch {BATCH}, Adam", results, base)
        everything["steps"][network] = results
    base = "100 deterministic passes"
    entries = {base: (ours, "deterministic predict"), "posterax": (ours, "predict")}
    entries |= {peer: (worker, "predict") for peer, worker in peers.items()}
    results = measure(entries, MIDDLE, base, options.seconds, 3)
    show(f"prediction, {MIDDLE}, {SAMPLES} samples, {INPUTS} inputs", results, base)
    everything["predict"] = results
    for network in (LARGE, MIDDLE, SMALL):
        everything["memory"][network] = {
            task: ours.ask(f"memory {task}", network, 1) for task in ("deterministic", *STEPS)
        }
    for worker in (ours, *peers.values()):
        worker.close()
    version = lambda python, module: subprocess.run(  # noqa: E731
        [python, "-m", module, "--versions"], capture_output=True, text=True, cwd=ROOT, check=False
    ).stdout.strip()
    everything["about"] = {
        "device": options.device,
        "machine": platform.processor() or platform.machine(),
        "threads": THREADS,
        "python": platform.python_version(),
        "posterax, jax, device": version(sys.executable, "benchmarks.worker_jax"),
        "torch": version(options.peers, "benchmarks.worker_torch"),
        "seconds": round(time.time() - began),
        "date": time.strftime("%Y-%m-%d"),
        "rounds": options.rounds,
    }
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{options.device}.json").write_text(json.dumps(everything, indent=1) + "\n")
    memory = everything["memory"][LARGE]
    if "bytes" in memory["deterministic"]:
        ratio = memory["bayes mixture"]["bytes"] / memory["deterministic"]["bytes"]
        print(f"\npeak memory of a Bayes by Backprop step, {LARGE}: {ratio:.2f} × deterministic")
    print(f"\n{everything['about']}")


if __name__ == "__main__":
    main()

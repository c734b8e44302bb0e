"""``python -m benchmarks.run``: posterax beside its peers, in turns, as ratios.

Every library runs in a process of its own and they take turns; reported is the median over rounds
of the ratio within a round, so that a busy machine slows all alike. Writes
``benchmarks/results/DEVICE.json``, from which ``benchmarks.report`` makes docs/speed.md.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.problem import INPUTS, ON_GPU, OTHERS, SAMPLES, THREADS, batch_size
from posterax._util.writing import write_file

ROOT = Path(__file__).parent.parent
PLAIN, BASE, LOW = "PyTorch", "deterministic JAX", "deterministic JAX, bf16"
PEERS = ("bayesian-torch reparameterization", "bayesian-torch flipout", "torchbnn", "blitz", "pyro")
LARGE, MIDDLE, SMALL = "784-1200-1200-10", "784-400-400-10", "1-100-100-1"
STEPS = (
    *("bayes gaussian", "bayes mixture", "bayes local", "bayes flipout", "ivon"),
    *("maximum likelihood", "map", "swag", "dropout"),
)
BRIEF = ("bayes gaussian", "bayes mixture", "bayes local", "bayes flipout", "map")
GPU_STEPS = ("bayes gaussian", "bayes bf16", "bayes local")
OTHER_STEPS = ("map", "bayes gaussian", "bayes last layer", "bayes local", "bayes flipout", "ivon")
FIRST_FIT = """
import time, numpy as np
x = np.linspace(-1, 1, 200)[:, None].astype("float32")
import jax
jax.devices()
began = time.perf_counter()
import posterax as px
px.fit, px.Model, px.BayesByBackprop, px.networks, px.priors, px.likelihoods
imported = time.perf_counter()
model = px.Model(
    px.networks.MLP(1, 1, (50, 50), key=0), px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1)
)
px.fit(model, (x, x[:, 0] ** 2), px.BayesByBackprop(), epochs=10, key=0, progress=False)
print(imported - began, time.perf_counter() - imported)
"""


class Worker:
    """A process that holds one library and answers with seconds."""

    def __init__(self, module: str, python: str, device: str, peer: str = ""):
        settings = {"BENCH_DEVICE": device, "BENCH_PEER": peer, "PYTHONUNBUFFERED": "1"}
        threads = {"OMP_NUM_THREADS": str(THREADS), "MKL_NUM_THREADS": str(THREADS)}
        self.command, self.environment = [python, "-m", module], os.environ | settings | threads
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env=self.environment, cwd=ROOT,
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

    def versions(self) -> dict[str, str]:
        """What it runs."""
        said = subprocess.run(
            [*self.command, "--versions"], capture_output=True, text=True, cwd=ROOT,
            env=self.environment, check=False,
        )  # fmt: skip
        return json.loads(said.stdout) if said.returncode == 0 else {}

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
        if "error" not in trial and "predict" not in task and trial["seconds"] < seconds:
            trial = worker.ask(task, network, 32)
        if "error" in trial:
            results[name] = trial
            continue
        times[name] = max(1, round(seconds / max(trial["seconds"], 1e-6)))
        if "predict" not in task:  # as many at least as a fit takes together; in whole blocks
            times[name] = 8 if times[name] <= 8 else -(-times[name] // 32) * 32
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
            "ratios": [min(ratios), max(ratios)],
        }
    return {name: results[name] for name in entries}


def show(title: str, results: dict[str, Any], base: str) -> None:
    """One table, on standard output."""
    print(f"\n{title}")
    for name, row in results.items():
        if "error" in row:
            print(f"  {name:36s} {row['error'][:60]}")
        elif "bytes" in row:
            print(f"  {name:36s} {row['bytes'] / 2**20:10.1f} MiB  {row['ratio']:7.2f} × {base}")
        else:
            low, high = row["ratios"]
            ratio = f"{row['ratio']:7.2f} × {base} ({low:.2f} to {high:.2f})"
            print(f"  {name:36s} {row['milliseconds']:10.3f} ms   {ratio}")
    sys.stdout.flush()


def memory(device: str, python: str, torch_device: str, base: str) -> dict[str, Any]:
    """Peak memory of a step, each in a process that did nothing else."""
    found = {}
    steps = BRIEF if device == "gpu" else STEPS  # where each process compiles for long
    ours = {base: "deterministic"} | {f"posterax {task}": task for task in steps}
    peers = PEERS if device == "gpu" else ()
    for name in (*ours, *peers):
        if name in ours:
            worker = Worker("benchmarks.worker_jax", sys.executable, device)
        else:
            worker = Worker("benchmarks.worker_torch", python, torch_device, name)
        found[name] = worker.ask(f"memory {ours.get(name, 'step')}", LARGE, 1)
        worker.close()
    for row in found.values():
        if "bytes" in row:
            row["ratio"] = row["bytes"] / found[base]["bytes"]
    return found


def start_up(repeats: int) -> dict[str, float]:
    """Seconds to import posterax beyond JAX, and for a first small fit.

    The import ends at the first names that can be used. The fit compiles everything; in a second
    process it finds what the first one kept.
    """
    bare = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}

    def run(cache: str) -> tuple[float, float]:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", FIRST_FIT], capture_output=True, text=True,
            env=bare | {"POSTERAX_CACHE": cache}, cwd=ROOT, check=True,
        )  # fmt: skip
        imported, fitted = map(float, done.stdout.split())
        return imported, fitted

    imports, fits = zip(*(run("off") for _ in range(repeats)), strict=True)
    with tempfile.TemporaryDirectory() as folder:
        run(folder)
        again = [run(folder)[1] for _ in range(repeats)]
    return {
        "import_seconds_beyond_jax": statistics.median(imports),
        "first_fit_seconds": statistics.median(fits),
        "second_process_fit_seconds": statistics.median(again),
    }


class Bench:
    """All libraries in turns; what is found is written after each table, so that none is lost."""

    def __init__(self, options: argparse.Namespace):
        self.options, self.began = options, time.time()
        self.gpu = options.device == "gpu"
        self.torch_device = "cuda" if self.gpu else "cpu"
        self.found: dict[str, Any] = {"start": start_up(options.starts), "steps": {}}
        print({name: round(seconds, 2) for name, seconds in self.found["start"].items()})
        self.ours = Worker("benchmarks.worker_jax", sys.executable, options.device)
        self.peers = {
            peer: Worker("benchmarks.worker_torch", options.peers, self.torch_device, peer)
            for peer in (PLAIN, *PEERS)
        }
        self.versions = self.ours.versions(), self.peers[PEERS[0]].versions()

    def keep(self) -> None:
        """Write what there is."""
        self.found["about"] = {
            "device": self.options.device,
            "machine": platform.processor() or platform.machine(),
            "threads": THREADS,
            "python": platform.python_version(),
            "ours": self.versions[0],
            "peers": self.versions[1],
            "date": time.strftime("%Y-%m-%d"),
            "rounds": self.options.rounds,
            "seconds": round(time.time() - self.began),
        }
        out = Path(self.options.out)
        out.mkdir(parents=True, exist_ok=True)
        write_file(out / f"{self.options.device}.json", json.dumps(self.found, indent=1) + "\n")

    def _own(self, *tasks: str) -> dict[str, tuple[Worker, str]]:
        return {f"posterax {task}": (self.ours, task) for task in tasks}

    def _theirs(self, *peers: str, task: str = "step") -> dict[str, tuple[Worker, str]]:
        return {peer: (self.peers[peer], task) for peer in peers}

    def _steps(self, network: str, entries: dict[str, tuple[Worker, str]], base: str) -> None:
        results = measure(entries, network, base, self.options.seconds, self.options.rounds)
        show(f"training step, {network}, batch {batch_size(network)}, Adam", results, base)
        self.found["steps"][network] = results
        self.keep()

    def dense(self, *networks: str) -> None:
        """Steps of dense networks; on a GPU, where compilation is long, not of all methods."""
        for network in networks:
            tasks = BRIEF if self.gpu and network != LARGE else STEPS
            entries = {BASE: (self.ours, "deterministic")} | self._own(*tasks)
            entries |= {"posterax minibatch alone": (self.ours, "minibatch")}
            self._steps(network, entries | self._theirs(*self.peers), BASE)

    def predictions(self) -> None:
        """Of 10,000 inputs with 100 samples."""
        passes = f"{SAMPLES} deterministic passes"
        entries = {passes: (self.ours, "deterministic predict"), "posterax": (self.ours, "predict")}
        entries |= self._theirs(*self.peers, task="predict")
        results = measure(entries, MIDDLE, passes, self.options.seconds, 3)
        show(f"prediction, {MIDDLE}, {SAMPLES} samples, {INPUTS} inputs", results, passes)
        self.found["predict"] = results
        self.keep()

    def others(self) -> None:
        """Steps of convolutional, attention and recurrent networks."""
        if self.gpu:
            entries = {BASE: (self.ours, "deterministic"), LOW: (self.ours, "deterministic bf16")}
            entries |= self._own(*GPU_STEPS) | self._theirs(PLAIN)
            self._steps(ON_GPU, entries, BASE)
            return
        for network in OTHERS:
            if network != ON_GPU:
                entries = self._theirs(PLAIN, *PEERS[:2])
                entries |= {f"{BASE}, step by step": (self.ours, "deterministic by steps")}
                self._steps(network, entries | self._own(*OTHER_STEPS), PLAIN)

    def memory(self) -> None:
        """Peaks of a step."""
        for worker in (self.ours, *self.peers.values()):
            worker.close()
        options = self.options
        self.found["memory"] = memory(options.device, options.peers, self.torch_device, BASE)
        show(f"peak memory of a step, {LARGE}, data aside", self.found["memory"], BASE)
        self.keep()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--peers", default=str(ROOT / ".cache/peers/bin/python"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.6)
    parser.add_argument("--starts", type=int, default=3, help="processes for each start-up figure")
    parser.add_argument("--out", default=str(ROOT / "benchmarks/results"))
    bench = Bench(parser.parse_args())
    bench.dense(LARGE)
    bench.predictions()
    bench.others()
    bench.dense(MIDDLE, SMALL)
    bench.memory()
    print(f"\n{bench.found['about']}")


if __name__ == "__main__":
    main()

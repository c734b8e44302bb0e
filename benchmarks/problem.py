"""What every library runs: the same networks, data, batch size, optimiser and threads.

A worker is a process that holds one library. It is asked for a task over standard input and
answers with seconds, so that the workers can take turns and share the machine's mood.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

THREADS = int(os.environ.get("BENCH_THREADS", "2"))
BATCH, EXAMPLES, INPUTS, SAMPLES = 128, 12_800, 10_000, 100
NETWORKS = {
    "1-100-100-1": (1, (100, 100), 1),
    "784-400-400-10": (784, (400, 400), 10),
    "784-1200-1200-10": (784, (1200, 1200), 10),
}
# of the others the shape of an example, and the size of a batch
WIDTH, LENGTH, FEATURES, HIDDEN = 128, 50, 16, 64
OTHERS = {
    "LeNet-5": ((28, 28), 128),
    "ResNet-20": ((3, 32, 32), 64),
    "transformer": ((LENGTH, FEATURES), 64),
    "LSTM": ((LENGTH, FEATURES), 64),
    "ResNet-18": ((3, 32, 32), 128),
}
ON_GPU = "ResNet-18"  # the others are measured on a CPU


def outputs(network: str) -> int:
    """How many outputs a network has; one means regression."""
    return NETWORKS[network][2] if network in NETWORKS else 10


def batch_size(network: str) -> int:
    """Rows of a minibatch."""
    return OTHERS[network][1] if network in OTHERS else BATCH


def data(network: str, rows: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of the right shape: their values do not matter for time."""
    rng = np.random.default_rng(0)
    if network in OTHERS:
        rows = rows or EXAMPLES // 4
        return rng.random((rows, *OTHERS[network][0]), dtype=np.float32), rng.integers(0, 10, rows)
    rows = rows or EXAMPLES
    x = rng.random((rows, NETWORKS[network][0]), dtype=np.float32)
    if outputs(network) == 1:
        return x, np.sin(4 * x).astype(np.float32)
    return x, rng.integers(0, outputs(network), rows)


def serve(make: Callable[[str, str], Callable[[int], Any]]) -> None:
    """Answer tasks: ``make(task, network)`` returns a function that runs it ``n`` times."""
    ready: dict[tuple[str, str], Callable[[int], Any]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        task, network = request["task"], request["network"]
        try:
            answer = _answer(make, ready, task, network, int(request["times"]))
        except Exception as error:  # a peer that cannot is a result, not an end
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


def _answer(make: Any, ready: Any, task: str, network: str, times: int) -> dict[str, float]:
    if task.startswith("memory "):
        return {"bytes": make(task, network)(1)}
    if (task, network) not in ready:
        for other in [key for key in ready if key[1] != network]:
            del ready[other]
        ready[task, network] = make(task, network)
        ready[task, network](1)
    began = time.perf_counter()
    ready[task, network](times)
    seconds = (time.perf_counter() - began) / times
    return {"seconds": seconds}

"""``python -m benchmarks.mcmc``: effective draws per second in function space, beside other NUTS.

One network (13-50-1, tanh) on Boston housing with weights N(0, 1) and noise 0.3 in units of the
standardised target: the same density for all. Every contender runs four chains in float32 in a
fresh process with no compilation cache, on two threads; the clock runs from the data to the draws
on the host, compilation included, imports not. Counted is the smallest bulk ESS (arviz-stats) of
the network's output at the first 20 test inputs; a run whose largest R-hat over them exceeds 1.05
does not count. Contenders take turns, seed after seed; ratios are within a seed. Writes
``benchmarks/results/mcmc.json``.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
HIDDEN, NOISE, CHAINS, INPUTS, THREADS = 50, 0.3, 4, 20, 2
LIMIT = 1.05  # of R-hat
BASE = "NumPyro NUTS"
# name: (function, warm-up or None for the method's own, draws per chain)
CONTENDERS: dict[str, tuple[str, int | None, int]] = {
    "posterax MCLMC": ("mclmc", None, 8000),
    BASE: ("numpyro", 500, 1500),
    "posterax MCLMC adjusted": ("mclmc_adjusted", None, 3000),
    "posterax NUTS": ("nuts", 500, 1500),
    "posterax HMC": ("hmc", 500, 1500),
    "Pyro NUTS": ("pyro", 100, 1000),
}
REPEATED = ("posterax MCLMC", BASE)


def table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Standardised training inputs and targets of the first split, and the test inputs."""
    folder = os.environ.get("POSTERAX_DATA")
    if not folder:
        raise SystemExit("POSTERAX_DATA must name the directory that holds uci/*.npz")
    stored = np.load(Path(folder) / "uci" / "bostonHousing.npz", allow_pickle=False)
    x, y = stored["x"], stored["y"].reshape(-1)
    train, test = stored["train_idx_00"], stored["test_idx_00"]
    spread = x[train].std(0)
    x = (x - x[train].mean(0)) / np.where(spread > 0, spread, 1)
    y = (y - y[train].mean()) / y[train].std()
    x, y = x.astype("float32"), y.astype("float32")
    return x[train], y[train], x[test][:INPUTS]


# -- contenders: each returns seconds, (chain, draw, input) outputs, and what it did


def _posterax(method: str, warmup: int | None, draws: int, seed: int) -> tuple[float, Any, Any]:
    import blackjax  # noqa: F401  # imported late by posterax; imports do not count for anybody
    import jax
    import jax.numpy as jnp

    import posterax as px

    jax.devices()
    x, y, test = table()
    own = {} if warmup is None else {"warmup": warmup}
    methods = {
        "mclmc": lambda: px.MCLMC(chains=CHAINS, **own),
        "mclmc_adjusted": lambda: px.MCLMC(chains=CHAINS, adjusted=True, **own),
        "nuts": lambda: px.NUTS(chains=CHAINS, max_doublings=10, **own),
        "hmc": lambda: px.HMC(chains=CHAINS, leapfrog_steps=128, **own),
    }
    began = time.perf_counter()
    network = px.networks.MLP(x.shape[1], 1, (HIDDEN,), activation="tanh", key=0)
    model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(NOISE))
    posterior = px.fit(model, (x, y), methods[method](), steps=draws, key=seed, progress=False)
    seconds = time.perf_counter() - began
    found = posterior.model
    layers = posterior.draws.network.layers  # the density is that of all contenders, or we stop
    weights = {
        "a": layers[0].weight[0, 0].T, "b": layers[0].bias[0, 0],
        "c": layers[1].weight[0, 0].T, "d": layers[1].bias[0, 0],
    }  # fmt: skip
    ours = found.log_joint(posterior.parameters(0), jnp.asarray(x), jnp.asarray(y)[:, None])
    np.testing.assert_allclose(ours, _log_joint(weights, x, y, jnp), rtol=1e-4)
    values = jax.vmap(jax.vmap(lambda p: found.apply(p, posterior.state, test, None, False)[0]))(
        posterior.draws
    )
    steps = float(np.mean(posterior.stats["n_steps"]))
    divergences = int(np.sum(posterior.stats["diverging"]))
    about = {"gradients_per_draw": steps, "divergences": divergences}
    return seconds, values[..., 0], about


def _log_joint(w: Any, x: Any, y: Any, xp: Any) -> Any:
    """log p(y, w | x), written out; ``xp`` is jax.numpy or torch."""
    outputs = (xp.tanh(x @ w["a"] + w["b"]) @ w["c"] + w["d"])[:, 0]
    prior = sum(-0.5 * (v**2).sum() - 0.5 * np.log(2 * np.pi) * v.size for v in w.values())
    residual = (y - outputs) / NOISE
    constant = len(y) * (np.log(NOISE) + 0.5 * np.log(2 * np.pi))
    return prior - 0.5 * (residual**2).sum() - constant


def _numpyro(_: str, warmup: int | None, draws: int, seed: int) -> tuple[float, Any, Any]:
    import jax
    import jax.numpy as jnp
    from numpyro.infer import MCMC, NUTS

    import posterax as px

    jax.devices()
    x, y, test = table()
    assert warmup is not None
    began = time.perf_counter()

    def start(key: jax.Array) -> dict[str, jax.Array]:  # the network's own, as all have it
        one, two = px.networks.MLP(x.shape[1], 1, (HIDDEN,), key=key).layers
        return {"a": one.weight.T, "b": one.bias, "c": two.weight.T, "d": two.bias}

    kernel = NUTS(potential_fn=lambda w: -_log_joint(w, x, y, jnp))
    chains = MCMC(
        kernel, num_warmup=warmup, num_samples=draws, num_chains=CHAINS,
        chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    keys = jax.random.split(jax.random.key(seed + 1), CHAINS)
    starts = jax.tree.map(lambda *a: jnp.stack(a), *[start(key) for key in keys])
    chains.run(jax.random.key(seed), init_params=starts, extra_fields=("num_steps", "diverging"))
    found = jax.tree.map(np.asarray, chains.get_samples(group_by_chain=True))
    seconds = time.perf_counter() - began
    hidden = np.tanh(test @ found["a"] + found["b"][..., None, :])
    values = (hidden @ found["c"] + found["d"][..., None, :])[..., 0]
    extra = chains.get_extra_fields(group_by_chain=True)
    about = {
        "gradients_per_draw": float(np.mean(extra["num_steps"])),
        "divergences": int(np.sum(extra["diverging"])),
    }
    return seconds, values, about


def _pyro(_: str, warmup: int | None, draws: int, seed: int) -> tuple[float, Any, Any]:
    """Chains one after another, each for a quarter of BENCH_SECONDS, whatever it has by then."""
    import pyro
    import torch
    from pyro.infer import MCMC, NUTS

    torch.set_num_threads(THREADS)
    x, y, test = (torch.as_tensor(a) for a in table())
    shapes = {"a": (x.shape[1], HIDDEN), "b": (HIDDEN,), "c": (HIDDEN, 1), "d": (1,)}
    budget = float(os.environ.get("BENCH_SECONDS", "180")) / CHAINS
    fan = {"a": x.shape[1], "b": x.shape[1], "c": HIDDEN, "d": HIDDEN}

    def potential(w: Any) -> Any:
        outputs = (torch.tanh(x @ w["a"] + w["b"]) @ w["c"] + w["d"])[:, 0]
        squares = sum((v**2).sum() for v in w.values())
        return 0.5 * squares + 0.5 * (((y - outputs) / NOISE) ** 2).sum()

    class Enough(Exception):
        pass

    began, chains = time.perf_counter(), []
    for chain in range(CHAINS):
        pyro.set_rng_seed(seed * CHAINS + chain)
        start = {k: (2 * torch.rand(s) - 1) / fan[k] ** 0.5 for k, s in shapes.items()}
        kept: list[Any] = []
        end = time.perf_counter() + budget

        def hook(kernel: Any, params: Any, stage: str, _: int, kept: Any = kept, end: Any = end):
            if stage.startswith("Sample"):
                kept.append({k: v.detach().clone() for k, v in params.items()})
            if time.perf_counter() > end:
                raise Enough

        kernel = NUTS(potential_fn=potential, jit_compile=True, ignore_jit_warnings=True)
        mcmc = MCMC(
            kernel, num_samples=draws, warmup_steps=warmup, initial_params=start,
            hook_fn=hook, disable_progbar=True,
        )  # fmt: skip
        with contextlib.suppress(Enough):
            mcmc.run()
        chains.append(kept)
    seconds = time.perf_counter() - began
    least = min(map(len, chains))
    about = {"draws": least, "bounded_to_seconds": budget * CHAINS}
    values = [
        [(torch.tanh(test @ w["a"] + w["b"]) @ w["c"] + w["d"])[:, 0].numpy() for w in kept[:least]]
        for kept in chains
    ]
    return seconds, np.array(values).reshape(CHAINS, least, INPUTS), about


def work(name: str, seed: int, out: str) -> None:
    """One contender, in this process."""
    os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:THREADS])
    function, warmup, draws = CONTENDERS[name]
    run = {"numpyro": _numpyro, "pyro": _pyro}.get(function, _posterax)
    seconds, values, about = run(function, warmup, draws, seed)
    values = np.asarray(values)
    packages = ("posterax", "blackjax", "jax", "numpyro", "torch", "pyro-ppl")
    versions = {}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    settings = {"warmup": warmup, "draws": values.shape[1], "chains": CHAINS}
    np.savez(out, values=values)
    # of all threads, imports included: what a busy machine changes least
    settings["processor_seconds"] = time.process_time()
    print(json.dumps({"seconds": seconds, "versions": versions, **settings, **about}))


# -- the referee


def measure(name: str, seed: int, peers: str, limit: float) -> dict[str, Any]:
    """Run a contender in a fresh process and judge its draws."""
    from posterax.diagnostics.chain_statistics import convergence

    python = peers if CONTENDERS[name][0] == "pyro" else sys.executable
    if not Path(python).exists():
        return {"skipped": "no environment with PyTorch and Pyro: make bench installs it"}
    bare = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    bare |= {"JAX_PLATFORMS": "cpu", "BENCH_SECONDS": str(limit), "OMP_NUM_THREADS": str(THREADS)}
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/outputs.npz"
        command = [python, "-m", "benchmarks.mcmc", "--worker", name, "--seed", str(seed), out]
        said = subprocess.run(
            command, capture_output=True, text=True, env=bare, cwd=ROOT, check=False
        )
        if said.returncode:
            lines = said.stderr.strip().splitlines()
            return {"error": lines[-1] if lines else "the process ended"}
        row = json.loads(said.stdout.strip().splitlines()[-1])
        values = np.load(out)["values"]
    if values.shape[1] < 4:
        return row | {"skipped": f"{values.shape[1]} draws of each chain within {limit:g} s"}
    found = convergence(values)
    row |= {
        "least_ess": float(found.bulk.min()),
        "median_ess": float(np.median(found.bulk)),
        "rhat": float(found.rhat.max()),
        "mean_deviation": float(values.std((0, 1)).mean()),
    }
    row["ess_per_second"] = row["least_ess"] / row["seconds"]
    row["ess_per_processor_second"] = row["least_ess"] / row["processor_seconds"]
    row["counts"] = row["rhat"] <= LIMIT
    return row


def show(name: str, row: dict[str, Any]) -> None:
    if "ess_per_second" not in row:
        print(f"{name:26s} {row.get('error') or row.get('skipped')}", flush=True)
        return
    counts = "" if row["counts"] else f"  (R-hat above {LIMIT}: does not count)"
    print(
        f"{name:26s} {row['ess_per_second']:8.2f} ESS/s  least {row['least_ess']:6.0f}  median "
        f"{row['median_ess']:6.0f}  R-hat {row['rhat']:.3f}  {row['seconds']:6.1f} s{counts}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", choices=tuple(CONTENDERS))
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--peers", default=str(ROOT / ".cache/peers/bin/python"))
    parser.add_argument("--seeds", type=int, default=2, help="of the two that are compared")
    parser.add_argument("--only", nargs="*", default=tuple(CONTENDERS))
    parser.add_argument("--limit", type=float, default=180.0, help="seconds for Pyro")
    parser.add_argument("out", nargs="?", default=str(ROOT / "benchmarks/results/mcmc.json"))
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.seed, options.out)
        return
    if not os.environ.get("POSTERAX_DATA"):
        print("skipped: POSTERAX_DATA does not name the directory that holds uci/*.npz")
        return
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in options.only}
    for seed in range(options.seed, options.seed + options.seeds):
        for name in options.only:
            if seed == options.seed or name in REPEATED:
                row = measure(name, seed, options.peers, options.limit)
                runs[name].append(row)
                show(name, row)
    base = runs.get(BASE, [])
    ratios = {
        name: [
            row["ess_per_second"] / other["ess_per_second"]
            for row, other in zip(rows, base, strict=False)
            if row.get("counts") and other.get("counts")
        ]
        for name, rows in runs.items()
    }
    medians = {name: statistics.median(found) for name, found in ratios.items() if found}
    print({name: round(ratio, 2) for name, ratio in medians.items()}, f"× {BASE}")
    result = {
        "runs": runs,
        "ratios": ratios,
        "median_ratio": medians,
        "about": {
            "data": "Boston housing, split 0, train", "network": f"13-{HIDDEN}-1 tanh",
            "noise": NOISE, "prior": "N(0, 1)", "threads": THREADS, "inputs": INPUTS,
            "machine": platform.processor() or platform.machine(),
            "python": platform.python_version(), "date": time.strftime("%Y-%m-%d"),
        },
    }  # fmt: skip
    from posterax._util.writing import write_file

    write_file(options.out, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

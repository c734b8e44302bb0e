"""Worker: one call of ``px.fit`` with given settings, timed with its compilation."""

import inspect
import json
import sys
import time
from importlib import metadata
from pathlib import Path

import jax

import posterax as px
from benchmarks.convergence import elbo, network, readout


def main() -> None:
    """Fit, and leave μ and σ in a folder."""
    cell, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
    problem = elbo.problem(cell["problem"])
    device = jax.devices()[0].device_kind
    # imports do not count for anybody
    fit, make, _ = px.fit, getattr(px, cell["contender"]), network.make_network
    known = inspect.signature(fit).parameters
    of_fit = {k: v for k, v in cell["settings"].items() if k in known}
    of_method = {k: v for k, v in cell["settings"].items() if k not in known}
    of_fit = {"batch_size": problem.batch_size} | of_fit
    began = time.process_time()  # of the one core it has: see clock
    model = problem.model(cell["seed"], cell["prior"])
    posterior = fit(
        model, (problem.x, problem.y), make(**of_method), key=cell["seed"], progress=False, **of_fit
    )
    jax.block_until_ready((posterior.mu, posterior.rho))
    seconds = time.process_time() - began
    mean, deviation = posterior.moments()
    readout.save(folder / "000.npz", elbo.as_arrays(mean), elbo.as_arrays(deviation))
    steps = len(posterior.history["nll"])
    versions = {name: metadata.version(name) for name in ("jax", "jaxlib", "numpy")}
    point = {"seconds": seconds, "steps": steps, "file": "000.npz"}
    about = {"device": device, "versions": {"posterax": px.__version__} | versions}
    print(json.dumps({"points": [point], **about}))


if __name__ == "__main__":
    main()

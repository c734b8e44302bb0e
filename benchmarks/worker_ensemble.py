"""Worker: an ensemble of small networks, by posterax or by PyTorch (``BENCH_PEER`` says which).

All minimise the same: the mean NLL of N(f(x), 0.1²) and a N(0, 1) prior on the weights over N,
by Adam, with a new order of the examples in every epoch.
"""

import itertools
import json
import os
import sys
import time

import numpy as np

from benchmarks import problem

os.environ["JAX_PLATFORMS"] = "cpu"
os.sched_setaffinity(0, list(os.sched_getaffinity(0))[: problem.THREADS])
MEMBERS, EXAMPLES, HIDDEN, NOISE, RATE = 8, 1000, (100, 100), 0.1, 1e-3
PEER = os.environ.get("BENCH_PEER", "posterax")


def curve():
    """The regression curve of Blundell et al. 2015."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 0.5, (EXAMPLES, 1)).astype("float32")
    e = 0.02 * rng.normal(size=x.shape).astype("float32")
    u = x + e
    return x, u + 0.3 * np.sin(2 * np.pi * u) + 0.3 * np.sin(4 * np.pi * u)


def posterax(batch):
    """``px.fit``, all of it: preparation, steps, checks in between, the posterior."""
    import posterax as px
    from posterax.infer.ensembles import ensemble

    if PEER != "posterax":  # one form, whatever the rule says
        ensemble.faster_unrolled = lambda *_: PEER == "posterax unrolled"
    data = curve()
    network = px.networks.MLP(1, 1, HIDDEN, key=0)
    model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(NOISE))
    method = px.DeepEnsemble(MEMBERS, learning_rate=RATE, schedule="constant")

    def run(steps):
        found = px.fit(model, data, method, steps=steps, batch_size=batch, key=0, progress=False)
        np.asarray(found.draws.network.layers[-1].weight)  # it is there
        run.error = lambda: np.mean((found.predict(data[0]).mean - data[1]) ** 2)

    return run


def torch_run(batch):
    """A loop over networks and their optimisers, or all at once by ``torch.func``."""
    import torch
    from torch import nn

    torch.set_num_threads(problem.THREADS)
    torch.manual_seed(0)
    x, y = (torch.as_tensor(a) for a in curve())
    sizes = (1, *HIDDEN, 1)
    batches = EXAMPLES // batch

    def network():
        layers = []
        for i, o in itertools.pairwise(sizes):
            layers += [nn.Linear(i, o), nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    networks = [network() for _ in range(MEMBERS)]
    # L2 in the gradient is the prior's; the fused kernel is the fastest of PyTorch's three here
    adam = {"lr": RATE, "weight_decay": 1 / EXAMPLES, "fused": True}

    def loss_of(outputs, targets):
        return torch.mean((outputs - targets) ** 2) / (2 * NOISE**2)

    if PEER.startswith("PyTorch loop"):
        optimizers = [torch.optim.Adam(one.parameters(), **adam) for one in networks]
        passes = [torch.compile(one) if "compile" in PEER else one for one in networks]

        def step(inputs, targets):
            for one, optimizer in zip(passes, optimizers, strict=True):
                optimizer.zero_grad()
                loss_of(one(inputs), targets).backward()
                optimizer.step()

        def outputs():
            return torch.stack([one(x) for one in networks])
    else:
        params, _ = torch.func.stack_module_state(networks)
        bare = network().to("meta")

        def apply(params, inputs):
            return torch.func.functional_call(bare, params, (inputs,))

        def one_loss(params, inputs, targets):
            return loss_of(apply(params, inputs), targets)

        gradients = torch.vmap(torch.func.grad(one_loss), in_dims=(0, None, None))
        gradients = torch.compile(gradients) if "compile" in PEER else gradients
        optimizer = torch.optim.Adam(params.values(), **adam)

        def step(inputs, targets):
            for name, found in gradients(params, inputs, targets).items():
                params[name].grad = found
            optimizer.step()

        def outputs():
            return torch.vmap(apply, in_dims=(0, None))(params, x)

    def run(steps):
        for i in range(steps):
            if i % batches == 0:
                order = torch.randperm(EXAMPLES)
            if batches == 1:
                step(x, y)
            else:
                rows = order[i % batches * batch :][:batch]
                step(x[rows], y[rows])

    def error():
        with torch.no_grad():
            return torch.mean((outputs().mean(0) - y) ** 2)

    run.error = error
    return run


def make(_, batch):
    return (posterax if PEER.startswith("posterax") else torch_run)(int(batch))


def first(batch, steps):
    """Seconds from the data to trained networks in a fresh process, and their mean's error."""
    __import__("posterax" if PEER.startswith("posterax") else "torch")  # imports do not count
    began = time.perf_counter()
    run = make("", batch)
    run(steps)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "mean_squared_error": float(run.error())}


def versions():
    from importlib import metadata

    names = ("posterax", "jax", "jaxlib") if PEER.startswith("posterax") else ("torch",)
    return {name: metadata.version(name) for name in names}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--versions"]:
        print(json.dumps(versions()))
    elif sys.argv[1:2] == ["--first"]:
        print(json.dumps(first(*map(int, sys.argv[2:]))))
    else:
        problem.serve(make)

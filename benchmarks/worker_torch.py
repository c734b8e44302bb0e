"""Worker: the PyTorch peers, each used as its own documentation has it."""

import itertools
import json
import os
import sys

import torch
from torch import nn

from benchmarks import networks_torch, problem

DEVICE = os.environ.get("BENCH_DEVICE", "cpu")
PEER = os.environ.get("BENCH_PEER", "PyTorch")
torch.set_num_threads(problem.THREADS)


def layers(make, name):
    inputs, hidden, outputs = problem.NETWORKS[name]
    sizes = (inputs, *hidden, outputs)
    return nn.ModuleList(make(i, o) for i, o in itertools.pairwise(sizes))


class Plain(nn.Module):
    """A network whose layers return arrays, as torchbnn's and blitz's do."""

    def __init__(self, make, name):
        super().__init__()
        self.layers = layers(make, name)

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


def build(name):
    """The peer's network, and its KL as a function of the network."""
    if PEER == "PyTorch":
        return networks_torch.make(name), None
    if PEER.startswith("bayesian-torch"):
        from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss

        net = networks_torch.make(name)
        kind = "Flipout" if PEER.endswith("flipout") else "Reparameterization"
        settings = {"prior_mu": 0.0, "prior_sigma": 1.0, "posterior_mu_init": 0.0,
                    "posterior_rho_init": -3.0, "type": kind, "moped_enable": False,
                    "moped_delta": 0.5}  # fmt: skip
        dnn_to_bnn(net, settings)
        return net, get_kl_loss
    if PEER == "torchbnn":
        import torchbnn as bnn

        net = Plain(lambda i, o: bnn.BayesLinear(0, 0.1, i, o), name)
        return net, bnn.BKLLoss(reduction="sum", last_layer_only=False)
    if PEER == "blitz":
        from blitz.modules import BayesianLinear
        from blitz.utils import variational_estimator

        @variational_estimator
        class Net(Plain):
            pass

        make = lambda i, o: BayesianLinear(  # noqa: E731
            i, o, prior_sigma_1=1.0, prior_sigma_2=0.0025, prior_pi=0.5
        )
        return Net(make, name), lambda net: net.nn_kl_divergence()
    raise ValueError(PEER)


def criterion(name):
    return nn.MSELoss() if problem.outputs(name) == 1 else nn.CrossEntropyLoss()


def batches(name):
    x, y = problem.data(name)
    x = x[:, None] if name == "LeNet-5" else x
    x, y = torch.as_tensor(x).to(DEVICE), torch.as_tensor(y).to(DEVICE)
    order, size = torch.randperm(len(y), device=DEVICE), problem.batch_size(name)
    count = len(y) // size

    def batch(i):
        index = order[i % count * size :][:size]
        return x[index], y[index]

    return batch


def step(name):
    if PEER == "pyro":
        return pyro_step(name)
    net, kl = build(name)
    net.to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    loss_of, batch = criterion(name), batches(name)

    def run(times):
        for i in range(times):
            x, y = batch(i)
            optimizer.zero_grad()
            loss = loss_of(net(x), y)
            loss = loss if kl is None else loss + kl(net) / problem.EXAMPLES
            loss.backward()
            optimizer.step()
        if DEVICE != "cpu":
            torch.cuda.synchronize()

    return run


def pyro_parts(name):
    import pyro
    import pyro.distributions as dist
    from pyro.infer.autoguide import AutoNormal
    from pyro.nn.module import to_pyro_module_

    pyro.clear_param_store()
    net = Plain(nn.Linear, name).to(DEVICE)
    to_pyro_module_(net)
    for module in list(net.modules()):
        for key, value in list(module.named_parameters(recurse=False)):
            prior = dist.Normal(torch.zeros_like(value), 1.0).to_event(value.dim())
            setattr(module, key, pyro.nn.PyroSample(prior))
    outputs = problem.outputs(name)

    def model(x, y=None):
        out = net(x)
        with pyro.plate("data", problem.EXAMPLES, subsample_size=len(x)):
            if outputs == 1:
                pyro.sample("y", dist.Normal(out, 0.1).to_event(1), obs=y)
            else:
                pyro.sample("y", dist.Categorical(logits=out), obs=y)
        return out

    return model, AutoNormal(model, init_scale=0.01)


def pyro_step(name):
    import pyro
    from pyro.infer import SVI, Trace_ELBO

    model, guide = pyro_parts(name)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 1e-3}), Trace_ELBO())
    batch = batches(name)

    def run(times):
        for i in range(times):
            svi.step(*batch(i))
        if DEVICE != "cpu":
            torch.cuda.synchronize()

    return run


def predict(name):
    """The mean probability over 100 weight samples, inputs in one batch."""
    x = torch.as_tensor(problem.data(name, problem.INPUTS)[0]).to(DEVICE)
    if PEER == "pyro":
        model, guide = pyro_parts(name)
        guide(x[:8], torch.zeros(8, dtype=torch.long, device=DEVICE))
        from pyro import poutine

        def forward():
            trace = poutine.trace(guide).get_trace(x)
            return poutine.replay(model, trace)(x)
    else:
        net = build(name)[0].to(DEVICE)
        forward = lambda: net(x)  # noqa: E731

    def run(times):
        with torch.no_grad():
            for _ in range(times):
                total = torch.zeros(len(x), 10, device=DEVICE)
                for _ in range(problem.SAMPLES):
                    total += torch.softmax(forward(), -1)
                float(total.sum())

    return run


def memory(name):
    """Bytes a step holds at its peak on a GPU, the data aside."""
    if DEVICE == "cpu":
        raise NotImplementedError("PyTorch does not say what a CPU holds")
    run = step(name)
    run(3)
    x, y = problem.data(name)
    return lambda _: torch.cuda.max_memory_allocated() - x.nbytes - y.nbytes


TASKS = {"step": step, "predict": predict, "memory step": memory}

if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--versions":
        print(json.dumps({"torch": torch.__version__}))
    else:
        problem.serve(lambda task, name: TASKS[task](name))

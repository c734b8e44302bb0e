"""Worker: the PyTorch peers, each with the layers and the loss of its own documentation.

One thing is put right: the objective is the ELBO, so that the KL is a sum over all weights, divided
by the number of rows where the likelihood is a mean (bayesian-torch has the mean over each array).
"""

import json
import sys
from functools import partial
from importlib import import_module, metadata

import numpy as np
import torch
from torch import nn

from benchmarks.convergence import clock, readout
from benchmarks.problem import THREADS

torch.set_num_threads(THREADS)


class Net(nn.Module):
    """Layers one after another; ``layers`` has those with weights."""

    def __init__(self, plan, make):
        super().__init__()
        self.plan = plan
        self.layers = nn.ModuleList(make[kind](*sizes) for kind, *sizes in plan if sizes)

    def forward(self, x):
        layers = iter(self.layers)
        for kind, *sizes in self.plan:
            if sizes:
                x = next(layers)(x)
            elif kind == "relu":
                x = torch.relu(x)
            else:
                x = nn.functional.max_pool2d(x, 2) if kind == "pool" else x.flatten(1)
        return x


def bayesian_torch(spec):
    """Its layers return (output, KL); the KL is taken from them as a sum instead."""
    from bayesian_torch.layers import Conv2dReparameterization, LinearReparameterization

    class Outputs(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(x, return_kl=False)

    prior = {"prior_mean": 0.0, "prior_variance": 1.0}
    net = Net(
        spec["layers"],
        {
            "linear": lambda i, o: Outputs(LinearReparameterization(i, o, **prior)),
            "conv": lambda i, o: Outputs(Conv2dReparameterization(i, o, 3, padding=1, **prior)),
        },
    )

    def kl():
        total = 0.0
        for outer in net.layers:
            layer = outer.layer
            own = "kernel" if hasattr(layer, "mu_kernel") else "weight"
            for part, named in ((own, "weight"), ("bias", "bias")):
                mu, rho = getattr(layer, f"mu_{part}"), getattr(layer, f"rho_{part}")
                loc = getattr(layer, f"prior_{named}_mu")
                scale = getattr(layer, f"prior_{named}_sigma")
                mean = layer.kl_div(mu, torch.log1p(torch.exp(rho)), loc, scale)
                total = total + mu.numel() * mean
        return total

    return net, kl


def torchbnn(spec):
    """Deviations start at the prior's, as the library has it."""
    import torchbnn as bnn

    net = Net(
        spec["layers"],
        {
            "linear": lambda i, o: bnn.BayesLinear(0, 1.0, i, o),
            "conv": lambda i, o: bnn.BayesConv2d(0, 1.0, i, o, 3, padding=1),
        },
    )
    loss = bnn.BKLLoss(reduction="sum", last_layer_only=False)
    return net, lambda: loss(net).sum()


def blitz(spec):
    """The KL is sampled with the weights."""
    from blitz.modules import BayesianConv2d, BayesianLinear
    from blitz.utils import variational_estimator

    pi, wide, narrow = spec["mixture"] or (1.0, 1.0, 1.0)
    prior = {"prior_pi": pi, "prior_sigma_1": wide, "prior_sigma_2": narrow}
    net = variational_estimator(Net)(
        spec["layers"],
        {
            "linear": lambda i, o: BayesianLinear(i, o, **prior),
            "conv": lambda i, o: BayesianConv2d(i, o, (3, 3), padding=1, **prior),
        },
    )
    return net, net.nn_kl_divergence


def state_of(net):
    """Arrays by name."""
    # bayesian-torch's layers are wrapped
    state = {k.replace(".layer.", "."): v for k, v in net.state_dict().items()}
    return {k: v.detach().cpu().numpy().copy() for k, v in state.items()}


def log_likelihoods(spec, outputs, y):
    """log p(y | f(x)) of each row."""
    if spec["likelihood"] == "gaussian":
        return torch.distributions.Normal(outputs[:, 0], spec["noise"]).log_prob(y)
    if spec["likelihood"] == "bernoulli":
        return -nn.functional.binary_cross_entropy_with_logits(
            outputs[:, 0], y.float(), reduction="none"
        )
    return -nn.functional.cross_entropy(outputs, y, reduction="none")


def descend(make, asked, timer):
    """Adam on minus the ELBO a row."""
    spec = asked["spec"]
    net, kl = make(spec)
    optimizer = torch.optim.Adam(net.parameters(), asked["learning_rate"])

    def loss(x, y):
        return -log_likelihoods(spec, net(x), y).mean() + kl() / spec["rows"]

    def step(x, y):
        optimizer.zero_grad()
        loss(x, y).backward()
        optimizer.step()

    def own(x, y):
        with torch.no_grad():
            return -float(loss(x, y))

    return train(asked, timer, step, lambda: state_of(net), own)


def pyro_svi(asked, timer):
    """PyroSample weights, AutoNormal, SVI."""
    import pyro
    import pyro.distributions as dist
    from pyro.infer import SVI, Trace_ELBO, TraceMeanField_ELBO
    from pyro.infer.autoguide import AutoNormal
    from pyro.infer.autoguide.initialization import init_to_value
    from pyro.nn.module import to_pyro_module_

    spec = asked["spec"]
    pyro.set_rng_seed(asked["seed"])
    pyro.clear_param_store()
    plain = {
        "linear": nn.Linear,
        "conv": lambda i, o: nn.Conv2d(i, o, 3, padding=1),
        "layer_norm": nn.LayerNorm,
    }
    net = Net(spec["layers"], plain)
    start = {name: value.detach().clone() for name, value in net.named_parameters()}
    to_pyro_module_(net)
    for module in list(net.modules()):
        for key, value in list(module.named_parameters(recurse=False)):
            setattr(module, key, pyro.nn.PyroSample(_prior(dist, spec, value)))

    def model(x, y):
        outputs = net(x)
        with pyro.plate("data", spec["rows"], subsample_size=len(x)):
            if spec["likelihood"] == "gaussian":
                pyro.sample("y", dist.Normal(outputs[:, 0], spec["noise"]), obs=y)
            elif spec["likelihood"] == "bernoulli":
                pyro.sample("y", dist.Bernoulli(logits=outputs[:, 0]), obs=y.float())
            else:
                pyro.sample("y", dist.Categorical(logits=outputs), obs=y)

    guide = AutoNormal(model, init_loc_fn=init_to_value(values=start), init_scale=0.01)
    bound = Trace_ELBO() if spec["mixture"] else TraceMeanField_ELBO()
    svi = SVI(model, guide, pyro.optim.Adam({"lr": asked["learning_rate"]}), bound)

    def state():
        found = {}
        for part in ("locs", "scales"):
            for name in start:
                owner = getattr(guide, part)
                for piece in name.split("."):
                    owner = getattr(owner, piece)
                found[f"{part}.{name}"] = owner.detach().numpy().copy()
        return found

    def own(x, y):
        return -svi.evaluate_loss(x, y) / spec["rows"]

    return train(asked, timer, svi.step, state, own)


def _prior(dist, spec, value):
    """The prior of one array."""
    if spec["mixture"]:
        pi, wide, narrow = spec["mixture"]
        parts = dist.Normal(torch.zeros(2), torch.tensor([wide, narrow]))

        class Mixture(dist.MixtureSameFamily):
            support = torch.distributions.constraints.real  # a guide must know how to get there

        one = Mixture(dist.Categorical(torch.tensor([pi, 1 - pi])), parts)
        return one.expand(value.shape).to_event(value.dim())
    return dist.Normal(torch.zeros_like(value), 1.0).to_event(value.dim())


def train(asked, timer, step, state, own):
    """Minibatches until the time is over; then the library's own ELBO a row, as a check."""
    spec, stored = asked["spec"], np.load(asked["data"])
    x, y = torch.as_tensor(stored["x"]), torch.as_tensor(stored["y"])
    y = y if spec["likelihood"] == "gaussian" else y.long()
    orders = clock.orders(spec["rows"], spec["batch_size"], asked["seed"])
    for steps, order in enumerate(orders, 1):
        index = torch.as_tensor(order)
        step(x[index], y[index])
        if timer.due:
            few = slice(0, clock.CHECK_ROWS)
            check = partial(own, x[few], y[few])
            timer.save(*readout.read(asked["peer"], state(), spec["layers"]), steps, check)
        if timer.over:
            return float(np.mean([own(x, y) for _ in range(clock.own_draws(spec["rows"]))]))


LIBRARIES = {"bayesian-torch": bayesian_torch, "torchbnn": torchbnn, "blitz": blitz}
LATE = ("torch._dynamo",)  # what an optimiser imports when it is made
IMPORTS = {
    "bayesian-torch": ("bayesian_torch.layers", *LATE),
    "torchbnn": ("torchbnn", *LATE),
    "blitz": ("blitz.modules", "blitz.utils", *LATE),
    "pyro": ("pyro", "pyro.infer.autoguide", *LATE),
}
PACKAGES = {"blitz": "blitz-bayesian-pytorch", "pyro": "pyro-ppl"}


def main():
    """Train until the time is over."""
    asked, folder = json.loads(sys.argv[1]), sys.argv[2]
    peer = asked["peer"]
    torch.manual_seed(asked["seed"])
    for module in IMPORTS[peer]:  # imports do not count for anybody
        import_module(module)
    timer = clock.Clock(folder, asked["limit"], asked["target"])
    own = pyro_svi(asked, timer) if peer == "pyro" else descend(LIBRARIES[peer], asked, timer)
    versions = {"torch": torch.__version__}
    versions[peer] = metadata.version(PACKAGES.get(peer, peer))
    said = {"points": timer.points, "own_per_row": own, "versions": versions, "device": "cpu"}
    print(json.dumps(said))


if __name__ == "__main__":
    main()

"""Weights from PyTorch: outputs equal those that PyTorch computed (tests/data)."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posterax as px
from posterax.networks.torch_import import from_torch

pytestmark = pytest.mark.usefixtures("hasty_compiler")
DATA = Path(__file__).parent / "data"
KEYS = jax.random.split(jax.random.key(0), 8)


def fixture(name):
    with np.load(DATA / f"torch_{name}.npz") as file:
        state = {k.removeprefix("state/"): file[k] for k in file.files if k.startswith("state/")}
        return state, file["x"], file["y"]


class Conv(eqx.Module):
    layers: list

    def __init__(self, mode="batch"):
        norm = lambda affine: eqx.nn.BatchNorm(  # noqa: E731
            4, "batch", channelwise_affine=affine, mode=mode
        )
        self.layers = [
            *(eqx.nn.Conv2d(2, 4, 3, padding=1, key=KEYS[0]), norm(True), eqx.nn.PReLU()),
            *(eqx.nn.Conv2d(4, 6, 3, stride=2, groups=2, key=KEYS[1]), eqx.nn.GroupNorm(3, 6)),
            jax.nn.relu,
            eqx.nn.ConvTranspose2d(6, 4, (3, 2), stride=2, padding=1, groups=2, key=KEYS[2]),
            *(norm(False), jnp.ravel, eqx.nn.Linear(40, 3, key=KEYS[3])),
        ]

    def __call__(self, x, state):
        for layer in self.layers:
            if isinstance(layer, eqx.nn.BatchNorm):
                x, state = layer(x, state)
            else:
                x = layer(x)
        return x, state


class Cells(eqx.Module):
    cells: list
    last: eqx.nn.Linear

    def __init__(self, kind, layers):
        sizes = [3, *[5] * layers]
        self.cells = [kind(sizes[i], 5, key=KEYS[i]) for i in range(layers)]
        self.last = eqx.nn.Linear(5, 2, key=KEYS[7])

    def __call__(self, x):
        for cell in self.cells:
            start = jnp.zeros(5)
            lstm = isinstance(cell, eqx.nn.LSTMCell)

            def step(state, x, cell=cell, lstm=lstm):
                state = cell(x, state)
                return state, state[0] if lstm else state

            _, x = jax.lax.scan(step, (start, start) if lstm else start, x)
        return self.last(x[-1])


class Words(eqx.Module):
    embedding: eqx.nn.Embedding
    norm: eqx.nn.LayerNorm
    conv: eqx.nn.Conv1d
    last: eqx.nn.Linear

    def __init__(self):
        self.embedding, self.norm = eqx.nn.Embedding(7, 6, key=KEYS[0]), eqx.nn.LayerNorm(6)
        self.conv = eqx.nn.Conv1d(6, 4, 3, use_bias=False, key=KEYS[1])
        self.last = eqx.nn.Linear(4, 2, key=KEYS[2])

    def __call__(self, x):
        h = jax.vmap(self.norm)(jax.vmap(self.embedding)(x))
        return self.last(jnp.mean(self.conv(h.T), -1))


def outputs(network, x):
    """In prediction, through posterax's own form of a network."""
    network = px.networks.as_network(network)
    return network.apply(network.params, network.state, jnp.asarray(x), None, False)[0]


NETWORKS = {
    "mlp": lambda: px.networks.MLP(3, 2, (8, 8), key=0),
    "lstm": lambda: Cells(eqx.nn.LSTMCell, 2),
    "gru": lambda: Cells(eqx.nn.GRUCell, 1),
    "words": Words,
    "conv": eqx.nn.make_with_state(Conv),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_are_those_of_pytorch(name):
    state_dict, x, y = fixture(name)
    before = NETWORKS[name]()
    assert not np.allclose(outputs(before, x), y, atol=1e-2)
    np.testing.assert_allclose(outputs(from_torch(before, state_dict), x), y, rtol=1e-5, atol=1e-5)


def test_recurrent_networks_of_the_box_too():
    state_dict, x, y = fixture("gru")
    network = from_torch(px.networks.Recurrent(3, 2, 5, cell="gru", key=0), state_dict)
    np.testing.assert_allclose(outputs(network, x), y, rtol=1e-5, atol=1e-5)


def test_running_averages_of_the_other_mode_of_equinox():
    state_dict, x, y = fixture("conv")
    network = from_torch(eqx.nn.make_with_state(Conv)("ema"), state_dict)
    np.testing.assert_allclose(outputs(network, x), y, rtol=1e-5, atol=1e-5)


def test_training_goes_on_from_the_imported_averages():
    state_dict, x, _ = fixture("conv")
    network = px.networks.as_network(from_torch(NETWORKS["conv"](), state_dict))
    _, state = network.apply(network.params, network.state, jnp.asarray(x), None, True)
    after = network.apply(network.params, state, jnp.asarray(x), None, False)[0]
    # one step of momentum 0.99 moves the averages by a hundredth
    np.testing.assert_allclose(after, outputs(network, x), atol=0.2)


class Tensor:
    """What a tensor of PyTorch does when asked for its numbers."""

    def __init__(self, array, dtype="torch.float32"):
        self.array, self.dtype = array, dtype

    def detach(self):
        return self

    cpu = detach

    def float(self):
        return Tensor(self.array)

    def numpy(self):
        assert "bfloat16" not in self.dtype
        return self.array


@pytest.mark.parametrize("dtype", ["torch.float32", "torch.bfloat16"])
def test_tensors_are_taken_as_well_as_arrays(dtype):
    state_dict, x, y = fixture("mlp")
    tensors = {name: Tensor(array, dtype) for name, array in state_dict.items()}
    np.testing.assert_allclose(
        outputs(from_torch(NETWORKS["mlp"](), tensors), x), y, rtol=1e-5, atol=1e-5
    )


def test_an_imported_network_starts_a_fit():
    state_dict, x, y = fixture("mlp")
    network = from_torch(NETWORKS["mlp"](), state_dict)
    model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
    posterior = px.fit(model, (x, y), px.BayesByBackprop(initial_rho=-12.0), steps=1, key=0)
    np.testing.assert_allclose(posterior.predict(x, samples=2).mean, y, atol=0.02)


def without(state_dict, *names):
    return {name: value for name, value in state_dict.items() if name not in names}


MLP, CONV = fixture("mlp")[0], fixture("conv")[0]
SWAPPED = {"0.bias": MLP["0.bias"], "0.weight": MLP["0.weight"]} | MLP
SAME_SHAPE = {"bias": np.ones(4), "weight": np.ones(4)}  # of a layer norm, in the other order
BAD = {
    "another width": (
        lambda: from_torch(px.networks.MLP(3, 2, (8, 7), key=0), MLP), ValueError,
        r"array 2: state_dict has '2.weight' of shape \(8, 8\), network has layers.1.weight of "
        r"shape \(7, 8\)",
    ),
    "too few": (
        lambda: from_torch(NETWORKS["mlp"](), without(MLP, "4.bias")), ValueError,
        r"state_dict ends after 5 arrays, before the network's layers.2.bias of shape \(2,\)",
    ),
    "too many": (
        lambda: from_torch(px.networks.MLP(3, 8, (8,), key=0), MLP), ValueError,
        r"state_dict has 6 arrays and network takes 4: .*'4.weight' of shape \(2, 8\)",
    ),
    "another order": (
        lambda: from_torch(NETWORKS["mlp"](), SWAPPED), ValueError, r"array 0: .*'0.bias'",
    ),
    "another order of the same shape": (
        lambda: from_torch(eqx.nn.LayerNorm(4), SAME_SHAPE), ValueError, r"array 0: .*'bias'",
    ),
    "no averages": (
        lambda: from_torch(NETWORKS["conv"](), without(CONV, "1.running_mean", "1.running_var")),
        ValueError, r"array 4: .*'2.weight' .*layers.1.running_mean",
    ),
    "no state": (
        lambda: from_torch(NETWORKS["conv"]()[0], CONV), TypeError,
        r"network has batch normalisation at layers.1: pass \(module, state\)",
    ),
    "not a dictionary": (
        lambda: from_torch(NETWORKS["mlp"](), [1]), TypeError, "state_dict must be a dict.*list",
    ),
    "a training checkpoint": (
        lambda: from_torch(NETWORKS["mlp"](), {"epoch": 3, "model": MLP}), TypeError,
        r"state_dict\['epoch'\] must be a tensor or an array of numbers, got int",
    ),
    "not a network": (
        lambda: from_torch({"w": 1}, MLP), TypeError, "network must be an Equinox module.*dict",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_refused_at_the_first_difference(name):
    call, kind, message = BAD[name]
    with pytest.raises(kind, match=message):
        call()

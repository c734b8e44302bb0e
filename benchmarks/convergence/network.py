"""A list of layers as a network of posterax."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

import posterax as px
from benchmarks.convergence.problems import Layers
from posterax.networks.mlp import Linear, he_normal


class Stack(eqx.Module):
    """Layers one after another; ``layers`` has those with weights, in order."""

    layers: list[Any]
    plan: Layers = eqx.field(static=True)

    def __init__(self, plan: Layers, key: jax.Array):
        self.plan, self.layers = plan, []
        weighted = [layer for layer in plan if len(layer) > 1]
        for (kind, *sizes), k in zip(weighted, jax.random.split(key, len(weighted)), strict=True):
            if kind == "linear":
                gain = 1.0 if len(self.layers) == len(weighted) - 1 else 2.0
                made: Any = Linear(*sizes, gain=gain, key=k)
            elif kind == "conv":
                made = he_normal(eqx.nn.Conv2d, *sizes, 3, padding=1, gain=2.0, key=k)
            else:
                made = eqx.nn.LayerNorm(*sizes)
            self.layers.append(made)

    def __call__(self, x: jax.Array) -> jax.Array:
        layers, pool = iter(self.layers), eqx.nn.MaxPool2d(2, 2)
        for kind, *_ in self.plan:
            if kind == "relu":
                x = jax.nn.relu(x)
            elif kind == "pool":
                x = pool(x)
            elif kind == "flatten":
                x = jnp.reshape(x, -1)
            else:
                x = next(layers)(x)
        return x


def make_network(plan: Layers, seed: int) -> Any:
    """The library's own perceptron where it is one, else a stack."""
    kinds = {kind for kind, *_ in plan}
    if kinds <= {"linear", "relu"}:
        first, *rest = [sizes for kind, *sizes in plan if kind == "linear"]
        sizes = [*first, *(o for _, o in rest)]
        return px.networks.MLP(sizes[0], sizes[-1], sizes[1:-1], key=seed)
    return Stack(plan, jax.random.key(seed))

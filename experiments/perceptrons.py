"""Perceptrons with what regularises point networks: normalisation, dropout."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from posterax.networks import MLP, Network, as_network

KINDS = ("plain", "batch_norm", "layer_norm", "dropout")
MOMENTUM, EPS = 0.9, 1e-5


def perceptron(
    width: int, kind: str, *, rate: float = 0.5, input_rate: float = 0.0, key: int
) -> Network:
    """784-width-width-10 with ReLU, its hidden layers treated in one of these ways.

    All have the same weights W, b from the same key; normalisation comes before the ReLU, with a
    scale and a shift of its own, dropout after it.

    Args:
        width: of both hidden layers.
        kind: ``"plain"``, ``"batch_norm"``, ``"layer_norm"`` or ``"dropout"``.
        rate: of dropout, after both hidden layers.
        input_rate: of dropout of the pixels.
        key: an int.

    Example:
        >>> import jax.numpy as jnp
        >>> from experiments.perceptrons import perceptron
        >>> perceptron(16, "batch_norm", key=0).output_shape(jnp.ones((5, 784)))
        (5, 10)
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    mlp = MLP(784, 10, (width, width), key=key)
    if kind == "plain":
        return as_network(mlp)
    weights: dict[str, Any] = {"layers": [(layer.weight, layer.bias) for layer in mlp.layers]}
    if kind == "dropout":
        return as_network((weights, _with_dropout(rate, input_rate)))
    weights["norms"] = [(jnp.ones(width), jnp.zeros(width))] * 2
    if kind == "layer_norm":
        return as_network((weights, _with_layer_norm))
    averages = [(jnp.zeros(width), jnp.ones(width))] * 2
    return as_network((weights, averages, _with_batch_norm))


@cache  # one function for each rate: another would be compiled anew
def _with_dropout(rate: float, input_rate: float) -> Any:
    def drop(x: jax.Array, p: float, key: jax.Array) -> jax.Array:
        return jnp.where(jax.random.bernoulli(key, 1 - p, x.shape), x / (1 - p), 0)

    def apply(weights: PyTree, x: jax.Array, key: Any, training: bool) -> jax.Array:
        *hidden, (w, b) = weights["layers"]
        if training and input_rate:
            x = drop(x, input_rate, jax.random.fold_in(key, len(hidden)))
        for i, (v, c) in enumerate(hidden):
            x = jax.nn.relu(x @ v.T + c)
            if training:
                x = drop(x, rate, jax.random.fold_in(key, i))
        return x @ w.T + b

    return apply


def _with_layer_norm(weights: PyTree, x: jax.Array) -> jax.Array:
    *hidden, (w, b) = weights["layers"]
    for (v, c), (scale, shift) in zip(hidden, weights["norms"], strict=True):
        h = x @ v.T + c
        mean, variance = h.mean(-1, keepdims=True), h.var(-1, keepdims=True)
        x = jax.nn.relu((h - mean) * jax.lax.rsqrt(variance + EPS) * scale + shift)
    return x @ w.T + b


def _with_batch_norm(
    weights: PyTree, state: PyTree, x: jax.Array, training: bool
) -> tuple[jax.Array, PyTree]:
    *hidden, (w, b) = weights["layers"]
    after = []
    for (v, c), (scale, shift), average in zip(hidden, weights["norms"], state, strict=True):
        h = x @ v.T + c
        if training:
            now = h.mean(0), h.var(0)
            moved = zip(average, now, strict=True)
            average = tuple(MOMENTUM * a + (1 - MOMENTUM) * n for a, n in moved)
        mean, variance = now if training else average
        after.append(average)
        x = jax.nn.relu((h - mean) * jax.lax.rsqrt(variance + EPS) * scale + shift)
    return x @ w.T + b, after

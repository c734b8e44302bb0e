"""One form for every network: ``apply(params, state, x, key, training) → (outputs, state)``.

Equinox modules (stateful ones as ``(module, state)``), Flax NNX modules and plain
``(params, apply)`` pairs become a [`Network`][posterax.networks.Network]; nothing else in the
library knows which library a network came from.
"""

import hashlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._tree import is_key, named_leaves
from ..data import shuffle
from .footprint import footprint


class Network(eqx.Module):
    """A network in posterax's form: initial parameters, state, and a pure batched ``apply``."""

    params: Any
    state: Any

    def apply(
        self, params: Any, state: Any, x: Any, key: jax.Array | None, training: bool
    ) -> tuple[Any, Any]:
        """Outputs for a batch, and the state after it (running averages and the like)."""
        raise NotImplementedError

    def init(self, key: jax.Array) -> Any:
        """A fresh start: the entries of every array in a new random order.

        An initialiser that draws entries independently gives, permuted, another of its draws;
        constants (zero biases, unit scales) stay. So any network can be started anew without
        its constructor.
        """
        leaves, treedef = jax.tree.flatten(self.params)
        keys = jax.random.split(key, max(len(leaves), 1))
        fresh = [
            # no sort: it takes long to compile
            leaf.reshape(-1)[shuffle(jnp.arange(leaf.size), leaf.size, k)].reshape(leaf.shape)
            for k, leaf in zip(keys, leaves, strict=False)
        ]
        return jax.tree.unflatten(treedef, fresh)

    def fan_in(self, shape: tuple[int, ...]) -> int:
        """Inputs that feed one unit of a weight of this shape, outputs first (out, in, …)."""
        return int(np.prod(shape[1:])) if len(shape) > 1 else 1

    def fingerprint(self) -> str:
        """A hash of names, shapes and types of all parameters and state."""
        lines = [
            f"{name} {tuple(leaf.shape)} {leaf.dtype}"
            for name, leaf in named_leaves((self.params, self.state)).items()
        ]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]

    def output_shape(self, x: Any) -> tuple[int, ...]:
        """The shape of the outputs for a batch like ``x``, without computing them."""
        return footprint(self, x).output


def _accepts(function: Callable[..., Any], name: str) -> bool:
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


class EquinoxNetwork(Network):
    """An Equinox module: called one example at a time under ``vmap``, as Equinox has it."""

    static: Any
    batched: bool = eqx.field(static=True)
    stateful: bool = eqx.field(static=True)
    keyed: bool = eqx.field(static=True)

    def __init__(self, module: eqx.Module, state: Any = None):
        self.params, self.static = eqx.partition(module, eqx.is_inexact_array)
        self.stateful = state is not None
        self.state = state if self.stateful else ()
        self.batched = bool(getattr(module, "batched", False))
        self.keyed = _accepts(type(module).__call__, "key")

    def apply(
        self, params: Any, state: Any, x: Any, key: jax.Array | None, training: bool
    ) -> tuple[Any, Any]:
        module = eqx.combine(params, self.static)
        module = eqx.nn.inference_mode(module, value=not training)
        own = jax.tree.map(lambda a: a, state)  # Equinox lets a state be used only once
        if self.batched:
            return module(x), state
        keys = None
        if self.keyed and key is not None:
            keys = jax.random.split(key, jax.tree.leaves(x)[0].shape[0])

        def one(x: Any, key: jax.Array | None) -> Any:
            options = {"key": key} if self.keyed else {}
            return module(x, own, **options) if self.stateful else module(x, **options)

        out_axes = (0, None) if self.stateful else 0
        outputs = jax.vmap(one, axis_name="batch", out_axes=out_axes)(x, keys)
        return outputs if self.stateful else (outputs, state)


class PlainNetwork(Network):
    """A pair ``(params, apply)`` or a triple ``(params, state, apply)`` of the user's own."""

    function: Callable[..., Any] = eqx.field(static=True)
    stateful: bool = eqx.field(static=True)

    def apply(
        self, params: Any, state: Any, x: Any, key: jax.Array | None, training: bool
    ) -> tuple[Any, Any]:
        options = {
            name: value
            for name, value in (("key", key), ("training", training))
            if _accepts(self.function, name)
        }
        if self.stateful:
            return self.function(params, state, x, **options)
        return self.function(params, x, **options), state

    def fan_in(self, shape: tuple[int, ...]) -> int:
        # plain code multiplies x @ w, so the last axis is the output
        return int(np.prod(shape[:-1])) if len(shape) > 1 else 1


class FlaxNetwork(Network):
    """A Flax NNX module; its random streams are seeded from the key at every call."""

    graph: Any = eqx.field(static=True)
    streams: Any

    def __init__(self, module: Any):
        from flax import nnx

        parts: Any = nnx.split(module, nnx.Param, nnx.RngState, ...)
        self.graph, self.params, self.streams, self.state = parts

    def apply(
        self, params: Any, state: Any, x: Any, key: jax.Array | None, training: bool
    ) -> tuple[Any, Any]:
        from flax import nnx

        # variables belong to the trace that made them: make them anew in this one
        params, own_state = jax.tree.map(lambda a: a, (params, state))
        module = nnx.merge(self.graph, params, self._seeded(key), own_state)
        (module.train if training else module.eval)()
        outputs = module(x)
        parts: Any = nnx.split(module, nnx.Param, nnx.RngState, ...)
        return outputs, parts[-1] if training else state

    def _seeded(self, key: jax.Array | None) -> Any:
        leaves, treedef = jax.tree.flatten(self.streams)
        if key is not None:
            leaves = [
                jax.random.fold_in(key, i) if is_key(leaf) else jnp.zeros_like(leaf)
                for i, leaf in enumerate(leaves)
            ]
        return jax.tree.unflatten(treedef, leaves)

    def fan_in(self, shape: tuple[int, ...]) -> int:
        # Flax keeps kernels as (…, in, out)
        return int(np.prod(shape[:-1])) if len(shape) > 1 else 1


def as_network(network: Any) -> Network:
    """Bring any supported network to posterax's form.

    Args:
        network: an Equinox module, ``(module, state)`` for a stateful one, a Flax NNX module,
            ``(params, apply)`` with a batched ``apply(params, x)``, or
            ``(params, state, apply)`` with ``apply(params, state, x) → (outputs, state)``.
            ``apply`` may also take ``key`` and ``training``.

    Example:
        >>> import jax.numpy as jnp
        >>> from posterax.networks import as_network
        >>> line = as_network(({"w": jnp.ones((3, 1))}, lambda p, x: x @ p["w"]))
        >>> line.output_shape(jnp.ones((5, 3)))
        (5, 1)
    """
    if isinstance(network, Network):
        return network
    if isinstance(network, tuple) and len(network) == 2:
        first, second = network[0], network[1]
        if isinstance(first, eqx.Module) and isinstance(second, eqx.nn.State):
            return EquinoxNetwork(first, second)
        if callable(second):
            return PlainNetwork(_float_arrays(first), (), second, stateful=False)
    if isinstance(network, tuple) and len(network) == 3 and callable(network[2]):
        return PlainNetwork(_float_arrays(network[0]), network[1], network[2], stateful=True)
    flax = sys.modules.get("flax.nnx")
    if flax is not None and isinstance(network, flax.Module):
        return FlaxNetwork(network)
    if isinstance(network, eqx.Module) and callable(network):
        return EquinoxNetwork(network)
    raise TypeError(
        "network must be an Equinox module (or (module, state)), a Flax NNX module, or a pair "
        f"(params, apply), got {type(network).__name__}"
    )


def _float_arrays(params: Any) -> Any:
    def convert(path: Any, leaf: Any) -> Any:
        array = jnp.asarray(leaf)
        if not jnp.issubdtype(array.dtype, jnp.inexact):
            raise TypeError(
                f"network parameter {jax.tree_util.keystr(path)} must be floating point, "
                f"got {array.dtype}; keep integers inside apply"
            )
        return array

    return jax.tree_util.tree_map_with_path(convert, params)

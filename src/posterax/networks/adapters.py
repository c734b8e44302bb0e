"""One form for every network: ``apply(params, state, x, key, training) → (outputs, state)``.

Equinox modules (stateful ones as ``(module, state)``), Flax NNX modules and plain
``(params, apply)`` pairs become a [`Network`][posterax.networks.Network]; nothing else in the
library knows which library a network came from.
"""

import inspect
import sys
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.tree_util import KeyPath
from jaxtyping import PyTree

from .._util.tree import is_key, named_leaves
from .base import Mode, Network, outputs_first, outputs_last

AXIS = "batch"  # the name of the examples' axis, for batch normalisation


def _accepts(function: Callable[..., Any], name: str) -> bool:
    try:
        parameter = inspect.signature(function).parameters.get(name)
    except (TypeError, ValueError):
        return False
    # dropout=0.1 is no switch
    return parameter is not None and type(parameter.default) is not float


class EquinoxNetwork(Network):
    """An Equinox module: called one example at a time under ``vmap``, as Equinox has it."""

    static: Any
    batched: bool = eqx.field(static=True)
    stateful: bool = eqx.field(static=True)
    keyed: bool = eqx.field(static=True)

    def __init__(self, module: eqx.Module, state: PyTree = None):
        _check_stateful(module, state)
        self.params, self.static = eqx.partition(module, eqx.is_inexact_array)
        self.stateful = state is not None
        self.state = state if self.stateful else ()
        self.batched = bool(getattr(module, "batched", False))
        self.keyed = _accepts(type(module).__call__, "key")

    def run(self, params: PyTree, state: PyTree, x: PyTree, mode: Mode) -> tuple[Any, Any]:
        key, training, dropout = mode
        module = eqx.combine(params, self.static)
        module = eqx.nn.inference_mode(module, value=not training)
        if dropout is not None and dropout != training:
            flags = lambda m: [layer.inference for layer in _dropout_layers(m)]  # noqa: E731
            module = eqx.tree_at(flags, module, replace_fn=lambda _: not dropout)
        own = jax.tree.map(lambda a: a, state)  # Equinox lets a state be used only once
        if self.batched:
            return module(x), state
        rows = jax.tree.leaves(x)[0].shape[0]
        keys = jax.random.split(key, rows) if self.keyed and key is not None else None

        def one(x: PyTree, key: jax.Array | None) -> Any:
            options = {"key": key} if self.keyed else {}
            return module(x, own, **options) if self.stateful else module(x, **options)

        out_axes = (0, None) if self.stateful else 0
        outputs = jax.vmap(one, axis_name=AXIS, out_axes=out_axes)(x, keys)
        return outputs if self.stateful else (outputs, state)

    def fan_in(self, shape: tuple[int, ...], name: str = "") -> int:
        # a look-up adds nothing up
        looked_up = getattr(self.static, "looked_up", ())
        tables = [f"{table}.weight" for table in nodes(self.static, eqx.nn.Embedding)]
        return 1 if name in (*tables, *looked_up) else outputs_first(shape)

    def check_inputs(self, x: PyTree) -> None:
        getattr(self.static, "check_inputs", lambda x: None)(x)

    def rebuild(self, params: PyTree, state: PyTree) -> Any:
        module = eqx.combine(params, self.static)
        return (module, state) if self.stateful else module


class PlainNetwork(Network):
    """A pair ``(params, apply)`` or a triple ``(params, state, apply)`` of the user's own."""

    function: Callable[..., Any] = eqx.field(static=True)
    stateful: bool = eqx.field(static=True)
    others: Any = None  # what of Equinox modules among the params is no weight

    def run(self, params: PyTree, state: PyTree, x: PyTree, mode: Mode) -> tuple[Any, Any]:
        key, training, dropout = mode
        dropout = training if dropout is None else dropout
        switches = {"key": key, "training": training, "dropout": dropout}
        options = {name: v for name, v in switches.items() if _accepts(self.function, name)}
        if dropout != training and "dropout" not in options and {"key", "training"} <= set(options):
            if self.stateful:
                raise ValueError(
                    "network: apply has one switch for state and dropout: let it take dropout"
                )
            options["training"] = dropout
        params = self._combined(params)
        if self.stateful:
            return self.function(params, state, x, **options)
        return self.function(params, x, **options), state

    def _combined(self, params: PyTree) -> Any:
        return params if self.others is None else eqx.combine(params, self.others)

    def fan_in(self, shape: tuple[int, ...], name: str = "") -> int:
        # plain code multiplies x @ w, so the last axis is the output; Equinox has it first
        return outputs_last(shape) if self.others is None else outputs_first(shape)

    def rebuild(self, params: PyTree, state: PyTree) -> Any:
        params = self._combined(params)
        return (params, state, self.function) if self.stateful else (params, self.function)


class FlaxNetwork(Network):
    """A Flax NNX module; its random streams are seeded from the key at every call."""

    graph: Any = eqx.field(static=True)
    streams: Any

    def __init__(self, module: Any):
        from flax import nnx

        parts: Any = nnx.split(module, nnx.Param, nnx.RngState, ...)
        self.graph, self.params, self.streams, self.state = parts

    def run(self, params: PyTree, state: PyTree, x: PyTree, mode: Mode) -> tuple[Any, Any]:
        key, training, dropout = mode
        from flax import nnx

        # variables belong to the trace that made them: make them anew in this one
        params, own_state = jax.tree.map(lambda a: a, (params, state))
        module = nnx.merge(self.graph, params, self._seeded(key), own_state)
        (module.train if training else module.eval)()
        if dropout is not None:  # running averages have another flag
            module.set_attributes(deterministic=not dropout, raise_if_not_found=False)
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

    def fan_in(self, shape: tuple[int, ...], name: str = "") -> int:
        *above, last = name.split(".")
        if last in ("bias", "embedding"):  # biases of attention are (heads, size)
            return 1
        if above and above[-1] in ("query", "key", "value") and len(shape) == 3:
            return shape[0]  # (in, heads, size)
        return outputs_last(shape)  # Flax keeps kernels as (…, in, out)

    def rebuild(self, params: PyTree, state: PyTree) -> Any:
        from flax import nnx

        # variables of its own: a module may be changed where it is
        params, streams, state = jax.tree.map(lambda a: a, (params, self.streams, state))
        return nnx.merge(self.graph, params, streams, state)


def as_network(network: PyTree) -> Network:
    """Bring any supported network to posterax's form.

    Args:
        network: an Equinox module, ``(module, state)`` for a stateful one, a Flax NNX module,
            ``(params, apply)`` with a batched ``apply(params, x)``, or
            ``(params, state, apply)`` with ``apply(params, state, x) → (outputs, state)``.
            ``apply`` may also take ``key``, ``training`` and ``dropout`` (which is ``training``
            but for methods that leave dropout on at prediction).

    Example:
        >>> import jax.numpy as jnp
        >>> from posterax.networks import as_network
        >>> line = as_network(({"w": jnp.ones((3, 1))}, lambda p, x: x @ p["w"]))
        >>> line.output_shape(jnp.ones((5, 3)))
        (5, 1)
    """
    if isinstance(network, Network):
        return network
    match network:
        case (eqx.Module() as module, eqx.nn.State() as state):
            return EquinoxNetwork(module, state)
    if isinstance(network, tuple) and len(network) in (2, 3) and callable(network[-1]):
        (first, *own_state, function), stateful = network, len(network) == 3
        params, others = _plain_params(first)
        return PlainNetwork(params, own_state[0] if stateful else (), function, stateful, others)
    flax = sys.modules.get("flax.nnx")
    if flax is not None and isinstance(network, flax.Module):
        return FlaxNetwork(network)
    if isinstance(network, eqx.Module) and callable(network):
        return EquinoxNetwork(network)
    raise TypeError(
        "network must be an Equinox module (or (module, state)), a Flax NNX module, or a pair "
        f"(params, apply), got {type(network).__name__}{_hint(network)}"
    )


def _hint(network: object) -> str:
    """What to write for a module of a library that is not taken as it is."""
    linen, torch = sys.modules.get("flax.linen"), sys.modules.get("torch")
    if linen is not None and isinstance(network, linen.Module):
        return " of Flax Linen: write (params, apply) = (module.init(key, x), module.apply)"
    if torch is not None and isinstance(network, torch.nn.Module):
        return (
            " of PyTorch: write the same network in Equinox and bring the weights over, "
            "px.networks.from_torch(network, module.state_dict())"
        )
    return ""


def _dropout_layers(module: eqx.Module) -> list[Any]:
    """Layers with a flag for prediction and no state: whoever has one keeps running averages."""
    layers: list[Any] = []

    def look(node: PyTree) -> bool:
        if hasattr(node, "inference") and not nodes(node, eqx.nn.StateIndex):
            layers.append(node)
        return False

    jax.tree.leaves(module, is_leaf=look)
    return layers


def nodes(tree: PyTree, kind: type) -> dict[str, Any]:
    """The nodes of a class in a tree, by name."""
    leaves = named_leaves(tree, is_leaf=lambda node: isinstance(node, kind))
    return {name: node for name, node in leaves.items() if isinstance(node, kind)}


def _check_stateful(module: eqx.Module, state: PyTree) -> None:
    if state is None and nodes(module, eqx.nn.StateIndex):
        raise TypeError(
            f"network: {type(module).__name__} has layers with a state (batch normalisation); "
            "pass (module, state), as eqx.nn.make_with_state gives it"
        )
    for name, norm in nodes(module, eqx.nn.BatchNorm).items():
        axes = norm.axis_name if isinstance(norm.axis_name, tuple | list) else (norm.axis_name,)
        if AXIS not in axes:
            raise ValueError(
                f"network: {name} normalises over the axis {norm.axis_name!r}, and the examples "
                f'are on "{AXIS}": write eqx.nn.BatchNorm(…, axis_name="{AXIS}")'
            )


def _plain_params(params: PyTree) -> tuple[Any, Any]:
    """Weights as arrays; of Equinox modules among them, what is no weight apart."""
    if nodes(params, eqx.Module):
        return eqx.partition(params, eqx.is_inexact_array)

    def convert(path: KeyPath, leaf: PyTree) -> Any:
        array = jnp.asarray(leaf)
        if not jnp.issubdtype(array.dtype, jnp.inexact):
            raise TypeError(
                f"network parameter {jax.tree_util.keystr(path)} must be floating point"
            )
        return array

    return jax.tree_util.tree_map_with_path(convert, params), None

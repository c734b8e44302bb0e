"""Weights from PyTorch: a state dict copied into the Equinox network of the same architecture.

The arrays are matched in order: a state dict lists its layers as they were made, an Equinox module
as its fields are written. Layouts that differ are converted layer by layer; PyTorch itself is not
needed, since a state dict of numpy arrays will do.
"""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._util.tree import path_name

# Equinox takes running averages of so many steps as they are, and of fewer as not yet grown up
MANY_STEPS = 2**24


class _Reader:
    """Hands out the arrays of a state dict one after another, and checks what they are for."""

    def __init__(self, state_dict: Any):
        self.entries, self.next = _entries(state_dict), 0

    def take(self, path: str, shape: tuple[int, ...], fits: str = "weight bias") -> np.ndarray:
        """The next array, of this shape, for the weight of this name; ``fits``: its last words."""
        wanted = f"{path} of shape {shape}"
        if self.next == len(self.entries):
            raise ValueError(
                f"state_dict ends after {self.next} arrays, before the network's {wanted}"
            )
        name, value = self.entries[self.next]
        last = name.rpartition(".")[2]
        known = last.startswith(("weight", "bias", "running"))
        if value.shape != shape or (known and not last.startswith(tuple(fits.split()))):
            raise ValueError(
                f"state_dict and network differ first at array {self.next}: state_dict has "
                f"{name!r} of shape {value.shape}, network has {wanted}"
            )
        self.next += 1
        return value


def _entries(state_dict: Any) -> list[tuple[str, np.ndarray]]:
    """The arrays of a state dict by name, in order."""
    if not isinstance(state_dict, Mapping):
        hint = "; pass module.state_dict()" if hasattr(state_dict, "state_dict") else ""
        raise TypeError(
            f"state_dict must be a dictionary of arrays, got {type(state_dict).__name__}{hint}"
        )
    entries = []
    for name, value in state_dict.items():
        if str(name).endswith("num_batches_tracked"):
            continue
        if hasattr(value, "detach"):
            value = value.detach().cpu()
            # numpy has no bfloat16
            value = (value.float() if "bfloat16" in str(value.dtype) else value).numpy()
        if not isinstance(value, np.ndarray | jax.Array) or value.dtype.kind not in "biuf":
            raise TypeError(
                f"state_dict[{name!r}] must be a tensor or an array of numbers, got "
                f"{type(value).__name__}"
            )
        entries.append((str(name), np.asarray(value)))
    return entries


# -- layers whose arrays PyTorch keeps otherwise; each reader returns {field: array}


def _same(read: _Reader, layer: Any, path: str, *names: str) -> dict[str, np.ndarray]:
    """Arrays that PyTorch has by the same names and in the same shapes."""
    return {name: read.take(f"{path}.{name}", getattr(layer, name).shape, name) for name in names}


def _conv(read: _Reader, layer: Any, path: str) -> dict[str, np.ndarray]:
    weight = read.take(f"{path}.weight", layer.weight.shape, "weight")
    return {"weight": weight} | _conv_bias(read, layer, path)


def _conv_bias(read: _Reader, layer: Any, path: str) -> dict[str, np.ndarray]:
    if layer.bias is None:
        return {}
    # (channels, 1, 1) here, (channels,) there
    bias = read.take(f"{path}.bias", layer.bias.shape[:1], "bias")
    return {"bias": bias.reshape(layer.bias.shape)}


def _conv_transpose(read: _Reader, layer: Any, path: str) -> dict[str, np.ndarray]:
    out, per_group, *kernel = layer.weight.shape
    g = layer.groups
    there = read.take(f"{path}.weight", (g * per_group, out // g, *kernel), "weight")
    # (in, out / groups, …) there; here (out, in / groups, …), and the kernel is not turned round
    weight = there.reshape(g, per_group, out // g, *kernel).swapaxes(1, 2)
    weight = np.flip(weight.reshape(layer.weight.shape), tuple(range(2, 2 + len(kernel))))
    return {"weight": weight} | _conv_bias(read, layer, path)


def _recurrent(read: _Reader, layer: Any, path: str) -> dict[str, np.ndarray]:
    new = _same(read, layer, path, "weight_ih", "weight_hh")
    if layer.bias is None:
        return new
    shape = layer.bias.shape
    from_input = read.take(f"{path}.bias (bias_ih)", shape, "bias_ih")
    from_hidden = read.take(f"{path}.bias (bias_hh)", shape, "bias_hh")
    if isinstance(layer, eqx.nn.LSTMCell):  # gates i, f, g, o on both sides; only the sum counts
        return new | {"bias": from_input + from_hidden}
    # gates r, z, n: the reset gate multiplies the hidden part of n, with its bias
    gates = 2 * layer.hidden_size
    bias = from_input.copy()
    bias[:gates] += from_hidden[:gates]
    return new | {"bias": bias, "bias_n": from_hidden[gates:]}


def _batch_norm(read: _Reader, layer: Any, path: str) -> dict[str, np.ndarray]:
    new = {} if layer.weight is None else _same(read, layer, path, "weight", "bias")
    shape, averages = (layer.input_size,), ("running_mean", "running_var")
    return new | {name: read.take(f"{path}.{name}", shape, name) for name in averages}


def _prelu(read: _Reader, layer: Any, path: str) -> dict[str, np.ndarray]:
    shape = layer.negative_slope.shape
    slope = read.take(f"{path}.negative_slope", shape or (1,), "weight")
    return {"negative_slope": slope.reshape(shape)}


LAYERS: dict[type, Callable[[_Reader, Any, str], dict[str, np.ndarray]]] = {
    eqx.nn.ConvTranspose: _conv_transpose,
    eqx.nn.Conv: _conv,
    eqx.nn.LSTMCell: _recurrent,
    eqx.nn.GRUCell: _recurrent,
    eqx.nn.BatchNorm: _batch_norm,
    eqx.nn.PReLU: _prelu,
}


def from_torch(network: Any, state_dict: Mapping[str, Any]) -> Any:
    """A network with the weights of a PyTorch state dict.

    The network has the same layers in the same order as the PyTorch module: its fields stand in
    the order in which the module's were made. Linear, convolutions and their transposes,
    embeddings, layer, group and batch normalisation, PReLU, LSTM and GRU (one
    ``eqx.nn.LSTMCell`` for each layer) are converted; other weights must have the same shape.
    A block of [`ResNet`][posterax.networks.ResNet] has its layers in the order convolution,
    convolution, norm, norm (then the shortcut).

    Args:
        network: an Equinox module, or ``(module, state)`` for one with batch normalisation, whose
            running averages go into the state.
        state_dict: ``module.state_dict()``, of tensors or numpy arrays; ``num_batches_tracked`` is
            left out.

    Returns:
        What was given, with the new weights: a module, or ``(module, state)``.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> state_dict = {
        ...     "0.weight": np.ones((4, 3)), "0.bias": np.zeros(4),
        ...     "2.weight": np.ones((1, 4)), "2.bias": np.zeros(1),
        ... }
        >>> network = px.networks.from_torch(px.networks.MLP(3, 1, (4,), key=0), state_dict)
        >>> print(network(np.ones((1, 3))))
        [[12.]]
    """
    module, state = network if isinstance(network, tuple) and len(network) == 2 else (network, None)
    if not isinstance(module, eqx.Module) or not isinstance(state, eqx.nn.State | None):
        raise TypeError(
            f"network must be an Equinox module or (module, state), got {type(network).__name__}"
        )
    read = _Reader(state_dict)
    nodes, treedef = jax.tree_util.tree_flatten_with_path(
        module, is_leaf=lambda node: isinstance(node, tuple(LAYERS))
    )
    new = []
    for path, node in nodes:
        name = path_name(path)
        read_layer = next((r for kind, r in LAYERS.items() if isinstance(node, kind)), None)
        if read_layer is not None:
            arrays = read_layer(read, node, name)
            state = _with_averages(node, state, arrays, name)
            new.append(_replaced(node, arrays))
        elif eqx.is_inexact_array(node):
            last = name.rpartition(".")[2]
            fits = last if last in ("weight", "bias") else "weight bias"
            new.append(jnp.asarray(read.take(name, node.shape, fits), node.dtype))
        else:
            new.append(node)
    for name, value in read.entries[read.next :]:
        raise ValueError(
            f"state_dict has {len(read.entries)} arrays and network takes {read.next}: the first "
            f"without a place is {name!r} of shape {value.shape}"
        )
    module = jax.tree.unflatten(treedef, new)
    return module if not isinstance(network, tuple) else (module, state)


def _replaced(layer: Any, arrays: dict[str, np.ndarray]) -> Any:
    names = [name for name in arrays if not name.startswith("running")]
    if not names:
        return layer
    new = [jnp.asarray(arrays[name], getattr(layer, name).dtype) for name in names]
    return eqx.tree_at(lambda node: [getattr(node, name) for name in names], layer, new)


def _with_averages(layer: Any, state: PyTree, arrays: dict[str, np.ndarray], path: str) -> Any:
    """The state with a batch normalisation's running averages."""
    if not isinstance(layer, eqx.nn.BatchNorm):
        return state
    if state is None:
        raise TypeError(f"network has batch normalisation at {path}: pass (module, state)")
    batch = layer.mode == "batch"
    index = layer.batch_state_index if batch else layer.ema_state_index
    assert index is not None
    averages = tuple(
        jnp.asarray(arrays[name], old.dtype)
        for name, old in zip(("running_mean", "running_var"), state.get(index), strict=True)
    )
    # setting uses up an Equinox state; the one that was given stays usable
    state = jax.tree.map(lambda a: a, state).set(index, averages)
    if batch:
        counter = layer.batch_counter
        return state.set(counter, jnp.full_like(state.get(counter), MANY_STEPS))
    return state.set(layer.ema_first_time_index, jnp.asarray(False))

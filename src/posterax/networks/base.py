"""What a network knows; every network of this package is one, or becomes one."""

import hashlib
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import PyTree

from .._util.jax_names import JaxprEqn, shaped
from .._util.tree import abstract_rows, named_leaves
from ..data import shuffle
from ..program.walker import equations


def outputs_first(shape: tuple[int, ...]) -> int:
    """The fan-in of a weight (out, in, …)."""
    return prod(shape[1:])


def outputs_last(shape: tuple[int, ...]) -> int:
    """The fan-in of a weight (…, in, out)."""
    return prod(shape[:-1])


class Mode(NamedTuple):
    """How a network is run: the key of its randomness, in training or not, with dropout or not."""

    key: jax.Array | None
    training: bool
    dropout: bool | None = None  # as in training


class Network(eqx.Module):
    """A network in posterax's form: initial parameters, state, and a pure batched ``apply``."""

    params: Any
    state: Any

    def apply(
        self,
        params: PyTree,
        state: PyTree,
        x: PyTree,
        key: jax.Array | None,
        training: bool,
        dropout: bool | None = None,
    ) -> tuple[Any, Any]:
        """Outputs for a batch, and the state after it (running averages and the like).

        Args:
            params: the weights.
            state: the state before.
            x: a batch of inputs.
            key: of the network's own randomness.
            training: whether normalisation uses the batch and the state moves.
            dropout: whether dropout is on; by default as in training. Without ``training`` it is
                on alone: normalisation keeps to its running averages.
        """
        return self.run(params, state, x, Mode(key, training, dropout))

    def run(self, params: PyTree, state: PyTree, x: PyTree, mode: Mode) -> tuple[Any, Any]:
        """What a subclass gives: ``apply`` with its switches in one value."""
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

    def fan_in(self, shape: tuple[int, ...], name: str = "") -> int:
        """Inputs that feed one unit of the weight of this shape and name; 1 for a bias.

        Weights are outputs first, (out, in, …), unless a library has it otherwise.
        """
        return outputs_first(shape)

    def resolve(self, prior: Any) -> Any:
        """A tree like the parameters with the prior of every array (see ``Prior.resolve``)."""
        return prior.resolve(self.params, self.fan_in)

    def dense(self) -> "Network":
        """The same network with all of its weights, those included that are the constant 0."""
        return self

    def unfolded(self) -> tuple["Network", Callable[[Any], Any]]:
        """A network that does no more to its weights than it must, and what was done to them."""
        return self, lambda params: params

    def fingerprint(self, *, widths: bool = False) -> str:
        """A hash of names, shapes and kinds of all parameters and state.

        Args:
            widths: tell float32 from float64 as well, as files once did and a resumed fit must.
        """
        lines = [
            # names as they were when the first files were written
            f"{name.removesuffix('.value')} {tuple(leaf.shape)} "
            f"{leaf.dtype if widths else _kind(leaf.dtype)}"
            for name, leaf in named_leaves((self.params, self.state)).items()
        ]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]

    def frozen(self) -> Any:
        """The weights that are no parameters and stay as they are: a tree, or trees."""
        return ()

    def check_inputs(self, x: PyTree) -> None:
        """Refuse values of a batch that the network has no place for (unknown tokens)."""

    def rebuild(self, params: PyTree, state: PyTree) -> Any:
        """With these parameters and state, the network in the form in which it was given."""
        return eqx.tree_at(lambda n: (n.params, n.state), self, (params, state))

    def output_shape(self, x: PyTree) -> tuple[int, ...]:
        """The shape of the outputs for a batch like ``x``, without computing them."""
        return footprint(self, x).output


class Wrapper(Network):
    """A network around another one, whose weights it makes from parameters of its own."""

    network: Network

    def inner(self, params: PyTree) -> Any:
        """The weights of the network inside."""
        raise NotImplementedError

    def run(self, params: PyTree, state: PyTree, x: PyTree, mode: Mode) -> tuple[Any, Any]:
        return self.network.apply(self.inner(params), state, x, *mode)

    def frozen(self) -> Any:
        return self.network.frozen()

    def check_inputs(self, x: PyTree) -> None:
        self.network.check_inputs(x)

    def rebuild(self, params: PyTree, state: PyTree) -> Any:
        return self.network.rebuild(self.inner(params), state)


def with_params(network: Network, params: PyTree) -> Network:
    """A network with other parameters in the place of its own, or of none."""
    return eqx.tree_at(lambda n: n.params, network, params, is_leaf=lambda n: n is None)


def _kind(dtype: DTypeLike) -> str:
    kinds = {"float": jnp.inexact, "int": jnp.integer}
    return next((k for k, kind in kinds.items() if jnp.issubdtype(dtype, kind)), str(dtype))


def module_of(network: Network) -> Any:
    """The Equinox module inside a network, its arrays left out, or ``None``.

    Example:
        >>> import posterax as px
        >>> from posterax.networks import as_network
        >>> from posterax.networks.base import module_of
        >>> module_of(as_network(px.networks.MLP(2, 1, (4,), key=0))).in_size
        2
    """
    while isinstance(network, Wrapper):
        network = network.network
    return getattr(network, "static", None)


# -- how large outputs and intermediate values are: traced, not computed

_KNOWN: dict[Any, "Footprint"] = {}


class Footprint(NamedTuple):
    """The shape of the outputs, and the bytes per example of the largest value on the way.

    ``products`` are the multiplications of its matrix products for the whole batch; ``None`` where
    there are loops or convolutions.
    """

    output: tuple[int, ...]
    widest: int
    products: int | None


def footprint(network: Network, x: PyTree) -> Footprint:
    """The footprint of a forward pass over a batch like ``x``; remembered by shapes.

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> from posterax.networks.base import footprint
        >>> network = px.networks.as_network(px.networks.MLP(3, 1, (50, 20), key=0))
        >>> footprint(network, jnp.ones((7, 3)))
        Footprint(output=(7, 1), widest=200, products=8190)
    """
    leaves, treedef = jax.tree.flatten((network, x))
    key = (treedef, tuple((a.shape, a.dtype) if hasattr(a, "shape") else a for a in leaves))
    try:
        if key in _KNOWN:
            return _KNOWN[key]
    except TypeError:  # something in the network cannot be hashed
        return _trace(network, x)
    if len(_KNOWN) > 1000:
        _KNOWN.clear()
    return _KNOWN.setdefault(key, _trace(network, x))


def _trace(network: Network, x: PyTree) -> Footprint:
    output, sizes, products = _sizes(network, x)
    rows = jax.tree.leaves(x)[0].shape[0]
    more = abstract_rows(x, rows + 1)
    # weights are values too; what grows with the batch is an activation
    try:
        grown = _sizes(network, more)[1]
    except (TypeError, ValueError):  # the network insists on its number of rows
        grown = sizes
    widest = max((b - a for a, b in zip(sizes, grown, strict=False)), default=0)
    return Footprint(output, max(widest, 0), products)


def _sizes(network: Network, x: PyTree) -> tuple[tuple[int, ...], list[int], int | None]:
    """The shape of the outputs, the bytes of every value of the program, and its products."""
    arrays, rest = eqx.partition((network.params, network.state), eqx.is_array)

    def forward(arrays: PyTree, x: PyTree) -> Any:
        params, state = eqx.combine(arrays, rest)
        return network.apply(params, state, x, jax.random.key(0), False)[0]

    program, outputs = jax.make_jaxpr(forward, return_shape=True)(arrays, x)
    if not hasattr(outputs, "shape"):
        raise TypeError(f"network must return one array, got {type(outputs).__name__}")
    found = list(equations(program))
    values = [shaped(out) for eqn in found for out in eqn.outvars]
    sizes = [
        value.size * value.dtype.itemsize
        for value in values
        if not jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
    ]
    if {"scan", "while", "conv_general_dilated"} & {eqn.primitive.name for eqn in found}:
        return tuple(outputs.shape), sizes, None
    return tuple(outputs.shape), sizes, sum(map(_multiplications, found))


def _multiplications(eqn: JaxprEqn) -> int:
    """Of a matrix product."""
    if eqn.primitive.name != "dot_general":
        return 0
    left = shaped(eqn.invars[0])
    contracted = eqn.params["dimension_numbers"][0][0]
    return shaped(eqn.outvars[0]).size * prod(left.shape[axis] for axis in contracted)

r"""A network some of whose weights are the constant 0: only the others are parameters."""

import zlib
from collections.abc import Callable
from math import prod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax.tree_util import KeyPath
from jaxtyping import PyTree

from .._util.fingerprint import data_fingerprint
from .._util.jax_names import Tracer
from .._util.tree import named_leaves, path_name
from .adapters import as_network
from .base import Network, Wrapper, with_params
from .parts import FrozenNetwork

Masks = dict[str, np.ndarray]


class SparseNetwork(Wrapper):
    """A network whose parameters are, of each array, the vector of the entries that remain.

    ``positions`` has, by name, where in its flattened array each remaining entry belongs; an array
    that lost nothing is not among them and stays as it is. The positions are arrays and so
    arguments of a compiled program, not constants in it.
    """

    positions: dict[str, jax.Array]
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(static=True)

    def inner(self, params: PyTree) -> Any:
        """The network's own weights, zeros where entries were removed."""
        shapes = dict(self.shapes)

        def spread(path: KeyPath, entries: jax.Array) -> jax.Array:
            name = path_name(path)
            if name not in self.positions:
                return entries
            size, positions = prod(shapes[name]), self.positions[name]
            if not any(isinstance(a, Tracer) for a in (entries, positions)):
                host = np.zeros(size, entries.dtype)
                host[np.asarray(positions)] = entries
                return jnp.asarray(host.reshape(shapes[name]))
            # a scatter: ten times as fast as to gather from the entries and a zero, and what its
            # gradient gathers are the entries alone
            flat = jnp.zeros(size, entries.dtype)
            flat = flat.at[positions].set(
                entries, indices_are_sorted=True, unique_indices=True, mode="promise_in_bounds"
            )
            return flat.reshape(shapes[name])

        return jtu.tree_map_with_path(spread, params)

    def dense(self) -> Network:
        return with_params(self.network, self.inner(self.params))

    def unfolded(self) -> tuple[Network, Callable[[Any], Any]]:
        return self.network, self.inner

    def masks(self) -> Masks:
        """By name, of the arrays that lost something: whether each entry remains."""
        return {
            name: np.bincount(self.positions[name], minlength=prod(shape)).reshape(shape) > 0
            for name, shape in self.shapes
            if name in self.positions
        }

    def restrict(self, tree: PyTree) -> Any:
        """Of a tree like the dense network's weights, what belongs to the entries that remain."""
        shapes = dict(self.shapes)
        dense = {n for n, w in named_leaves(tree).items() if np.shape(w) == shapes.get(n)}
        return take(tree, {name: mask for name, mask in self.masks().items() if name in dense})

    def resolve(self, prior: Any) -> Any:
        # as if nothing were missing: a fan-in is that of the dense array
        own = named_leaves(prior.loc.network) if prior.each else {}
        priors = prior.resolve(self.inner(self.params), self.network.fan_in)

        def restricted(path: KeyPath, _: Any, one: Any) -> Any:
            name = path_name(path)
            shape = dict(self.shapes)[name]
            if name not in self.positions or (name in own and np.shape(own[name]) != shape):
                return one
            return one.restrict(shape, np.asarray(self.positions[name]))

        return jtu.tree_map_with_path(restricted, self.params, priors)

    def fan_in(self, shape: tuple[int, ...], name: str = "") -> int:
        return self.network.fan_in(dict(self.shapes).get(name, shape), name)

    def fingerprint(self, *, widths: bool = False) -> str:
        own = data_fingerprint(self.positions)
        return f"{self.dense().fingerprint(widths=widths)}-{own[:16]}"


def pruned_weights(network: Network) -> list[str]:
    """The arrays that lost entries, by name, but for those with one axis or none (biases)."""
    if not isinstance(network, SparseNetwork):
        return []
    return [name for name, shape in network.shapes if name in network.positions and len(shape) > 1]


def same_masks(one: Network, other: Network) -> bool:
    """Whether two networks were pruned of the same weights, or neither of any."""
    a, b = (n.masks() if isinstance(n, SparseNetwork) else {} for n in (one, other))
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def sparse(network: PyTree, mask: PyTree) -> Network:
    r"""Make some weights of a network the constant 0, and only the others its parameters.

    f(x; w ∘ m) with a mask m of zeros and ones. In a model the weights that remain are what is
    uncertain, trained and stored: memory, files and the sum over log priors shrink with them.
    [`px.prune`][posterax.pruning.prune] chooses the mask by the posterior. The priors of weights
    that remain are what they were, a fan-in that of the dense array.

    Args:
        network: any network a model takes; one that is sparse loses more.
        mask: arrays of booleans, true for what remains: a tree like the weights, or a dictionary
            by name (``{"layers.0.weight": …}``), in which arrays without a mask lose nothing.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> network = px.networks.MLP(4, 1, (8,), key=0)
        >>> mask = np.arange(32).reshape(8, 4) % 4 == 0  # one input of four
        >>> thin = px.networks.sparse(network, {"layers.0.weight": mask})
        >>> model = px.Model(thin, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
        >>> model.bayesian_size  # 8, and 8 + 8 + 1
        25
    """
    base = as_network(network)
    masks = check_masks(mask, base)
    if not masks:
        return base
    params = named_leaves(base.params)
    if isinstance(base, SparseNetwork):
        inner, positions, shapes = base.network, dict(base.positions), base.shapes
    else:
        inner, positions = with_params(base, None), {}
        shapes = tuple((name, tuple(w.shape)) for name, w in params.items())
    for name, remains in masks.items():
        before = np.asarray(positions.get(name, np.arange(params[name].size)))
        positions[name] = jnp.asarray(before[remains.reshape(-1)].astype(np.int32))
    return SparseNetwork(take(base.params, masks), base.state, inner, positions, shapes)


def check_masks(mask: PyTree, network: Network) -> Masks:
    """Masks by name in the shape of the network's parameters, of those that lose something."""
    params = named_leaves(network.params)
    earlier: Masks = network.masks() if isinstance(network, SparseNetwork) else {}
    masks = {}
    for name, value in named_leaves(mask).items():
        if name not in params:
            raise ValueError(f"mask: no weight is called {name!r}, only {', '.join(params)}")
        array = np.asarray(value)
        if array.dtype != bool:
            raise TypeError(f"mask: {name} must be booleans (True: remains), got {array.dtype}")
        if name in earlier and array.shape == earlier[name].shape:
            array = array[earlier[name]]  # what is gone is gone
        if array.shape != params[name].shape:
            raise ValueError(
                f"mask: {name} must have the shape {params[name].shape}, not {array.shape}"
            )
        if not array.all():
            masks[name] = array
    return masks


def take(tree: PyTree, masks: Masks, front: int = 0) -> Any:
    """The remaining entries of each array of a tree, as a vector; arrays that lose none unchanged.

    Args:
        tree: like the network's weights, ``None`` where there is nothing.
        masks: by name, in the shape of the weights.
        front: axes before those of the weights (chains, draws).

    Example:
        >>> import numpy as np
        >>> from posterax.networks.sparse import take
        >>> take({"w": np.array([[1, 2], [3, 4]])}, {"w": np.eye(2) > 0})
        {'w': array([1, 4])}
    """

    def one(path: KeyPath, w: Any) -> Any:
        mask = masks.get(path_name(path))
        if mask is None:
            return w
        # on the host: every array has a shape of its own, for which there is no program yet
        array = np.asarray(w)
        entries = array.reshape(*array.shape[:front], -1)[..., np.flatnonzero(mask)]
        return jnp.asarray(entries) if isinstance(w, jax.Array) else entries

    return jtu.tree_map_with_path(one, tree)


def freeze(network: Network, chosen: PyTree) -> Network:
    """The network with only the chosen weights as parameters; what was removed stays removed."""
    if not isinstance(network, SparseNetwork):
        return FrozenNetwork(network, chosen)
    wanted = named_leaves(chosen)
    masks = {name: mask for name, mask in network.masks().items() if wanted[name]}
    return sparse(FrozenNetwork(network.dense(), chosen), masks)


def pack_bits(mask: np.ndarray) -> np.ndarray:
    """A mask for a file: a bit for each entry, compressed; of few entries that is still less.

    Example:
        >>> import numpy as np
        >>> from posterax.networks.sparse import pack_bits, unpack_bits
        >>> mask = np.arange(80_000).reshape(200, 400) % 50 == 0
        >>> bits = pack_bits(mask)
        >>> len(bits) < mask.size / 8, bool((unpack_bits(bits, mask.shape) == mask).all())
        (True, True)
    """
    return np.frombuffer(zlib.compress(np.packbits(mask).tobytes(), 9), np.uint8)


def unpack_bits(bits: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The mask again; never more than its shape asks for."""
    size = prod(shape)
    expected = -(-size // 8)
    try:
        raw = zlib.decompressobj().decompress(bits.tobytes(), expected + 1)
    except zlib.error as error:
        raise ValueError(f"a mask is damaged: {error}") from error
    if len(raw) != expected:
        raise ValueError(f"a mask has {len(raw)} bytes where {expected} belong")
    return np.unpackbits(np.frombuffer(raw, np.uint8), count=size).astype(bool).reshape(shape)

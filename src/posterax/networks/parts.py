"""Which weights are uncertain: parts of a network, the rest frozen; or additions of low rank."""

import fnmatch
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax.tree_util import KeyPath
from jaxtyping import PyTree

from .._util.checks import whole_number
from .._util.keys import KeyLike, as_key
from .._util.tree import named_leaves, path_name
from .adapters import as_network
from .base import Network, Wrapper, with_params
from .mlp import initial_normal

Where = str | Sequence[str] | Callable[[str, jax.Array], bool]


def matches(pattern: str | Callable[[str, jax.Array], bool], name: str, w: jax.Array) -> bool:
    """Whether a weight fits: by its name, alone or as the model's summary has it, or a function."""
    if callable(pattern):
        return bool(pattern(name, w))
    return any(fnmatch.fnmatchcase(n, pattern) for n in (name, f"network.{name}"))


def select(params: PyTree, where: Where) -> Any:
    """A tree like ``params``: whether each weight is chosen.

    Args:
        params: the network's weights.
        where: a pattern over names like ``layers.0.weight`` (``"head.*"``, ``"*.weight"``),
            several of them, or a function of (name, array).

    Example:
        >>> import posterax as px
        >>> from posterax.networks.parts import select
        >>> chosen = select({"a": {"w": 1.0, "b": 2.0}}, "*.w")
        >>> chosen
        {'a': {'b': False, 'w': True}}
    """
    patterns: Any = [where] if isinstance(where, str) or callable(where) else where
    several = isinstance(patterns, list | tuple) and len(patterns) > 0
    if not (several and all(isinstance(p, str) or callable(p) for p in patterns)):
        raise TypeError(
            f"where must be a pattern such as 'head.*', several, or a function, got {where!r}"
        )
    leaves = [(path_name(path), w) for path, w in jtu.tree_leaves_with_path(params)]
    hits = [[matches(pattern, *leaf) for leaf in leaves] for pattern in patterns]
    for pattern, by_weight in zip(patterns, hits, strict=True):
        if not any(by_weight):  # one of several too: a misspelt name must not go unnoticed
            names = ", ".join(name for name, _ in leaves)
            raise ValueError(f"where={pattern!r} matches no weight; the weights are {names}")
    chosen = [any(by_pattern) for by_pattern in zip(*hits, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(params), chosen)


def numbers_fingerprint(tree: PyTree) -> str | None:
    """A hash of the numbers in a tree, in single precision; ``None`` where there are none.

    Example:
        >>> import numpy as np
        >>> from posterax.networks.parts import numbers_fingerprint
        >>> numbers_fingerprint(np.ones(3)) == numbers_fingerprint(np.ones(3, "float32"))
        True
    """
    leaves = jax.tree.leaves(tree)
    digest = hashlib.blake2b(digest_size=16)
    for leaf in leaves:
        digest.update(str(np.shape(leaf)).encode())
        digest.update(np.asarray(leaf, np.float32, order="C").reshape(-1).view(np.uint8).data)
    return digest.hexdigest() if leaves else None


class Fixing(Wrapper):
    """A network with weights that stay as they are, in its tree."""

    fixed: Any

    def frozen(self) -> Any:
        return self.fixed, self.network.frozen()


class FrozenNetwork(Fixing):
    """A network of which only some weights are parameters; the others stay as they are."""

    def __init__(self, network: Network, chosen: PyTree):
        params, self.fixed = eqx.partition(network.params, chosen)
        self.params, self.state = params, network.state
        self.network = with_params(network, None)  # its weights are here and in ``fixed``

    def inner(self, params: PyTree) -> Any:
        dtype = jax.tree.leaves(params)[0].dtype
        return eqx.combine(params, jax.tree.map(lambda a: a.astype(dtype), self.fixed))

    def fingerprint(self, *, widths: bool = False) -> str:
        params = eqx.combine(self.params, self.fixed)
        return with_params(self.network, params).fingerprint(widths=widths)

    def fan_in(self, shape: tuple[int, ...], name: str = "") -> int:
        return self.network.fan_in(shape, name)


class LowRank(Fixing):
    """A network with W + U D in place of each chosen weight W; only U and D are parameters.

    ``fixed`` has W, the weights that the additions go to, and all others.
    """

    def inner(self, params: PyTree) -> Any:
        dtype = jax.tree.leaves(params)[0].dtype

        def add(path: KeyPath, w: jax.Array) -> jax.Array:
            pair = params.get(path_name(path))
            w = w.astype(dtype)
            return w if pair is None else w + (pair["up"] @ pair["down"]).reshape(w.shape)

        return jtu.tree_map_with_path(add, self.fixed)


def is_matrix(name: str, w: jax.Array) -> bool:
    """Whether a weight is a matrix or a kernel; the biases of convolutions are (channels, 1, 1).

    Example:
        >>> import numpy as np
        >>> from posterax.networks.parts import is_matrix
        >>> is_matrix("conv.bias", np.ones((8, 1, 1))), is_matrix("conv.weight", np.ones((8, 1, 3)))
        (False, True)
    """
    thin = w.ndim > 2 and w.size == w.shape[0]
    return w.ndim > 1 and not thin and "bias" not in name.rpartition(".")[2]


def low_rank(network: PyTree, rank: int = 4, where: Where = is_matrix, *, key: KeyLike) -> LowRank:
    r"""Leave a trained network as it is and learn additions of low rank to its weights.

    Each chosen weight, seen as a matrix W of m rows, becomes W + U D with U (m × rank) starting
    at zero and D (rank × n) at N(0, 1/n): at first the network is what it was. As the network of
    a model, the additions are what is uncertain, and the file holds them alone; it loads with
    ``px.load(path, model=model)`` over the same trained weights and no others.

    Args:
        network: any network a model takes, trained.
        rank: of the additions.
        where: which weights get one (default: matrices and kernels, no biases).
        key: an int or a JAX key.

    Example:
        >>> import posterax as px
        >>> trained = px.networks.MLP(10, 1, (20,), key=0)
        >>> network = px.networks.low_rank(trained, rank=2, key=1)
        >>> model = px.Model(network, px.priors.Gaussian(0.1), px.likelihoods.Gaussian(0.1))
        >>> model.bayesian_size  # (20 + 10) × 2 and (1 + 20) × 2
        102

    Reference:
        Hu et al., *LoRA: low-rank adaptation of large language models*, ICLR 2022.
    """
    rank = whole_number("rank", rank)
    base = as_network(network)
    chosen = eqx.filter(base.params, select(base.params, where))
    weights = named_leaves(chosen).items()
    params = {}
    for (name, w), k in zip(weights, jax.random.split(as_key(key), len(weights)), strict=True):
        if w.ndim < 2:
            raise ValueError(f"where chooses {name}, which has one axis: no matrix to add to")
        rows, columns = w.shape[0], w.size // w.shape[0]
        down = initial_normal(k, (rank, columns)) / columns**0.5
        params[name] = {"up": jnp.zeros((rows, rank), w.dtype), "down": down.astype(w.dtype)}
    return LowRank(params, base.state, with_params(base, None), base.params)

"""Which weights are uncertain: selecting parts of a network's tree, and freezing the rest."""

import fnmatch
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.tree_util as jtu
import numpy as np
from jaxtyping import PyTree

from .._util.tree import path_name
from .base import Network, Wrapper, with_params

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
            "where must be a pattern such as 'head.*', several of them, or a function of (name, "
            f"array), got {where!r}"
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


class FrozenNetwork(Wrapper):
    """A network of which only some weights are parameters; the others stay as they are."""

    fixed: Any  # the weights that stay, in the network's tree

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

    def frozen(self) -> Any:
        return self.fixed, self.network.frozen()

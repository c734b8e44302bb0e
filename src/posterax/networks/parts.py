"""Which weights are uncertain: selecting parts of a network's tree, and freezing the rest."""

import fnmatch
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.tree_util as jtu
import numpy as np

from .._util.tree import path_name
from .base import Network

Where = str | Sequence[str] | Callable[[str, jax.Array], bool]


def matches(name: str, pattern: str) -> bool:
    """Whether a weight's name fits a pattern, alone or as the model's summary prints it."""
    return any(fnmatch.fnmatchcase(n, pattern) for n in (name, f"network.{name}"))


def select(params: Any, where: Where) -> Any:
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
    if (
        not isinstance(patterns, list | tuple)
        or not patterns
        or not all(isinstance(p, str) or callable(p) for p in patterns)
    ):
        raise TypeError(
            "where must be a pattern such as 'head.*', several of them, or a function of (name, "
            f"array), got {where!r}"
        )

    used: set[int] = set()

    def chosen(path: Any, w: jax.Array) -> bool:
        name = path_name(path)
        by = {
            i
            for i, p in enumerate(patterns)
            if (bool(p(name, w)) if callable(p) else matches(name, p))
        }
        used.update(by)
        return bool(by)

    tree = jtu.tree_map_with_path(chosen, params)
    idle = [pattern for i, pattern in enumerate(patterns) if i not in used]
    if idle:  # one of several too: a misspelt name must not go unnoticed
        names = ", ".join(path_name(path) for path, _ in jtu.tree_leaves_with_path(params))
        raise ValueError(f"where={idle[0]!r} matches no weight; the weights are {names}")
    return tree


def numbers_fingerprint(tree: Any) -> str | None:
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


class FrozenNetwork(Network):
    """A network of which only some weights are parameters; the others stay as they are."""

    network: Network
    fixed: Any  # the weights that stay, in the network's tree

    def __init__(self, network: Network, chosen: Any):
        params, self.fixed = eqx.partition(network.params, chosen)
        self.params, self.state = params, network.state
        # its weights are here and in ``fixed``; they are not kept twice
        self.network = eqx.tree_at(lambda n: n.params, network, None)

    def apply(
        self,
        params: Any,
        state: Any,
        x: Any,
        key: jax.Array | None,
        training: bool,
        dropout: bool | None = None,
    ) -> tuple[Any, Any]:
        dtype = jax.tree.leaves(params)[0].dtype
        fixed = jax.tree.map(lambda a: a.astype(dtype), self.fixed)
        return self.network.apply(eqx.combine(params, fixed), state, x, key, training, dropout)

    def fingerprint(self, *, widths: bool = False) -> str:
        whole = eqx.combine(self.params, self.fixed)
        return eqx.tree_at(
            lambda n: n.params, self.network, whole, is_leaf=lambda n: n is None
        ).fingerprint(widths=widths)

    def fan_in(self, shape: tuple[int, ...], name: str = "") -> int:
        return self.network.fan_in(shape, name)

    def frozen(self) -> Any:
        return self.fixed, self.network.frozen()

    def check_inputs(self, x: Any) -> None:
        self.network.check_inputs(x)

    def rebuild(self, params: Any, state: Any) -> Any:
        dtype = jax.tree.leaves(params)[0].dtype
        fixed = jax.tree.map(lambda a: a.astype(dtype), self.fixed)
        return self.network.rebuild(eqx.combine(params, fixed), state)

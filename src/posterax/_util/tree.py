"""Small helpers for pytrees: names of leaves, structure, sizes, copies on the host."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import PyTree


def path_name(path: tuple[Any, ...]) -> str:
    """The path of a leaf as ``layers.0.weight``."""
    # Flax wraps every array, an entry of a dictionary, in a Variable whose only child is its value
    match path:
        case (*above, jtu.DictKey() as name, jtu.GetAttrKey(name="value")):
            path = (*above, name)
    return jtu.keystr(path, simple=True, separator=".")


def named_leaves(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> dict[str, Any]:
    """Leaves by name, in tree order.

    Example:
        >>> from posterax._util.tree import named_leaves
        >>> named_leaves({"a": [1, 2]})
        {'a.0': 1, 'a.1': 2}
    """
    leaves = jtu.tree_leaves_with_path(tree, is_leaf=is_leaf)
    return {path_name(path): leaf for path, leaf in leaves}


def same_structure(a: PyTree, b: PyTree) -> bool:
    """Whether two trees have the same shape, leaves aside."""
    one: Any = jtu.tree_structure(a)
    return bool(one == jtu.tree_structure(b))


def tree_size(tree: PyTree) -> int:
    """Number of scalars in all array leaves."""
    return sum(int(np.prod(np.shape(leaf))) for leaf in jax.tree.leaves(tree))


def tree_bytes(tree: PyTree) -> int:
    """Bytes of all array leaves (arrays or their abstract shapes)."""
    return sum(
        int(np.prod(leaf.shape)) * np.dtype(_plain_dtype(leaf)).itemsize
        for leaf in jax.tree.leaves(tree)
        if hasattr(leaf, "shape")
    )


def _plain_dtype(leaf: PyTree) -> Any:
    # a typed key holds two uint32
    return np.uint64 if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf.dtype


def is_key(leaf: PyTree) -> bool:
    """Whether a leaf is a typed JAX key array."""
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def to_host(tree: PyTree) -> Any:
    """Copy a tree to numpy arrays (typed keys stay: they have no numpy form)."""
    return jax.tree.map(lambda a: a if is_key(a) else np.array(a), tree)


def plain(array: Any) -> np.ndarray:
    """As numpy has it; the short floats of accelerators become float32."""
    array = np.asarray(array)
    return array if array.dtype.kind in "biuf" else array.astype(np.float32)


def human_bytes(n: float) -> str:
    """A byte count for people.

    Example:
        >>> from posterax._util.tree import human_bytes
        >>> human_bytes(3 * 2**30)
        '3.0 GiB'
    """
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "bytes" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"


def dtype_of(tree: Any) -> Any:
    """The precision of a tree of weights: that of its first array."""
    return jax.tree.leaves(tree)[0].dtype


def shapes_of(tree: Any) -> list[tuple[int, ...]]:
    """The shapes of all leaves."""
    return [tuple(leaf.shape) for leaf in jax.tree.leaves(tree)]


def abstract_rows(x: PyTree, rows: int) -> PyTree:
    """Inputs by shape and type, as JAX has them, with so many rows."""
    canonical = jax.dtypes.canonicalize_dtype
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct((rows, *a.shape[1:]), canonical(a.dtype)), x)

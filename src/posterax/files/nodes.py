"""What a posterior is made of, in a file: parameter trees, arrays, dictionaries, plain values."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from .._util.tree import named_leaves, path_name
from ..model import Model
from .bounds import field, texts
from .container import Arrays, names_of, pack, unpack


def store(value: Any, name: str, arrays: Arrays, model: Model) -> Any:
    """A part of a posterior in JSON; its arrays are added to ``arrays``."""
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    if isinstance(value, dict):
        return {"dict": {k: store(v, f"{name}.{k}", arrays, model) for k, v in value.items()}}
    if isinstance(value, np.ndarray | jax.Array):
        arrays |= {f"array/{name}": np.asarray(value, order="C")}
        return {"array": name}
    arrays |= pack(value, name)
    names = list(named_leaves(value))
    if len(names) == len(jax.tree.leaves(model.parameters)):
        return {"parameters": name}
    if names == list(named_leaves(model.bayesian(model.parameters))):
        return {"bayesian": name}  # deviations, say: points have none
    return {"some": name, "of": names}  # factors of one kind among several


def restore(node: Any, arrays: Arrays, model: Model, path: Path) -> Any:
    """A part of a posterior from JSON and arrays."""
    if "value" in node:
        return field(node, "value", bool, int, float, str, type(None), path=path)
    if "dict" in node:
        parts = field(node, "dict", dict, path=path)
        return {name: restore(part, arrays, model, path) for name, part in parts.items()}
    if "array" in node:
        return jnp.asarray(arrays[f"array/{node['array']}"])
    if "bayesian" in node:
        return like(model.bayesian(model.parameters), arrays, node["bayesian"], path)
    if "some" in node:
        return like(only(texts(node, "of", path), model.parameters), arrays, node["some"], path)
    return like(model.parameters, arrays, node["parameters"], path)


def only(names: list[str], tree: PyTree) -> Any:
    """The tree's leaves with these names; ``None`` for the others."""
    wanted = set(names)
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf if path_name(path) in wanted else None, tree
    )


def like(
    template: PyTree,
    arrays: Arrays,
    prefix: str,
    path: Path,
    dtype: DTypeLike | None = None,
    *,
    drawn: bool = True,
) -> Any:
    """A stored tree with the template's structure; what is drawn may have axes in front.

    Floats get the template's type, or ``dtype``: their width is no part of a model.
    """
    names = names_of(template, arrays, prefix, path)
    leaves, treedef = jax.tree.flatten(template)
    sized, cast = [], {}
    for name, leaf in zip(names, leaves, strict=True):
        value, kind = arrays[name], leaf.dtype
        front = value.shape[: value.ndim - leaf.ndim] if drawn else ()
        for family in (jnp.floating, jnp.integer):
            if jnp.issubdtype(value.dtype, family) and jnp.issubdtype(kind, family):
                kind = dtype if dtype is not None and family is jnp.floating else kind
                value = value.astype(kind)
        cast[name] = value
        sized.append(jax.ShapeDtypeStruct((*front, *leaf.shape), kind))
    return unpack(jax.tree.unflatten(treedef, sized), cast, prefix, path)

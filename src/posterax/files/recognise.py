"""Whether a model is the one a file was written for: its tree, and which weights are Bayesian."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._util.tree import named_leaves
from ..errors import CheckpointError
from ..model import Model
from ..networks import Network
from ..networks.parts import FrozenNetwork, numbers_fingerprint


def check_model(model: Model, header: dict[str, Any], path: Path) -> None:
    """Refuse a ``model=`` that is not the one the file was written for."""
    stored = header["model"]
    if not is_network(model.network.dense(), stored["fingerprint"], header["dtype"]):
        raise CheckpointError(
            f"{path}: model= has another network than the file's (fingerprints "
            f"{model.network.dense().fingerprint()} and {stored['fingerprint']}): names or shapes "
            "differ"
        )
    own = bayesian_parts(model)
    part = _different_part(own, stored)
    if part == "content":
        raise CheckpointError(
            f"{path}: model= is built on other frozen weights than the file's; give it the "
            "network that was trained before"
        )
    if part is not None:
        raise CheckpointError(
            f"{path}: model= has other Bayesian weights than the file's ({_shown(own)}, and "
            f"{_shown(stored)} in the file): give it the same where= and rest="
        )


def check_parts(model: Model, stored: dict[str, Any], path: Path) -> None:
    """Refuse a header that names other Bayesian weights than the model made from it has."""
    part = _different_part(bayesian_parts(model), stored)
    if part is not None:
        raise CheckpointError(f"{path}: {part!r} in its header does not fit its model")


def _different_part(own: dict[str, Any], stored: dict[str, Any]) -> str | None:
    """The first of a model's parts that a file has otherwise."""
    for part, here in own.items():
        there = stored.get(part, here)  # the first files had fewer
        if part in ("where", "bayesian"):
            here, there = (
                sorted(name.removesuffix(".value") for name in names) for names in (here, there)
            )
        if here != there:
            return part
    return None


def _shown(parts: dict[str, Any]) -> str:
    names = ", ".join(map(str, parts["where"]))
    return f"rest {parts['rest']}, {names if len(names) <= 80 else names[:77] + '...'}"


def bayesian_parts(model: Model) -> dict[str, Any]:
    """Which weights are Bayesian; a hash of those neither in the posterior nor in the file."""
    where, rest = model.chosen()
    network = model.network.dense()
    stored = network.network if isinstance(network, FrozenNetwork) else network
    return {
        "where": where,
        "rest": rest,
        "bayesian": list(named_leaves(model.bayesian(model.parameters).network)),
        "content": numbers_fingerprint(stored.frozen()),
    }


def is_network(network: Network, fingerprint: str, dtype: str) -> bool:
    """Whether a network has this fingerprint; the first files told float32 from float64."""

    def cast(leaf: PyTree) -> Any:
        if not hasattr(leaf, "dtype") or not jnp.issubdtype(leaf.dtype, jnp.inexact):
            return leaf
        return jax.ShapeDtypeStruct(leaf.shape, np.dtype(dtype))

    older = network, jax.tree.map(cast, network)
    return fingerprint in (network.fingerprint(), *(n.fingerprint(widths=True) for n in older))

"""A model in a file: network, prior and likelihood by name, with their settings."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from .. import networks, priors
from .._util.tree import named_leaves, path_name
from ..errors import CheckpointError
from ..model import Model
from ..networks import Network
from ..networks.parts import FrozenNetwork, numbers_fingerprint
from ..networks.sparse import SparseNetwork, pack_bits, unpack_bits
from ..predictive import Targets
from .bounds import check_outputs, field, texts
from .container import Arrays, names_of, pack, refuse_not_finite, shortened, unpack
from .named import (
    LIKELIHOODS,
    as_call,
    config_of,
    describe_prior,
    make_likelihood,
    make_network,
    make_prior,
)  # fmt: skip


def describe_model(model: Model, arrays: Arrays) -> dict[str, Any]:
    """A model in JSON; arrays that its parts have are added to ``arrays``."""
    dense = model.network.dense()
    fingerprint = dense.fingerprint()
    if isinstance(model.network, SparseNetwork):
        arrays |= {f"mask/{name}": pack_bits(m) for name, m in model.network.masks().items()}
    if isinstance(dense, FrozenNetwork):
        arrays |= pack(dense.fixed, "fixed")
        dense = dense.network
    module: Any = getattr(dense, "static", None)
    config = config_of(module)
    network = None if config is None else {"name": type(module).__name__, "config": config}
    prior: Any = None
    if isinstance(model.prior, priors.PerWeight):
        arrays |= pack(model.prior.loc, "prior.loc") | pack(model.prior.scale, "prior.scale")
        prior = {
            "name": "PerWeight",
            "likelihood": model.prior.loc.likelihood is not None,
            "scales": list(named_leaves(model.prior.scale)),
        }
    else:
        prior = describe_prior(model.prior)
    return bayesian_parts(model) | {
        "network": network,
        "fingerprint": fingerprint,
        "prior": prior,
        "likelihood": as_call(model.likelihood, LIKELIHOODS, skip=("cholesky",)),
        "compute_dtype": model.compute_dtype,
    }


def make_model(header: dict[str, Any], arrays: Arrays, targets: Targets, dtype: DTypeLike) -> Model:
    """The model that a header names."""
    stored = header["model"]
    own = [part for part in ("network", "prior", "likelihood") if stored[part] is None]
    if own:
        raise CheckpointError(
            f"its {' and '.join(own)} is of your own making; build the same model and "
            "call px.load(path, model=model)"
        )
    fits = lambda shapes: is_network(shapes, stored["fingerprint"], header["dtype"])  # noqa: E731
    names = set(texts(stored, "where"))
    # a layer has weights: arrays of the file, or, of a prior, names alone
    network = make_network(stored["network"], arrays, len(arrays) + len(names), fits)
    likelihood = make_likelihood(stored["likelihood"])
    if stored["rest"] not in ("none", "point", "frozen"):
        raise CheckpointError(f"its other weights are {shortened(stored['rest'])}")
    where = None if stored["rest"] == "none" else lambda name, w: name in names
    rest = "frozen" if stored["rest"] == "frozen" else "point"
    precision = field(stored, "compute_dtype", str, type(None))
    options = {"where": where, "rest": rest, "compute_dtype": precision}
    if field(stored["prior"], "name", str) != "PerWeight":
        weights = len(jax.tree.leaves(networks.as_network(network).params))
        prior = make_prior(stored["prior"], most=weights)
        made = Model(network, prior, likelihood, **options)
        check_outputs(made, targets)
        return make_sparse(made, arrays)
    plain = make_sparse(Model(network, priors.Gaussian(1.0), likelihood, **options), arrays)
    check_outputs(plain, targets)
    template = plain.for_targets(targets.inner, dtype).parameters
    if not stored["prior"]["likelihood"]:
        template = template._replace(likelihood=None)
    loc = like(template, arrays, "prior.loc", drawn=False)
    stored_scales = sum(name.startswith("prior.scale/") for name in arrays)
    if "scales" in stored["prior"]:  # what has none is a point
        template = only(texts(stored["prior"], "scales"), template)
    elif stored_scales < len(jax.tree.leaves(template)):
        template = plain.bayesian(template)
    scale = like(template, arrays, "prior.scale", drawn=False)
    if rest == "frozen":  # the network has it already
        options |= {"where": None, "rest": "point"}
    return Model(plain.network, priors.PerWeight(loc, scale), likelihood, **options)


def with_initial(model: Model, stored: dict[str, Any]) -> Model:
    """The model with the start of its learned noise, where the fit took that from its data."""
    node, own = stored["likelihood"], model.likelihood
    if node is None or getattr(own, "initial", 0.0) is not None:
        return model
    found = getattr(make_likelihood(node), "initial", None)
    is_leaf = lambda leaf: leaf is None  # noqa: E731
    return eqx.tree_at(lambda m: m.likelihood.initial, model, found, is_leaf=is_leaf)


def make_sparse(model: Model, arrays: Arrays) -> Model:
    """The model without the weights that the file's were pruned of."""
    stored = {
        name: unpack_bits(arrays[f"mask/{name}"], w.shape)
        for name, w in named_leaves(model.network.dense().params).items()
        if f"mask/{name}" in arrays
    }
    if isinstance(model.network, SparseNetwork):
        own = model.network.masks()
        if own.keys() != stored.keys() or any((own[n] != stored[n]).any() for n in own):
            raise CheckpointError(
                "model= is pruned of other weights than the file's; give it the unpruned network"
            )
        return model
    return model.sparse(stored)


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
    dtype: DTypeLike | None = None,
    *,
    drawn: bool = True,
) -> Any:
    """A stored tree with the template's structure; what is drawn may have axes in front.

    Floats get the template's type, or ``dtype``: their width is no part of a model. They are
    finite, unless the template's own are not: a mask of a network of the user's own, say.
    """
    names = names_of(template, arrays, prefix)
    leaves, treedef = jax.tree.flatten(template)
    sized, cast = [], {}
    for name, leaf in zip(names, leaves, strict=True):
        value, kind = arrays[name], leaf.dtype
        front = value.shape[: value.ndim - leaf.ndim] if drawn else ()
        for family in (jnp.floating, jnp.integer):
            if jnp.issubdtype(value.dtype, family) and jnp.issubdtype(kind, family):
                kind = dtype if dtype is not None and family is jnp.floating else kind
                with np.errstate(over="ignore"):  # what becomes infinite is refused
                    value = value.astype(kind)
        if not is_finite(value) and is_finite(leaf):
            refuse_not_finite({name: value})
        cast[name] = value
        sized.append(jax.ShapeDtypeStruct((*front, *leaf.shape), kind))
    return unpack(jax.tree.unflatten(treedef, sized), cast, prefix)


def is_finite(leaf: Any) -> bool:
    """Whether an array has finite numbers alone; of shapes it is believed."""
    return isinstance(leaf, jax.ShapeDtypeStruct) or bool(np.isfinite(np.asarray(leaf)).all())


# -- whether a model is the one a file was written for


def check_model(model: Model, header: dict[str, Any]) -> None:
    """Refuse a ``model=`` that is not the one the file was written for."""
    stored = header["model"]
    if not is_network(model.network.dense(), stored["fingerprint"], header["dtype"]):
        raise CheckpointError("model= has another network than the file's: names or shapes differ")
    own = bayesian_parts(model)
    part = _different_part(own, stored)
    if part == "content":
        raise CheckpointError(
            "model= has other frozen weights than the file's; give it the network trained before"
        )
    if part is not None:
        raise CheckpointError(
            f"model= has other Bayesian weights than the file's ({_shown(own)}, and "
            f"{_shown(stored)} in the file): give it the same where= and rest="
        )


def check_parts(model: Model, stored: dict[str, Any]) -> None:
    """Refuse a header that names other Bayesian weights than the model made from it has."""
    part = _different_part(bayesian_parts(model), stored)
    if part is not None:
        raise CheckpointError(f"{part!r} in its header does not fit its model")


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

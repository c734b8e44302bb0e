"""A model in a file: network, prior and likelihood by name, with their settings."""

from pathlib import Path
from typing import Any

import jax
from jax.typing import DTypeLike

from .. import networks, priors
from .._util.tree import named_leaves
from ..errors import CheckpointError
from ..model import Model
from ..networks.parts import FrozenNetwork
from ..networks.sparse import SparseNetwork, pack_bits, unpack_bits
from ..predictive import Targets
from .bounds import check_outputs, field, texts
from .container import Arrays, pack, shortened
from .named import (
    LIKELIHOODS,
    as_call,
    describe_prior,
    has_config,
    make_likelihood,
    make_network,
    make_prior,
)
from .nodes import like, only
from .recognise import bayesian_parts, is_network


def describe_model(model: Model, arrays: Arrays) -> dict[str, Any]:
    """A model in JSON; arrays that its parts have are added to ``arrays``."""
    whole, network = model.network.dense(), None
    fingerprint = whole.fingerprint()
    if isinstance(model.network, SparseNetwork):
        arrays |= {f"mask/{name}": pack_bits(m) for name, m in model.network.masks().items()}
    if isinstance(whole, FrozenNetwork):
        arrays |= pack(whole.fixed, "fixed")
        whole = whole.network
    module: Any = getattr(whole, "static", None)
    name = type(module).__name__
    if networks.BY_NAME.get(name) is type(module) and has_config(module):
        network = {"name": name, "config": module.config()}
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


def make_model(
    header: dict[str, Any], arrays: Arrays, targets: Targets, dtype: DTypeLike, path: Path
) -> Model:
    """The model that a header names."""
    stored = header["model"]
    own = [part for part in ("network", "prior", "likelihood") if stored[part] is None]
    if own:
        raise CheckpointError(
            f"{path}: its {' and '.join(own)} is of your own making; build the same model and "
            "call px.load(path, model=model)"
        )
    fits = lambda shapes: is_network(shapes, stored["fingerprint"], header["dtype"])  # noqa: E731
    names = set(texts(stored, "where", path))
    # a layer has weights: arrays of the file, or, of a prior, names alone
    network = make_network(stored["network"], arrays, len(arrays) + len(names), path, fits)
    likelihood = make_likelihood(stored["likelihood"], path)
    if stored["rest"] not in ("none", "point", "frozen"):
        raise CheckpointError(f"{path}: its other weights are {shortened(stored['rest'])}")
    where = None if stored["rest"] == "none" else lambda name, w: name in names
    rest = "frozen" if stored["rest"] == "frozen" else "point"
    precision = field(stored, "compute_dtype", str, type(None), path=path)
    options = {"where": where, "rest": rest, "compute_dtype": precision}
    if field(stored["prior"], "name", str, path=path) != "PerWeight":
        weights = len(jax.tree.leaves(networks.as_network(network).params))
        prior = make_prior(stored["prior"], path, most=weights)
        whole = Model(network, prior, likelihood, **options)
        check_outputs(whole, targets, path)
        return make_sparse(whole, arrays, path)
    plain = make_sparse(Model(network, priors.Gaussian(1.0), likelihood, **options), arrays, path)
    check_outputs(plain, targets, path)
    template = plain.for_targets(targets.inner, dtype).parameters
    if not stored["prior"]["likelihood"]:
        template = template._replace(likelihood=None)
    loc = like(template, arrays, "prior.loc", path, drawn=False)
    stored_scales = sum(name.startswith("prior.scale/") for name in arrays)
    if "scales" in stored["prior"]:  # what has none is a point
        template = only(texts(stored["prior"], "scales", path), template)
    elif stored_scales < len(jax.tree.leaves(template)):
        template = plain.bayesian(template)
    scale = like(template, arrays, "prior.scale", path, drawn=False)
    if rest == "frozen":  # the network has it already
        options |= {"where": None, "rest": "point"}
    return Model(plain.network, priors.PerWeight(loc, scale), likelihood, **options)


def make_sparse(model: Model, arrays: Arrays, path: Path) -> Model:
    """The model without the weights that the file's were pruned of."""
    whole = named_leaves(model.network.dense().params)
    stored = {
        name: unpack_bits(arrays[f"mask/{name}"], w.shape)
        for name, w in whole.items()
        if f"mask/{name}" in arrays
    }
    if isinstance(model.network, SparseNetwork):
        own = model.network.masks()
        if own.keys() != stored.keys() or any((own[n] != stored[n]).any() for n in own):
            raise CheckpointError(
                f"{path}: model= is pruned of other weights than the file's; give it the model of "
                "the whole network, the file has what was removed"
            )
        return model
    return model.sparse(stored)

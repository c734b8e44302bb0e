"""Files: a posterior in one safetensors file with a JSON header. Loading runs no code.

Networks of ``px.networks``, priors, likelihoods and posteriors are stored by name with their
settings; a network of the user's own is stored by a fingerprint and needs ``model=`` to load.
"""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from . import likelihoods, networks, posteriors, priors
from ._recognise import bayesian_parts, check_model, is_network
from ._tree import named_leaves, path_name
from ._version import __version__
from .checkpoint import FORMAT, CheckpointError, pack, read, unpack, write
from .model import Model
from .networks.parts import FrozenNetwork
from .networks.sparse import SparseNetwork, pack_bits, unpack_bits
from .posteriors import Evidence, Posterior, Record
from .predictive import Targets

# what may be made from a file: these names and no others
_PRIORS = {
    c.__name__: c
    for c in (
        priors.Flat,
        priors.Gaussian,
        priors.Grid,
        priors.Hierarchical,
        priors.Laplace,
        priors.ScaleMixture,
    )
}
LIKELIHOODS = {
    c.__name__: c
    for c in (
        likelihoods.Gaussian,
        likelihoods.StudentT,
        likelihoods.MultivariateGaussian,
        likelihoods.Categorical,
        likelihoods.Bernoulli,
        likelihoods.Poisson,
    )
}
_POSTERIORS = {
    "Enumerated": posteriors.Enumerated,
    "Factorized": posteriors.Factorized,
    "FullGaussian": posteriors.FullGaussian,
    "GaussianMixture": posteriors.GaussianMixture,
    "LaplaceGaussian": posteriors.LaplaceGaussian,
    "LowRankGaussian": posteriors.LowRankGaussian,
    "MeanFieldGaussian": posteriors.MeanFieldGaussian,
    "Draws": posteriors.Draws,
    "DropoutPosterior": posteriors.DropoutPosterior,
    "Point": posteriors.Point,
    "PriorPosterior": posteriors.PriorPosterior,
    "Radial": posteriors.Radial,
    "WeightedDraws": posteriors.WeightedDraws,
}


def save(
    posterior: Posterior,
    path: str | Path,
    more: dict[str, Any] | None = None,
    more_arrays: dict[str, np.ndarray] | None = None,
) -> None:
    """Write a posterior to one file, whole or not at all; ``more`` is what an estimator adds."""
    path = Path(path)
    model = posterior.model
    arrays: dict[str, np.ndarray] = dict(more_arrays or {})
    family = {
        name: _store(value, name, arrays, model)
        for name, value in vars(posterior).items()
        if name not in ("model", "state", "targets", "record", "evidence")
    }
    arrays |= pack(posterior.state, "state")
    record = posterior.record or Record()
    arrays |= {f"history/{name}": np.asarray(v) for name, v in record.history.items()}
    header = {
        "format": FORMAT,
        "posterax": __version__,
        "posterior": type(posterior).__name__,
        "family": family,
        "targets": list(map(list, posterior.targets)),
        "dtype": str(jax.tree.leaves(model.parameters)[0].dtype),
        "model": _describe_model(model, arrays),
        "method": record.method,
        "history": list(record.history),
        "settings": record.settings,
        "evidence": posterior.evidence,
    } | (more or {})
    write(path, arrays, header)


def load(path: str | Path, *, model: Model | None = None) -> Any:
    """Read a posterior, or an estimator, that was saved.

    Args:
        path: the file.
        model: the model, where its network, prior or likelihood is the user's own; its tree is
            checked against the file's.

    Example:
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(0, 1, 8)[:, None].astype("float32")
        >>> model = px.Model(
        ...     px.networks.MLP(1, 1, (4,), key=0),
        ...     px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1),
        ... )
        >>> posterior = px.fit(model, (x, x), px.BayesByBackprop(), epochs=2, key=0)
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "line.px"
        >>> posterior.save(file)
        >>> same = px.load(file)
        >>> bool((same.predict(x, key=1).mean == posterior.predict(x, key=1).mean).all())
        True
    """
    path = Path(path)
    if not (model is None or isinstance(model, Model)):
        raise TypeError(f"model must be a px.Model, got {type(model).__name__}")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    arrays, header = read(path)
    if "agent" in header:
        raise CheckpointError(f"{path}: holds an agent; px.bandits.load(path) reads it")
    try:
        posterior = rebuild(arrays, header, model, path)
        if "estimator" not in header:
            return posterior
        from .tables import saved

        return saved.rebuild(posterior, header["estimator"], arrays, path)
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise CheckpointError(f"{path}: damaged or inconsistent ({error!r})") from error


def rebuild(
    arrays: dict[str, np.ndarray], header: dict[str, Any], model: Model | None, path: Path
) -> Posterior:
    """The posterior of what was read from a file."""
    targets = Targets(*(tuple(int(d) for d in shape) for shape in header["targets"]))
    # a file of float64 is read as float32 where JAX has no other
    dtype = jax.dtypes.canonicalize_dtype(np.dtype(header["dtype"]))
    if model is None:
        model = _make_model(header, arrays, targets, dtype, path)
    else:
        check_model(model, header, path)
        model = _sparse(model, arrays, path)
    model = model.for_targets(targets.inner, dtype)
    inner = model.network.dense()
    if isinstance(inner, FrozenNetwork):
        fixed = _like(inner.fixed, arrays, "fixed", path, dtype)
        where = lambda m: m.network.fixed  # noqa: E731
        if isinstance(model.network, SparseNetwork):
            where = lambda m: m.network.network.fixed  # noqa: E731
        model = eqx.tree_at(where, model, fixed)
    made = _POSTERIORS[header["posterior"]]
    family = {
        name: _restore(node, name, arrays, model, path) for name, node in header["family"].items()
    }
    state = _like(model.network.state, arrays, "state", path, dtype)
    history = {str(name): arrays[f"history/{name}"] for name in header["history"]}
    record = Record(str(header["method"]), dict(header["settings"]), history)
    known = header.get("evidence")
    # files of earlier versions have no kind
    evidence = known and Evidence(float(known[0]), float(known[1]), *map(str, known[2:3]))
    return made(model, state, targets, record=record, evidence=evidence, **family)


# -- nodes of a posterior: parameter trees, arrays, dictionaries of arrays, plain values


def _store(value: Any, name: str, arrays: dict[str, np.ndarray], model: Model) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    if isinstance(value, dict):
        return {"dict": {k: _store(v, f"{name}.{k}", arrays, model) for k, v in value.items()}}
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


def _restore(
    node: dict[str, Any], name: str, arrays: dict[str, np.ndarray], model: Model, path: Path
) -> Any:
    if "value" in node:
        return node["value"]
    if "dict" in node:
        return {k: _restore(v, k, arrays, model, path) for k, v in node["dict"].items()}
    if "array" in node:
        return jnp.asarray(arrays[f"array/{node['array']}"])
    if "bayesian" in node:
        return _like(model.bayesian(model.parameters), arrays, node["bayesian"], path)
    if "some" in node:
        return _like(_only(node["of"], model.parameters), arrays, node["some"], path)
    return _like(model.parameters, arrays, node["parameters"], path)


def _only(names: Any, tree: Any) -> Any:
    """The tree's leaves with these names; ``None`` for the others."""
    wanted = {str(name) for name in names}
    return jax.tree_util.tree_map_with_path(
        lambda place, leaf: leaf if path_name(place) in wanted else None, tree
    )


def _like(
    template: Any, arrays: dict[str, np.ndarray], prefix: str, path: Path, dtype: Any = None
) -> Any:
    """A stored tree with the template's structure; draws have axes in front.

    Floats get the template's type, or ``dtype``: their width is no part of a model.
    """
    names = sorted(name for name in arrays if name.startswith(f"{prefix}/"))
    leaves, treedef = jax.tree.flatten(template)
    if len(names) != len(leaves):
        raise CheckpointError(
            f"{path}: {prefix} has {len(names)} arrays where the model needs {len(leaves)}"
        )
    sized, found = [], {}
    for name, leaf in zip(names, leaves, strict=True):
        value, kind = arrays[name], leaf.dtype
        front = value.shape[: value.ndim - leaf.ndim]
        for family in (jnp.floating, jnp.integer):
            if jnp.issubdtype(value.dtype, family) and jnp.issubdtype(kind, family):
                kind = dtype if dtype is not None and family is jnp.floating else kind
                value = value.astype(kind)
        found[name] = value
        sized.append(jax.ShapeDtypeStruct((*front, *leaf.shape), kind))
    return unpack(jax.tree.unflatten(treedef, sized), found, prefix, path)


# -- the model by name


def _describe_model(model: Model, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
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


def has_config(module: Any) -> bool:
    """Whether a network of ``px.networks`` can say what makes it again."""
    try:
        module.config()
    except ValueError:
        return False
    return True


def describe_prior(prior: priors.Prior) -> Any:
    """A prior in JSON, or ``None`` for the user's own."""
    if isinstance(prior, priors.ByPart):
        parts = [(pattern, describe_prior(p)) for pattern, p in prior.parts]
        default = describe_prior(prior.default)
        if default is None or any(not isinstance(k, str) or p is None for k, p in parts):
            return None
        return {"name": "ByPart", "parts": parts, "default": default}
    return as_call(prior, _PRIORS)


def as_call(module: eqx.Module, known: dict[str, Any], skip: tuple[str, ...] = ()) -> Any:
    """A module as the name and arguments that make it, or ``None`` for the user's own."""
    if known.get(type(module).__name__) is not type(module):
        return None
    arguments = {
        name: np.asarray(value).tolist() if isinstance(value, np.ndarray | jax.Array) else value
        for name, value in vars(module).items()
        if name not in skip and not name.startswith("_")  # those follow from the others
    }
    return {"name": type(module).__name__, "arguments": arguments}


def _make_model(
    header: dict[str, Any],
    arrays: dict[str, np.ndarray],
    targets: Targets,
    dtype: Any,
    path: Path,
) -> Model:
    stored = header["model"]
    own = [part for part in ("network", "prior", "likelihood") if stored[part] is None]
    if own:
        raise CheckpointError(
            f"{path}: its {' and '.join(own)} is of your own making; build the same model and "
            "call px.load(path, model=model)"
        )
    make, config = networks.BY_NAME[stored["network"]["name"]], stored["network"]["config"]
    # shapes first, without allocating: a damaged header must not ask for a terabyte
    shapes = eqx.filter_eval_shape(lambda: networks.as_network(make(**config, key=0)))
    if not is_network(shapes, stored["fingerprint"], header["dtype"]):
        raise CheckpointError(f"{path}: the network's settings do not fit its fingerprint")
    network = make(**config, key=0)
    likelihood = LIKELIHOODS[stored["likelihood"]["name"]](**stored["likelihood"]["arguments"])
    names = {str(name) for name in stored["where"]}
    where = None if stored["rest"] == "none" else lambda name, w: name in names
    rest = "frozen" if stored["rest"] == "frozen" else "point"
    options = {"where": where, "rest": rest, "compute_dtype": stored["compute_dtype"]}
    if stored["prior"]["name"] != "PerWeight":
        whole = Model(network, make_prior(stored["prior"]), likelihood, **options)
        return _sparse(whole, arrays, path)
    plain = _sparse(Model(network, priors.Gaussian(1.0), likelihood, **options), arrays, path)
    template = plain.for_targets(targets.inner, dtype).parameters
    if not stored["prior"]["likelihood"]:
        template = template._replace(likelihood=None)
    loc = _like(template, arrays, "prior.loc", path)
    stored_scales = sum(name.startswith("prior.scale/") for name in arrays)
    if "scales" in stored["prior"]:  # what has none is a point
        template = _only(stored["prior"]["scales"], template)
    elif stored_scales < len(jax.tree.leaves(template)):
        template = plain.bayesian(template)
    scale = _like(template, arrays, "prior.scale", path)
    if rest == "frozen":  # the network has it already
        options |= {"where": None, "rest": "point"}
    return Model(plain.network, priors.PerWeight(loc, scale), likelihood, **options)


def _sparse(model: Model, arrays: dict[str, np.ndarray], path: Path) -> Model:
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


def make_prior(node: dict[str, Any]) -> priors.Prior:
    """A prior from JSON."""
    if node["name"] == "ByPart":
        parts = {pattern: make_prior(prior) for pattern, prior in node["parts"]}
        return priors.ByPart(parts, make_prior(node["default"]))
    return _PRIORS[node["name"]](**node["arguments"])

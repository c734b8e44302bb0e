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
from ._tree import named_leaves
from ._version import __version__
from .checkpoint import FORMAT, CheckpointError, pack, read, unpack, write
from .model import Model
from .networks.parts import FrozenNetwork
from .posteriors import Posterior, Record
from .predictive import Targets

# what may be made from a file: these names and no others
_PRIORS = {
    c.__name__: c
    for c in (
        priors.Flat,
        priors.Gaussian,
        priors.Hierarchical,
        priors.Laplace,
        priors.ScaleMixture,
    )
}
_LIKELIHOODS = {
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
    "GaussianMixture": posteriors.GaussianMixture,
    "MeanFieldGaussian": posteriors.MeanFieldGaussian,
    "Draws": posteriors.Draws,
    "Point": posteriors.Point,
    "PriorPosterior": posteriors.PriorPosterior,
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
        if name not in ("model", "state", "targets", "record")
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
    try:
        posterior = _rebuild(arrays, header, model, path)
        if "estimator" not in header:
            return posterior
        from .tables.saved import rebuild

        return rebuild(posterior, header["estimator"], arrays, path)
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise CheckpointError(f"{path}: damaged or inconsistent ({error!r})") from error


def _rebuild(
    arrays: dict[str, np.ndarray], header: dict[str, Any], model: Model | None, path: Path
) -> Posterior:
    targets = Targets(*(tuple(int(d) for d in shape) for shape in header["targets"]))
    dtype = np.dtype(header["dtype"])
    stored = header["model"]
    if model is None:
        model = _make_model(stored, arrays, targets, dtype, path)
    elif model.fingerprint() != stored["fingerprint"]:
        raise CheckpointError(
            f"{path}: model= has another network than the file's (fingerprints "
            f"{model.fingerprint()} and {stored['fingerprint']}): names, shapes or types differ"
        )
    if stored["rest"] == "frozen":
        model = _with_fixed(model, arrays, path)
    model = model.for_targets(targets.inner, dtype)
    made = _POSTERIORS[header["posterior"]]
    family = {
        name: _restore(node, name, arrays, model, path) for name, node in header["family"].items()
    }
    state = _like(model.network.state, arrays, "state", path)
    history = {str(name): arrays[f"history/{name}"] for name in header["history"]}
    record = Record(str(header["method"]), dict(header["settings"]), history)
    return made(model, state, targets, record=record, **family)


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
    # deviations, say: points have none
    partial = len(jax.tree.leaves(value)) < len(jax.tree.leaves(model.parameters))
    return {"bayesian" if partial else "parameters": name}


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
    return _like(model.parameters, arrays, node["parameters"], path)


def _like(template: Any, arrays: dict[str, np.ndarray], prefix: str, path: Path) -> Any:
    """A stored tree with the template's structure; draws have axes in front."""
    names = sorted(name for name in arrays if name.startswith(f"{prefix}/"))
    leaves, treedef = jax.tree.flatten(template)
    if len(names) != len(leaves):
        raise CheckpointError(
            f"{path}: {prefix} has {len(names)} arrays where the model needs {len(leaves)}"
        )
    sized = []
    for name, leaf in zip(names, leaves, strict=True):
        shape = arrays[name].shape
        front = shape[: len(shape) - leaf.ndim]
        sized.append(jax.ShapeDtypeStruct((*front, *leaf.shape), leaf.dtype))
    return unpack(jax.tree.unflatten(treedef, sized), arrays, prefix, path)


# -- the model by name


def _describe_model(model: Model, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    whole, network = model.network, None
    where = list(named_leaves(model.bayesian(model.parameters).network))
    rest = "point" if len(where) < len(jax.tree.leaves(whole.params)) else "none"
    if isinstance(whole, FrozenNetwork):
        arrays |= pack(whole.fixed, "fixed")
        where, rest = list(named_leaves(whole.params)), "frozen"
        whole = whole.network
    module: Any = getattr(whole, "static", None)
    name = type(module).__name__
    if networks.BY_NAME.get(name) is type(module) and _has_config(module):
        network = {"name": name, "config": module.config()}
    prior: Any = None
    if isinstance(model.prior, priors.PerWeight):
        arrays |= pack(model.prior.loc, "prior.loc") | pack(model.prior.scale, "prior.scale")
        prior = {"name": "PerWeight", "likelihood": model.prior.loc.likelihood is not None}
    else:
        prior = describe_prior(model.prior)
    return {
        "where": where,
        "rest": rest,
        "network": network,
        "fingerprint": model.fingerprint(),
        "prior": prior,
        "likelihood": _call(model.likelihood, _LIKELIHOODS, skip=("cholesky",)),
        "compute_dtype": model.compute_dtype,
    }


def _has_config(module: Any) -> bool:
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
    return _call(prior, _PRIORS)


def _call(module: eqx.Module, known: dict[str, Any], skip: tuple[str, ...] = ()) -> Any:
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
    stored: dict[str, Any],
    arrays: dict[str, np.ndarray],
    targets: Targets,
    dtype: Any,
    path: Path,
) -> Model:
    own = [part for part in ("network", "prior", "likelihood") if stored[part] is None]
    if own:
        raise CheckpointError(
            f"{path}: its {' and '.join(own)} is of your own making; build the same model and "
            "call px.load(path, model=model)"
        )
    make, config = networks.BY_NAME[stored["network"]["name"]], stored["network"]["config"]
    # shapes first, without allocating: a damaged header must not ask for a terabyte
    shapes = eqx.filter_eval_shape(lambda: networks.as_network(make(**config, key=0)))
    if shapes.fingerprint() != stored["fingerprint"]:
        raise CheckpointError(f"{path}: the network's settings do not fit its fingerprint")
    network = make(**config, key=0)
    likelihood = _LIKELIHOODS[stored["likelihood"]["name"]](**stored["likelihood"]["arguments"])
    names = {str(name) for name in stored["where"]}
    where = None if stored["rest"] == "none" else lambda name, w: name in names
    rest = "frozen" if stored["rest"] == "frozen" else "point"
    options = {"where": where, "rest": rest, "compute_dtype": stored["compute_dtype"]}
    if stored["prior"]["name"] != "PerWeight":
        return Model(network, make_prior(stored["prior"]), likelihood, **options)
    plain = Model(network, priors.Gaussian(1.0), likelihood, **options)
    template = plain.for_targets(targets.inner, dtype).parameters
    if not stored["prior"]["likelihood"]:
        template = template._replace(likelihood=None)
    loc = _like(template, arrays, "prior.loc", path)
    stored_scales = sum(name.startswith("prior.scale/") for name in arrays)
    if stored_scales < len(jax.tree.leaves(template)):
        template = plain.bayesian(template)
    scale = _like(template, arrays, "prior.scale", path)
    return Model(network, priors.PerWeight(loc, scale), likelihood, **options)


def _with_fixed(model: Model, arrays: dict[str, np.ndarray], path: Path) -> Model:
    """The model with the frozen weights of the file."""
    if not isinstance(model.network, FrozenNetwork):
        raise CheckpointError(f"{path}: model= must have rest='frozen', as the file's has")
    fixed = _like(model.network.fixed, arrays, "fixed", path)
    return eqx.tree_at(lambda m: m.network.fixed, model, fixed)


def make_prior(node: dict[str, Any]) -> priors.Prior:
    """A prior from JSON."""
    if node["name"] == "ByPart":
        parts = {pattern: make_prior(prior) for pattern, prior in node["parts"]}
        return priors.ByPart(parts, make_prior(node["default"]))
    return _PRIORS[node["name"]](**node["arguments"])

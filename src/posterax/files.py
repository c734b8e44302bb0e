"""Files: a posterior in one safetensors file with a JSON header. Loading runs no code.

Networks of ``px.networks``, priors, likelihoods and posteriors are stored by name with their
settings; a network of the user's own is stored by a fingerprint and needs ``model=`` to load.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from . import networks, posteriors, priors
from ._bounds import (
    check_posterior,
    check_size,
    field,
    float_type,
    named,
    target_shapes,
    texts,
)
from ._named import LIKELIHOODS, as_call, describe_prior, has_config, make_network, make_prior
from ._recognise import bayesian_parts, check_model, check_parts, is_network
from ._tree import named_leaves, path_name
from ._version import __version__
from .checkpoint import (
    FORMAT,
    CheckpointError,
    circumstances,
    pack,
    read,
    shortened,
    unpack,
    write,
)
from .model import Model
from .networks.parts import FrozenNetwork
from .networks.sparse import SparseNetwork, pack_bits, unpack_bits
from .posteriors import Evidence, Posterior, Record
from .predictive import Targets

# what may be made from a file: these names and no others
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
        "interrupted": record.interrupted,
        "evidence": posterior.evidence,
        "written": circumstances(),
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
    arrays, header = opened(path)
    if "agent" in header:
        raise CheckpointError(f"{path}: holds an agent; px.bandits.load(path) reads it")
    with refusing(path):
        posterior = rebuild(arrays, header, model, path)
        if "estimator" not in header:
            return posterior
        from .tables import saved

        return saved.rebuild(posterior, header["estimator"], arrays, path)


def about(path: str | Path) -> dict[str, Any]:
    """What a file says of itself: its header, checked against its digest; nothing is built.

    ``written`` has the versions, the time and the device; ``method`` and ``settings`` say how it
    was fitted. Files of posterax 0.1 have no ``written``.

    Example:
        >>> import pathlib, tempfile
        >>> import posterax as px
        >>> from posterax import files
        >>> mlp = px.networks.MLP(1, 1, (4,), key=0)
        >>> model = px.Model(mlp, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "prior.px"
        >>> px.before_data(model, [[0.0]]).save(file)
        >>> files.about(file)["model"]["network"]["name"]
        'MLP'
    """
    return opened(Path(path))[1]


def opened(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and header of a file that is there."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    if not path.is_file():
        kind = "a directory" if path.is_dir() else "no file"
        raise CheckpointError(f"{path}: is {kind}; give the file that save wrote")
    return read(path)


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Whatever goes wrong inside is the file's fault, and said so in a line."""
    try:
        yield
    except (CheckpointError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise CheckpointError(
            f"{path}: damaged or inconsistent ({type(error).__name__}: {shortened(error)})"
        ) from error


def rebuild(
    arrays: dict[str, np.ndarray], header: dict[str, Any], model: Model | None, path: Path
) -> Posterior:
    """The posterior of what was read from a file."""
    targets = target_shapes(header, path)
    # a file of float64 is read as float32 where JAX has no other
    dtype = jax.dtypes.canonicalize_dtype(float_type(header, path))
    stored = field(header, "model", dict, path=path)
    by_name = model is None
    if model is None:
        model = _make_model(header, arrays, targets, dtype, path)
    else:
        check_model(model, header, path)
        model = _sparse(model, arrays, path)
    likelihood = model.likelihood
    own = jax.eval_shape(lambda: likelihood.init(targets.inner))
    check_size("the parameters of the likelihood", own, arrays, path)
    model = model.for_targets(targets.inner, dtype)
    inner = model.network.dense()
    if isinstance(inner, FrozenNetwork):
        fixed = _like(inner.fixed, arrays, "fixed", path, dtype, drawn=False)
        where = lambda m: m.network.fixed  # noqa: E731
        if isinstance(model.network, SparseNetwork):
            where = lambda m: m.network.network.fixed  # noqa: E731
        model = eqx.tree_at(where, model, fixed)
    if by_name:
        check_parts(model, stored, path)
    made = named(_POSTERIORS, {"name": header.get("posterior")}, "posterior", path)
    family = {
        name: _restore(node, arrays, model, path)
        for name, node in field(header, "family", dict, path=path).items()
    }
    state = _like(model.network.state, arrays, "state", path, dtype)
    history = {name: arrays[f"history/{name}"] for name in texts(header, "history", path)}
    record = Record(
        field(header, "method", str, path=path),
        field(header, "settings", dict, path=path),
        history,
        interrupted=header.get("interrupted", False) is True,
    )
    posterior = made(model, state, targets, record=record, evidence=_evidence(header), **family)
    check_posterior(posterior, path)
    return posterior


def _evidence(header: dict[str, Any]) -> Evidence | None:
    known = header.get("evidence")
    if known is None:
        return None
    types = [int | float, int | float, str][: max(2, len(known))]  # the first files have no kind
    if not isinstance(known, list) or not all(map(isinstance, known, types)) or True in known:
        raise ValueError(f"evidence {known}")
    return Evidence(float(known[0]), float(known[1]), *known[2:])


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


def _restore(node: Any, arrays: dict[str, np.ndarray], model: Model, path: Path) -> Any:
    if "value" in node:
        return field(node, "value", bool, int, float, str, type(None), path=path)
    if "dict" in node:
        found = field(node, "dict", dict, path=path)
        return {name: _restore(inside, arrays, model, path) for name, inside in found.items()}
    if "array" in node:
        return jnp.asarray(arrays[f"array/{node['array']}"])
    if "bayesian" in node:
        return _like(model.bayesian(model.parameters), arrays, node["bayesian"], path)
    if "some" in node:
        return _like(_only(texts(node, "of", path), model.parameters), arrays, node["some"], path)
    return _like(model.parameters, arrays, node["parameters"], path)


def _only(names: list[str], tree: Any) -> Any:
    """The tree's leaves with these names; ``None`` for the others."""
    wanted = set(names)
    return jax.tree_util.tree_map_with_path(
        lambda place, leaf: leaf if path_name(place) in wanted else None, tree
    )


def _like(
    template: Any,
    arrays: dict[str, np.ndarray],
    prefix: str,
    path: Path,
    dtype: Any = None,
    *,
    drawn: bool = True,
) -> Any:
    """A stored tree with the template's structure; what is drawn may have axes in front.

    Floats get the template's type, or ``dtype``: their width is no part of a model.
    """
    names = sorted(name for name in arrays if name.startswith(f"{prefix}/"))
    leaves, treedef = jax.tree.flatten(template)
    if len(names) != len(leaves):
        raise CheckpointError(
            f"{path}: {prefix} has {len(names)} arrays where the model needs {len(leaves)}"
        )
    sized, found = [], {}
    for name, place, leaf in zip(names, named_leaves(template), leaves, strict=True):
        # the first files had the names of Flax's variables with their attribute
        if name.split("/", 2)[-1].removesuffix(".value") != place.removesuffix(".value"):
            raise CheckpointError(f"{path}: {shortened(name)} where {prefix} needs {place}")
        value, kind = arrays[name], leaf.dtype
        front = value.shape[: value.ndim - leaf.ndim] if drawn else ()
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
    fits = lambda shapes: is_network(shapes, stored["fingerprint"], header["dtype"])  # noqa: E731
    network = make_network(stored["network"], arrays, path, fits)
    chosen = stored["likelihood"]
    likelihood = named(LIKELIHOODS, chosen, "likelihood", path)(**chosen["arguments"])
    if stored["rest"] not in ("none", "point", "frozen"):
        raise CheckpointError(f"{path}: its other weights are {shortened(stored['rest'])}")
    names = set(texts(stored, "where", path))
    where = None if stored["rest"] == "none" else lambda name, w: name in names
    rest = "frozen" if stored["rest"] == "frozen" else "point"
    precision = field(stored, "compute_dtype", str, type(None), path=path)
    options = {"where": where, "rest": rest, "compute_dtype": precision}
    if field(stored["prior"], "name", str, path=path) != "PerWeight":
        whole = Model(network, make_prior(stored["prior"], path), likelihood, **options)
        return _sparse(whole, arrays, path)
    plain = _sparse(Model(network, priors.Gaussian(1.0), likelihood, **options), arrays, path)
    template = plain.for_targets(targets.inner, dtype).parameters
    if not stored["prior"]["likelihood"]:
        template = template._replace(likelihood=None)
    loc = _like(template, arrays, "prior.loc", path, drawn=False)
    stored_scales = sum(name.startswith("prior.scale/") for name in arrays)
    if "scales" in stored["prior"]:  # what has none is a point
        template = _only(texts(stored["prior"], "scales", path), template)
    elif stored_scales < len(jax.tree.leaves(template)):
        template = plain.bayesian(template)
    scale = _like(template, arrays, "prior.scale", path, drawn=False)
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

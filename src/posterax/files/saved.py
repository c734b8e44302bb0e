"""Files: a posterior in one safetensors file with a JSON header. Loading runs no code.

Networks of ``px.networks``, priors, likelihoods and posteriors are stored by name with their
settings; a network of the user's own is stored by a fingerprint and needs ``model=`` to load.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import posteriors
from .._util.tree import named_leaves
from .._version import __version__
from ..errors import CheckpointError
from ..model import Model
from ..networks.parts import FrozenNetwork
from ..networks.sparse import SparseNetwork
from ..posteriors import Blend, Evidence, Posterior, Record
from . import blends
from .bounds import check_posterior, check_size, field, float_type, named, target_shapes, texts
from .container import (
    FORMAT,
    Arrays,
    circumstances,
    pack,
    read,
    refuse_not_finite,
    refusing,
    write,
)
from .models import (
    check_model,
    check_parts,
    describe_model,
    like,
    make_model,
    make_sparse,
    only,
    with_initial,
)
from .named import by_name

# what may be made from a file: these names and no others
_POSTERIORS = by_name(
    posteriors,
    *("Enumerated", "Factorized", "FullGaussian", "GaussianMixture", "LaplaceGaussian"),
    *("LowRankGaussian", "MeanFieldGaussian", "Draws", "DropoutPosterior", "Point"),
    *("PriorPosterior", "Radial", "WeightedDraws"),
)
# parts that tell of a fit, whatever it met on its way; and logarithms of what may be 0
_ANYTHING = ("stats", "path", "khat")
_LOGARITHMS = ("log_probs", "log_weights", "stats.log_weight")
_NUMBERS = ("units",)  # parts that are whole numbers; others are real
# what makes more of a posterior where the header has such an entry: imported when it is needed,
# since it stands above this room
_REBUILDERS = {"estimator": "posterax.tables.saved"}


def save(
    posterior: Posterior,
    path: str | Path,
    more: dict[str, Any] | None = None,
    more_arrays: Arrays | None = None,
) -> None:
    """Write a posterior to one file, whole or not at all; ``more`` is what an estimator adds."""
    header, arrays = described(posterior)
    header |= {"written": circumstances()} | (more or {})
    write(Path(path), arrays | (more_arrays or {}), header)


def described(posterior: Posterior) -> tuple[dict[str, Any], Arrays]:
    """The header and the arrays that a file holds of a posterior."""
    if isinstance(posterior, Blend):
        return blends.described(posterior, described)
    model = posterior.model
    arrays: Arrays = {}
    family = {
        name: store(value, name, arrays, model)
        for name, value in vars(posterior).items()
        if name not in ("model", "state", "targets", "record", "evidence")
    }
    arrays |= pack(posterior.state, "state")
    record = posterior.record or Record()
    arrays |= {f"history/{name}": np.asarray(v) for name, v in record.terms.items()}
    for name, (steps, values) in record.reports.items():
        arrays |= {f"report_steps/{name}": steps, f"reports/{name}": values}
    header = {
        "format": FORMAT,
        "posterax": __version__,
        "posterior": type(posterior).__name__,
        "family": family,
        "targets": list(map(list, posterior.targets)),
        "dtype": str(jax.tree.leaves(model.parameters)[0].dtype),
        "model": describe_model(model, arrays),
        "method": record.method,
        "history": list(record.terms),
        "reports": list(record.reports),
        "settings": record.settings,
        "interrupted": record.interrupted,
        "evidence": posterior.evidence,
    }
    return header, arrays


def load(path: str | Path, *, model: Model | None = None) -> Any:
    """Read a posterior, or an estimator, that was saved.

    Args:
        path: the file.
        model: the model, where its network, prior or likelihood is the user's own; its tree is
            checked against the file's.

    Example:
        >>> import pathlib, tempfile
        >>> import posterax as px
        >>> from posterax.demo import curve_data, curve_model
        >>> x, y = curve_data(8)
        >>> posterior = px.fit(curve_model(), (x, y), px.BayesByBackprop(), epochs=2, key=0)
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "line.px"
        >>> posterior.save(file)
        >>> same = px.load(file)
        >>> bool((same.predict(x, key=1).mean == posterior.predict(x, key=1).mean).all())
        True
    """
    path = Path(path)
    if not (model is None or isinstance(model, Model)):
        raise TypeError(f"model must be a px.Model, got {type(model).__name__}")
    arrays, header = read(path)
    if "agent" in header:
        raise CheckpointError(f"{path}: holds an agent; px.bandits.load(path) reads it")
    with refusing(path):
        posterior = rebuild(arrays, header, model)
        for entry, module in _REBUILDERS.items():
            if entry in header:
                rebuilder = import_module(module)
                return rebuilder.rebuild(posterior, header[entry], arrays)
        return posterior


def about(path: str | Path) -> dict[str, Any]:
    """What a file says of itself: its header, checked against its digest; nothing is built.

    ``written`` has the versions, the time and the device; ``method`` and ``settings`` say how it
    was fitted. Files of posterax 0.1 have no ``written``.

    Example:
        >>> import pathlib, tempfile
        >>> import posterax as px
        >>> from posterax import files
        >>> from posterax.demo import curve_model
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "prior.px"
        >>> px.prior_posterior(curve_model(), [[0.0]]).save(file)
        >>> files.about(file)["model"]["network"]["name"]
        'MLP'
    """
    return read(Path(path))[1]


def rebuild(arrays: Arrays, header: dict[str, Any], model: Model | None) -> Posterior:
    """The posterior of what was read from a file."""
    if header.get("posterior") == "Blend":
        return blends.rebuild(arrays, header, rebuild)
    targets = target_shapes(header)
    # a file of float64 is read as float32 where JAX has no other
    dtype = jax.dtypes.canonicalize_dtype(float_type(header))
    stored = field(header, "model", dict)
    by_name = model is None
    if model is None:
        model = make_model(header, arrays, targets, dtype)
    else:
        check_model(model, header)
        model = with_initial(make_sparse(model, arrays), stored)
    likelihood = model.likelihood
    own = jax.eval_shape(lambda: likelihood.init(targets.inner))
    check_size("the parameters of the likelihood", own, arrays)
    model = model.for_targets(targets.inner, dtype)
    inner = model.network.dense()
    if isinstance(inner, FrozenNetwork):
        fixed = like(inner.fixed, arrays, "fixed", dtype, drawn=False)
        pruned = isinstance(model.network, SparseNetwork)
        outside: Any = lambda m: m.network.network if pruned else m.network  # noqa: E731
        model = eqx.tree_at(lambda m: outside(m).fixed, model, fixed)
    if by_name:
        check_parts(model, stored)
    made = named(_POSTERIORS, {"name": header.get("posterior")}, "posterior")
    family = {
        name: restore(node, arrays, model, name)
        for name, node in field(header, "family", dict).items()
    }
    state = like(model.network.state, arrays, "state", dtype)
    header = {"reports": [], "interrupted": False} | header  # the first files have neither
    record = Record(
        field(header, "method", str),
        field(header, "settings", dict),
        {name: arrays[f"history/{name}"] for name in texts(header, "history")},
        interrupted=field(header, "interrupted", bool),
        reports={
            name: (arrays[f"report_steps/{name}"], arrays[f"reports/{name}"])
            for name in texts(header, "reports")
        },
    )
    posterior = made(model, state, targets, record=record, evidence=_evidence(header), **family)
    check_posterior(posterior)
    return posterior


def _evidence(header: dict[str, Any]) -> Evidence | None:
    known = header.get("evidence")
    if known is None:
        return None
    types = [int | float, int | float, str][: max(2, len(known))]  # the first files have no kind
    good = isinstance(known, list) and all(map(isinstance, known, types))
    if not good or any(isinstance(value, bool) for value in known):  # True is an int in Python
        raise ValueError(f"evidence {known}")
    return Evidence(float(known[0]), float(known[1]), *known[2:])


# -- what a posterior is made of: parameter trees, arrays, dictionaries, plain values


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


def restore(node: Any, arrays: Arrays, model: Model, name: str) -> Any:
    """A part of a posterior from JSON and arrays; ``name`` is the posterior's for it."""
    if "value" in node:
        value = field(node, "value", bool, int, float, str, type(None))
        if isinstance(value, float) and not _tells_of_a_fit(name):
            refuse_not_finite({name: value})
        return value
    if "dict" in node:
        parts = field(node, "dict", dict)
        return {n: restore(part, arrays, model, f"{name}.{n}") for n, part in parts.items()}
    if "array" in node:
        return _array(f"array/{field(node, 'array', str)}", arrays, name)
    if "bayesian" in node:
        return like(model.bayesian(model.parameters), arrays, node["bayesian"])
    if "some" in node:
        return like(only(texts(node, "of"), model.parameters), arrays, node["some"])
    return like(model.parameters, arrays, node["parameters"])


def _tells_of_a_fit(name: str) -> bool:
    return name.partition(".")[0] in _ANYTHING and name not in _LOGARITHMS


def _array(place: str, arrays: Arrays, name: str) -> jax.Array:
    """An array of the posterior's part ``name``."""
    array = jnp.asarray(arrays[place])
    if _tells_of_a_fit(name):
        return array
    kind = jnp.integer if name.partition(".")[0] in _NUMBERS else jnp.floating
    if not jnp.issubdtype(array.dtype, kind):
        raise CheckpointError(f"{place} is of type {array.dtype}, where {kind.__name__} belongs")
    refuse_not_finite({place: array}, least=-np.inf if name in _LOGARITHMS else np.nan)
    return array

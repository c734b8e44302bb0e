"""Estimators in files: their posterior's file, with settings and scaling in the header."""

import inspect
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from .. import priors
from ..errors import CheckpointError
from ..files import named as _named
from ..files import saved as files
from ..files.bounds import check_count, check_outputs, field, named, texts
from ..files.container import Arrays, shortened
from ..infer.base import Method
from ..networks.base import module_of
from ..posteriors import Blend, Posterior
from . import trees
from .base import BayesianEstimator
from .cards import check_card
from .classifier import BayesianClassifier
from .columns import Columns
from .recognise import Recognised
from .regressor import BayesianRegressor
from .standardise import Standardiser
from .targets import CHOICES

UNKNOWN = Recognised("real", "")  # of older files, which know no other kind
_ESTIMATORS: dict[str, Any] = {c.__name__: c for c in (BayesianClassifier, BayesianRegressor)}


def save(estimator: BayesianEstimator, path: str | Path) -> None:
    """Write an estimator to one file."""
    arrays: Arrays = {}
    arrays["estimator/x_shift"], arrays["estimator/x_scale"] = estimator.x_scaling_
    fitted: dict[str, Any] = {
        "n_features_in_": estimator.n_features_in_,
        "seeds": [estimator._network_seed, estimator._fit_seed, estimator._predict_seed],
        "updates_": estimator.updates_,
    }
    if hasattr(estimator, "columns_"):
        fitted["columns"] = estimator.columns_.as_json()
    if hasattr(estimator, "feature_names_in_"):
        fitted["feature_names_in_"] = list(estimator.feature_names_in_)
    if isinstance(estimator, BayesianClassifier):
        fitted["classes_"] = estimator.classes_.tolist()
        fitted["labels"] = _dtype_name(estimator.classes_.dtype)
    else:
        fitted["target_shape"] = list(estimator._target_shape)
        arrays["estimator/y_shift"], arrays["estimator/y_scale"] = estimator.y_scaling_
        arrays["estimator/spread"] = estimator.spread_
        if estimator.target_ != UNKNOWN:
            fitted["target"] = list(estimator.target_)
    if estimator.forests_ is not None:
        arrays |= trees.to_arrays(estimator.forests_)
    if isinstance(estimator.posterior_, Blend):
        fitted["tried"] = estimator.tried_
    params = {
        name: _described(name, value) for name, value in estimator.get_params(deep=False).items()
    }
    header = {"name": type(estimator).__name__, "params": params, "fitted": fitted}
    if hasattr(estimator, "card_"):
        header["card"] = estimator.card_
    files.save(estimator.posterior_, path, {"estimator": header}, arrays)


def rebuild(posterior: Posterior, header: dict[str, Any], arrays: Arrays) -> Any:
    """The estimator that was saved with its posterior; what does not fit it is refused."""
    kind = named(_ESTIMATORS, header, "estimator")
    known = inspect.signature(kind).parameters
    params = field(header, "params", dict)
    stored = {name: node for name, node in params.items() if name in known}
    estimator = kind(**_made_all(stored))
    samples = field({"samples": estimator.samples}, "samples", int, type(None))
    check_count("its samples", samples or 0, arrays)
    fitted = field(header, "fitted", dict)
    classifies = posterior.model.likelihood.kind == "classification"
    if classifies != (kind is BayesianClassifier):
        likelihood = type(posterior.model.likelihood).__name__
        raise CheckpointError(f"a {kind.__name__} cannot have the likelihood {likelihood}")
    for part in posterior.parts if isinstance(posterior, Blend) else (posterior,):
        check_outputs(part.model, part.targets)
    estimator.posterior_ = posterior
    _inputs(estimator, fitted, arrays)
    _blended(estimator, fitted, arrays, classifies)
    if classifies:
        estimator.classes_ = _classes(posterior, fitted, arrays)
    else:
        _targets(estimator, fitted, arrays)
    seeds = field(fitted, "seeds", list)
    if len(seeds) != 3:
        raise CheckpointError(f"{len(seeds)} seeds where 3 belong")
    estimator._network_seed, estimator._fit_seed, estimator._predict_seed = (
        _count({"seeds": seed}, "seeds") for seed in seeds
    )
    estimator.updates_ = _count(fitted, "updates_")
    if "card" in header:
        estimator.card_ = check_card(header["card"])
    return estimator


def _inputs(estimator: BayesianEstimator, fitted: dict[str, Any], arrays: Arrays) -> None:
    """From the table to the network's inputs, as many as it has."""
    wide = _network_size(estimator.posterior_, "in_size")
    shift, scale = (_numbers(arrays, name, (wide,)) for name in ("x_shift", "x_scale"))
    estimator.x_scaling_ = Standardiser(shift, scale)
    estimator.n_features_in_ = _count(fitted, "n_features_in_")
    features, names = wide, None
    if estimator.columns is not None or "columns" in fitted:
        columns = estimator.columns_ = Columns.from_json(fitted.get("columns"))
        features, names = len(columns.names), columns.names
        if len(columns.names_out) != wide:
            raise CheckpointError("its columns do not fit its network")
        count = len(columns.fills)
        with np.errstate(over="ignore"):
            filled = ((columns.fills - shift[:count]) / scale[:count]).astype(np.float32)
        if not np.all(np.isfinite(filled)):
            raise CheckpointError("what fills the gaps of its columns is no such value")
    if estimator.n_features_in_ != features:
        raise CheckpointError(
            f"{estimator.n_features_in_} features where its network needs {features}"
        )
    if "feature_names_in_" in fitted:
        stored = texts(fitted, "feature_names_in_")
        if len(stored) != features or names not in (None, stored):
            raise CheckpointError("the names of its features are not those of its columns")
        estimator.feature_names_in_ = np.array(stored, dtype=object)


def _blended(
    estimator: BayesianEstimator, fitted: dict[str, Any], arrays: Arrays, classifies: bool
) -> None:
    """The trees that a blend builds on, as many as it has folds, and what was tried."""
    estimator.forests_ = None
    posterior = estimator.posterior_
    if not isinstance(posterior, Blend):
        return
    estimator.tried_ = field(fitted, "tried", list)
    for line in estimator.tried_:
        field(line, "model", str, of="list of models")
        for name in ("nll", "weight", "width", "seconds"):
            field(line, name, int, float, of="list of models")
    if not any(posterior.based):
        return
    wide = _network_size(posterior, "in_size")
    forests = trees.from_arrays(arrays, wide, classifies)
    outputs = len(forests.each[0].constant)
    outputs = 2 if classifies and outputs == 1 else outputs
    if (len(forests.each), outputs) != (posterior.folds, posterior.own):
        raise CheckpointError("its trees are not those that its networks build on")
    estimator.forests_ = forests


def _dtype_name(dtype: np.dtype) -> str:
    return "object" if dtype.kind == "O" else dtype.str


def _classes(posterior: Posterior, fitted: dict[str, Any], arrays: Arrays) -> np.ndarray:
    """The labels: of one type, each once, in order, and one for each output."""
    stored = field(fitted, "classes_", list)
    name = field(fitted, "labels", str)
    dtype, kinds = np.dtype(name), {type(label) for label in stored}
    plain = len(kinds) == 1 and kinds <= {str, bool, int, float}
    if dtype.kind not in "biufUO" or name != _dtype_name(dtype) or not plain:
        raise CheckpointError(f"labels of type {dtype} cannot be {shortened(stored)}")
    if dtype.kind == "U":  # each takes as much as the longest may
        check_count("its labels", len(stored) * dtype.itemsize // 4, arrays)
    if not all(a < b for a, b in pairwise(stored)):
        raise CheckpointError("its classes are not in order, or one is there twice")
    labels = np.array(stored, dtype)
    if labels.tolist() != stored or {type(label) for label in labels.tolist()} != kinds:
        raise CheckpointError(f"{shortened(stored)} are no labels of type {dtype}")
    if _network_size(posterior, "out_size") != max(2, len(stored)):
        raise CheckpointError(f"{len(stored)} classes do not fit its network")
    return labels


def _network_size(posterior: Posterior, name: str) -> int:
    """How many inputs or outputs the network has."""
    return field(vars(module_of(posterior.model.network)), name, int)


def _targets(estimator: BayesianEstimator, fitted: dict[str, Any], arrays: Arrays) -> None:
    """From the network's outputs to the units of y."""
    shape = tuple(field(fitted, "target_shape", list))
    if shape != estimator.posterior_.targets.given:
        raise CheckpointError(f"targets of the shape {shortened(shape)} do not fit it")
    wide = (int(np.prod(shape)),)
    shift, scale = (_numbers(arrays, name, wide) for name in ("y_shift", "y_scale"))
    estimator._target_shape, estimator.n_outputs_ = shape, wide[0]
    estimator.y_scaling_ = Standardiser(shift, scale)
    estimator.spread_ = _numbers(arrays, "spread", shape)
    known = fitted.get("target", list(UNKNOWN))
    if not (isinstance(known, list) and len(known) == 2 and all(isinstance(t, str) for t in known)):
        raise CheckpointError(f"its kind of target cannot be {shortened(known)}")
    if CHOICES.get(known[0]) is None:
        raise CheckpointError(f"its kind of target cannot be {shortened(known[0])}")
    estimator.target_ = Recognised(*known)


def _numbers(arrays: Arrays, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Shifts, scales or spreads: of this shape, finite, and but for shifts above 0."""
    array = arrays.get(f"estimator/{name}")
    if array is None or array.shape != shape or array.dtype.kind != "f":
        stored = "missing" if array is None else f"{array.dtype}{list(array.shape)}"
        raise CheckpointError(f"{name} is {stored} where numbers{list(shape)} belong")
    if not np.all(np.isfinite(array)) or not (name.endswith("shift") or np.all(array > 0)):
        raise CheckpointError(f"{name} must be finite, and above 0 unless it is a shift")
    return array


def _count(fitted: dict[str, Any], name: str) -> int:
    value = field(fitted, name, int)
    if not 0 <= value < 2**31:
        raise CheckpointError(f"{name!r} cannot be {shortened(value)}")
    return int(value)


def _described(name: str, value: Any) -> Any:  # noqa: PLR0911
    """A setting in JSON."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    if type(value) in (tuple, list) and all(map(_simple, value)):
        return {"list": [_described(name, item) for item in value], "tuple": type(value) is tuple}
    if isinstance(value, dict) and all(map(_simple, [*value, *value.values()])):
        pairs = [(_described(name, k), _described(name, v)) for k, v in value.items()]
        return {"dict": pairs}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    if isinstance(value, priors.Prior) and (prior := _named.describe_prior(value)) is not None:
        return {"prior": prior}
    if isinstance(value, Method) and type(value).__name__ in _named.METHODS:
        settings = {key: _described(f"{name}.{key}", v) for key, v in vars(value).items()}
        return {"method": type(value).__name__, "settings": settings}
    warnings.warn(
        f"{name}={value!r} has no saved form: the loaded estimator predicts the same, but its "
        f"{name} will be the default",
        stacklevel=4,
    )
    return {"dropped": repr(value)}


def _simple(value: Any) -> bool:
    """Whether a setting inside a list has a saved form."""
    if isinstance(value, tuple | list):
        return all(map(_simple, value))
    return value is None or isinstance(value, bool | int | float | str | np.generic)


def _made_all(nodes: dict[str, Any]) -> dict[str, Any]:
    """Settings from JSON; those without a saved form are left to their defaults."""
    return {name: _made(node) for name, node in nodes.items() if "dropped" not in node}


def _made(node: Any) -> Any:
    """A setting from JSON."""
    if "list" in node:
        items = [_made(item) for item in node["list"]]
        return tuple(items) if field(node, "tuple", bool) else items
    if "dict" in node:
        return {_made(k): _made(v) for k, v in node["dict"]}
    if "array" in node:
        return np.array(node["array"])
    if "prior" in node:
        return _named.make_prior(node["prior"])
    if "method" in node:
        return _named.METHODS[node["method"]](**_made_all(node["settings"]))
    return field(node, "value", bool, int, float, str, type(None))

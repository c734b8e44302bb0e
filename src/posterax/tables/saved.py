"""Estimators in files: their posterior's file, with settings and scaling in the header."""

import inspect
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .. import files, infer, priors
from ..checkpoint import CheckpointError
from ..infer.base import Method
from ..posteriors import Posterior
from .classifier import BayesianClassifier
from .columns import Columns
from .regressor import BayesianRegressor
from .standardise import Standardiser

_ESTIMATORS: dict[str, Any] = {c.__name__: c for c in (BayesianClassifier, BayesianRegressor)}
_METHODS = {
    name: value
    for name, value in vars(infer).items()
    if isinstance(value, type) and issubclass(value, Method)
}


def save(estimator: Any, path: str | Path) -> None:
    """Write an estimator to one file."""
    arrays = {"estimator/x_shift": estimator.x_scaling_.shift}
    arrays |= {"estimator/x_scale": estimator.x_scaling_.scale}
    fitted: dict[str, Any] = {
        "n_features_in_": estimator.n_features_in_,
        "seeds": [estimator._network_seed, estimator._fit_seed, estimator._predict_seed],
        "updates_": estimator.updates_,
    }
    if estimator.columns is not None:
        fitted["columns"] = estimator.columns_.as_json()
    if hasattr(estimator, "feature_names_in_"):
        fitted["feature_names_in_"] = list(estimator.feature_names_in_)
    if isinstance(estimator, BayesianClassifier):
        classes = estimator.classes_
        fitted["classes_"] = classes.tolist()
        fitted["labels"] = "object" if classes.dtype == object else classes.dtype.str
    else:
        fitted["target_shape"] = list(estimator._target_shape)
        arrays["estimator/y_shift"], arrays["estimator/y_scale"] = estimator.y_scaling_
        arrays["estimator/spread"] = estimator.spread_
    params = {
        name: _described(name, value) for name, value in estimator.get_params(deep=False).items()
    }
    header = {"name": type(estimator).__name__, "params": params, "fitted": fitted}
    if hasattr(estimator, "card_"):
        header["card"] = estimator.card_
    files.save(estimator.posterior_, path, {"estimator": header}, arrays)


def rebuild(
    posterior: Posterior, header: dict[str, Any], arrays: dict[str, np.ndarray], path: Path
) -> Any:
    """The estimator that was saved with its posterior."""
    kind = _ESTIMATORS.get(str(header["name"]))
    if kind is None:
        raise CheckpointError(f"{path}: holds an estimator of unknown kind {header['name']!r}")
    known = inspect.signature(kind).parameters
    stored = {name: _made(node) for name, node in header["params"].items() if name in known}
    estimator = kind(**{name: value for name, (value, kept) in stored.items() if kept})
    fitted = header["fitted"]
    estimator.posterior_ = posterior
    estimator.x_scaling_ = Standardiser(arrays["estimator/x_shift"], arrays["estimator/x_scale"])
    estimator.n_features_in_ = int(fitted["n_features_in_"])
    seeds = [int(seed) for seed in fitted["seeds"]]
    estimator._network_seed, estimator._fit_seed, estimator._predict_seed = seeds
    estimator.updates_ = int(fitted["updates_"])
    if estimator.columns is not None or "columns" in fitted:
        estimator.columns_ = Columns.from_json(fitted["columns"])
        wide = (len(estimator.columns_.names_out),)
        if estimator.columns != "auto" or estimator.x_scaling_.shift.shape != wide:
            raise CheckpointError(f"{path}: its columns do not fit its network")
    if "card" in header:
        estimator.card_ = dict(header["card"])
    if "feature_names_in_" in fitted:
        estimator.feature_names_in_ = np.array(fitted["feature_names_in_"], dtype=object)
    if kind is BayesianClassifier:
        estimator.classes_ = np.array(fitted["classes_"], dtype=fitted["labels"])
    else:
        estimator._target_shape = tuple(int(d) for d in fitted["target_shape"])
        shift, scale = arrays["estimator/y_shift"], arrays["estimator/y_scale"]
        estimator.y_scaling_, estimator.n_outputs_ = Standardiser(shift, scale), len(shift)
        estimator.spread_ = arrays["estimator/spread"]
    return estimator


def _described(name: str, value: Any) -> Any:  # noqa: PLR0911
    """A setting in JSON."""
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    if isinstance(value, np.generic):
        return {"value": value.item()}
    if type(value) in (tuple, list) and all(map(_simple, value)):
        return {"list": [_described(name, item) for item in value], "tuple": type(value) is tuple}
    if isinstance(value, dict) and all(map(_simple, [*value, *value.values()])):
        pairs = [(_described(name, k), _described(name, v)) for k, v in value.items()]
        return {"dict": pairs}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    if isinstance(value, priors.Prior):
        prior = files.describe_prior(value)
        if prior is not None:
            return {"prior": prior}
    if isinstance(value, Method) and type(value).__name__ in _METHODS:
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


def _made(node: Any) -> tuple[Any, bool]:  # noqa: PLR0911
    """A setting from JSON, and whether it was kept."""
    if "dropped" in node:
        return None, False
    if "list" in node:
        items = [_made(item)[0] for item in node["list"]]
        return (tuple(items) if node["tuple"] else items), True
    if "dict" in node:
        return {_made(k)[0]: _made(v)[0] for k, v in node["dict"]}, True
    if "array" in node:
        return np.array(node["array"]), True
    if "prior" in node:
        return files.make_prior(node["prior"]), True
    if "method" in node:
        settings = {key: _made(value) for key, value in node["settings"].items()}
        kept = {key: value for key, (value, stored) in settings.items() if stored}
        return _METHODS[node["method"]](**kept), True
    return node["value"], True

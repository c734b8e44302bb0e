"""Networks, priors and likelihoods by name: what a file may make, and no others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from . import likelihoods, networks, priors
from ._bounds import check_config, check_size, named
from .checkpoint import CheckpointError

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


def make_prior(node: Any, path: Path = Path("header")) -> priors.Prior:
    """A prior from JSON."""
    if isinstance(node, dict) and node.get("name") == "ByPart":
        parts = {pattern: make_prior(prior, path) for pattern, prior in node["parts"]}
        return priors.ByPart(parts, make_prior(node["default"], path))
    return named(_PRIORS, node, "prior", path)(**node["arguments"])


def make_network(
    node: Any, arrays: dict[str, np.ndarray], path: Path, fits: Callable[[Any], bool] | None = None
) -> Any:
    """A network of ``px.networks`` by name, once its shapes are known to be those of the file."""
    make = named(networks.BY_NAME, node, "network", path)
    config = check_config(node["config"], path)
    # shapes first, without allocating: a damaged header must not ask for a terabyte
    shapes = eqx.filter_eval_shape(lambda: networks.as_network(make(**config, key=0)))
    check_size("the network", shapes, arrays, path)
    if fits is not None and not fits(shapes):
        raise CheckpointError(f"{path}: the network's settings do not fit its fingerprint")
    return make(**config, key=0)

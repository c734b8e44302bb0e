"""Networks, priors, likelihoods and methods by name: what a file may make, and no others."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .. import infer, likelihoods, networks, priors
from .._methods import CLASSES
from ..errors import CheckpointError
from ..infer.base import Method
from .bounds import LAYERS, check_config, check_size, field, named
from .container import Arrays, refuse_not_finite, shortened


def by_name(module: ModuleType, *names: str) -> dict[str, Any]:
    """Classes of a module that a file may name."""
    return {name: getattr(module, name) for name in names}


_PRIORS = by_name(priors, "Flat", "Gaussian", "Grid", "Hierarchical", "Laplace", "ScaleMixture")
LIKELIHOODS = by_name(
    likelihoods,
    *("Gaussian", "StudentT", "MultivariateGaussian", "Categorical", "Bernoulli", "Poisson"),
    *("LogNormal", "NegativeBinomial", "Beta", "ZeroInflatedLogNormal"),
)
METHODS: dict[str, type[Method]] = by_name(infer, *CLASSES)


def config_of(module: Any) -> dict[str, Any] | None:
    """The arguments that make a network of ``px.networks`` again; ``None`` for the user's own."""
    if networks.BY_NAME.get(type(module).__name__) is not type(module):
        return None
    try:
        return module.config()
    except ValueError:  # an activation of the user's own
        return None


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


def make_prior(node: Any, most: int = LAYERS) -> priors.Prior:
    """A prior from JSON; of parts there are at ``most`` as many as weights they could be of."""
    if isinstance(node, dict) and node.get("name") == "ByPart":
        if len(node["parts"]) > most:
            raise CheckpointError(f"a prior of {len(node['parts']):,} parts")
        parts = {pattern: make_prior(prior, most) for pattern, prior in node["parts"]}
        return priors.ByPart(parts, make_prior(node["default"], most))
    return _called(_PRIORS, node, "prior")


def make_likelihood(node: Any) -> likelihoods.Likelihood:
    """A likelihood from JSON."""
    return _called(LIKELIHOODS, node, "likelihood")


def _called(known: dict[str, Any], node: Any, what: str) -> Any:
    make, arguments = named(known, node, what), field(node, "arguments", dict)
    for name, value in arguments.items():
        if isinstance(value, int | float | list):
            refuse_not_finite({f"{name} of a {what}": np.asarray(value, np.float64)})
    made = make(**arguments)
    for name, value in arguments.items():  # a list is true, and True is a number
        if isinstance(value, bool) != isinstance(getattr(made, name, value), bool):
            raise CheckpointError(f"{name!r} of a {what} cannot be {shortened(value)}")
    return made


def make_network(
    node: Any, arrays: Arrays, most: int, fits: Callable[[Any], bool] | None = None
) -> Any:
    """A network of ``px.networks`` by name, once its shapes are known to be those of the file.

    ``most`` layers are what the file can hold.
    """
    make = named(networks.BY_NAME, node, "network")
    config = check_config(node["config"], most, make.of_inputs)
    # shapes first, without allocating: a damaged header must not ask for a terabyte
    shapes = eqx.filter_eval_shape(lambda: networks.as_network(make(**config, key=0)))
    check_size("the network", shapes, arrays)
    if fits is not None and not fits(shapes):
        raise CheckpointError("the network's settings do not fit its fingerprint")
    return make(**config, key=0)

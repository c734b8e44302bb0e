"""posterax: a posterior over the weights of any neural network.

One model, one ``fit``, one ``Predictive``, whatever the method:

    model = px.Model(network, prior, likelihood)
    posterior = px.fit(model, (x, y), px.BayesByBackprop(), epochs=50, key=0)
    predictive = posterior.predict(x_new, samples=100, key=1)
    predictive.mean, predictive.epistemic, predictive.aleatoric, predictive.interval(0.9)
"""

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ._version import __version__

if os.environ.get("POSTERAX_MULTI_OUTPUT_FUSION") == "1":
    from . import _xla as _xla  # first: nothing may compile before it

if TYPE_CHECKING:
    from . import (
        active,
        augment,
        bandits,
        callbacks,
        data,
        files,
        information,
        likelihoods,
        metrics,
        networks,
        optim,
        plot,
        priors,
        pruning,
        recalibrate,
        report,
        selection,
    )
    from .checkpoint import CheckpointError
    from .deciding import decide
    from .errors import NonFiniteError, StuckError
    from .files import load
    from .fit import Checkpoint, fit
    from .infer import (
        HMC,
        IVON,
        MCLMC,
        NUTS,
        SGHMC,
        SGLD,
        SMC,
        SVGD,
        SWAG,
        BayesByBackprop,
        BlackBoxVI,
        Conjugate,
        DeepEnsemble,
        Enumeration,
        ImportanceSampling,
        Laplace,
        MaximumAPosteriori,
        MaximumLikelihood,
        MCDropout,
        Metropolis,
        SimulatedAnnealing,
    )
    from .model import Model, Parameters
    from .posteriors import Posterior, before_data
    from .predictive import Predictive
    from .pruning.prune import prune
    from .selection.compare import compare
    from .tables import BayesianClassifier, BayesianRegressor
    from .validation import Validation

__all__ = [
    "HMC",
    "IVON",
    "MCLMC",
    "NUTS",
    "SGHMC",
    "SGLD",
    "SMC",
    "SVGD",
    "SWAG",
    "BayesByBackprop",
    "BayesianClassifier",
    "BayesianRegressor",
    "BlackBoxVI",
    "Checkpoint",
    "CheckpointError",
    "Conjugate",
    "DeepEnsemble",
    "Enumeration",
    "ImportanceSampling",
    "Laplace",
    "MCDropout",
    "MaximumAPosteriori",
    "MaximumLikelihood",
    "Metropolis",
    "Model",
    "NonFiniteError",
    "Parameters",
    "Posterior",
    "Predictive",
    "SimulatedAnnealing",
    "StuckError",
    "Validation",
    "__version__",
    "active",
    "augment",
    "bandits",
    "before_data",
    "callbacks",
    "compare",
    "data",
    "decide",
    "files",
    "fit",
    "information",
    "likelihoods",
    "load",
    "metrics",
    "networks",
    "optim",
    "plot",
    "priors",
    "prune",
    "pruning",
    "recalibrate",
    "report",
    "selection",
]

# Names are imported when they are first used: JAX and all that stands on it take seconds, which
# ``posterax --help`` need not wait for. What is not here is a module of its own name.
_PLACES = {
    "checkpoint": ("CheckpointError",),
    "deciding": ("decide",),
    "errors": ("NonFiniteError", "StuckError"),
    "files": ("load",),
    "fit": ("Checkpoint",),
    "infer": (
        *("HMC", "IVON", "MCLMC", "NUTS", "SGHMC", "SGLD", "SMC", "SVGD", "SWAG"),
        *("BayesByBackprop", "BlackBoxVI", "Conjugate", "DeepEnsemble", "Enumeration"),
        *("ImportanceSampling", "Laplace", "MCDropout", "MaximumAPosteriori"),
        *("MaximumLikelihood", "Metropolis", "SimulatedAnnealing"),
    ),
    "model": ("Model", "Parameters"),
    "posteriors": ("Posterior", "before_data"),
    "predictive": ("Predictive",),
    "pruning": ("prune",),
    "selection": ("compare",),
    "tables": ("BayesianClassifier", "BayesianRegressor"),
    "validation": ("Validation",),
}
_PLACE = {name: module for module, names in _PLACES.items() for name in names}


def _find(name: str) -> Any:
    if name in _PLACE:
        value = getattr(import_module(f".{_PLACE[name]}", __name__), name)
    elif name.isidentifier() and name[:2] != "__" and find_spec(f"{__name__}.{name}") is not None:
        value = import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


if not TYPE_CHECKING:  # a type checker would take any name for one of ours
    __getattr__ = _find


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


class _Package(ModuleType):
    """``fit`` is a function, and the module it is in has the same name: the function wins."""

    def __reduce__(self) -> Any:  # joblib's pickle knows modules by their exact type
        return import_module, (self.__name__,)

    @property
    def fit(self) -> Any:
        return vars(self).get("_other_fit") or import_module(".fit", __name__).fit

    @fit.setter
    def fit(self, value: Any) -> None:
        if not isinstance(value, ModuleType):  # which is what importing the module sets
            vars(self)["_other_fit"] = value

    @fit.deleter
    def fit(self) -> None:  # whoever put another there takes it away again
        vars(self).pop("_other_fit", None)


sys.modules[__name__].__class__ = _Package

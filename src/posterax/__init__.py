"""posterax: a posterior over the weights of any neural network.

One model, one ``fit``, one ``Predictive``, whatever the method:

    model = px.Model(network, prior, likelihood)
    posterior = px.fit(model, (x, y), px.BayesByBackprop(), epochs=50, key=0)
    predictive = posterior.predict(x_new, samples=100, key=1)
    predictive.mean, predictive.epistemic, predictive.aleatoric, predictive.interval(0.9)
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ._methods import CLASSES
from ._version import __version__

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
    from ._util.machine import fix_threads
    from .deciding import decide
    from .errors import CheckpointError, ConvergenceWarning, NonFiniteError, StuckError
    from .files import load
    from .fitting.fit import Checkpoint, fit
    from .fitting.validation import Validation
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
    from .posteriors import Posterior, before_data, prior_posterior
    from .predictive import Predictive
    from .pruning.prune import prune
    from .selection.compare import compare
    from .tables import BayesianClassifier, BayesianRegressor

# Names are imported when they are first used: JAX and all that stands on it take seconds, which
# ``posterax --help`` need not wait for. Each name of a module here is one of ours; the modules
# below are known by their own names.
_NAMES = {
    "_util.machine": ("fix_threads",),
    "deciding": ("decide",),
    "errors": ("CheckpointError", "ConvergenceWarning", "NonFiniteError", "StuckError"),
    "files": ("load",),
    "fitting.fit": ("Checkpoint", "fit"),
    "fitting.validation": ("Validation",),
    "infer": CLASSES,
    "model": ("Model", "Parameters"),
    "posteriors": ("Posterior", "before_data", "prior_posterior"),
    "predictive": ("Predictive",),
    "pruning": ("prune",),
    "selection": ("compare",),
    "tables": ("BayesianClassifier", "BayesianRegressor"),
}
_MODULES = (
    *("active", "augment", "bandits", "callbacks", "data", "files", "information", "likelihoods"),
    *("metrics", "networks", "optim", "plot", "priors", "pruning", "recalibrate", "report"),
    *("selection",),
)
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(["__version__", *_MODULES, *_MODULE_OF])  # noqa: PLE0605


def _find(name: str) -> Any:
    if name in _MODULE_OF:
        value = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
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

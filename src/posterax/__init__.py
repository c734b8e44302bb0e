"""posterax: a posterior over the weights of any neural network.

One model, one ``fit``, one ``Predictive``, whatever the method:

    model = px.Model(network, prior, likelihood)
    posterior = px.fit(model, (x, y), px.BayesByBackprop(), epochs=50, key=0)
    predictive = posterior.predict(x_new, samples=100, key=1)
    predictive.mean, predictive.epistemic, predictive.aleatoric, predictive.interval(0.9)
"""

# isort: off
from . import _xla as _xla  # first: nothing may compile before it

# isort: on
from . import (
    active,
    augment,
    bandits,
    callbacks,
    data,
    information,
    likelihoods,
    metrics,
    networks,
    optim,
    plot,
    priors,
    pruning,
    recalibrate,
    selection,
)
from ._version import __version__
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
from .pruning import prune
from .selection import compare
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
    "selection",
]

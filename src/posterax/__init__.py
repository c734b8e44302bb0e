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
from . import augment, callbacks, data, likelihoods, metrics, networks, plot, priors
from ._version import __version__
from .checkpoint import CheckpointError
from .files import load
from .fit import Checkpoint, fit
from .infer import (
    NUTS,
    BayesByBackprop,
    DeepEnsemble,
    ImportanceSampling,
    MaximumAPosteriori,
    MaximumLikelihood,
)
from .model import Model, Parameters
from .posteriors import Posterior, before_data
from .predictive import Predictive
from .run import NonFiniteError
from .tables import BayesianClassifier, BayesianRegressor
from .validation import Validation

__all__ = [
    "NUTS",
    "BayesByBackprop",
    "BayesianClassifier",
    "BayesianRegressor",
    "Checkpoint",
    "CheckpointError",
    "DeepEnsemble",
    "ImportanceSampling",
    "MaximumAPosteriori",
    "MaximumLikelihood",
    "Model",
    "NonFiniteError",
    "Parameters",
    "Posterior",
    "Predictive",
    "Validation",
    "__version__",
    "augment",
    "before_data",
    "callbacks",
    "data",
    "fit",
    "likelihoods",
    "load",
    "metrics",
    "networks",
    "plot",
    "priors",
]

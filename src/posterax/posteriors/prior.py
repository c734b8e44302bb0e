"""The prior in the role of a posterior: what the model believes before any data."""

import warnings

import jax
from jaxtyping import PyTree

from .._util.admit import admit_inputs
from ..model import Model, Parameters
from ..predictive import Targets
from .base import Posterior


class PriorPosterior(Posterior):
    """Draws from the prior; its ``predict`` is the prior predictive."""

    def parameters(self, identity: PyTree) -> Parameters:
        return self.model.sample_prior(identity)

    def log_prob(self, parameters: Parameters) -> jax.Array:
        """log p(w)."""
        return self.model.log_prior(parameters)

    def moments(self) -> tuple[Parameters, Parameters]:
        raise ValueError("the prior before data has no moments to start or go on from")


def prior_posterior(
    model: Model, x: PyTree, target_shape: tuple[int, ...] | None = None
) -> Posterior:
    """The model before data, to look at its prior predictive.

    Args:
        model: the model.
        x: inputs like those it will be given, to find the shape of its outputs.
        target_shape: the shape of one target (default: what the likelihood reads off the outputs).

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> from posterax.demo import curve_model
        >>> x = np.zeros((4, 1), "float32")
        >>> px.prior_posterior(curve_model(), x).predict(x, samples=20, key=0).sample().shape
        (20, 4)
    """
    shape = model.output_shape(admit_inputs(x))[1:]
    inner = model.likelihood.target_for(shape) if target_shape is None else target_shape
    model = model.for_targets(inner, jax.tree.leaves(model.parameters)[0].dtype)
    given = () if inner == (1,) else inner
    return PriorPosterior(model, model.network.state, Targets(given, inner))


def before_data(model: Model, x: PyTree, target_shape: tuple[int, ...] | None = None) -> Posterior:
    """The old name of ``prior_posterior``."""
    warnings.warn("px.before_data is now called px.prior_posterior", FutureWarning, stacklevel=2)
    return prior_posterior(model, x, target_shape)

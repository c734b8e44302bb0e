"""Means and deviations of a posterior's weights, by the names of their arrays."""

import equinox as eqx
import numpy as np

from .._util.tree import named_leaves, plain
from ..model import Parameters
from ..networks.parts import Where, select
from .base import Posterior
from .gaussian import MeanFieldGaussian


def named_moments(
    posterior: Posterior, where: Where | None = None
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Mean and deviation, in float64, of the arrays that have a prior and that ``where`` chooses.

    Example:
        >>> import posterax as px
        >>> from posterax.demo import curve_data, curve_model
        >>> from posterax.posteriors.named_moments import named_moments
        >>> posterior = px.fit(curve_model(), curve_data(16), px.BayesByBackprop(), steps=5, key=0)
        >>> list(named_moments(posterior, "layers.0.*")[0])
        ['network.layers.0.weight', 'network.layers.0.bias']
    """
    names = list(named_leaves(posterior.model.bayesian(posterior.model.parameters)))
    if where is not None:
        chosen = named_leaves(select(posterior.model.parameters.network, where))
        names = [f"network.{n}" for n, yes in chosen.items() if yes and f"network.{n}" in names]
    trees = [named_leaves(tree) for tree in moments_of(posterior)]
    mean, std = ({n: plain(tree[n]).astype(np.float64) for n in names} for tree in trees)
    return mean, std


def moments_of(posterior: Posterior) -> tuple[Parameters, Parameters]:
    """Mean and standard deviation of every parameter, as trees."""
    # one program in the place of one for each operation of softplus and each shape
    if isinstance(posterior, MeanFieldGaussian):
        return _compiled_moments(posterior.bare())
    return posterior.moments()


@eqx.filter_jit
def _compiled_moments(posterior: Posterior) -> tuple[Parameters, Parameters]:
    return posterior.moments()

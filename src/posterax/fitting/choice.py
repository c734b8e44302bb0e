"""The method of a fit for which none is named.

The posterior itself where a pass over all data is cheap: chains of ``px.MCLMC``, whose predictions
and spreads are the nearest to a long run's. Where it is not, five variational fits from different
starts, ``px.DeepEnsemble(inside=px.BayesByBackprop())``, which take minibatches: a single one
knows one mode and is too sure of it. docs/results/temperature.md has the figures.
"""

from typing import Any

import jax

from .._util.tree import tree_size
from ..data import Padded, is_batches, unpack
from ..infer import MCLMC, BayesByBackprop, DeepEnsemble
from ..infer.base import Method
from ..model import Model

CHEAP = 1_000_000  # rows × weights up to which chains take about as long as the variational fits


def choose_method(model: Model, data: Any, *, minibatches: bool = False) -> Method:
    """What ``px.fit`` takes where no method is named.

    Args:
        model: the model; chains need a prior for each weight, and no batch statistics.
        data: ``(x, y)``, ``(x, y, weight)``, or a source of batches, which chains cannot take.
        minibatches: whether options of the fit ask for these.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> from posterax.fitting.choice import choose_method
        >>> network = px.networks.MLP(1, 1, (50,), key=0)
        >>> model = px.Model(network, likelihood=px.likelihoods.Gaussian())
        >>> few, many = ((np.zeros((n, 1)), np.zeros(n)) for n in (100, 100_000))
        >>> [type(choose_method(model, data)).__name__ for data in (few, many)]
        ['MCLMC', 'DeepEnsemble']
    """
    weights = tree_size(model.parameters)
    sampled = (
        not minibatches
        and 1 < weights == model.bayesian_size
        and not jax.tree.leaves(model.network.state)
        and _rows(data) * weights <= CHEAP
    )
    return MCLMC() if sampled else DeepEnsemble(inside=BayesByBackprop())


def _rows(data: Any) -> float:
    """How many there are; data that is no good is refused later, in words of its own."""
    if isinstance(data, Padded):
        data = data.data
    if not isinstance(data, tuple | list) or is_batches(data):
        return float("inf")
    try:
        return len(unpack(data)[1])
    except (TypeError, ValueError):
        return float("inf")

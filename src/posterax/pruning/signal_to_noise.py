r"""By what weights are ordered when some have to go."""

import numpy as np

from .._util.checks import one_of
from ..networks.parts import Where
from ..posteriors import Posterior
from ..posteriors.named_moments import named_moments
from .families import check_posterior

SIGNAL_TO_NOISE, MAGNITUDE = "signal_to_noise", "magnitude"


def signal_to_noise(posterior: Posterior, where: Where | None = None) -> dict[str, np.ndarray]:
    r"""The signal-to-noise ratio 10 log₁₀(|μ| / σ) of every weight, in decibels, by array.

    −∞ for a mean of 0. ``px.plot.signal_to_noise`` draws how it is spread.

    Args:
        posterior: of a method that gives weights a deviation.
        where: which arrays, as in ``px.Model`` (default: all of the network's that have a prior,
            biases among them).

    Example:
        >>> import posterax as px
        >>> from posterax.demo import curve_data, curve_model
        >>> model = curve_model(hidden_sizes=(4,))
        >>> posterior = px.fit(model, curve_data(16), px.BayesByBackprop(), steps=5, key=0)
        >>> {name: ratio.shape for name, ratio in px.pruning.signal_to_noise(posterior).items()}
        {'layers.0.weight': (4, 1), 'layers.0.bias': (4,), 'layers.1.weight': (1, 4), ...}

    Reference:
        Blundell, Cornebise, Kavukcuoglu and Wierstra, *Weight uncertainty in neural networks*,
        ICML 2015, section 5.1; Graves, *Practical variational inference for neural networks*,
        NIPS 2011.
    """
    return scores(posterior, SIGNAL_TO_NOISE, where)


def scores(posterior: Posterior, by: str, where: Where | None) -> dict[str, np.ndarray]:
    """What weights are ordered by: their signal-to-noise in decibels, or their magnitude |μ|."""
    check_posterior(posterior)
    one_of("by", by, (SIGNAL_TO_NOISE, MAGNITUDE))
    means, deviations = (
        {n.removeprefix("network."): a for n, a in part.items() if n.startswith("network.")}
        for part in named_moments(posterior, where)
    )
    if not means:
        raise ValueError(f"where={where!r} leaves no weight that has a prior")
    if by == MAGNITUDE:
        return {name: np.abs(mu) for name, mu in means.items()}
    if all(np.all(sigma == 0) for sigma in deviations.values()):
        raise ValueError(
            f"pruning: {type(posterior).__name__} has no deviations, and so no signal-to-noise "
            "ratio: fit with px.BayesByBackprop or px.IVON, or prune by='magnitude'"
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = {name: np.abs(mu) / deviations[name] for name, mu in means.items()}
        # 0/0: a constant 0 says nothing
        return {name: 10 * np.log10(np.nan_to_num(r, nan=0.0)) for name, r in ratio.items()}

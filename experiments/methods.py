"""Bayes by Backprop with the rates that the stored results were made with."""

from typing import Any

from posterax.infer import BayesByBackprop


def bayes_by_backprop(**settings: Any) -> BayesByBackprop:
    """One rate for means and deviations, which falls from the first step on; weight sampling.

    Example:
        >>> from experiments.methods import bayes_by_backprop
        >>> bayes_by_backprop(learning_rate=1e-2).rho_rate
        1.0
    """
    own: dict[str, Any] = {"estimator": "weight", "rho_rate": 1.0, "schedule": "cosine"}
    return BayesByBackprop(**own | {"learning_rate": 1e-3} | settings)

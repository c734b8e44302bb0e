"""A predictive check: the statistic of the data among those of replications."""

from typing import TYPE_CHECKING

import numpy as np

from .style import EPISTEMIC, EPISTEMIC_FILL, MEAN

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..selection import Check


def predictive_check(axes: "Axes", check: "Check", *, bins: int = 30) -> "Axes":
    """Draw the replicated statistics as a histogram and the observed one as a line.

    Args:
        axes: where to draw.
        check: of a statistic that is one number.
        bins: of the histogram; at most one for each value that came.

    Returns:
        The same axes.

    Example:
        >>> import numpy as np
        >>> from matplotlib.figure import Figure
        >>> import posterax as px
        >>> x = np.zeros((20, 1), "float32")
        >>> model = px.Model(
        ...     px.networks.MLP(1, 1, (), key=0),
        ...     px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1),
        ... )
        >>> prior = px.prior_posterior(model, x)
        >>> check = px.selection.predictive_check(prior, (x, np.full(20, 9.0)), "mean", samples=50)
        >>> px.plot.predictive_check(Figure().subplots(), check).get_xlabel()
        'mean of y'
    """
    if np.ndim(check.observed):
        raise ValueError(
            f"predictive_check draws one number, and this {check.statistic} has shape "
            f"{np.shape(check.observed)}; draw its parts one by one"
        )
    values = len(np.unique(check.replicated))
    axes.hist(
        check.replicated, bins=max(1, min(bins, values)), color=EPISTEMIC_FILL,
        edgecolor=EPISTEMIC, linewidth=0.6, label="replicated",
    )  # fmt: skip
    axes.axvline(
        float(check.observed), color=MEAN, linewidth=2,
        label=f"observed (p = {float(check.p_value):.2g})",
    )  # fmt: skip
    axes.set(xlabel=f"{check.statistic} of y", yticks=[])
    axes.spines[["top", "right", "left"]].set_visible(False)
    return axes

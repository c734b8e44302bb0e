"""A predictive check: the statistic of the data among those of replications."""

from typing import TYPE_CHECKING

import numpy as np

from .style import BLUE, MEAN, Axes

if TYPE_CHECKING:
    from ..selection import Check


def predictive_check(axes: Axes, check: "Check", *, bins: int = 30) -> Axes:
    """Draw the replicated statistics as a histogram and the observed one as a line.

    Args:
        axes: where to draw.
        check: of a statistic that is one number.
        bins: of the histogram; at most one for each value that came.

    Example:
        >>> from matplotlib.figure import Figure
        >>> import posterax as px
        >>> from posterax.demo import curve_data, curve_model
        >>> posterior = px.fit(curve_model(), curve_data(16), px.BayesByBackprop(), steps=5, key=0)
        >>> check = px.selection.predictive_check(posterior, curve_data(16), "mean", samples=50)
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
        check.replicated, bins=max(1, min(bins, values)), **BLUE, linewidth=0.6, label="replicated"
    )
    label = f"observed (p = {float(check.p_value):.2g})"
    axes.axvline(float(check.observed), color=MEAN, linewidth=2, label=label)
    axes.set(xlabel=f"{check.statistic} of y", yticks=[])
    axes.spines[["top", "right", "left"]].set_visible(False)
    return axes

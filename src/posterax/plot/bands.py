"""A predictive over its input."""

import numpy as np
from numpy.typing import ArrayLike

from .._util.admit import admit
from .._util.checks import fraction
from ..predictive import Predictive
from .style import BLUE, DATA, MEAN, ORANGE, Axes, annotate


def regression_band(
    axes: Axes,
    x: ArrayLike,
    predictive: Predictive,
    *,
    data: tuple[ArrayLike, ArrayLike] | None = None,
    truth: ArrayLike | None = None,
    level: float | None = None,
    title: str | None = None,
) -> Axes:
    """Draw a predictive over one input: mean, epistemic band and total band, ±2 deviations each.

    With ``level`` the total band is the central interval of y with this mass instead, which knows
    that counts are not negative and tails not alike. Every artist has a label, so
    ``axes.legend()`` explains the picture.

    Args:
        axes: where to draw.
        x: the inputs of the predictive, (N,) or (N, 1), in any order.
        predictive: of regression or counts, with one target an input.
        data: observed ``(x, y)``, drawn as dots.
        truth: the curve behind the data at ``x``, drawn dotted.
        level: the mass of the total band.
        title: above the axes.

    Example:
        >>> import numpy as np
        >>> from matplotlib.figure import Figure
        >>> import posterax as px
        >>> x = np.linspace(-1, 1, 16)[:, None].astype("float32")
        >>> network = px.networks.MLP(1, 1, (8,), key=0)
        >>> model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
        >>> prior = px.prior_posterior(model, x)
        >>> axes = Figure().subplots()
        >>> px.plot.regression_band(axes, x, prior.predict(x, key=0), title="prior").get_title()
        'prior'
    """
    if predictive.kind == "classification":
        raise ValueError("regression_band draws regression and counts, not class probabilities")
    at = _column("x", x, len(predictive))
    mean = _column("the mean of predictive", predictive.mean, len(predictive))
    order = np.argsort(at)
    at, mean = at[order], mean[order]
    total, epistemic = (
        2 * np.sqrt(np.reshape(v, -1)[order]) for v in (predictive.total, predictive.epistemic)
    )
    ends, label = (mean - total, mean + total), "total, ±2 sd"
    if level is not None:
        low, high = predictive.interval(fraction("level", level))
        ends, label = (low.reshape(-1)[order], high.reshape(-1)[order]), f"total, {100 * level:g} %"
    # the wide band lies below the narrow one
    axes.fill_between(at, *ends, **ORANGE, linestyle="--", linewidth=0.9, label=label, zorder=1)
    axes.fill_between(
        at, mean - epistemic, mean + epistemic, **BLUE, linewidth=0.9, label="epistemic, ±2 sd",
        zorder=2,
    )  # fmt: skip
    if data is not None:
        axes.plot(
            np.ravel(data[0]), np.ravel(data[1]),
            ".", color=DATA, markersize=4, alpha=0.45, markeredgewidth=0, label="data", zorder=3,
        )  # fmt: skip
    if truth is not None:
        curve = _column("truth", truth, len(predictive))[order]
        axes.plot(at, curve, ":", color=MEAN, linewidth=1.3, label="truth", zorder=4)
    axes.plot(at, mean, color=MEAN, linewidth=1.5, label="mean", zorder=5)
    return annotate(axes, title)


def _column(name: str, values: ArrayLike, n: int) -> np.ndarray:
    array = np.asarray(admit(values, name))
    if array.shape not in ((n,), (n, 1)):
        raise ValueError(f"{name} must have shape ({n},) or ({n}, 1), got {array.shape}")
    return array.reshape(n)

"""Whether predictions mean what they say, and whether the model could have made the data.

Pictures of calibration have a strip below zero that shows where the examples are.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from .. import metrics
from .._util.checks import fraction
from ..predictive import Predictive
from ..recalibrate.base import probability_transform
from .style import BLUE, DATA, GREY, HATCHED, MEAN, Axes, annotate, chain_style

if TYPE_CHECKING:
    from ..selection import Check

STRIP = (-0.27, 0.21)  # where the strip below begins, and how high it is
LEVELS = np.linspace(0, 1, 201)


def reliability(
    axes: Axes,
    probabilities: metrics.inputs.Forecast,
    y: ArrayLike,
    *,
    bins: int = 15,
    adaptive: bool = False,
    level: float = 0.95,
    title: str | None = None,
) -> Axes:
    """Draw how often the most probable class is right, over the probability it was given.

    Dots on the diagonal are calibrated. Bars are the gaps, hatched where the predictions are
    over-confident; error bars hold what the accuracy of a bin may be (Wilson's interval for a
    binomial share). The strip below has the shares of examples in bins of equal width. The legend
    has the expected calibration error with these bins.

    Args:
        axes: where to draw.
        probabilities: a ``Predictive`` of classes, or class probabilities (N, K).
        y: labels 0 … K−1.
        bins: how many.
        adaptive: bins that hold equally many examples instead of bins of equal width.
        level: of the error bars.
        title: above the axes.

    Reference:
        Guo, Pleiss, Sun and Weinberger, *On calibration of modern neural networks*, ICML 2017.

    Example:
        >>> import numpy as np
        >>> from matplotlib.figure import Figure
        >>> import posterax as px
        >>> p = np.array([[0.75, 0.25]] * 4)
        >>> axes = px.plot.reliability(Figure().subplots(), p, [0, 0, 1, 1])
        >>> axes.get_legend_handles_labels()[1][1]
        'accuracy, 95 % (ECE 0.250)'
    """
    from scipy import stats

    level = fraction("level", level)
    binned = metrics.reliability(probabilities, y, bins=bins, adaptive=adaptive)
    used = binned.count > 0
    confidence, accuracy, count = (part[used] for part in binned)
    error = float(np.sum(count * np.abs(accuracy - confidence)) / count.sum())
    edges = np.linspace(0, 1, bins + 1)
    left, right = _around(confidence) if adaptive else (edges[:-1][used], edges[1:][used])
    ends = np.array([
        stats.binomtest(round(share * n), int(n)).proportion_ci(level, "wilson")
        for share, n in zip(accuracy, count, strict=True)
    ])  # fmt: skip
    bars = np.maximum((ends - accuracy[:, None]) * [-1, 1], 0)
    _diagonal(axes)
    axes.errorbar(
        confidence, accuracy, bars.T, color=MEAN, marker="o", markersize=4,
        linewidth=1.3, elinewidth=0.9, capsize=2,
        label=f"accuracy, {100 * level:g} % ({'ACE' if adaptive else 'ECE'} {error:.3f})", zorder=4,
    )  # fmt: skip
    gap = accuracy - confidence
    for label, chosen, fill in (("over", gap < 0, HATCHED), ("under", gap > 0, BLUE)):
        if chosen.any():
            axes.bar(
                left[chosen], gap[chosen], (right - left)[chosen], bottom=confidence[chosen],
                align="edge", **fill, linewidth=0.7, label=f"{label}-confident by", zorder=3,
            )  # fmt: skip
    shares = metrics.reliability(probabilities, y, bins=bins).count if adaptive else binned.count
    largest = 100 * shares.max() / shares.sum()
    _strip(axes, shares, edges, f"examples, up to {largest:.0f} % a bin")
    return annotate(axes, title, xlabel="confidence", ylabel="accuracy")


def quantile_calibration(
    axes: Axes,
    predictive: Predictive,
    y: ArrayLike,
    *,
    level: float = 0.95,
    key: int = 0,
    title: str | None = None,
) -> Axes:
    """Draw the share of targets below each predicted quantile, over the quantile's level.

    With u = P(Y ≤ y), the probability integral transform, the line is the share of u ≤ q over q.
    A calibrated predictive stays in the band around the diagonal *everywhere* with probability
    ``level`` (Kolmogorov's distribution for so many independent examples). An S that is flat in
    the middle means intervals that are too narrow, a steep one too wide; a line above the diagonal
    means targets below what was predicted. The strip below is the histogram of u, flat at the
    small line where all is well.

    Args:
        axes: where to draw.
        predictive: of regression or counts. Each of several outputs has its own line.
        y: targets.
        level: of the band.
        key: for counts, whose u is drawn between P(Y < y) and P(Y ≤ y).
        title: above the axes.

    References:
        Gneiting, Balabdaoui and Raftery, *Probabilistic forecasts, calibration and sharpness*,
        JRSS B 2007. Kuleshov, Fenner and Ermon, *Accurate uncertainties for deep learning using
        calibrated regression*, ICML 2018.

    Example:
        >>> import numpy as np
        >>> from matplotlib.figure import Figure
        >>> import posterax as px
        >>> x = np.linspace(-1, 1, 16)[:, None].astype("float32")
        >>> network = px.networks.MLP(1, 1, (8,), key=0)
        >>> model = px.Model(network, likelihood=px.likelihoods.Gaussian(0.1))
        >>> predictive = px.prior_posterior(model, x).predict(x, key=0)
        >>> px.plot.quantile_calibration(Figure().subplots(), predictive, x[:, 0]).get_ylabel()
        'share of targets below'
    """
    from scipy import stats

    level = fraction("level", level)
    if getattr(predictive, "kind", None) not in ("regression", "counts"):
        raise ValueError(
            "quantile_calibration draws a Predictive of regression or counts; px.plot.reliability "
            "is for class probabilities"
        )
    y = metrics.inputs.aligned(y, predictive.mean.shape)
    u = probability_transform(predictive, y, np.random.default_rng(key).random)
    u = u.reshape(len(u), -1)
    n, outputs = u.shape
    half = float(stats.kstwo.ppf(level, n))
    _diagonal(axes)
    axes.fill_between(
        LEVELS, np.maximum(LEVELS - half, 0), np.minimum(LEVELS + half, 1), **GREY,
        label=f"where {100 * level:g} % of calibrated lines stay", zorder=1,
    )  # fmt: skip
    for output in range(outputs):
        ordered = np.sort(u[:, output])
        observed = np.searchsorted(ordered, LEVELS, side="right") / n
        furthest = stats.kstest(ordered, "uniform").statistic
        name = "observed" if outputs == 1 else f"output {output}"
        axes.plot(
            LEVELS, observed, **chain_style(output), linewidth=1.6,
            label=f"{name}, up to {furthest:.2f} away", zorder=4,
        )  # fmt: skip
    bins = int(np.clip(n // 10, 2, 20))
    counts, edges = np.histogram(u, bins, (0, 1))
    _strip(axes, counts, edges, "histogram of P(Y ≤ y)", expected=u.size / bins)
    labels = {"xlabel": "level of the predicted quantile", "ylabel": "share of targets below"}
    return annotate(axes, title, **labels)


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
        shape = np.shape(check.observed)
        raise ValueError(f"predictive_check draws one number; {check.statistic} has shape {shape}")
    bins = min(bins, len(np.unique(check.replicated)))
    axes.hist(check.replicated, max(1, bins), **BLUE, linewidth=0.6, label="replicated")
    label = f"observed (p = {float(check.p_value):.2g})"
    axes.axvline(float(check.observed), color=MEAN, linewidth=2, label=label)
    axes.set(xlabel=f"{check.statistic} of y", yticks=[])
    axes.spines[["top", "right", "left"]].set_visible(False)
    return axes


def _around(centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends of bars that meet half-way between their neighbours."""
    half = np.diff(centres) / 2
    ends = np.concatenate([[0.02], half, [0.02]])
    return np.maximum(centres - ends[:-1], 0), np.minimum(centres + ends[1:], 1)


def _diagonal(axes: Axes) -> None:
    axes.plot([0, 1], [0, 1], ":", color=MEAN, linewidth=1.1, label="calibrated", zorder=2)


def _strip(
    axes: Axes, counts: np.ndarray, edges: np.ndarray, label: str, expected: float | None = None
) -> None:
    """A histogram below zero, and limits and ticks that know of it."""
    bottom, height = STRIP
    unit = height / counts.max()
    axes.bar(
        edges[:-1], unit * counts, np.diff(edges), bottom=bottom, align="edge", **GREY,
        label=label, zorder=2,
    )  # fmt: skip
    if expected is not None:
        axes.hlines(bottom + unit * expected, 0, 1, color=MEAN, linewidth=0.8, zorder=3)
    axes.axhline(-0.03, color=DATA, linewidth=0.6)
    axes.set(xlim=(0, 1), ylim=(bottom, 1.03), yticks=[0, 0.2, 0.4, 0.6, 0.8, 1])

"""Pictures of numbers: whether intervals hold, and where the uncertainty is."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from .. import metrics, plot
from ..diagnostics.chance import wilson
from ..plot.style import DATA, EPISTEMIC, EPISTEMIC_FILL
from .page import Finding, Picture, Section
from .pictures import DOTS, ERRORS, FAINT, WRONG, diagonal, draw, label
from .subject import SEED, Subject, sample_rows
from .words import LEVEL, many, percent, show

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVELS = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
POINTS, BARS = 600, 150  # drawn
GROUPS = 10  # of rows, by deviation


def calibration(subject: Subject, findings: Sequence[Finding]) -> Section:
    """Quantiles and coverage, with what the verdict says of them."""
    part = Section("calibration", "Calibration: do intervals hold what they say?")
    u = subject.transform
    inside = np.array([np.mean(np.abs(u - 0.5) <= level / 2) for level in LEVELS])
    part.tell(findings)
    part.show(_quantiles(subject), _coverage(inside, len(u)))
    return part


def uncertainty(subject: Subject) -> Section:
    """Predicted against true, the parts of the deviation, and errors against it."""
    part = Section("uncertainty", "Uncertainty: where is the model unsure, and why?")
    share = np.square(subject.epistemic) / np.maximum(np.square(subject.std), 1e-300)
    typical = float(np.median(share))
    cause = (
        "most of it is noise, which more rows would not remove"
        if typical < 0.3
        else "much of it is lack of data, which more rows would remove"
        if typical > 0.7
        else "part of it is noise and part lack of data, which more rows would remove"
    )
    error = np.abs(subject.true - subject.mean)
    part.say(
        f"The typical predicted deviation is {show(np.median(subject.std))} in the units of "
        f"{subject.target}; {percent(typical)} of its square is epistemic: by the model's own "
        f"account {cause}. " + _rank_words(subject.std, error)
    )
    part.show(
        _against_truth(subject),
        _errors(subject, error),
        _parts(subject),
        _rejection(subject, error),
    )
    return part


def _rank_words(std: np.ndarray, error: np.ndarray) -> str:
    if len(std) < 20:
        return "Too few rows to tell whether a larger deviation means a larger error."
    if np.ptp(std) <= 1e-9 * np.max(np.abs(std)):
        return "The deviation is the same for all rows, so it cannot tell easy rows from hard ones."
    rank, p = stats.spearmanr(std, error)
    if not np.isfinite(rank) or p > 0.05:
        return (
            "Rows with a larger deviation do not have larger errors so far as these rows can tell."
        )
    if rank < 0:
        return "Rows with a larger deviation have smaller errors, which is the wrong way round."
    return (
        f"Rows with a larger deviation have larger errors (rank correlation {show(rank, 2)}), so "
        "the deviation says which predictions to check."
    )


def _quantiles(subject: Subject) -> Picture:
    n = len(subject.y)
    return draw(
        "numbers.quantiles",
        lambda axes: plot.quantile_calibration(axes, subject.predictive, subject.y, key=SEED),
        rows=many(n, "row"),
        gap=percent(min(1.36 / np.sqrt(n), 1)),  # Kolmogorov's, at 95 %
    )


def _coverage(inside: np.ndarray, n: int) -> Picture:
    ends = np.array([wilson(float(share), n) for share in inside])

    def onto(axes: "Axes") -> None:
        diagonal(axes, 0, 1, "as promised")
        bars = np.maximum(np.abs(ends.T - inside), 0)
        axes.errorbar(LEVELS, inside, bars, **ERRORS, label="observed, 95 %")
        axes.set(xlim=(0, 1), ylim=(0, 1.02))
        label(axes, "mass that the interval promises", "share of truths inside")
        axes.grid(color=FAINT, linewidth=0.5)

    return draw("numbers.coverage", onto, gap=percent(np.max(np.abs(inside - LEVELS)), 1))


def _against_truth(subject: Subject) -> Picture:
    some = sample_rows(len(subject.true), BARS)
    mean, true = subject.mean[some], subject.true[some]
    low, high = subject.low[some], subject.high[some]
    out = (true < low) | (true > high)

    def onto(axes: "Axes") -> None:
        ends = min(low.min(), true.min()), max(high.max(), true.max())
        diagonal(axes, *(ends if ends[1] > ends[0] else (ends[0] - 1, ends[1] + 1)), "perfect")
        for chosen, colour, marker, size, name in (
            (~out, EPISTEMIC, "o", 3.6, f"truth inside {percent(LEVEL)}"),
            (out, WRONG, "X", 6.5, "truth outside"),
        ):
            if chosen.any():
                at = true[chosen]
                axes.vlines(at, low[chosen], high[chosen], color=colour, linewidth=0.8, alpha=0.45)
                how = DOTS | {"marker": marker, "markersize": size, "color": colour}
                axes.plot(at, mean[chosen], **how, label=name, zorder=3)
        label(axes, "true", "predicted", few=True)

    rows = many(len(some), "row") + (" (a sample)" if len(some) < len(subject.true) else "")
    return draw("numbers.truth", onto, rows=rows)


def _parts(subject: Subject) -> Picture:
    some = sample_rows(len(subject.true), POINTS)

    def onto(axes: "Axes") -> None:
        across, up = subject.aleatoric[some], subject.epistemic[some]
        top = 1.05 * max(across.max(), up.max(), 1e-12)
        diagonal(axes, 0, top, "equal parts")
        axes.plot(across, up, **DOTS, markersize=3.4, color=EPISTEMIC, alpha=0.6, label="row")
        axes.set(xlim=(0, top), ylim=(0, top))
        names = "aleatoric deviation (noise)", "epistemic deviation (lack of data)"
        label(axes, *names, few=True)

    return draw("numbers.parts", onto)


def _rejection(subject: Subject, error: np.ndarray) -> Picture:
    curve, best = (
        metrics.rmse_rejection(subject.mean, subject.true, by) for by in (subject.std, error)
    )

    def onto(axes: "Axes") -> None:
        for line, how in (
            (best, {"linestyle": "--", "color": DATA, "label": "largest errors first"}),
            (curve, {"color": EPISTEMIC, "linewidth": 1.6, "label": "by deviation"}),
        ):
            shown = np.flatnonzero(line.rejected <= 0.95)  # of fewer rows the error is chance
            shown = shown[:: max(1, len(line.rejected) // POINTS)]
            axes.plot(100 * line.rejected[shown], line.rmse[shown], **({"linewidth": 1} | how))
        axes.axhline(curve.rmse[0], color=DATA, linestyle=":", linewidth=1, label="at random")
        axes.set_xlim(0, 100)
        axes.set_ylim(bottom=0)
        label(axes, "least certain rows left out (%)", "RMSE of the rest")

    return draw("numbers.rejection", onto)


def _errors(subject: Subject, error: np.ndarray) -> Picture:
    n, std = len(error), subject.std
    groups = np.array_split(np.argsort(std, kind="stable"), int(np.clip(n // 8, 1, GROUPS)))
    promised, actual = (
        np.array([np.sqrt(np.mean(np.square(values[rows]))) for rows in groups])
        for values in (std, error)
    )
    # the root of a mean square of k deviations: relative error about 1 / √(2k)
    reach = actual * np.array([1.96 / np.sqrt(2 * len(rows)) for rows in groups])

    def onto(axes: "Axes") -> None:
        some = sample_rows(n, POINTS)
        how = DOTS | {"markersize": 2.6, "color": EPISTEMIC_FILL}
        axes.plot(std[some], error[some], **how, label="error of a row", zorder=1)
        high = 1.06 * max(promised.max(), std[some].max())
        diagonal(axes, 0, high, "as promised")
        bars = np.minimum(reach, actual)
        axes.errorbar(promised, actual, bars, **ERRORS, label="RMSE of groups", zorder=3)
        low = min(promised.min(), std[some].min())
        axes.set_xlim(max(low - 0.06 * (high - low), 0), high)
        axes.set_ylim(0, 1.05 * max(np.quantile(error, 0.98), (actual + reach).max(), high / 1.06))
        label(axes, "predicted deviation", "error", few=True)

    return draw("numbers.errors", onto, groups=many(len(groups), "group"))

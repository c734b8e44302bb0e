"""Pictures of numbers: whether intervals hold, and where the uncertainty is."""

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from .. import metrics, plot
from ..diagnostics.chance import wilson
from ..metrics import Evaluation
from ..plot.style import DATA, EPISTEMIC, EPISTEMIC_FILL, MEAN
from .page import Level, Picture, Section
from .pictures import FAINT, WRONG, draw, few_ticks
from .scores import FEW_ROWS
from .subject import LEVEL, SEED, Subject
from .words import many, percent, show

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVELS = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
POINTS, BARS = 600, 150  # drawn
GROUPS = 10  # of rows, by deviation
SERIOUS = 0.15  # below its promise: a miss that matters


def calibration(subject: Subject, scores: Evaluation) -> Section:
    """Quantiles and coverage, with words."""
    part = Section("calibration", "Calibration: do intervals hold what they say?")
    u = subject.transform
    inside = np.array([np.mean(np.abs(u - 0.5) <= level / 2) for level in LEVELS])
    (at, low, high, *_), promise, n = scores["coverage"], subject.promised, scores.rows
    furthest = float(np.max(np.abs(inside - LEVELS)))
    ends = f"{percent(low, 1)} to {percent(high, 1)}"
    text = (
        f"The {percent(LEVEL)} interval held the truth in {percent(at, 1)} of "
        f"{many(n, 'row')}; the 95 % interval of that share is {ends}."
    )
    if subject.kind == "counts":
        held = percent(promise, 1)
        text += f" Its ends are whole numbers: by the model's own account it holds {held}."
    agrees = (
        f"agrees with {percent(promise, 0 if promise == LEVEL else 1)} as far as {many(n, 'row')} "
        f"can tell ({ends})"
    )
    its = f"Its {percent(LEVEL)} intervals hold {percent(at, 1)} of the truths"
    level: Level = "care"
    if low <= promise <= high and low > promise - SERIOUS and n >= FEW_ROWS:
        level, verdict = "good", f"That {agrees}."
        finding = f"The coverage of its {percent(LEVEL)} intervals {agrees}."
    elif low <= promise <= high:
        few = f"{agrees}; these are too few to rule out a serious miss"
        verdict = f"That {few}, {100 * SERIOUS:.0f} points and more."
        finding = f"The coverage of its {percent(LEVEL)} intervals {few}."
    elif at < promise:
        level = "bad" if high < promise - SERIOUS else "care"
        verdict = "That is too few: the intervals are too narrow, the model is too sure of itself."
        finding = f"{its}: they are too narrow."
    else:
        verdict = "That is too many: the intervals are too wide, which errs on the safe side."
        finding = f"{its}: they are too wide."
    part.say(f"{text} {verdict}")
    part.find(level, finding)
    part.show(_quantiles(subject), _coverage(inside, len(u), furthest))
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
        _against_truth(subject), _errors(subject, error), _parts(subject), _rejection(subject)
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
    return draw(
        "quantiles", "Quantile calibration",
        "The share of truths below each predicted quantile. A calibrated model stays in the grey "
        "band around the diagonal; an S that is flat in the middle means intervals that are too "
        "narrow. The bars below show where in its predicted distribution each truth fell: level "
        f"is good. {_power(len(subject.y))}",
        lambda axes: plot.quantile_calibration(axes, subject.predictive, subject.y, key=SEED),
        height=4.6,
    )  # fmt: skip


def _power(n: int) -> str:
    gap = percent(min(1.36 / np.sqrt(n), 1))  # Kolmogorov's, at 95 %
    return (
        f"With {many(n, 'row')} a gap of {gap} can be chance: inside the band means not refuted, "
        "and the fewer rows the less that says."
    )


def _coverage(inside: np.ndarray, n: int, furthest: float) -> Picture:
    ends = np.array([wilson(float(share), n) for share in inside])

    def onto(axes: "Axes") -> None:
        axes.plot([0, 1], [0, 1], ":", color=MEAN, linewidth=1.1, label="as promised")
        axes.errorbar(
            LEVELS, inside, np.maximum(np.abs(ends.T - inside), 0), color=EPISTEMIC, marker="o",
            markersize=4.5, linewidth=1.6, elinewidth=1, capsize=2.5, label="observed, 95 %",
        )  # fmt: skip
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("mass that the interval promises")
        axes.set_ylabel("share of truths inside")
        axes.grid(color=FAINT, linewidth=0.5)

    return draw(
        "coverage", "Coverage by level",
        "How often central intervals hold the truth, by the mass they promise. Dots below the "
        f"line: too narrow; above: too wide. The largest gap is {percent(furthest, 1)}.",
        onto, height=4.6,
    )  # fmt: skip


def _some(n: int, most: int) -> np.ndarray:
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(SEED).choice(n, most, replace=False))


def _against_truth(subject: Subject) -> Picture:
    some = _some(len(subject.true), BARS)
    mean, true = subject.mean[some], subject.true[some]
    low, high = subject.low[some], subject.high[some]
    out = (true < low) | (true > high)

    def onto(axes: "Axes") -> None:
        ends = [min(low.min(), true.min()), max(high.max(), true.max())]
        ends = ends if ends[1] > ends[0] else [ends[0] - 1, ends[1] + 1]
        axes.plot(ends, ends, ":", color=MEAN, linewidth=1.1, label="perfect", zorder=1)
        for chosen, colour, marker, size, name in (
            (~out, EPISTEMIC, "o", 3.6, f"truth inside {percent(LEVEL)}"),
            (out, WRONG, "X", 6.5, "truth outside"),
        ):
            if chosen.any():
                axes.vlines(
                    true[chosen], low[chosen], high[chosen], color=colour, linewidth=0.8, alpha=0.45
                )
                axes.plot(
                    true[chosen], mean[chosen], linestyle="none", marker=marker, markersize=size,
                    color=colour, markeredgewidth=0, label=name, zorder=3,
                )  # fmt: skip
        axes.set_xlabel("true")
        axes.set_ylabel("predicted")
        axes.xaxis.set_major_locator(few_ticks())

    chosen = f"{many(len(some), 'row')}" + (" (a sample)" if len(some) < len(subject.true) else "")
    return draw(
        "truth", "Predicted against true",
        f"Predicted means with their {percent(LEVEL)} intervals over the truth, for {chosen}. "
        "Crosses are rows whose truth lies outside the interval: about one in ten should.",
        onto,
    )  # fmt: skip


def _parts(subject: Subject) -> Picture:
    some = _some(len(subject.true), POINTS)

    def onto(axes: "Axes") -> None:
        across, up = subject.aleatoric[some], subject.epistemic[some]
        top = 1.05 * max(across.max(), up.max(), 1e-12)
        axes.plot([0, top], [0, top], ":", color=MEAN, linewidth=1, label="equal parts")
        axes.plot(
            across, up, linestyle="none", marker="o", markersize=3.4, color=EPISTEMIC, alpha=0.6,
            markeredgewidth=0, label="row",
        )  # fmt: skip
        axes.set_xlim(0, top)
        axes.set_ylim(0, top)
        axes.set_xlabel("aleatoric deviation (noise)")
        axes.set_ylabel("epistemic deviation (lack of data)")
        axes.xaxis.set_major_locator(few_ticks())

    return draw(
        "parts", "Epistemic and aleatoric deviation",
        "The two parts of each row's deviation. Above the line more rows like this one would help; "
        "below it the target itself is noisy there. Dots far up are inputs unlike the training "
        "rows.",
        onto,
    )  # fmt: skip


def _rejection(subject: Subject) -> Picture:
    curve = metrics.rmse_rejection(subject.mean, subject.true, subject.std)
    best = metrics.rmse_rejection(subject.mean, subject.true, np.abs(subject.true - subject.mean))
    every = max(1, len(curve.rejected) // POINTS)
    kept = curve.rejected <= 0.95  # of fewer rows the error is chance

    def onto(axes: "Axes") -> None:
        axes.plot(
            100 * best.rejected[kept][::every], best.rmse[kept][::every], "--", color=DATA,
            linewidth=1, label="largest errors first",
        )  # fmt: skip
        axes.plot(
            100 * curve.rejected[kept][::every], curve.rmse[kept][::every], color=EPISTEMIC,
            linewidth=1.6, label="by deviation",
        )  # fmt: skip
        axes.axhline(curve.rmse[0], color=DATA, linestyle=":", linewidth=1, label="at random")
        axes.set_xlim(0, 100)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("least certain rows left out (%)")
        axes.set_ylabel("RMSE of the rest")

    return draw(
        "rejection", "Error when the least certain are left out",
        "The error of the other rows, over the share left out, the least certain first. The "
        "further it falls below the dotted line the better.",
        onto,
    )  # fmt: skip


def _errors(subject: Subject, error: np.ndarray) -> Picture:
    n = len(error)
    groups = int(np.clip(n // 8, 1, GROUPS))
    order = np.array_split(np.argsort(subject.std, kind="stable"), groups)
    promised = np.array([np.sqrt(np.mean(np.square(subject.std[rows]))) for rows in order])
    actual = np.array([np.sqrt(np.mean(np.square(error[rows]))) for rows in order])
    # the root of a mean square of k deviations: relative error about 1 / √(2k)
    reach = actual * np.array([1.96 / np.sqrt(2 * len(rows)) for rows in order])

    def onto(axes: "Axes") -> None:
        some = _some(n, POINTS)
        axes.plot(
            subject.std[some], error[some], linestyle="none", marker="o", markersize=2.6,
            color=EPISTEMIC_FILL, markeredgewidth=0, label="error of a row", zorder=1,
        )  # fmt: skip
        high = 1.06 * max(promised.max(), subject.std[some].max())
        axes.plot([0, high], [0, high], ":", color=MEAN, linewidth=1.1, label="as promised")
        axes.errorbar(
            promised, actual, np.minimum(reach, actual), color=EPISTEMIC, marker="o",
            markersize=4.5, linewidth=1.6, elinewidth=1, capsize=2.5, label="RMSE of groups",
            zorder=3,
        )  # fmt: skip
        low = min(promised.min(), subject.std[some].min())
        pad = 0.06 * (high - low)
        axes.set_xlim(max(low - pad, 0), high)
        axes.set_ylim(0, 1.05 * max(np.quantile(error, 0.98), (actual + reach).max(), high / 1.06))
        axes.set_xlabel("predicted deviation")
        axes.set_ylabel("error")
        axes.xaxis.set_major_locator(few_ticks())

    return draw(
        "errors", "Errors against predicted deviations",
        f"Rows in {many(groups, 'group')} by their predicted deviation, and the root mean squared "
        "error of each with what chance allows. On the line errors are as large as promised; a "
        "line that rises means the deviation tells hard rows from easy ones.",
        onto,
    )  # fmt: skip

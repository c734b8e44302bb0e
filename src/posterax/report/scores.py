"""How good the predictions are: ``px.metrics.evaluate`` as a table, and what it says in words."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..metrics.evaluate import CONFIDENCE, QUICK, RESAMPLES, Evaluation, Score, evaluate
from .page import Section, Table
from .subject import LEVEL, SEED, Subject
from .words import MISSING, cut, fixed, many, percent, show

FEW_ROWS = 30  # of fewer nothing is called good
Write = Callable[[float], str]


class Shown(NamedTuple):
    """A score's name on the page, what it means, and how its numbers are written."""

    title: str
    meaning: str
    write: Write = lambda value: fixed(value, 3)


LOWER, HIGHER = "Lower is better.", "Higher is better."
COVERAGE = f"Coverage of {percent(LEVEL)}"
SHOWN = {
    "rmse": Shown("RMSE", "The typical error of the mean, in the units of {target}; large errors "
                  f"weigh most. {LOWER}"),
    "mae": Shown("MAE", f"The average distance of the median from the truth. {LOWER}"),
    "r2": Shown("R²", "The share of the target's variance that the predictions explain; 1 is all "
                f"of it. {HIGHER}"),
    "accuracy": Shown("Accuracy", "The share of rows whose most probable class is the right one. "
                      f"{HIGHER}", lambda value: percent(value, 1)),
    "nll": Shown("NLL", "How surprised the model is by the truth, in nats a row: it scores "
                 "predictions and their uncertainties together. Compare it between models of the "
                 f"same target only. {LOWER}"),
    "brier": Shown("Brier score", "The squared distance of the probabilities from what happened, "
                   f"from 0 to 2. {LOWER}"),
    "coverage": Shown(COVERAGE, "The share of rows whose truth lies inside the "
                      f"{percent(LEVEL)} interval. Should be {{promise}}.",
                      lambda value: percent(value, 1)),
    "width": Shown(f"Width of {percent(LEVEL)}", f"The average width of the {percent(LEVEL)} "
                   f"interval: narrow is useful, as long as the coverage holds. {LOWER}"),
    "calibration_error": Shown("Calibration error", f"{{calibration}} {LOWER}"),
}  # fmt: skip
OTHER_NAMES = {
    "r": "r2", "logloss": "nll", "negativeloglikelihood": "nll", "ece": "calibration_error",
    "expectedcalibrationerror": "calibration_error", "calibrationerror": "calibration_error",
    "brierscore": "brier", "rootmeansquarederror": "rmse", "meanabsoluteerror": "mae",
    "coverageof": "coverage", "widthof": "width",
}  # fmt: skip


def measure(
    subject: Subject, given: Mapping[str, Any] | None, card: Mapping[str, Any] | None = None
) -> Evaluation:
    """All scores by name; those that were given, with the card's baselines, replace them."""
    measured = evaluate(
        subject.predictive, subject.y, train_y=subject.train_y, only=QUICK, seed=SEED
    )
    scores: dict[str, Score] = dict(measured)
    base, chance = ((card or {}).get(name) or {} for name in ("baseline", "chance"))
    rows = measured.rows
    for name, values in (given or {}).items():
        value, low, high = _triple(name, values)
        letters = "".join(c for c in name.lower() if c.isalpha())
        known = OTHER_NAMES.get(letters, letters)
        if known == "accuracy":
            known, value, low, high = "error", 1 - value, 1 - high, 1 - low
        if known in scores:
            other = scores[known].baseline if base.get(name) is None else base[name]
            scores[known] = Score(value, low, high, other, chance.get(name, scores[known].chance))
            rows = subject.tested if known == "coverage" else rows
        else:
            scores[cut(name.replace("_", " "), 40)] = Score(value, low, high, np.nan)
    if "error" in scores:
        wrong = scores.pop("error")
        right = Score(1 - wrong.value, 1 - wrong.high, 1 - wrong.low, 1 - wrong.baseline)
        scores = {"accuracy": right} | scores
    return Evaluation(scores, rows, measured.beats_baseline)


def written(name: str, scores: Mapping[str, Score]) -> tuple[str, str, str]:
    """A score, its interval or what is due to chance, and its baseline, as text."""
    score, write = scores[name], _writer(name, scores)
    if score.chance is not None:
        ends = f"by chance up to {write(score.chance)}"
    elif np.isfinite(score.low + score.high):
        ends = f"{write(score.low)} to {write(score.high)}"
    else:
        ends = MISSING
    return write(score.value), ends, write(score.baseline)


def section(subject: Subject, scores: Evaluation) -> Section:
    """The table of scores, and what it says in words."""
    part = Section("scores", "Scores")
    rows_of = many(len(subject.y), "row")
    where = (
        f"{rows_of} that the model had not seen"
        if subject.held_out
        else f"{rows_of} that the model was trained on, which flatters it"
    )
    if len(subject.y) < subject.tested:
        where += f", {len(subject.y):,} drawn from {subject.tested:,}"
    base = {
        "classification": "the class frequencies of the training rows, each count plus one",
        "counts": "a Poisson distribution with the mean of the training targets",
    }.get(subject.kind, "a Gaussian with the mean and deviation of the training targets")
    part.say(
        f"Measured on {where}. The baseline predicts {base}, whatever the inputs are. Intervals "
        f"hold the value of {percent(CONFIDENCE)} of {RESAMPLES:,} resamples of these rows "
        "(bootstrap); those of shares are Wilson's."
    )
    words = {
        "target": subject.target,
        "promise": percent(LEVEL)
        if subject.kind != "counts"
        else f"{percent(subject.promised, 1)}, as whole numbers make it",
        "calibration": "How far confidence is from the share of hits, on average (ECE, 15 bins)."
        if subject.classifies
        else "How far the share of truths below a predicted quantile is from its level, typically "
        "(root mean square over 99 levels).",
    }
    order = [*(name for name in SHOWN if name in scores), *(n for n in scores if n not in SHOWN)]
    rows = []
    for name in order:
        title, meaning, _ = SHOWN.get(name, Shown(name, "Given with the model."))
        rows.append([title, *written(name, scores), meaning.format_map(words)])
    part.blocks.append(
        Table(
            ["Score", "Value", "95 % interval", "Baseline", "What it means"], rows,
            f"Scores on {subject.where}", frozenset({1, 2, 3}), style="wide stack",
        )
    )  # fmt: skip
    _judge(subject, part, scores.beats_baseline)
    return part


def _judge(subject: Subject, part: Section, share: float) -> None:
    if not subject.held_out:
        part.find(
            "care",
            "All scores are of the training rows, which flatters the model: hold rows out to learn "
            "how it does on new ones.",
        )
    if subject.unknown:
        part.find(
            "care",
            f"{many(subject.unknown, 'held-out row')} had a label that no training row has: left "
            "out of the scores, and the model can never predict it.",
        )
    broken = int(np.sum(~np.isfinite(subject.nll)))
    if broken:
        part.find(
            "bad", f"The likelihood of {many(broken, 'row')} is not finite: the model calls "
            "impossible what happened, or its numbers overflow.",
        )  # fmt: skip
    elif len(subject.y) < FEW_ROWS:
        part.find(
            "care", f"Too few rows to tell: {many(len(subject.y), 'row')} to judge by, where "
            f"{FEW_ROWS} are the least for a verdict.",
        )  # fmt: skip
    elif share < 0.025:
        part.find(
            "bad", "The baseline, which knows nothing of the inputs, predicts better (NLL): do not "
            "use this model as it is.",
        )  # fmt: skip
    elif share < 0.975:
        part.find(
            "care", "It is not certain that the model predicts better than the baseline (NLL): the "
            "inputs may say little about the target, or there are too few rows to tell.",
        )  # fmt: skip
    else:
        part.find("good", "It predicts clearly better than the baseline (NLL).")


def _writer(name: str, scores: Mapping[str, Score]) -> Write:
    """Errors in the units of the target have three digits of the RMSE."""
    if name not in SHOWN:
        return show
    if name not in ("rmse", "mae", "width"):
        return SHOWN[name].write
    size = scores["rmse"].value
    if not np.isfinite(size) or not 1e-4 < size < 1e8:
        return show
    places = int(np.clip(2 - np.floor(np.log10(size)), 0, 6))
    return lambda value: fixed(value, places)


def _triple(name: str, values: Any) -> tuple[float, float, float]:
    try:
        # a file has null for what is not finite
        value, low, high = (float("nan") if v is None else float(v) for v in values)
    except (TypeError, ValueError):
        raise ValueError(
            f"scores[{name!r}] must be (value, low, high), three numbers, got {values!r}"
        ) from None
    return value, low, high

"""How good the predictions are: ``px.metrics.evaluate`` as a table, and what it says in words."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ..metrics.evaluate import QUICK, Evaluation, Score, evaluate
from ..metrics.resampling import CONFIDENCE, RESAMPLES
from .page import Section, Table
from .subject import SEED, Subject
from .words import MISSING, TEXTS, cut, decimals, fixed, many, percent, show

SHOWN = TEXTS["scores"]  # title and meaning of each
OTHER_NAMES = {
    "r": "r2", "logloss": "nll", "negativeloglikelihood": "nll", "ece": "calibration_error",
    "expectedcalibrationerror": "calibration_error", "calibrationerror": "calibration_error",
    "brierscore": "brier", "rootmeansquarederror": "rmse", "meanabsoluteerror": "mae",
    "coverageof": "coverage", "widthof": "width", "averageprecision": "average_precision",
    "rocauc": "auc",
}  # fmt: skip


def measure(
    subject: Subject, given: Mapping[str, Any] | None, card: Mapping[str, Any] | None = None
) -> Evaluation:
    """All scores by name, of all rows; those given, with the card's baselines, replace them."""
    every = subject.outcome
    measured = evaluate(
        every.predictive, every.y, every.weight, train_y=subject.train_y,
        train_weight=subject.train_weight, only=QUICK, seed=SEED,
    )  # fmt: skip
    scores: dict[str, Score] = dict(measured)
    base, chance = ((card or {}).get(name) or {} for name in ("baseline", "chance"))
    for name, values in (given or {}).items():
        try:
            # a file has null for what is not finite
            value, low, high = (np.nan if v is None else float(v) for v in values)
        except (TypeError, ValueError):
            raise ValueError(
                f"scores[{name!r}] must be (value, low, high), three numbers, got {values!r}"
            ) from None
        letters = "".join(c for c in name.lower() if c.isalpha())
        known = OTHER_NAMES.get(letters, letters)
        if known == "accuracy":
            known, value, low, high = "error", 1 - value, 1 - high, 1 - low
        if known in scores:
            other = scores[known].baseline if base.get(name) is None else base[name]
            scores[known] = Score(value, low, high, other, chance.get(name, scores[known].chance))
        else:
            scores[cut(name.replace("_", " "), 40)] = Score(value, low, high, np.nan)
    if "error" in scores:
        wrong = scores.pop("error")
        right = Score(1 - wrong.value, 1 - wrong.high, 1 - wrong.low, 1 - wrong.baseline)
        scores = {"accuracy": right} | scores
    return Evaluation(scores, measured.rows, measured.beats_baseline)


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
    rows_of = many(subject.tested, "row")
    where = (
        f"{rows_of} that the model had not seen"
        if subject.held_out
        else f"{rows_of} that the model was trained on, which flatters it"
    )
    drawn = ""
    if len(subject.y) < subject.tested:
        drawn = f" Pictures and rows below are of {len(subject.y):,} of them, drawn at random."
    base = {
        "classification": "the class frequencies of the training rows, each count plus one",
        "counts": "a Poisson distribution with the mean of the training targets",
    }.get(subject.kind, "a Gaussian with the mean and deviation of the training targets")
    part.say(
        f"Measured on {where}. The baseline predicts {base}, whatever the inputs are. Intervals "
        f"hold the value of {percent(CONFIDENCE)} of {RESAMPLES:,} resamples of these rows "
        f"(bootstrap); those of shares are Wilson's.{drawn}"
    )
    whole = ", as whole numbers make it" if subject.kind == "counts" else ""
    words = {
        "target": subject.target,
        "promise": subject.promise + whole,
        "calibration": "How far confidence is from the share of hits, on average (ECE, 15 bins)."
        if subject.classifies
        else "How far the share of truths below a predicted quantile is from its level, typically "
        "(root mean square over 99 levels).",
    }
    rows = []
    for name in sorted(scores, key=[*SHOWN, *scores].index):
        text = SHOWN.get(name, {"title": name, "meaning": "Given with the model."})
        rows.append([text["title"], *written(name, scores), text["meaning"].format_map(words)])
    part.blocks.append(
        Table(
            ["Score", "Value", "95 % interval", "Baseline", "What it means"], rows,
            f"Scores on {subject.where}", frozenset({1, 2, 3}), style="wide stack",
        )
    )  # fmt: skip
    return part


def _writer(name: str, scores: Mapping[str, Score]) -> Callable[[float], str]:
    """Errors in the units of the target have three digits of the RMSE."""
    if name in ("accuracy", "coverage"):
        return partial(percent, digits=1)
    if name not in ("rmse", "mae", "width"):
        return partial(fixed, decimals=3) if name in SHOWN else show
    size = scores["rmse"].value
    return partial(fixed, decimals=decimals(np.array(size))) if 1e-4 < size < 1e8 else show

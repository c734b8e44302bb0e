"""How good the predictions are: scores with intervals, beside who knows the targets alone."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import stats

from .. import metrics
from ..diagnostics import chance as _chance
from .page import Section, Table
from .subject import LEVEL, SEED, Subject
from .words import MISSING, cut, fixed, many, percent, show

RESAMPLES = 1000
COVERAGE = f"Coverage of {percent(LEVEL)}"
CONFIDENCE = 0.95
FEW_RESAMPLED = 5  # rows: resamples of fewer are all alike
FEW_ROWS = 30  # of fewer nothing is called good


@dataclasses.dataclass(frozen=True)
class Score:
    """A score with its interval, that of the baseline, and what it means."""

    name: str
    value: float
    low: float
    high: float
    baseline: float | None
    better: str  # "lower", "higher", or what it should be
    meaning: str
    write: Callable[[float], str] = show
    chance: float | None = None  # in place of an interval: up to here by chance
    rows: int = 0  # it was measured on, where not here

    @property
    def shown(self) -> str:
        return self.write(self.value)

    @property
    def interval(self) -> str:
        if self.chance is not None:
            return f"by chance up to {self.write(self.chance)}"
        if not np.isfinite(self.low + self.high):
            return MISSING
        return f"{self.write(self.low)} to {self.write(self.high)}"


def measure(subject: Subject, given: Mapping[str, Any] | None) -> dict[str, Score]:
    """All scores by name; those that were given stand in place of those measured here."""
    found = _of_classes(subject) if subject.classifies else _of_numbers(subject)
    by_name = {score.name: score for score in found}
    for name, values in (given or {}).items():
        value, low, high = _triple(name, values)
        if subject.classifies and _same(name, "error"):
            name, value, low, high = "accuracy", 1 - value, 1 - high, 1 - low
        known = next((n for n in by_name if _same(n, name)), None)
        if known is not None:
            by_name[known] = dataclasses.replace(
                by_name[known], value=value, low=low, high=high, rows=subject.tested
            )
        else:
            shown = cut(name.replace("_", " "), 40)
            by_name[shown] = Score(shown, value, low, high, None, "", "Given with the model.")
    return by_name


def beats_baseline(subject: Subject) -> float:
    """The share of resamples in which the NLL is lower than the baseline's; NaN if not finite."""
    gain = _baseline_nll(subject) - subject.nll
    if not np.all(np.isfinite(gain)):
        return float("nan")
    return float(np.mean(_resampled(gain) > 0))


def section(subject: Subject, scores: dict[str, Score]) -> Section:
    """The table of scores, and what it says in words."""
    part = Section("scores", "Scores")
    sample = ""
    if len(subject.y) < subject.tested:
        sample = f", {len(subject.y):,} drawn from {subject.tested:,}"
    where = (
        f"on {many(len(subject.y), 'row')} that the model had not seen"
        if subject.held_out
        else f"on {many(len(subject.y), 'row')} that the model was trained on, which flatters it"
    )
    base = (
        "the class frequencies of the training rows, each count plus one"
        if subject.classifies
        else "a Poisson distribution with the mean of the training targets"
        if subject.kind == "counts"
        else "a Gaussian with the mean and deviation of the training targets"
    )
    part.say(
        f"Measured {where}{sample}. The baseline predicts {base}, whatever the inputs are. "
        f"Intervals hold the value of {percent(CONFIDENCE)} of {RESAMPLES:,} resamples of these "
        "rows (bootstrap); those of shares are Wilson's."
    )
    rows = [
        [s.name, s.shown, s.interval, MISSING if s.baseline is None else s.write(s.baseline),
         f"{s.meaning} {_direction(s)}".strip()]
        for s in scores.values()
    ]  # fmt: skip
    part.blocks.append(
        Table(
            ["Score", "Value", "95 % interval", "Baseline", "What it means"], rows,
            f"Scores on {subject.where}", frozenset({1, 2, 3}), style="wide stack",
        )
    )  # fmt: skip
    _judge(subject, part)
    return part


def _direction(score: Score) -> str:
    known = {"lower": "Lower is better.", "higher": "Higher is better."}
    return known.get(score.better, score.better)


def _judge(subject: Subject, part: Section) -> None:
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
        return
    share = beats_baseline(subject)
    if len(subject.y) < FEW_ROWS:
        part.find(
            "care", f"Too few rows to tell: {many(len(subject.y), 'row')} to judge by, where "
            f"{FEW_ROWS} are the least for a verdict.",
        )  # fmt: skip
        return
    if share < 0.025:
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


# -- the scores of both kinds


def _of_numbers(s: Subject) -> list[Score]:
    error, apart = np.square(s.true - s.mean), np.abs(s.true - s.mean)
    width = s.high - s.low
    train = s._first(s.train_y)
    centre, spread = float(np.mean(train)), float(np.std(train))
    base_low, base_high = _baseline_interval(s, centre, spread)
    base_error = np.square(s.true - centre)
    total = float(np.var(s.true))
    places = _places(float(np.sqrt(np.mean(error))))
    unit = lambda v: fixed(v, places) if places is not None else show(v)  # noqa: E731

    def explained(rows: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return 1 - error[rows].mean(-1) / np.var(s.true[rows], axis=-1)

    rmse = lambda rows: np.sqrt(error[rows].mean(-1))  # noqa: E731
    base_inside = float(np.mean((base_low <= s.true) & (s.true <= base_high)))
    off = _quantile_error(s.transform)
    return [
        Score(
            "RMSE", *_interval(rmse, len(error)), float(np.sqrt(base_error.mean())), "lower",
            f"The typical miss of the mean, in the units of {s.target}; large misses weigh most.",
            unit,
        ),
        Score(
            "MAE", *_mean(apart), float(np.mean(np.abs(s.true - centre))), "lower",
            "The average distance of the mean from the truth.", unit,
        ),
        Score(
            "R²", *_interval(explained, len(error)),
            float(1 - base_error.mean() / total) if total else float("nan"), "higher",
            "The share of the target's variance that the predictions explain; 1 is all of it.",
            lambda v: fixed(v, 3),
        ),
        Score(
            "NLL", *_mean(s.nll), float(np.mean(_baseline_nll(s))), "lower",
            "How surprised the model is by the truth, in nats a row: it scores means and "
            "uncertainties together. Compare it between models of the same target only.",
            lambda v: fixed(v, 3),
        ),
        Score(
            COVERAGE, *_share(s.inside), base_inside, f"Should be {_promise(s)}.",
            f"The share of rows whose truth lies inside the {percent(LEVEL)} interval.",
            lambda v: percent(v, 1),
        ),
        Score(
            f"Width of {percent(LEVEL)}", *_mean(width), base_high - base_low, "lower",
            f"The average width of the {percent(LEVEL)} interval: narrow is useful, as long as the "
            "coverage holds.", unit,
        ),
        Score(
            "Calibration error", off, np.nan, np.nan, None, "lower",
            "How far the share of truths below a predicted quantile is from its level, typically "
            "(root mean square over 99 levels).", lambda v: fixed(v, 3),
            _chance.of_quantiles(len(s.true)),
        ),
    ]  # fmt: skip


def _promise(s: Subject) -> str:
    if s.kind != "counts":
        return percent(LEVEL)
    return f"{percent(s.promised, 1)}, as whole numbers make it"


def _baseline_interval(s: Subject, centre: float, spread: float) -> tuple[float, float]:
    law = stats.poisson(max(centre, 1e-9)) if s.kind == "counts" else None
    low, high = (law or stats.norm(centre, max(spread, 1e-12))).interval(LEVEL)
    return float(low), float(high)


def _quantile_error(u: np.ndarray) -> float:
    levels = np.arange(1, 100) / 100
    share = np.searchsorted(np.sort(u), levels, side="right") / len(u)
    return float(np.sqrt(np.mean(np.square(share - levels))))


def _of_classes(s: Subject) -> list[Score]:
    hit = np.arange(s.p.shape[1]) == s.y[:, None]
    brier = np.square(s.p - hit).sum(-1)
    frequency = _frequencies(s)
    base_brier = np.square(frequency - hit).sum(-1)
    common = int(np.argmax(frequency))
    return [
        Score(
            "Accuracy", *_share(s.right), float(np.mean(s.y == common)), "higher",
            "The share of rows whose most probable class is the right one.",
            lambda v: percent(v, 1),
        ),
        Score(
            "NLL", *_mean(s.nll), float(np.mean(_baseline_nll(s))), "lower",
            "How surprised the model is by the truth, in nats a row; being sure and wrong costs "
            "most.", lambda v: fixed(v, 3),
        ),
        Score(
            "Brier score", *_mean(brier), float(np.mean(base_brier)), "lower",
            "The squared distance of the probabilities from what happened, from 0 to 2.",
            lambda v: fixed(v, 3),
        ),
        Score(
            "Calibration error", metrics.expected_calibration_error(s.p, s.y), np.nan, np.nan,
            None, "lower", "How far confidence is from the share of hits, on average (ECE, 15 "
            "bins).", lambda v: fixed(v, 3), _chance.of_classes(s.p, seed=SEED),
        ),
    ]  # fmt: skip


def _frequencies(s: Subject) -> np.ndarray:
    """Of the classes in the training rows."""
    return _chance.shares(np.bincount(s.train_y[s.train_y >= 0], minlength=s.p.shape[1]))


def _baseline_nll(s: Subject) -> np.ndarray:
    """Of each row, by the class frequencies, a Gaussian, or for counts a Poisson distribution."""
    if s.classifies:
        return -np.log(_frequencies(s)[s.y])
    train = s.train_y.reshape(len(s.train_y), -1)
    true = s.y.reshape(len(s.y), -1)
    centre, spread = train.mean(0), train.std(0)
    if s.kind == "counts":
        return -stats.poisson.logpmf(true, np.maximum(centre, 1e-9)).sum(-1)
    return -stats.norm.logpdf(true, centre, np.maximum(spread, 1e-12)).sum(-1)


# -- intervals


def _resampled(values: np.ndarray) -> np.ndarray:
    """The mean of each resample."""
    rows = np.random.default_rng(SEED).integers(len(values), size=(RESAMPLES, len(values)))
    return values[rows].mean(-1)


def _share(hits: np.ndarray) -> tuple[float, float, float]:
    """A share with Wilson's interval: resamples of 100 % are all 100 %."""
    value = float(np.mean(hits))
    return (value, *_chance.wilson(value, len(hits)))


def _mean(values: np.ndarray) -> tuple[float, float, float]:
    return _interval(lambda rows: values[rows].mean(-1), len(values))


def _interval(statistic: Callable[[np.ndarray], np.ndarray], n: int) -> tuple[float, float, float]:
    """A statistic of row numbers (resamples, n), and its percentile interval."""
    with np.errstate(all="ignore"):
        value = float(statistic(np.arange(n)))
        if n < FEW_RESAMPLED:
            return value, float("nan"), float("nan")
        rows = np.random.default_rng(SEED).integers(n, size=(RESAMPLES, n))
        drawn = statistic(rows)
    drawn = drawn[np.isfinite(drawn)]
    if not np.isfinite(value) or len(drawn) < RESAMPLES / 2:
        return value, float("nan"), float("nan")
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return value, float(low), float(high)


def _places(spread: float) -> int | None:
    """Decimals for errors of about this size: three digits of it."""
    if not np.isfinite(spread) or spread <= 0 or not 1e-4 < spread < 1e8:
        return None
    return int(np.clip(2 - np.floor(np.log10(spread)), 0, 6))


def _triple(name: str, values: Any) -> tuple[float, float, float]:
    try:
        # a file has null for what is not finite
        value, low, high = (float("nan") if v is None else float(v) for v in values)
    except (TypeError, ValueError):
        raise ValueError(
            f"scores[{name!r}] must be (value, low, high), three numbers, got {values!r}"
        ) from None
    return value, low, high


NAMES = {
    "r2": "r", "logloss": "nll", "negativeloglikelihood": "nll", "ece": "calibrationerror",
    "expectedcalibrationerror": "calibrationerror", "brierscore": "brier",
    "rootmeansquarederror": "rmse", "meanabsoluteerror": "mae",
}  # fmt: skip


def _same(one: str, other: str) -> bool:
    def plain(name: str) -> str:
        letters = "".join(c for c in name.lower().replace("²", "2") if c.isalpha() or c == "2")
        letters = letters.removesuffix("of") if letters.startswith(("cov", "width")) else letters
        return NAMES.get(letters, letters)

    return plain(one) == plain(other)

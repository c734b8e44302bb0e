"""Cross-validation of methods on a table, and when one of them is better than chance allows."""

import time
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from .._util.progress import Watch
from ..metrics.baseline import baseline
from ..metrics.evaluate import Evaluation, evaluate
from ..tables.timing import SHORT, Clock
from . import Refused, method_arguments, one_line, scoring
from .fitting import part_of
from .splitting import Split, folds_of
from .targets import Parts, Task

CLEAR = 0.975  # quantile of Student's t that a paired difference has to pass
TITLES = {
    "nll": "NLL", "rmse": "RMSE", "error": "error", "calibration_error": "calibration",
    "coverage": "cover 90 %",
}  # fmt: skip
LOWER = ("nll", "rmse", "error", "calibration_error")  # the better, so that one can be best
SHARES = ("error", "coverage")


@dataclass
class Row:
    """A method's scores, one of each fold, or why there are none."""

    name: str
    method: str | None  # none of the baseline
    scores: dict[str, list[float]] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)
    failed: str = ""
    warned: list[str] = field(default_factory=list)

    def add(self, evaluation: Evaluation) -> None:
        """The scores of another fold."""
        for name in (name for name in TITLES if name in evaluation):
            self.scores.setdefault(name, []).append(evaluation[name].value)

    @property
    def seconds(self) -> float | None:
        """To fit, the mean over folds."""
        return float(np.mean(self.times)) if self.times and not self.failed else None

    def mean(self, score: str) -> tuple[float, float]:
        """The mean over folds, and its standard error."""
        values = np.array(self.scores[score])
        with np.errstate(invalid="ignore"):
            return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))

    def cells(self, decimals: dict[str, int], marks: dict[str, str]) -> list[str]:
        """As a line of the table, each score with so many decimals."""
        if self.failed:
            return [self.name, *["failed"] * len(decimals), ""]
        cells = [self.name]
        for score, digits in decimals.items():
            kind = f".{digits}%" if score in SHARES else f",.{digits}f"
            mean, error = (format(value, kind) for value in self.mean(score))
            cells.append(f"{mean} ± {error} {marks.get(score) or ' '}")
        return [*cells, "" if self.seconds is None else f"{self.seconds:.1f}"]

    def to_dict(self, marks: dict[str, str]) -> dict[str, Any]:
        """As JSON has it."""
        scores = {}
        for name, values in self.scores.items() if not self.failed else ():
            mean, error = self.mean(name)
            scores[name] = {"mean": mean, "standard_error": error, "folds": values}
        return {
            "name": self.name,
            "method": self.method,
            "failed": self.failed or None,
            "warnings": self.warned,
            "seconds": self.seconds,
            "best": [s for s, mark in marks.items() if mark == "*"],
            "near_best": [s for s, mark in marks.items() if mark == "~"],
            "scores": scores,
        }


class Study:
    """One table, cut into folds once, for all methods.

    Args:
        X: the columns to learn from.
        y: the targets.
        weight: how often each row counts, or ``None``.
        kind: ``"regression"`` or ``"classification"``.
        folds: parts; fewer where the rarest class has fewer rows.
        seed: of the shuffle and of the fits.
        steps: of each fit, instead of the estimator's own number.
        quick: a few steps of a tiny network.
        clock: of the time for all fits, where it is limited.
        methods: among which the time is divided.
        split: how rows are held out: at random by default.
    """

    def __init__(
        self,
        X: pd.DataFrame,
        y: np.ndarray,
        weight: np.ndarray | None,
        kind: Task,
        *,
        folds: int = 5,
        seed: int = 0,
        steps: int | None = None,
        quick: bool = False,
        clock: Clock | None = None,
        methods: int = 1,
        split: Split | None = None,
    ):
        y = Parts(X, np.asarray(y)).targets(kind)
        self.table, self.kind, self.classes = Parts(X, y, weight), kind, kind == "classification"
        self.seed, self.quick, self.steps = seed, quick, steps
        self.scores: tuple[str, ...] = ("nll", "rmse", "calibration_error", "coverage")
        if self.classes:
            self.scores = ("nll", "error", "calibration_error")
            names, counts = np.unique(y, return_counts=True)
            if counts.min() < 2:
                rare = str(names[counts.argmin()])
                raise Refused(
                    f"the class {rare!r} has one row: no fold can learn it and be tested on it; "
                    "leave that row out, or join the class to another"
                )
            folds = min(folds, int(counts.min()))
        if len(y) < 2 * folds:
            raise Refused(f"--folds: {folds} folds need {2 * folds} rows, got {len(y)}")
        self.folds, self.clock, self.part = folds, clock, 1 / (folds * methods)
        self.parts = folds_of(X, y, self.classes, folds, seed, split or Split("random"))

    def row(self, name: str, watch: Watch) -> Row:
        """Cross-validate one method; what fails is told in its row."""
        row = Row(name, name)
        if self.clock is not None and self.clock.used and self.clock.left <= 0:
            row.failed = "not tried: --time-limit was over; give more time, or fewer --methods"
            return row
        for number, rows in enumerate(self.parts, start=1):
            train, test = map(self.table.only, rows)
            watch.begin(f"{name}, fold {number}")
            began = time.perf_counter()
            try:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always", UserWarning)
                    arguments = method_arguments(name, quick=self.quick, steps=self.steps)
                    arguments |= part_of(self.clock, self.part)
                    estimator = scoring.learn(train, self.kind, arguments, self.seed)
                    row.times.append(time.perf_counter() - began)
                    evaluation = scoring.score(
                        estimator, test.X, test.y, test.weight, only=self.scores, resamples=0
                    )
                    row.add(evaluation)
            except Exception as error:  # whatever it is, the other methods go on
                row.failed = one_line(str(error) or repr(error))
                if self.clock is not None:  # its other folds leave their time to those that follow
                    self.clock.used += self.part * (len(self.parts) - number)
                return row
            finally:
                watch.end(f"{name}, fold {number}", time.perf_counter() - began)
            told = [one_line(str(w.message)) for w in caught if w.category is UserWarning]
            if any(text.startswith(SHORT) for text in row.warned):  # every fold says much the same
                told = [text for text in told if not text.startswith(SHORT)]
            row.warned = list(dict.fromkeys([*row.warned, *told]))
        return row

    def baseline(self) -> Row:
        """What knows the targets alone: a Gaussian with their moments, or the classes' shares."""
        row = Row("class shares alone" if self.classes else "mean alone", None)
        for rows in self.parts:
            train, test = map(self.table.only, rows)
            y, new, shape = train.y, test.y, test.y.shape
            if self.classes:
                known, y = np.unique(y, return_inverse=True)
                new, shape = scoring.labels(known, new), (len(new), len(known))
            constant = baseline(self.kind, y, shape, weight=train.weight)
            row.add(evaluate(constant, new, test.weight, only=self.scores, resamples=0))
        return row


def clearly_above(one: list[float], other: list[float]) -> bool:
    """Whether scores exceed others of the same folds by more than chance allows.

    A t test of the paired differences. Folds share most of their training rows, so the variance
    of the mean is (1/k + 1/(k − 1)) of the differences' own, not 1/k (Nadeau & Bengio, Inference
    for the Generalization Error, Machine Learning 2003).

    Example:
        >>> from posterax.commands.folds import clearly_above
        >>> clearly_above([2.0, 2.1, 2.2], [1.0, 1.1, 1.2]), clearly_above([1, 3, 2], [2, 1, 2])
        (True, False)
    """
    with np.errstate(invalid="ignore"):
        apart = np.asarray(one, np.float64) - np.asarray(other, np.float64)
        k = len(apart)
        error = apart.std(ddof=1) * np.sqrt(1 / k + 1 / (k - 1))
        limit = stats.t.ppf(CLEAR, k - 1) * error
        # infinities differ from all that is finite; from one another nothing can be told
        return bool(np.all(apart == np.inf) or (apart.mean() > limit and apart.mean() > 0))


def marks(rows: list[Row], scores: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """By row and score: ``*`` for the best, where clear of all others, or ``~`` for those near."""
    signs: dict[str, dict[str, str]] = {row.name: {} for row in rows}
    for score in (s for s in scores if s in LOWER):
        # a constant is calibrated by construction, which is no merit
        there = [r for r in rows if not r.failed and (r.method or score != "calibration_error")]
        if not there:
            continue
        lowest = min(there, key=lambda row: (np.isnan(m := row.mean(score)[0]), m))
        others = [row for row in there if row is not lowest]
        near = [row for row in others if not clearly_above(row.scores[score], lowest.scores[score])]
        if others and not near:
            signs[lowest.name][score] = "*"
        elif len(near) < len(others):  # where all are near, marks would say nothing
            for row in (lowest, *near):
                signs[row.name][score] = "~"
    return signs


def caption(study: Study, rows: list[Row]) -> str:
    """What the columns and the marks mean."""
    test = f"95 % t test of paired differences over {study.folds} folds, for shared training rows"
    calibration = (
        "expected calibration error; few rows make it larger by chance alone"
        if study.classes
        else "root mean square of (level − share below the quantile); "
        "cover: by the 90 % interval, should be 90 %"
    )
    lines = [
        "means over folds ± standard error; lower is better; NLL in nats a row",
        f"calibration: {calibration}",
        f"* best, clear of all others; ~ not clearly worse than the lowest ({test})",
        "seconds: of one fit, compilation included",
    ]
    lines += [f"{row.name} warned: {text}" for row in rows for text in row.warned]
    lines += [f"{row.name} failed: {row.failed}" for row in rows if row.failed]
    return "\n".join(lines)


def as_frame(rows: list[Row]) -> pd.DataFrame:
    """The table with a column for every number."""
    lines = []
    for row in rows:
        line: dict[str, Any] = {"method": row.name}
        for score in row.scores if not row.failed else ():
            line[score], line[f"{score}_standard_error"] = row.mean(score)
        lines.append(line | {"seconds": row.seconds, "failed": row.failed or None})
    return pd.DataFrame(lines)


def decimals(rows: list[Row], scores: tuple[str, ...]) -> dict[str, int]:
    """For each score, the decimals that show three digits of its smallest mean; one for shares."""
    digits = {}
    for score in scores:
        means = np.abs([row.mean(score)[0] for row in rows if not row.failed])
        means = means[np.isfinite(means) & (means > 0)]
        needed = 2 - np.floor(np.log10(means.min())) if len(means) else 3
        digits[score] = 1 if score in SHARES else int(np.clip(needed, 0, 3))
    return digits

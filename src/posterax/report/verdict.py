"""The verdict on a model, by rows that it has not seen: one for the command line and the report.

A look at many things errs now and then by chance alone, so each of them asks for more than chance
gives in one of some hundred tables, and for an effect that matters.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..metrics import Evaluation
from . import holding
from .outcome import Outcome
from .page import Finding, Level
from .words import many, show

FEW_ROWS = holding.FEW_ROWS
VERDICTS: dict[Level, tuple[str, str]] = {
    "good": ("✓", "Good to use"),
    "care": ("!", "Use with care"),
    "bad": ("✕", "Do not rely on it yet"),
}
ORDER = list(VERDICTS)
WORSE, MUCH_WORSE = 2.0, 3.0  # standard errors by which an error is above the baseline's
DRIFT = 1.15  # times as wide, or as narrow, that intervals may become by a second fit
REASONS = 3  # named in a line


def judge(
    outcome: Outcome,
    scores: Evaluation,
    train_y: np.ndarray,
    *,
    train_weight: np.ndarray | None = None,
    held_out: bool = True,
    unknown: int = 0,
    fit: Sequence[Finding] = (),
    drift: float | None = None,
) -> list[Finding]:
    """All there is to say about a model, the most serious first.

    Args:
        outcome: its predictions of all rows to judge by, and what came true.
        scores: of the same, by ``px.metrics.evaluate``.
        train_y: targets that the baseline knows, as numbers or as labels 0 … K−1.
        train_weight: of each of them.
        held_out: whether the model has not seen these rows.
        unknown: rows left out, since the training lacked their label.
        fit: what the fit itself says, from ``settled``.
        drift: how many times as wide as those judged the intervals are of a model that was then
            fitted to all rows.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> from posterax.report.outcome import Outcome
        >>> from posterax.report.verdict import judge, worst
        >>> x = np.linspace(-1, 1, 40)[:, None]
        >>> model = px.BayesianRegressor("maximum_a_posteriori", steps=5).fit(x, x[:, 0])
        >>> outcome = Outcome(predictive=model.predictive(x), y=x[:, 0])
        >>> scores = px.metrics.evaluate(outcome.predictive, outcome.y)
        >>> worst(judge(outcome, scores, x[:, 0], held_out=False)) in ("care", "bad")
        True
    """
    found = [*_rows(outcome, held_out, unknown), *_likelihood(outcome, scores)]
    found += _errors(outcome, train_y, train_weight)
    hold = holding.of_classes if outcome.classifies else holding.of_numbers
    found += [*hold(outcome, scores), *fit]
    if drift is not None:
        found += _drift(drift)
    return sorted(found, key=lambda finding: -ORDER.index(finding.level))


def worst(findings: Sequence[Finding]) -> Level:
    """How serious the most serious finding is."""
    return max((finding.level for finding in findings), key=ORDER.index, default="good")


def in_words(findings: Sequence[Finding], most: int = REASONS) -> str:
    """The verdict and its reasons in one line.

    Example:
        >>> from posterax.report.page import Finding
        >>> from posterax.report.verdict import in_words
        >>> in_words([Finding("good", "All is well."), Finding("care", "It is slow.")])
        'Use with care: It is slow.'
    """
    level = worst(findings)
    reasons = [finding.text for finding in findings if finding.level == level]
    if level == "bad":
        reasons += [finding.text for finding in findings if finding.level == "care"]
    left = len(reasons) - most
    more = f" And {many(left, 'reason')} more." if left > 0 and level != "good" else ""
    return f"{VERDICTS[level][1]}: {' '.join(reasons[:most])}{more}"


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """The verdict as files have it: ``level``, ``words``, and each finding."""
    return {
        "level": worst(findings),
        "words": in_words(findings),
        "findings": [{"level": f.level, "about": f.section, "text": f.text} for f in findings],
    }


# -- the looks that are the same for numbers and for classes


def _rows(outcome: Outcome, held_out: bool, unknown: int) -> list[Finding]:
    found = []
    if not held_out:
        found.append(Finding(
            "care", "All scores are of the training rows, which flatters the model: hold rows out "
            "to learn how it does on new ones.", "scores",
        ))  # fmt: skip
    if unknown:
        found.append(Finding(
            "care", f"{many(unknown, 'held-out row')} had a label that no training row has: left "
            "out of the scores, and the model can never predict it.", "scores",
        ))  # fmt: skip
    return found


def _likelihood(outcome: Outcome, scores: Evaluation) -> list[Finding]:
    """The NLL beside the baseline's, as far as so many rows can tell."""
    broken, share = int(np.sum(~np.isfinite(outcome.nll))), scores.beats_baseline
    if broken:
        text = (
            f"The likelihood of {many(broken, 'row')} is not finite: the model calls impossible "
            "what happened, or its numbers overflow."
        )
        return [Finding("bad", text, "scores")]
    if len(outcome.y) < FEW_ROWS:
        text = (
            f"Too few rows to tell: {many(len(outcome.y), 'row')} to judge by, where {FEW_ROWS} "
            "are the least for a verdict."
        )
        return [Finding("care", text, "scores")]
    if share < 0.025:
        text = (
            "The baseline, which knows nothing of the inputs, predicts better (NLL): do not use "
            "this model as it is."
        )
        return [Finding("bad", text, "scores")]
    if share < 0.975:
        text = (
            "It is not certain that the model predicts better than the baseline (NLL): the inputs "
            "may say little about the target, or there are too few rows to tell."
        )
        return [Finding("care", text, "scores")]
    return [Finding("good", "It predicts clearly better than the baseline (NLL).", "scores")]


def _errors(
    outcome: Outcome, train_y: np.ndarray, train_weight: np.ndarray | None
) -> list[Finding]:
    """A good likelihood may go with answers that are worse than none."""
    if len(outcome.y) < FEW_ROWS:
        return []
    if outcome.classifies:
        known = np.asarray(train_y) >= 0
        weight = None if train_weight is None else np.asarray(train_weight)[known]
        counts = np.bincount(np.asarray(train_y)[known], weight)
        error, alone = ~outcome.right, outcome.y != counts.argmax()
        what, than = "most probable classes are wrong more often", "the most frequent class is"
    else:
        constant = float(np.average(outcome._first(train_y), weights=train_weight))
        error = np.square(outcome.mean - outcome.true)
        alone = np.square(constant - outcome.true)
        what, than = "means are further from the truth", "the training mean is"
    lost = error.astype(float) - alone
    by = outcome.average(lost) / max(outcome.error_of_mean(lost), 1e-300)
    if not by > WORSE:
        return []
    own, other = outcome.average(error), outcome.average(alone)
    beside = f"an error of {100 * own:.1f} %, and {100 * other:.1f} % with that in every row"
    if not outcome.classifies:
        own, other = np.sqrt(own), np.sqrt(other)
        beside = f"an RMSE of {show(own)}, and {show(other)} with that in every row"
    level: Level = "bad" if by > MUCH_WORSE else "care"
    return [Finding(level, f"Its {what} than {than}: {beside}.", "scores")]


def _drift(times: float) -> list[Finding]:
    if not np.isfinite(times) or 1 / DRIFT <= times <= DRIFT:
        return []
    advice = "these scores are not quite its own (--no-refit ships the model that was scored)"
    return [Finding("care", f"{drifted(times)}: {advice}.", "scores")]


def drifted(times: float) -> str:
    """What a second fit did to the intervals.

    Example:
        >>> from posterax.report.verdict import drifted
        >>> drifted(1.3)
        "The shipped model's intervals are 1.3 times as wide as those scored"
    """
    return f"The shipped model's intervals are {times:.2g} times as wide as those scored"

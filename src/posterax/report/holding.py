"""Whether predictions hold what they say: intervals and quantiles of numbers, probabilities."""

import numpy as np
from scipy import stats

from ..diagnostics.chance import wilson
from ..metrics import Evaluation
from .outcome import Outcome
from .page import Finding, Level
from .words import LEVEL, fixed, many, percent, show

SECTION = "calibration"
FEW_ROWS = 30  # of fewer nothing is called good
SERIOUS = 0.15  # below its promise: a miss that matters
CLOSER_ROWS = 50  # the fewest to look closer at
RARE = 0.001  # what chance does to a look in so many tables
SELDOM = 0.005  # and to the coverage, the first look
TOLERATED = 0.02  # of a probability: what is known to be off by less is good enough
CLEARLY, SERIOUS_SHAPE = 1.5, 0.1  # times what is due to chance, and beyond it
CLEARLY_CLASSES = 1.25  # the same of classes, whose error varies less by chance
SURELY = 3.5  # standard errors of a mean
BIASED, CERTAIN = 0.1, 4.0  # of the truths' deviation, and of the mean error's own
GROUPED_ROWS, PARTS, APART = 300, 3, 0.08  # to compare parts of the rows, and how they may differ


def of_numbers(outcome: Outcome, scores: Evaluation) -> list[Finding]:
    """What the 90 % intervals, their sides and all quantiles say."""
    found = [_coverage(outcome, scores)]
    if outcome.worth < CLOSER_ROWS:
        return found
    # of one cause one finding
    closer = _bias(outcome) or _sides(outcome) or _shape(scores, found)
    found += [closer] if closer else []
    uneven = _uneven(outcome)
    return [*found, uneven] if uneven else found


def _coverage(outcome: Outcome, scores: Evaluation) -> Finding:
    """Binomial, on both sides."""
    at, promise, n = scores["coverage"].value, outcome.promised, outcome.worth
    low, high = wilson(at, n)
    ends, rows = f"{percent(low, 1)} to {percent(high, 1)}", many(scores.rows, "row")
    text = (
        f"The {percent(LEVEL)} interval held the truth in {percent(at, 1)} of {rows}; the 95 % "
        f"interval of that share is {ends}."
    )
    if outcome.kind == "counts":
        held = percent(promise, 1)
        text += f" Its ends are whole numbers: by the model's own account it holds {held}."
    law = stats.binom(round(n), promise)
    chance = 2 * min(law.cdf(round(at * n)), law.sf(round(at * n) - 1))
    noise = np.sqrt(promise * (1 - promise) / n)
    if chance < SELDOM and abs(at - promise) > TOLERATED + noise:
        under = at < promise
        verdict = (
            "That is too few: the intervals are too narrow, the model is too sure of itself."
            if under
            else "That is too many: the intervals are too wide, which errs on the safe side."
        )
        level: Level = "bad" if under and high < promise - SERIOUS else "care"
        found = (
            f"Its {percent(LEVEL)} intervals hold {percent(at, 1)} of the truths: they are too "
            f"{'narrow' if under else 'wide'}."
        )
        return Finding(level, found, SECTION, f"{text} {verdict}")
    few = low <= promise - SERIOUS or len(outcome.y) < FEW_ROWS
    agrees = f"agrees with {outcome.promise} as far as {rows} can tell ({ends})"
    agrees += "; these are too few to rule out a serious miss" * few
    points = f", {100 * SERIOUS:.0f} points and more" * few
    its = f"The coverage of its {percent(LEVEL)} intervals {agrees}."
    return Finding("care" if few else "good", its, SECTION, f"{text} That {agrees}{points}.")


def _bias(outcome: Outcome) -> Finding | None:
    """Whether predictions are wrong on average."""
    error, average = outcome.mean - outcome.true, outcome.average
    by, own = average(error), np.sqrt(average(np.square(outcome.std)))
    spread = np.sqrt(average(np.square(outcome.true - average(outcome.true))))
    noise = np.sqrt(average(np.square(error - by)))
    # rare large values that these rows happen to lack are in the model's own deviations
    least = CERTAIN * max(noise, own) / np.sqrt(outcome.worth)
    if not abs(by) > max(BIASED * max(spread, own), least):
        return None
    words = f"too {'high' if by > 0 else 'low'} by {show(abs(by))} on average"
    return Finding(
        "care",
        f"Its predictions are {words}, which chance does not explain.",
        SECTION,
        f"The predictions are {words}; the truths have a deviation of {show(float(spread))}.",
    )


def _sides(outcome: Outcome) -> Finding | None:
    """Whether as many truths lie below the intervals as above, and as many as promised."""
    promise, u, n = (1 - LEVEL) / 2, outcome.transform, outcome.worth
    below, above = outcome.average(u < promise), outcome.average(u > 1 - promise)
    misses = round(n * (below + above))
    if not misses:
        return None
    chance = stats.binomtest(round(n * above), max(misses, round(n * above))).pvalue
    # the third Legendre polynomial of a uniform number has mean 0 and variance 1
    third = np.sqrt(7) * (20 * u**3 - 30 * u**2 + 12 * u - 1)
    skew = abs(outcome.average(third)) * np.sqrt(n)
    one_sided = chance < RARE or (chance < 0.1 and skew > SURELY)
    if abs(below - above) <= TOLERATED or not one_sided:
        return None
    shares = (
        f"{percent(below, 1)} of the truths lie below the predicted {percent(promise)} "
        f"quantile, {percent(above, 1)} above that of {percent(1 - promise)}"
    )
    return Finding(
        "care",
        f"The misses are one-sided: {shares}.",
        SECTION,
        f"The misses are one-sided: {shares}. The noise is skewed, and the intervals are not.",
    )


def _shape(scores: Evaluation, found: list[Finding]) -> Finding | None:
    """Whether all quantiles hold, not only the ends of one interval."""
    score = scores.get("calibration_error")
    if score is None or not score.chance or any(f.level != "good" for f in found):
        return None  # it is said why
    if not score.value > max(CLEARLY * score.chance, TOLERATED + score.chance / 2):
        return None
    off = f"off by {fixed(score.value, 3)} on average, and chance explains {fixed(score.chance, 3)}"
    why = "the targets have another distribution than the model gives them"
    return Finding(
        "bad" if score.value > SERIOUS_SHAPE + score.chance else "care",
        f"Its quantiles are {off}: {why}.",
        SECTION,
        f"The share of truths below a predicted quantile is {off}: {why}.",
    )


def _uneven(outcome: Outcome) -> Finding | None:
    """Whether intervals hold as often where predictions are low, high, sure or unsure."""
    if outcome.worth < GROUPED_ROWS:
        return None
    inside = np.abs(outcome.transform - 0.5) <= LEVEL / 2
    for values, what in ((outcome.mean, "predictions"), (outcome.std, "deviations")):
        if np.ptp(values) <= 1e-9 * np.max(np.abs(values), initial=0):
            continue
        order = np.argsort(values, kind="stable")
        parts = np.array_split(order[outcome.shares[order] > 0], PARTS)
        held = np.array([np.average(inside[rows], weights=outcome.shares[rows]) for rows in parts])
        each = outcome.worth / PARTS
        noise = max(held.mean() * (1 - held.mean()), LEVEL * (1 - LEVEL) / 2)
        size = np.square(held - held.mean()).sum() * each / noise
        if np.ptp(held) > APART and stats.chi2.sf(size, PARTS - 1) < RARE / 2:
            text = (
                f"Its {percent(LEVEL)} intervals hold {percent(held[0])} where the {what} are "
                f"lowest and {percent(held[-1])} where they are highest, a third of the rows each"
            )
            return Finding("care", f"{text}.", SECTION, f"{text}; in between {percent(held[1])}.")
    return None


# -- classes


def of_classes(outcome: Outcome, scores: Evaluation) -> list[Finding]:
    """What the probability of the chosen class says, and that of what came true."""
    confidence, n = outcome.p.max(-1), len(outcome.y)
    mean, accuracy = outcome.average(confidence), outcome.average(outcome.right)
    error, chance = scores["calibration_error"].value, scores["calibration_error"].chance or 0.0
    text = (
        f"On average the model gives its choice a probability of {percent(mean, 1)}, and is right "
        f"in {percent(accuracy, 1)} of {many(n, 'row')}. The calibration error is "
        f"{fixed(error, 3)}; a perfectly calibrated model would have up to {fixed(chance, 3)} here "
        "by chance."
    )
    if n < FEW_ROWS:
        few = f"{text} These are too few rows to tell whether the probabilities hold."
        short = f"Too few rows, {n}, to tell whether its probabilities hold."
        return [Finding("care", short, SECTION, few)]
    noise = np.sqrt(outcome.average(confidence * (1 - confidence)) / outcome.worth)
    gap = (mean - accuracy) / max(float(noise), 1e-300)
    wrong = error > max(CLEARLY_CLASSES * chance, TOLERATED)
    wrong |= abs(gap) > SURELY and abs(mean - accuracy) > TOLERATED
    if not wrong:
        within = "Its probabilities are as often right as they say, within chance."
        none = f"{text} So there is no sign that the probabilities are wrong."
        found = _surprise(outcome) or _frequencies(outcome)
        return [found] if found else [Finding("good", within, SECTION, none)]
    # a direction is named only where the mean gap is more than its own chance
    word = "too sure of itself" if gap > 0 else "not sure enough of itself"
    clear = abs(gap) > 1.96
    word = word if clear else "too sure of some rows and not sure enough of others"
    serious = not (clear and gap < 0) and error > SERIOUS + chance
    off = f"Its probabilities are off by {percent(error, 1)} on average: it is {word}."
    more = f"{text} So the probabilities are off: the model is {word}."
    return [Finding("bad" if serious else "care", off, SECTION, more)]


def _surprise(outcome: Outcome) -> Finding | None:
    """Whether the model is as surprised on average as it expects to be, by all its classes."""
    p = outcome.p
    log = np.log(np.maximum(p, 1e-300))
    expected = -(p * log).sum(-1)
    spread = np.maximum((p * log**2).sum(-1) - expected**2, 0)
    by = outcome.average(outcome.nll - expected)
    noise = np.sqrt(float(outcome.shares**2 @ spread))
    own = outcome.average(expected)
    if not abs(by) > max(SURELY * noise, 0.05 * max(own, 0.1)):
        return None
    word = "too sure of itself" if by > 0 else "not sure enough of itself"
    text = (
        f"What happened surprised the model by {fixed(own + by, 3)} nats a row, where it expected "
        f"{fixed(own, 3)}: it is {word}."
    )
    return Finding("care", text, SECTION, text)


def _frequencies(outcome: Outcome) -> Finding | None:
    """Whether each class comes as often as it is predicted."""
    p = outcome.p
    came = outcome.shares @ (outcome.y[:, None] == np.arange(p.shape[1]))
    said = outcome.shares @ p
    noise = np.sqrt(np.maximum(outcome.shares @ (p * (1 - p)), 1e-300) / outcome.worth)
    limit = stats.norm.isf(RARE / 2 / p.shape[1])
    off = np.abs(said - came)
    wrong = (off > limit * noise) & (off > np.minimum(TOLERATED, 0.2 * np.maximum(said, came)))
    if not wrong.any():
        return None
    k = int(np.argmax(np.where(wrong, off / noise, 0)))
    text = (
        f"It gives a class a probability of {percent(said[k], 1)} on average that came true in "
        f"{percent(came[k], 1)} of the rows."
    )
    return Finding("care", text, SECTION, text)

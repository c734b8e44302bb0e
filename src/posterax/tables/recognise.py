r"""What kind of number a target is, and the likelihood and the scaling that go with it.

A symmetric likelihood, Student's t, is right for most targets and never far off. Another is taken
only where the targets show that it is at least as good, by rules on their weighted moments:

- *count*: whole numbers of 0 or more without a common divisor, skewed to the right, with a variance
  of their mean or more and a mean within two deviations of 0. Large counts with a symmetric spread
  stay real, and so do scores and grades, which vary less than counts.
- *zeros*: of numbers of 0 or more, 15 % are exactly 0 or more, and the others have many values,
  whose logarithms are as close to normal as they are.
- *share*: between 0 and 1 with more than 10 values, on both sides of ½, and spread over half of the
  interval, or over its ends. Few are exactly 0 or 1.
- *positive*: all above 0, and log y is closer to normal than y: log-normal against normal by their
  maximised likelihoods, with a mean within two deviations of 0; or else by 0.1 nats a row and with
  a skewness above 1.
- *real*: everything else; anything with negative values, and tables of fewer than 30 rows.
"""

from typing import NamedTuple

import numpy as np

LEAST_TARGETS = 30  # rows; fewer tell too little of their distribution
DISTINCT = 10  # more values than this, where a target is to be continuous
MANY_ZEROS = 0.15  # of the rows
MANY_ENDS = 0.1  # of shares that are exactly 0 or 1
CLEARLY, SLIGHTLY = 0.1, 0.05  # nats a row
SURE = 5.0  # nats of all rows
VISIBLE = 20  # whole numbers above this look continuous
MOST_COUNTED = 1e6


class Recognised(NamedTuple):
    """A kind of target, or the user's word for it, and the reason in a sentence."""

    name: str
    why: str


def recognise(y: np.ndarray, weight: np.ndarray | None = None) -> Recognised:
    """The kind of the targets: ``real``, ``positive``, ``count``, ``share`` or ``zeros``.

    Several targets, the columns of ``y``, are of one kind only where each of them is.

    Args:
        y: the targets as the user gave them, (N,) or (N, D).
        weight: how much each row counts; rows of weight 0 do not.

    Example:
        >>> import numpy as np
        >>> from posterax.tables.recognise import recognise
        >>> y = np.random.default_rng(0).poisson(1.6, 500)
        >>> recognise(y)
        Recognised(name='count', why='whole numbers of 0 or more, mean 1.63: counts')
    """
    y, weight = counted(y, weight)
    if len(y) < LEAST_TARGETS:
        few = f"{len(y)} rows are too few to tell more than that they are real numbers"
        return Recognised("real", few)
    each = [_one(column, weight) for column in y.T]
    if len({one.name for one in each}) == 1:
        return each[0]
    kinds = ", ".join(one.name for one in each)
    return Recognised("real", f"the targets are of several kinds ({kinds}): real numbers")


def counted(y: np.ndarray, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Targets as columns, and the weights, of the rows that count.

    Example:
        >>> import numpy as np
        >>> from posterax.tables.recognise import counted
        >>> counted(np.array([1.0, 2.0]), np.array([0.0, 3.0]))
        (array([[2.]]), array([3.]))
    """
    y = np.asarray(y, np.float64).reshape(len(y), -1)
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, np.float64)
    return y[weight > 0], weight[weight > 0]


# -- moments


class Moments(NamedTuple):
    """Ends and weighted moments of a column."""

    low: float
    high: float
    mean: float
    deviation: float
    skewness: float


def moments(y: np.ndarray, weight: np.ndarray) -> Moments:
    """Ends, mean, standard deviation and skewness; a column that does not vary has skewness 0.

    Example:
        >>> import numpy as np
        >>> from posterax.tables.recognise import moments
        >>> moments(np.array([0.0, 2.0]), np.array([1.0, 1.0]))
        Moments(low=0.0, high=2.0, mean=1.0, deviation=1.0, skewness=0.0)
    """
    share = weight / weight.sum()
    mean = float(share @ y)
    deviation = float(np.sqrt(share @ np.square(y - mean)))
    third = float(share @ ((y - mean) / deviation) ** 3) if deviation > 0 else 0.0
    return Moments(float(y.min()), float(y.max()), mean, deviation, third)


def log_normal_gain(y: np.ndarray, weight: np.ndarray) -> float:
    """How much more likely positive numbers are as log-normal than as normal, in nats a row.

    Both with the moments that maximise their likelihood: log s(y) − log s(log y) − mean(log y).

    Example:
        >>> import numpy as np
        >>> from posterax.tables.recognise import log_normal_gain
        >>> y = np.random.default_rng(0).exponential(size=5000)  # 0.33 in theory
        >>> round(log_normal_gain(y, np.ones(5000)), 1)
        0.3
    """
    plain, logs = moments(y, weight), moments(np.log(y), weight)
    if plain.deviation == 0 or logs.deviation == 0:
        return 0.0
    return float(np.log(plain.deviation) - np.log(logs.deviation) - logs.mean)


# -- one column


def _one(y: np.ndarray, weight: np.ndarray) -> Recognised:
    found = moments(y, weight)
    if found.low < 0:
        return Recognised("real", f"values down to {found.low:.3g}: real numbers")
    if len(np.unique(y)) <= 2:
        return Recognised("real", "two values or one: real numbers")
    rules = {"count": _count, "share": _share, "zeros": _zeros, "positive": _positive}
    for name, rule in rules.items():
        if why := rule(y, weight, found):
            return Recognised(name, why)
    spread = f"mean {found.mean:.3g}, deviation {found.deviation:.3g}"
    return Recognised("real", f"{spread}: real numbers")


def _count(y: np.ndarray, weight: np.ndarray, found: Moments) -> str | None:
    if not np.all(y == np.floor(y)) or found.high > MOST_COUNTED:
        return None
    # amounts are rounded to tens and thousands, counts are not; and large ones look continuous
    if np.gcd.reduce(y.astype(np.int64)) > 1 or np.quantile(y[y > 0], 0.01) > VISIBLE:
        return None
    # a Poisson distribution has the variance m and the skewness 1 / √m, others more of both
    least = max(1 - 3 * np.sqrt(2 / len(y)), 0.5)  # of their ratio in a sample
    varies = found.deviation**2 >= least * found.mean
    skewed = found.skewness > 0.5 / np.sqrt(found.mean)
    if not (varies and skewed and found.mean < 2 * found.deviation):
        return None
    spread = f", deviation {found.deviation:.3g}" if found.deviation**2 > 2 * found.mean else ""
    return f"whole numbers of 0 or more, mean {found.mean:.3g}{spread}: counts"


def _share(y: np.ndarray, weight: np.ndarray, found: Moments) -> str | None:
    if found.high > 1 or len(np.unique(y)) <= DISTINCT:
        return None
    ends = np.average((y == 0) | (y == 1), weights=weight)
    if ends > MANY_ENDS or not found.low <= 0.5 <= found.high:
        return None
    least, most = found.mean - 3 * found.deviation, found.mean + 3 * found.deviation
    if found.high - found.low < 0.5 and least > 0 and most < 1:
        return None
    return f"between {found.low:.3g} and {found.high:.3g}, mean {found.mean:.3g}: shares"


def _zeros(y: np.ndarray, weight: np.ndarray, found: Moments) -> str | None:
    zero = np.average(y == 0, weights=weight)
    above = y > 0
    if zero < MANY_ZEROS or np.sum(above) < LEAST_TARGETS or len(np.unique(y)) <= DISTINCT:
        return None
    if log_normal_gain(y[above], weight[above]) < -CLEARLY:
        return None
    mean = np.average(y[above], weights=weight[above])
    return f"{100 * zero:.0f} % are exactly 0, the others have mean {mean:.3g}: zeros and amounts"


def _positive(y: np.ndarray, weight: np.ndarray, found: Moments) -> str | None:
    if found.low <= 0 or len(np.unique(y)) <= DISTINCT:
        return None
    gain = log_normal_gain(y, weight)
    if gain * len(y) < SURE:
        return None
    below = found.mean < 2 * found.deviation
    if gain > CLEARLY and found.skewness > 1:
        why = f"skewness {found.skewness:.2g}"
    elif gain > SLIGHTLY and below:
        why = f"mean {found.mean:.3g} and deviation {found.deviation:.3g}"
    else:
        return None
    return f"all above 0, {why}, log y closer to normal by {gain:.2g} nats: positive amounts"

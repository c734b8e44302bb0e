"""What chance alone does to scores of so many rows: intervals of shares, levels of errors."""

import numpy as np
from numpy.typing import ArrayLike

from .._util.admit import admit_float64

CONFIDENCE = 0.95
NORMAL = 1.959964  # its quantile, on both sides
CRAMER_VON_MISES = 0.46136  # 95 % quantile of ∫ B(q)² dq of a Brownian bridge
REPETITIONS, BINS = 400, 15
MOST_CELLS = 1_000_000  # drawn one by one; of more rows the sums are as good as Gaussian


def effective(weight: ArrayLike) -> float:
    """How many equal rows weighted ones are worth (Kish): (Σ w)² / Σ w².

    Example:
        >>> from posterax.diagnostics.chance import effective
        >>> effective([1, 1, 1, 1]), effective([1, 0, 0])
        (4.0, 1.0)
    """
    weight = admit_float64(weight, "weight")
    return float(weight.sum() ** 2 / np.square(weight).sum())


def wilson(share: float, n: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of n rows: right at 0 and 1 too, where resampling is not.

    Example:
        >>> from posterax.diagnostics.chance import wilson
        >>> [round(end, 3) for end in wilson(1.0, 10)], [round(end, 3) for end in wilson(0.9, 100)]
        ([0.722, 1.0], [0.826, 0.945])
    """
    z = NORMAL**2 / n
    centre = (share + z / 2) / (1 + z)
    reach = np.sqrt(z * (share * (1 - share) + z / 4)) / (1 + z)
    return float(max(centre - reach, 0.0)), float(min(centre + reach, 1.0))


def shares(counts: ArrayLike) -> np.ndarray:
    """What is known of classes without inputs: their shares, none of them 0 (Laplace's rule).

    Example:
        >>> from posterax.diagnostics.chance import shares
        >>> shares([3, 0, 1])
        array([0.57142857, 0.14285714, 0.28571429])
    """
    counts = admit_float64(counts, "counts") + 1
    return counts / counts.sum()


def of_classes(p: ArrayLike, weight: ArrayLike | None = None, seed: int = 0) -> float:
    """The expected calibration error that a calibrated model stays below in 95 % of cases.

    By drawing whether the chosen classes are right from these very probabilities.

    Args:
        p: probabilities (rows, classes).
        weight: how often each row counts.
        seed: of the draws.
    """
    confidence = admit_float64(p, "p").max(-1)
    n = len(confidence)
    weight = np.ones(n) if weight is None else admit_float64(weight, "weight")
    weight = weight / weight.sum()
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    rng = np.random.default_rng(seed)
    if n * REPETITIONS <= MOST_CELLS:
        gap = weight * ((rng.random((REPETITIONS, n)) < confidence) - confidence)
        bins = place + BINS * np.arange(REPETITIONS)[:, None]
        flat: np.ndarray = np.bincount(bins.ravel(), gap.ravel(), BINS * REPETITIONS)
        sums = flat.reshape(REPETITIONS, BINS)
    else:
        spread = np.square(weight) * confidence * (1 - confidence)
        scale = np.sqrt(np.bincount(place, spread, BINS))
        sums = scale * rng.normal(size=(REPETITIONS, BINS))
    return float(np.quantile(np.abs(sums).sum(-1), CONFIDENCE))


def of_quantiles(n: float) -> float:
    """The same for the root mean square of (share below the quantile − its level), of n rows.

    Its square has the law of Cramér and von Mises, divided by n.

    Example:
        >>> from posterax.diagnostics.chance import of_quantiles
        >>> round(of_quantiles(100), 3)
        0.068
    """
    return float(np.sqrt(CRAMER_VON_MISES / n))

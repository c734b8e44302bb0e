"""What a prediction is judged by; numpy and scipy only, so that every worker has the same.

Negative log likelihoods are in nats. For targets that are whole numbers it is that of the mass of
[y − ½, y + ½], of densities too: a density could rise without bound there, and a mass cannot.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import special, stats
from sklearn.metrics import roc_auc_score

LEVEL, Z90 = 0.9, 1.6448536269514722
LEAST = 1e-15  # class probabilities are clipped here: trees give some classes exactly 0
BINS = 15
PARTS = 10  # of the test rows, in order: they tell the error where there is one split


class Judged(NamedTuple):
    """Of each test row."""

    nll: np.ndarray  # of the density; of the mass, where the forecast has only masses
    crps: np.ndarray
    mass: np.ndarray  # NLL of the mass around a whole number, where that is asked for


class Forecast(NamedTuple):
    """What a contender says about test rows, and a function that judges it by the targets."""

    mean: np.ndarray
    std: np.ndarray
    low: np.ndarray
    high: np.ndarray
    judge: Callable[[np.ndarray, bool], Judged]  # by targets, and whether they are whole numbers
    kind: str = "density"


def gaussian(mean: Any, std: Any, low: Any = None, high: Any = None) -> Forecast:
    """A Gaussian for every row, with its own interval where it has one."""
    mean, std = np.asarray(mean, float), np.broadcast_to(np.asarray(std, float), np.shape(mean))
    std = np.maximum(std, 1e-12)
    low = mean - Z90 * std if low is None else np.asarray(low, float)
    high = mean + Z90 * std if high is None else np.asarray(high, float)

    def judge(y: np.ndarray, whole: bool) -> Judged:
        z = (y - mean) / std
        nll = 0.5 * z**2 + np.log(std) + 0.5 * np.log(2 * np.pi)
        inside = z * (2 * special.ndtr(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi)
        return Judged(nll, std * inside, gaussian_mass(z, std))

    return Forecast(mean, std, low, high, judge)


def gaussian_mass(z: np.ndarray, std: np.ndarray) -> np.ndarray:
    """−log P(|Y − y| < ½), in the tails too."""
    near, far = np.abs(z) - 0.5 / std, np.abs(z) + 0.5 / std
    # both on the upper side: log(Φ(−near) − Φ(−far)), which is ≥ the larger log times a factor
    big, small = special.log_ndtr(-near), special.log_ndtr(-far)
    return -(big + np.log1p(-np.exp(np.minimum(small - big, -1e-300))))


def mass_of(cdf: Callable[[np.ndarray], np.ndarray], y: np.ndarray, nll: np.ndarray) -> np.ndarray:
    """The same from a distribution function of few digits: where they end, from the density."""
    mass = np.asarray(cdf(y + 0.5), float) - np.asarray(cdf(y - 0.5), float)
    return np.where(mass > 1e-4, -np.log(np.maximum(mass, 1e-4)), np.maximum(nll, 0))


def truth(distribution: Any) -> Forecast:
    """A distribution of scipy's, as a forecast nothing can beat."""
    low, high = (distribution.ppf(q) for q in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    discrete = hasattr(distribution, "pmf")

    def judge(y: np.ndarray, whole: bool) -> Judged:
        log_prob = distribution.logpmf(y) if discrete else distribution.logpdf(y)
        u = (np.arange(400) + 0.5) / 400
        levels, weights = u * u * (3 - 2 * u), u * (1 - u)
        above = y - np.stack([distribution.ppf(q) for q in levels])
        pinball = np.maximum(levels[:, None] * above, (levels[:, None] - 1) * above)
        return Judged(-log_prob, 2 * np.average(pinball, axis=0, weights=weights), -log_prob)

    kind = "mass" if discrete else "density"
    return Forecast(distribution.mean(), distribution.std(), low, high, judge, kind)


def parts(values: np.ndarray) -> list[float]:
    """Means over ten parts of the test rows, in order."""
    return [float(part.mean()) for part in np.array_split(values, PARTS)]


def of_values(said: Forecast, y: np.ndarray, whole: bool) -> dict[str, Any]:
    """The measures of a regression."""
    judged = said.judge(y, whole)
    nll, square = judged.mass if whole else judged.nll, (said.mean - y) ** 2
    z = (y - said.mean) / said.std
    moments = 0.5 * z**2 + np.log(said.std) + 0.5 * np.log(2 * np.pi)
    found = {
        "error": float(np.sqrt(square.mean())),
        "nll": float(nll.mean()),
        "nll_of": "mass" if whole else said.kind,
        "crps": float(judged.crps.mean()),
        "inside": float(np.mean((y >= said.low) & (y <= said.high))),
        "width": float(np.mean(said.high - said.low)),
        "nll_moments": float(moments.mean()),
    }
    if whole:
        found |= {"nll_density": float(judged.nll.mean()), "said": said.kind}
    return found | {
        "parts": {"error": parts(square), "nll": parts(nll), "crps": parts(judged.crps)}
    }


def of_classes(p: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """The measures of a classification, from probabilities (N, K)."""
    p = np.asarray(p, float)
    nll = -np.log(np.clip(p[np.arange(len(y)), y], LEAST, 1))
    wrong = (p.argmax(1) != y).astype(float)
    found = {
        "error": float(wrong.mean()),
        "nll": float(nll.mean()),
        "nll_of": "mass",
        "calibration": calibration_error(p, y),
    }
    if p.shape[1] == 2:
        found["auc"] = float(roc_auc_score(y, p[:, 1]))
    return found | {"parts": {"error": parts(wrong), "nll": parts(nll)}}


def calibration_error(p: np.ndarray, y: np.ndarray) -> float:
    """That of px.metrics.expected_calibration_error, where posterax is not installed."""
    confidence, right = p.max(1), p.argmax(1) == y
    place = np.searchsorted(np.linspace(0, 1, BINS + 1)[1:-1], confidence)
    gaps = np.bincount(place, weights=right - confidence, minlength=BINS)
    return float(np.abs(gaps).sum() / len(y))

"""Scores of predictions, and how far they are from those of a reference."""

from typing import Any

import numpy as np

import posterax as px

LEAST = 1e-12  # of a variance whose logarithm is taken


def scores(predictive: Any, y: np.ndarray) -> dict[str, float]:
    """NLL, the error of the mean or the class, and calibration."""
    nll = px.metrics.negative_log_likelihood(predictive, y)
    if predictive.kind == "classification":
        error = float(np.mean(predictive.mean.argmax(-1) != y))
        calibration = px.metrics.expected_calibration_error(predictive, y)
    else:
        error = px.metrics.root_mean_squared_error(predictive, y)
        calibration = px.metrics.coverage(predictive, y, 0.9)
    return {"nll": float(nll), "error": float(error), "calibration": float(calibration)}


def moments(predictive: Any) -> dict[str, np.ndarray]:
    """What is kept of predictions: the mean (or probabilities), its epistemic and total part."""
    return {
        "mean": np.asarray(predictive.mean, np.float32),
        "epistemic": np.asarray(predictive.epistemic, np.float32),
        "total": np.asarray(predictive.total, np.float32),
    }


def distance(own: dict[str, np.ndarray], reference: dict[str, np.ndarray]) -> dict[str, float]:
    """How far predictions are from the reference's, in means and in epistemic uncertainty."""
    if own["mean"].ndim == 2:
        return _classes(own, reference)
    away = (own["mean"] - reference["mean"]) / np.sqrt(reference["total"])
    found = {"mean": _rms(away)}
    if not np.any(own["epistemic"] > LEAST):
        return found  # a single network has none
    ratio = 0.5 * np.log(np.maximum(own["epistemic"], LEAST))
    ratio = ratio - 0.5 * np.log(np.maximum(reference["epistemic"], LEAST))
    return found | {"log_ratio": float(np.median(ratio)), "log_ratio_rms": _rms(ratio)}


def _classes(own: dict[str, np.ndarray], reference: dict[str, np.ndarray]) -> dict[str, float]:
    """Total variation of the probabilities; mutual information, and how far it is off, in nats."""
    variation = 0.5 * np.abs(own["mean"] - reference["mean"]).sum(-1)
    off = own["epistemic"] - reference["epistemic"]
    return {
        "variation": float(np.mean(variation)),
        "information": float(np.mean(own["epistemic"])),
        "information_off": float(np.mean(off)),
        "information_rms": _rms(off),
    }


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values.astype(np.float64)))))

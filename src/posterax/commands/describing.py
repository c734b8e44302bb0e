"""The card of a model: where it comes from, and how good it is."""

import hashlib
import platform
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._version import __version__

if TYPE_CHECKING:
    from ..metrics import Evaluation
    from ..report.outcome import Outcome
    from ..report.page import Finding
    from ..tables.base import BayesianEstimator
    from .targets import Parts, Task

MOST_CLASSES = 50  # of a confusion matrix
COMPARED = 2000  # rows at which the widths of two models are compared


def fitted(estimator: "BayesianEstimator") -> dict[str, Any]:
    """What became of the columns and the target, and what models were tried."""
    about: dict[str, Any] = {"columns": estimator.columns_.summary()}
    if hasattr(estimator, "target_"):
        about["target_is"] = estimator.target_.why
    if tried := getattr(estimator, "tried_", None):
        about["models"] = tried
    return about


def origin(data: str | Path, parts: "Parts", kind: "Task") -> dict[str, Any]:
    """Where the model comes from."""
    summary: dict[str, Any]
    if kind == "regression":
        summary = {name: float(getattr(parts.y, name)()) for name in ("mean", "std", "min", "max")}
    else:
        names, counts = np.unique(parts.y.astype(str), return_counts=True)
        summary = {"classes": dict(zip(names.tolist(), counts.tolist(), strict=True))}
    read = len(parts.y) if parts.source is None else parts.source.rows
    others = {name: version(name) for name in ("jax", "numpy", "pandas", "scikit-learn")}
    return {
        "kind": "table",
        "task": kind,
        "data": {
            "file": Path(data).name,
            "sha256": sha256(data),
            "rows": read + parts.left_out,
            "rows_without_target": parts.left_out,
            "columns": parts.columns,
            "decimal": parts.X.attrs.get("decimal"),
        },
        "target": parts.names["target"],
        "target_summary": summary,
        "notes": parts.notes,
        "versions": {"posterax": __version__, "python": platform.python_version()} | others,
    }


def sha256(data: str | Path) -> str | None:
    """Of a file; none of what is piped."""
    if str(data) == "-" or not Path(data).is_file():
        return None
    with Path(data).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def scores(evaluation: "Evaluation") -> dict[str, Any]:
    """Entries of the card: scores on rows held out, beside chance and a baseline."""
    return {
        "scores": evaluation.intervals(),
        "chance": evaluation.chances(),
        "baseline": evaluation.baselines(),
    }


def of_classes(outcome: "Outcome", classes: np.ndarray) -> dict[str, Any]:
    """Entries of the card for classes: what is taken for what, and of two where to draw the line.

    Rows of the matrix are the true classes, columns the predicted ones.
    """
    from ..metrics import best_threshold, confusion

    names = [str(name) for name in classes.tolist()]
    if len(names) > MOST_CLASSES:
        return {}
    counts = confusion(outcome.predictive, outcome.y, weight=outcome.weight)
    facts: dict[str, Any] = {"confusion": {"classes": names, "counts": counts.tolist()}}
    if len(names) == 2:
        best = best_threshold(outcome.predictive, outcome.y, weight=outcome.weight)
        facts["threshold"] = None if best is None else {"class": names[1], **best._asdict()}
    return facts


def verdict(findings: "list[Finding]") -> dict[str, Any]:
    """What the rows held out say of the model, as the report has it."""
    from ..report.verdict import VERDICTS, worst

    level = worst(findings)
    reasons = [f.text for f in findings if f.level != "good" or level == "good"]
    return {"level": level, "words": VERDICTS[level][1], "reasons": reasons}


def drift_note(times: float | None) -> str:
    """What is to be said of a second fit; nothing where it changed little."""
    from ..report.verdict import DRIFT, drifted

    return "" if times is None or 1 / DRIFT <= times <= DRIFT else drifted(times)


def drift(scored: "BayesianEstimator", shipped: "BayesianEstimator", held: "Parts") -> float | None:
    """How many times as wide the shipped model's 90 % intervals are as the scored one's.

    The median over the same rows, which the shipped model has learned from. Classes have no
    intervals, and their probabilities get surer with the rows that they were learned from.
    """
    if hasattr(scored, "classes_"):
        return None
    rows = held.X.iloc[:: max(1, len(held.y) // COMPARED)]
    widths = []
    for estimator in (scored, shipped):
        low, high = estimator.predict_interval(rows, 0.9)
        widths.append(np.maximum(np.asarray(high, np.float64) - low, 1e-300))
    times = float(np.median(widths[1] / widths[0]))
    return times if np.isfinite(times) else None

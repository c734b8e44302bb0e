"""An estimator scored on the rows of a table, by ``px.metrics.evaluate``."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..metrics.evaluate import QUICK, Evaluation, Score, evaluate
from ..tables.base import BayesianEstimator
from . import Refused


def score(
    estimator: BayesianEstimator,
    X: ArrayLike,
    y: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    train_y: ArrayLike | None = None,
    train_weight: ArrayLike | None = None,
    seed: int = 0,
) -> Evaluation:
    """Scores of rows, beside a baseline that knows ``train_y`` (default: ``y`` itself)."""
    if hasattr(estimator, "classes_"):
        forecast, y = estimator.predict_proba(X), labels(estimator.classes_, y)
        train_y = None if train_y is None else labels(estimator.classes_, train_y)
    else:
        forecast, y = estimator.predictive(X), np.asarray(y, np.float64)
    return evaluate(
        forecast, y, weight, train_y=train_y, train_weight=train_weight, only=QUICK, seed=seed
    )


def stored(card: dict[str, Any]) -> dict[str, Score]:
    """The scores of a model's card; older ones lack some baselines."""
    base, chance = card.get("baseline", {}), card.get("chance", {})

    def number(value: float | None) -> float:  # JSON has null for what is not finite
        return float("nan") if value is None else value

    return {
        name: Score(number(value), number(low), number(high), number(base.get(name)),
                    chance.get(name))
        for name, (value, low, high) in card["scores"].items()
    }  # fmt: skip


def labels(classes: np.ndarray, y: ArrayLike) -> np.ndarray:
    """Labels as 0 … K−1; one that was not fitted is refused."""
    known = {label: i for i, label in enumerate(classes.tolist())}
    given = np.asarray(y).tolist()
    unseen = [label for label in given if label not in known]
    if unseen:
        raise Refused(f"the class {unseen[0]!r} is not among those fitted: {classes.tolist()[:20]}")
    return np.array([known[label] for label in given], dtype=np.int64)

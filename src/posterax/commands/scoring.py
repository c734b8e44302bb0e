"""An estimator fitted to the rows of a table, and scored on others by ``px.metrics.evaluate``."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._util.admit import admit_float64
from .._util.interrupts import raise_on_interrupt
from ..metrics.evaluate import QUICK, Evaluation, Score, evaluate
from ..tables import BayesianClassifier, BayesianRegressor
from ..tables.base import BayesianEstimator
from . import Refused
from .targets import Parts, Task


def learn(
    parts: Parts, task: Task, arguments: dict[str, Any], seed: int, verbose: bool | None = False
) -> BayesianEstimator:
    """Fit an estimator; half a fit is no model."""
    make: Any = BayesianRegressor if task == "regression" else BayesianClassifier
    estimator = make(**arguments, columns="auto", random_state=seed, verbose=verbose)
    with raise_on_interrupt():
        estimator.fit(parts.X, parts.targets(task), sample_weight=parts.weight)
    return estimator


def score(
    estimator: BayesianEstimator,
    X: ArrayLike,
    y: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    train_y: ArrayLike | None = None,
    **options: Any,
) -> Evaluation:
    """Scores of rows, beside a baseline that knows ``train_y`` (default: ``y`` itself).

    Further options are those of ``px.metrics.evaluate``.
    """
    if hasattr(estimator, "classes_"):
        forecast, y = estimator.predict_proba(X), labels(estimator.classes_, y)
        train_y = None if train_y is None else labels(estimator.classes_, train_y)
    else:
        forecast, y = estimator.predictive(X), admit_float64(y, "y")
    return evaluate(forecast, y, weight, train_y=train_y, **{"only": QUICK, **options})


def stored(card: dict[str, Any]) -> dict[str, Score]:
    """The scores of a model's card; older ones lack some baselines."""
    base, chance = card.get("baseline", {}), card.get("chance", {})
    scores = {}
    for name, values in card["scores"].items():  # JSON has null for what is not finite
        numbers = [np.nan if v is None else v for v in (*values, base.get(name))]
        scores[name] = Score._make([*numbers, chance.get(name)])
    return scores


def labels(classes: np.ndarray, y: ArrayLike) -> np.ndarray:
    """Labels as 0 … K−1; one that was not fitted is refused."""
    known = {label: i for i, label in enumerate(classes.tolist())}
    given = np.asarray(y).tolist()
    unseen = [label for label in given if label not in known]
    if unseen:
        raise Refused(f"the class {unseen[0]!r} is not among those fitted: {classes.tolist()[:20]}")
    return np.array([known[label] for label in given], dtype=np.int64)

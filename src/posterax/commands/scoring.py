"""An estimator fitted to the rows of a table, and scored on others by ``px.metrics.evaluate``."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._util.admit import admit_float64
from .._util.interrupts import raise_on_interrupt
from ..metrics.evaluate import QUICK, Evaluation, Score, evaluate
from ..report.outcome import Outcome
from ..report.page import Finding
from ..report.settled import settled
from ..report.verdict import judge
from ..tables import BayesianClassifier, BayesianRegressor
from ..tables.base import BayesianEstimator
from . import Refused
from .targets import Parts, Task


def learn(
    parts: Parts, task: Task, arguments: dict[str, Any], seed: int, verbose: bool | None = False
) -> BayesianEstimator:
    """Fit an estimator; half a fit is no model."""
    make: Any = BayesianRegressor if task == "regression" else BayesianClassifier
    settings = {"columns": "auto", **arguments}
    estimator = make(**settings, random_state=seed, verbose=verbose)
    with raise_on_interrupt():
        if parts.source is None:
            estimator.fit(parts.X, parts.targets(task), sample_weight=parts.weight)
        else:
            estimator.fit(parts.source.table(parts, task))
    if settings["columns"] != "auto":  # its columns_ know what was asked of each
        estimator.set_params(columns="auto")
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


class Look(NamedTuple):
    """An estimator's answers to rows it has not seen, and their scores."""

    estimator: BayesianEstimator
    outcome: Outcome
    evaluation: Evaluation
    train_y: np.ndarray
    train_weight: np.ndarray | None

    def findings(self, drift: float | None = None) -> list[Finding]:
        """The verdict, as the report has it."""
        return judge(
            self.outcome, self.evaluation, self.train_y, train_weight=self.train_weight,
            fit=settled(self.estimator.posterior_, self.outcome.predictive), drift=drift,
        )  # fmt: skip


def look(estimator: BayesianEstimator, train: Parts, held: Parts) -> Look:
    """Predict rows held out, and score them beside a baseline that knows the training targets."""
    if hasattr(estimator, "classes_"):
        y, train_y = (
            labels(estimator.classes_, p.targets("classification")) for p in (held, train)
        )
    else:
        y, train_y = (admit_float64(p.targets("regression"), "y") for p in (held, train))
    outcome = Outcome(predictive=estimator.predictive(held.X), y=y, weight=held.weight)
    evaluation = evaluate(
        outcome.predictive, y, held.weight, train_y=train_y, train_weight=train.weight, only=QUICK
    )
    return Look(estimator, outcome, evaluation, train_y, train.weight)


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

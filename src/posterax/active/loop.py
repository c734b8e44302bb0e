"""The whole loop over a pool, and the curve it gives."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from .._checks import whole
from ..data import as_inputs, unpack
from ..metrics.inputs import aligned
from ..progress import Bar
from .learner import Learner


class Curve(NamedTuple):
    """How a learner did: a score after each number of labels, and what it asked for.

    ``labels`` and ``scores`` have one entry more than there were rounds, ``chosen`` the numbers of
    inputs of the pool, an array a round; ``metric`` says what the scores are.
    """

    labels: np.ndarray
    scores: np.ndarray
    chosen: tuple[np.ndarray, ...]
    metric: str

    def first(self, score: float, *, stays: bool = False) -> int | None:
        """The fewest labels at which the score was reached, or ``None``.

        Curves are noisy, and the first time may be luck: with ``stays``, from where on it was
        never lost again.
        """
        better = self.scores <= score if self.metric == "rmse" else self.scores >= score
        if stays:
            better = np.logical_and.accumulate(better[::-1])[::-1]
        return int(self.labels[better.argmax()]) if better.any() else None


def run(
    learner: Learner,
    pool: Any,
    labels: Any,
    *,
    rounds: int,
    n: int,
    test: tuple[Any, Any],
    metric: Callable[[Any, np.ndarray], float] | None = None,
    candidates: int | None = None,
    after: Curve | None = None,
    progress: bool | None = None,
) -> Curve:
    """Ask and learn, round after round, scoring on test data each time.

    Args:
        learner: with its first labels.
        pool: inputs to ask about.
        labels: theirs, or a function that is asked for those of an array of numbers.
        rounds: how often to ask.
        n: inputs a round.
        test: ``(x, y)`` to score on; it decides nothing.
        metric: a function of the predictive and y; by default ``accuracy`` for classes and
            ``rmse`` for values.
        candidates: score so many inputs of the pool, drawn anew each round (default: all).
        after: the curve of an earlier call with this learner and pool, to go on from.
        progress: show a bar (default: where someone is watching).

    Returns:
        The curve; Ctrl-C ends the loop and gives what there is.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> pool = np.linspace(-1, 1, 21)[:, None].astype("float32")
        >>> line = px.networks.MLP(1, 1, (), key=0)
        >>> model = px.Model(line, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
        >>> learner = px.active.Learner(model, px.Conjugate(), pool[[10]], np.zeros(1))
        >>> test = (pool, 3 * pool[:, 0])
        >>> curve = px.active.run(learner, pool, test[1], rounds=3, n=1, test=test)
        >>> curve.labels
        array([1, 2, 3, 4])
        >>> curve.first(0.1)
        2
    """
    rounds, n = whole("rounds", rounds), whole("n", n)
    pool = as_inputs(pool)
    size = len(jax.tree.leaves(pool)[0])
    if not callable(labels) and len(labels) != size:
        raise ValueError(f"labels must be a function or one for each of {size} inputs of the pool")
    asked = () if after is None else after.chosen
    free = size - sum(len(rows) for rows in asked)
    if rounds * n > free:
        raise ValueError(f"rounds × n = {rounds * n} is more than the pool has left, {free} inputs")
    x_test, y_test, _ = unpack(test, "test")
    name, score = _metric(metric, learner)
    learner.room = max(learner.room, len(learner) + rounds * n)

    def measure() -> float:
        predictive = learner.posterior.predict(x_test, samples=learner.samples, key=learner.key)
        return float(score(predictive, np.asarray(y_test)))

    counts = [len(learner)] if after is None else list(after.labels)
    scores = [] if after is None else list(after.scores)
    chosen = list(asked)
    with Bar(progress) as bar:
        try:
            if after is None:
                scores.append(measure())
            bar.phase("asking", rounds, 0)
            for i in range(rounds):
                done = np.concatenate([*chosen, np.zeros(0, np.int64)]).astype(np.int64)
                rows = learner.query(pool, n, exclude=done, candidates=candidates)
                found = labels(rows) if callable(labels) else np.asarray(labels)[rows]
                learner.teach(
                    jax.tree.map(lambda a, rows=rows: np.asarray(a)[rows], pool), found,
                    progress=False,
                )  # fmt: skip
                chosen.append(rows)
                if learner.posterior.record.interrupted:
                    break
                scores.append(measure())
                counts.append(len(learner))
                bar.update(i + 1, {"labels": np.array([counts[-1]]), name: np.array([scores[-1]])})
        except KeyboardInterrupt:
            pass
    kept = len(scores)
    return Curve(np.array(counts[:kept]), np.array(scores), tuple(chosen), name)


def _metric(metric: Any, learner: Learner) -> tuple[str, Callable[[Any, np.ndarray], float]]:
    if metric is not None:
        if not callable(metric):
            raise TypeError("metric must be a function of a predictive and y")
        return getattr(metric, "__name__", "score"), metric
    if learner.model.likelihood.kind == "classification":
        return "accuracy", lambda p, y: np.mean(p.mode == aligned(y, p.mode.shape))
    return "rmse", lambda p, y: np.sqrt(np.mean(np.square(p.mean - aligned(y, p.mean.shape))))

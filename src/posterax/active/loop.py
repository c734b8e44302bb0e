"""The loop over a pool, round after round, and the curve it gives."""

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, TypeAlias

import jax
import numpy as np
from jaxtyping import PyTree
from numpy.typing import ArrayLike

from .._util.admit import admit, admit_inputs
from .._util.checks import whole_number
from .._util.interrupts import raise_on_interrupt
from .._util.progress import Bar
from ..data import unpack
from ..metrics.inputs import aligned
from ..predictive import Predictive
from .learner import Learner

Metric: TypeAlias = Callable[[Predictive, np.ndarray], float]

# of px.metrics, and of what run computes by itself; a width alone is neither good nor bad
LOWER_IS_BETTER = {"accuracy": False} | dict.fromkeys(
    (
        *("rmse", "root_mean_squared_error", "mean_absolute_error"),
        *("negative_log_likelihood", "brier_score", "crps", "interval_score"),
        *("expected_calibration_error", "adaptive_calibration_error"),
        *("maximum_calibration_error", "quantile_calibration_error"),
    ),
    True,
)


class Curve(NamedTuple):
    """How a learner did: a score after each number of labels, and what it asked for.

    ``labels`` and ``scores`` have an entry for the start and one for each round, ``chosen`` the
    numbers of inputs of the pool, an array a round; ``metric`` says what the scores are, and
    ``lower_is_better`` which of them are good (``None``: by the metric's name, where ``px.metrics``
    has it). After Ctrl-C, ``pending`` may hold the numbers and labels of a round that was asked for
    and not yet learned, and a score may be missing: ``run(…, after=curve)`` begins with these.
    """

    labels: np.ndarray
    scores: np.ndarray
    chosen: tuple[np.ndarray, ...]
    metric: str
    lower_is_better: bool | None = None
    pending: tuple[np.ndarray, np.ndarray] | None = None

    def first(self, score: float, *, stays: bool = False) -> int | None:
        """The fewest labels at which the score was reached, or ``None``.

        Curves are noisy, and the first time may be luck: with ``stays``, from where on it was
        never lost again.
        """
        lower = self.lower_is_better
        lower = LOWER_IS_BETTER.get(self.metric) if lower is None else lower
        if lower is None:
            raise ValueError(
                f"lower_is_better: whether less or more of {self.metric!r} is better is not known; "
                "give run, learning_curve or the curve lower_is_better=True or False"
            )
        better = self.scores <= score if lower else self.scores >= score
        if stays:
            better = np.logical_and.accumulate(better[::-1])[::-1]
        return int(self.labels[better.argmax()]) if better.any() else None


def run(
    learner: Learner,
    pool: PyTree,
    labels: ArrayLike | Callable[[np.ndarray], ArrayLike],
    *,
    rounds: int,
    n: int,
    test: tuple[PyTree, ArrayLike],
    metric: Metric | None = None,
    lower_is_better: bool | None = None,
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
        lower_is_better: whether small values of an own metric are good, for ``Curve.first``; those
            of ``px.metrics`` are known.
        candidates: score so many inputs of the pool, drawn anew each round (default: all).
        after: the curve of an earlier call with this learner and pool, to go on from.
        progress: show a bar (default: where someone is watching).

    Returns:
        The curve of all complete rounds; Ctrl-C ends the loop. The learner is then what it was
        after the last of them: it has no posterior of half a fit, and labels that were asked for
        in vain are in the curve, for the next call to learn from.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> line = px.networks.MLP(1, 1, (), key=0)
        >>> model = px.Model(line, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
        >>> pool = np.linspace(-1, 1, 21)[:, None].astype("float32")
        >>> learner = px.active.Learner(model, px.Conjugate(), pool[[10]], np.zeros(1))
        >>> test = (pool, 3 * pool[:, 0])
        >>> curve = px.active.run(learner, pool, test[1], rounds=3, n=1, test=test)
        >>> curve.labels
        array([1, 2, 3, 4])
        >>> curve.first(0.1)
        2
    """
    rounds, n = whole_number("rounds", rounds), whole_number("n", n)
    pool = admit_inputs(pool)
    size = len(jax.tree.leaves(pool)[0])
    if not callable(labels) and np.shape(labels)[:1] != (size,):
        raise ValueError(f"labels must be a function or one for each of {size} inputs of the pool")
    ask = labels if callable(labels) else np.asarray(admit(labels, "labels")).__getitem__
    name, score = _metric(metric, learner)
    before = Curve(np.zeros(0), np.zeros(0), (), name) if after is None else after
    counts, scores, chosen = list(before.labels), list(before.scores), list(before.chosen)
    pending = before.pending
    free = size - sum(map(len, chosen))
    need = rounds * n if pending is None else len(pending[0]) + (rounds - 1) * n
    if need > free:
        raise ValueError(f"rounds × n = {need} is more than the pool has left, {free} inputs")
    x_test, y_test, _ = unpack(test, "test")
    learner.room = max(learner.room, len(learner) + need)

    def measure() -> None:
        predictive = learner.posterior.predict(x_test, samples=learner.samples, key=learner.key)
        scores.append(float(score(predictive, np.asarray(y_test))))
        counts.append(len(learner))

    # the next question is not to be one of a posterior that is half trained
    with Bar(progress) as bar, suppress(KeyboardInterrupt), raise_on_interrupt():
        if len(scores) == len(chosen):  # the start, or the round that Ctrl-C left without one
            measure()
        bar.phase("asking", rounds, 0)
        for i in range(rounds):
            if pending is None:
                done = np.concatenate([*chosen, np.zeros(0, np.int64)]).astype(np.int64)
                rows = learner.query(pool, n, exclude=done, candidates=candidates)
                pending = rows, np.asarray(ask(rows))
            rows, answers = pending
            x = jax.tree.map(lambda a, rows=rows: np.asarray(a)[rows], pool)
            learner.teach(x, answers, progress=False)
            chosen.append(rows)
            pending = None
            measure()
            bar.update(i + 1, {"labels": np.array([counts[-1]]), name: np.array([scores[-1]])})
    measured = np.array(counts), np.array(scores[: len(counts)])
    return Curve(*measured, tuple(chosen), name, lower_is_better, pending)


def _metric(metric: Metric | None, learner: Learner) -> tuple[str, Metric]:
    if metric is not None:
        if not callable(metric):
            raise TypeError("metric must be a function of a predictive and y")
        return getattr(metric, "__name__", "score"), metric
    if learner.model.likelihood.kind == "classification":
        return "accuracy", lambda p, y: np.mean(p.mode == aligned(y, p.mode.shape))
    return "rmse", lambda p, y: np.sqrt(np.mean(np.square(p.mean - aligned(y, p.mean.shape))))

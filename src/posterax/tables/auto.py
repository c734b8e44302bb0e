r"""``method="auto"``: several unlike models, cross-fitted, weighted by stacking, as one posterior.

The rows are dealt out to K folds once. Boosted trees, and every network and chain of every model,
leave out one fold; two of each kind leave out the same. So each row is predicted by models that
never saw it: these predictions set how wide a model's noise is, which weight it has
(``stacking.py``), and the score. What was scored is what is shipped: nothing is fitted again.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .._util.interrupts import interruptible
from ..errors import NonFiniteError, StuckError
from ..likelihoods import Likelihood
from ..model import Model
from ..posteriors import Blend, Posterior, Record
from ..predictive import Predictive
from .folds import Arranged, arrange, arranged_by, together
from .portfolio import Part, Portfolio, numbers_in
from .stacking import NO_LOSS, stack
from .standardise import Rows
from .trees import Forests, grow

WIDTHS = np.geomspace(0.4, 4.0, 15)  # tried, of each model's noise
MOST_JUDGED = 10_000  # rows by which models are judged and weighed
SAMPLES = 64  # of a model, to predict rows that it left out
NO_LOSS_SHARE = 0.01  # of the best NLL of classes: what brings less is left out
LEAST_TO_GROW = 3  # rows that a tree is grown from
LEAST_ROWS = 128  # of a prediction: smaller ones are padded, so that they share one program

# (model, data, part) → posterior; ``None`` where there is no time left for it
Learn = Callable[[Model, tuple[np.ndarray, ...], Part], Posterior | None]


class Task(NamedTuple):
    """What is to be learned: the likelihood, how many outputs it needs, and of how many classes."""

    likelihood: Likelihood
    outputs: int
    classes: int  # 0 in regression


class Tried(NamedTuple):
    """A model that was tried."""

    part: Part
    posterior: Posterior
    width: float
    log_p: np.ndarray  # of each row, by networks that had not seen it
    seconds: float


class Blended(NamedTuple):
    """What became of it."""

    posterior: Blend
    forests: Forests | None
    rows: Rows  # that it was judged by, in the order of their folds
    summary: list[dict[str, Any]]  # a row for each model: what it scored, and its weight
    offsets: np.ndarray  # of these rows, what trees say that had not seen them

    def left_out(self, most: int | None = None) -> list[tuple[np.ndarray, Predictive]]:
        """Of each fold the numbers of its rows, and the predictive of models that left it out.

        Args:
            most: rows of all folds together, about (default: all).
        """
        folds = self.posterior.folds
        x = np.concatenate([self.rows.x, self.offsets], axis=1)
        number = np.arange(len(x))
        every = folds * max(1, len(x) // (most or len(x)))
        return [
            (number[k::every], answer(self.posterior.fold(k, folds), x[k::every]))
            for k in range(folds)
        ]


def fit_blend(
    rows: Rows, task: Task, plan: Portfolio, seed: int, learn: Learn,
    tell: Callable[[str], None] = lambda line: None, *, fold: np.ndarray | None = None,
    grown: Callable[[Forests | None], None] = lambda forests: None,
) -> Blended:  # fmt: skip
    """Fit all models of a portfolio, and weigh them.

    Args:
        rows: inputs standardised, targets as the likelihood takes them.
        task: what is to be learned.
        plan: the models.
        seed: of folds, trees and networks.
        learn: how a model is fitted.
        tell: takes a line about each model.
        fold: of each row, where that is given.
        grown: takes the trees, before any model is fitted.
    """
    if fold is None:
        arranged = arrange(rows, plan.folds, seed, classes=task.classes > 0)
    else:
        arranged = arranged_by(rows, fold, plan.folds)
    own, weight = arranged.rows, arranged.rows.weight
    if not _growable(arranged, task.classes):
        plan = plan._replace(parts=tuple(part for part in plan.parts if not part.based))
    forests, offsets = _trees(arranged, task, plan, seed, tell)
    grown(forests)
    judged, numbers = _judged(len(own.x), plan.folds), numbers_in(own.x)
    tried: list[Tried] = []
    interrupted = False
    with interruptible():
        for number, part in enumerate(plan.parts):
            began = time.perf_counter()
            tell(f"{part.name} ({number + 1} of {len(plan.parts)})")
            said = offsets if part.based else offsets[:, :0]
            x = np.concatenate([own.x, said], axis=1)
            shape = own.x.shape[1], task.outputs, said.shape[1]
            network = part.network(*shape, seed + number, numbers)
            model = Model(network, part.prior, task.likelihood)
            try:
                posterior = learn(model, (x, own.y, weight), part)
            except (NonFiniteError, StuckError) as error:
                if not tried and number + 1 == len(plan.parts):
                    raise
                tell(f"{part.name} is left out: {error}")
                continue
            except KeyboardInterrupt:  # of a sampler that has no draw yet
                if not tried:
                    raise
                interrupted = True
                break
            if posterior is None:
                break
            by = x[judged], own.y[judged], weight[judged]
            width, log_p = _judge(posterior, *by, plan.folds)
            tried.append(Tried(part, posterior, width, log_p, time.perf_counter() - began))
            interrupted = posterior.record.interrupted
            if interrupted:
                break
    v = _weigh(tried, weight[judged], task.classes > 0)
    record = Record("auto", {"examples": float(weight.sum())}, interrupted=interrupted)
    plain = None if task.classes else _plain(tried, v)
    blend = _mixed(tried, v, plain, own.x[weight > 0], offsets.shape[1], plan.folds, record)
    if not blend.own:  # nobody asks the trees
        forests, offsets = None, offsets[:, :0]
    summary = [_line(t, share, weight[judged]) for t, share in zip(tried, v, strict=True)]
    rows = Rows(own.x[judged], own.y[judged], weight[judged])
    return Blended(blend, forests, rows, summary, offsets[judged])


def _growable(arranged: Arranged, classes: int) -> bool:
    """Whether trees can be grown without any of the folds: from some rows, of every class."""
    rows, fold = arranged.rows, arranged.fold
    seen = [rows.y[(fold != k) & (rows.weight > 0)] for k in range(arranged.folds)]
    of_classes = classes == 0 or min(len(np.unique(y)) for y in seen) > 1
    return min(map(len, seen)) >= LEAST_TO_GROW and of_classes


def _judged(n: int, folds: int) -> np.ndarray:
    """Numbers of the rows that models are judged by: of many some of each fold, evenly spread.

    Example:
        >>> from posterax.tables.auto import _judged
        >>> _judged(10, 5).tolist()
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    return np.arange(n).reshape(-1, folds)[:: max(1, n // MOST_JUDGED)].ravel()


def _trees(
    arranged: Arranged, task: Task, plan: Portfolio, seed: int, tell: Callable[[str], None]
) -> tuple[Forests | None, np.ndarray]:
    """Cross-fitted trees, and what they say of each row that they left out."""
    rows = arranged.rows
    if not any(part.based for part in plan.parts):
        return None, np.empty((len(rows.x), 0))
    tell("boosted trees")
    y = rows.y if task.classes else np.ravel(task.likelihood.location(rows.y))
    forests, _ = grow(
        rows.x, y, rows.weight, arranged.fold, classes=task.classes, seed=seed,
        options=plan.growths,
    )  # fmt: skip
    return forests, forests.out_of_fold(rows.x, arranged.fold)


def _judge(
    posterior: Posterior, x: np.ndarray, y: np.ndarray, weight: np.ndarray, folds: int
) -> tuple[float, np.ndarray]:
    """The width of noise at which rows left out are most probable, and their log probabilities."""
    parts = [posterior.fold(k, folds) for k in range(folds)]

    def log_p(width: float) -> np.ndarray:
        views = [Blend.of([part], [1.0], widths=[width]) for part in parts]
        each = [answer(view, x[k::folds]).log_prob(y[k::folds]) for k, view in enumerate(views)]
        return np.asarray(together(each), np.float64)

    found = {1.0: log_p(1.0)}
    score = lambda w: np.average(np.maximum(found[w], -1e3), weights=weight)  # noqa: E731
    # from 1 on in the direction that is better, as long as it is
    for side in (WIDTHS[WIDTHS > 1], WIDTHS[WIDTHS < 1][::-1]):
        last = 1.0
        for width in map(float, side):
            found[width] = log_p(width)
            if score(width) <= score(last):
                break
            last = width
        if last != 1.0:
            return last, found[last]
    return 1.0, found[1.0]


def answer(posterior: Posterior, x: np.ndarray) -> Predictive:
    """The predictive by which models are judged."""
    return posterior.predict(x, samples=SAMPLES, key=0, least_rows=LEAST_ROWS)


def _mixed(
    tried: list[Tried], v: np.ndarray, plain: Tried | None, x: np.ndarray, own: int, folds: int,
    record: Record,
) -> Blend:  # fmt: skip
    """The models with weight, and the one that is asked beyond the data x."""
    kept = [(t, share) for t, share in zip(tried, v, strict=True) if share > 0 or t is plain]
    record.settings["parts"] = [t.part.name for t, _ in kept]
    based = [t.part.based for t, _ in kept]
    return Blend.of(
        [t.posterior for t, _ in kept], [share for _, share in kept],
        widths=[t.width for t, _ in kept], based=based, own=own if any(based) else 0, folds=folds,
        plain=next((i for i, (t, _) in enumerate(kept) if t is plain), None),
        reach=np.stack([x.min(axis=0), x.max(axis=0)]), record=record,
    )  # fmt: skip


def _plain(tried: list[Tried], v: np.ndarray) -> Tried | None:
    """The model to ask beyond the data, where others have weight: no row left out was there."""
    if all(t.part.plain for t, share in zip(tried, v, strict=True) if share > 0):
        return None
    return next((t for t in tried if t.part.plain), None)


def _weigh(tried: list[Tried], weight: np.ndarray, classes: bool) -> np.ndarray:
    """The weights of models; what is little depends, of classes, on how little is not known."""
    log_p = np.stack([t.log_p for t in tried])
    nll = -float(np.max(log_p @ weight)) / float(weight.sum())
    return stack(log_p, weight, NO_LOSS_SHARE * nll if classes else NO_LOSS)


def _line(tried: Tried, share: float, weight: np.ndarray) -> dict[str, Any]:
    nll = -float(np.average(tried.log_p, weights=weight))
    return {
        "model": tried.part.name, "nll": nll, "weight": float(share), "width": tried.width,
        "seconds": round(tried.seconds, 1),
    }  # fmt: skip

r"""How long to train what climbs no ELBO: as long as held-out rows ask for.

A point estimate follows the noise if it is trained for too long, and has learned little if for too
short; on small tables the two lie a factor of four apart. So fits of T, 2T, 4T … steps are made on
four of five rows (of small tables three times, by other rows), and the length after which the fifth
is most probable is that of the fit on all rows. ``steps=`` with that number gives the same bits.
"""

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from .._util.checks import above_zero, whole_number
from .._util.keys import KeyLike, as_key
from ..data import is_batches, unpack
from ..diagnostics.measures import constant_nll, plain
from ..errors import NonFiniteError
from ..infer.base import Method
from ..model import Model
from ..posteriors import Posterior
from .prepare import DEFAULT_BATCH

HELD, MOST_HELD = 0.2, 5000  # the share of the rows that choose, and how many at most
FEW_ROWS, FOLDS = 1000, 3  # up to so many rows a fifth is too few to go by, and three choose
FEWEST = 50  # rows: of fewer, too few are left to choose by
FIRST, PASSES = 500, 2  # steps and passes over the data of the shortest fit, at least
STEPS, EPOCHS = 16_000, 100  # the longest has one or the other
GAIN = 0.003  # nats a row below which a longer fit is no better
WORSE = 0.05  # nats a row above the best after which nobody waits for a second chance
DRAWS = 32  # of a posterior, for its held-out likelihood
HOLD_OUT = 2**30 + 3  # a stream of random numbers that no phase uses

Train = Callable[[Any, int], Posterior]  # data and steps


class Length(NamedTuple):
    """Steps of a fit, and the NLL a row that the held-out rows have after it."""

    steps: int
    nll: float


class Chosen(NamedTuple):
    """The length that was best, all that were tried, and what Ctrl-C left of the trials.

    ``constant`` is the NLL a row of the best constant prediction on the held-out rows.
    """

    steps: int
    tried: list[Length]
    constant: float | None = None
    interrupted: Posterior | None = None

    def told(self) -> dict[str, Any]:
        """As the record of the fit has it."""
        tried = [list(length) for length in self.tried]
        return plain({"lengths": tried, "length": self.steps, "held_out_constant": self.constant})


def can_hold_out(data: Any, method: Method) -> bool:
    """Whether the length of a fit is for held-out rows to choose.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> from posterax.fitting.lengths import can_hold_out
        >>> data = np.zeros((100, 1)), np.zeros(100)
        >>> can_hold_out(data, px.SWAG()), can_hold_out(data, px.IVON())
        (True, False)
    """
    if not isinstance(method, Method) or not method.needs.overfits:
        return False
    if not isinstance(data, tuple | list) or is_batches(data):  # rows that come and go
        return False
    try:
        weight = unpack(data)[2]
    except (TypeError, ValueError):  # refused later, in words of its own
        return False
    return int(np.count_nonzero(weight)) >= FEWEST


def choose_length(
    model: Model,
    data: Any,
    batch_size: Any,
    train: Train,
    key: KeyLike,
    seconds: float | None = None,
    pressed: Callable[[], bool] = lambda: False,
) -> Chosen:
    """Train for T, 2T, 4T … steps without the held-out rows, until longer is no better.

    Args:
        model: what is fitted.
        data: ``(x, y)`` or ``(x, y, weight)``.
        batch_size: rows of a step, or ``None`` for the usual number.
        train: makes a fit of data and steps.
        key: chooses the rows.
        seconds: for all fits together, the last one on all rows too.
        pressed: whether Ctrl-C was.
    """
    if seconds is not None:
        above_zero("time_limit", seconds)
    size = DEFAULT_BATCH if batch_size is None else whole_number("batch_size", batch_size)
    began, rows = time.monotonic(), len(data[1])
    parts = _folds(data, jax.random.fold_in(as_key(key), HOLD_OUT), model)
    batches = -(-rows // size)
    steps, longest = max(FIRST, PASSES * batches), max(STEPS, EPOCHS * batches)
    tried: list[Length] = []
    constant = None
    while True:
        fits: list[Posterior] = []
        for part in parts:
            try:
                fits.append(train(part.rest, steps))
            except NonFiniteError:  # too long for what diverges
                if not tried:
                    raise
                return Chosen(best(tried).steps, tried, constant)
            if fits[-1].record.interrupted or pressed():
                _tell_of_rows(fits[-1], len(part.held[1]))
                return Chosen(steps, tried, interrupted=fits[-1])
        nll = np.mean([part.nll(q) for part, q in zip(parts, fits, strict=True)])
        tried.append(Length(steps, float(nll) if np.isfinite(nll) else np.inf))
        if constant is None:
            constant = float(np.mean([part.constant(fits[0]) for part in parts]))
        # the next takes twice as long as this one, and the fit on all rows as long as the best
        over = seconds is not None and 3 * (time.monotonic() - began) > seconds
        if over or 2 * steps > longest or enough(tried):
            return Chosen(best(tried).steps, tried, constant)
        steps *= 2


def _folds(data: Any, key: jax.Array, model: Model) -> list["Fold"]:
    counted = np.flatnonzero(unpack(data)[2])
    size = min(round(HELD * len(counted)), MOST_HELD)
    folds = FOLDS if len(counted) <= FEW_ROWS else 1
    mixed = np.asarray(jax.random.permutation(key, counted))
    parts = (np.sort(mixed[i * size : (i + 1) * size]) for i in range(folds))
    return [Fold(data, part, model, key) for part in parts]


def _tell_of_rows(posterior: Posterior, held: int) -> None:
    warnings.warn(
        f"stopped while held-out rows chose how long to train: what there is, a "
        f"{type(posterior).__name__}, was fitted without {held} of the rows; steps= makes a fit "
        "of all rows at once",
        stacklevel=4,  # where px.fit is called
    )


class Fold:
    """Some rows, and the data without them."""

    def __init__(self, data: Any, rows: np.ndarray, model: Model, key: jax.Array):
        x, y, weight = unpack(data)
        self.key, others = key, np.setdiff1d(np.flatnonzero(weight), rows)
        self.held = _take(x, rows), y[rows], np.asarray(weight[rows], np.float64)
        if jax.tree.leaves(model.network.state):  # batch statistics would see rows of weight 0
            self.rest = _take(x, others), y[others], weight[others]
        else:  # the same shapes, and so the same compiled program
            left = np.array(weight)
            left[rows] = 0
            self.rest = x, y, left
        few = others[:: -(-len(others) // MOST_HELD)]
        self.others = _take(x, few), y[few], np.asarray(weight[few], np.float64)

    def nll(self, posterior: Posterior) -> float:
        """Of the held-out rows, in nats a row."""
        x, y, weight = self.held
        predictive = posterior.predict(x, samples=DRAWS, key=self.key)
        return -float(np.average(predictive.log_prob(y), weights=weight))

    def constant(self, posterior: Posterior) -> float:
        """The same of the constant prediction that is best for the others."""
        return constant_nll(posterior, *self.others, on=self.held)


def _take(x: PyTree, rows: np.ndarray) -> PyTree:
    return jax.tree.map(lambda a: a[rows], x)


def best(tried: list[Length]) -> Length:
    """The shortest that no longer one improves on.

    Example:
        >>> from posterax.fitting.lengths import Length, best
        >>> best([Length(500, 0.9), Length(1000, 0.5), Length(2000, 0.499), Length(4000, 0.8)])
        Length(steps=1000, nll=0.5)
    """
    found = tried[0]
    for length in tried[1:]:
        if length.nll < found.nll - GAIN:
            found = length
    return found


def enough(tried: list[Length]) -> bool:
    """Whether longer fits are no better: much worse once, or no better two times in a row.

    Example:
        >>> from posterax.fitting.lengths import Length, enough
        >>> enough([Length(500, 0.9), Length(1000, 1.5)])
        True
        >>> enough([Length(500, 0.9), Length(1000, 0.5), Length(2000, 0.51)])
        False
    """
    found, since = best(tried), tried[-1]
    behind = len(tried) - 1 - tried.index(found)
    return behind >= 2 or since.nll > found.nll + WORSE

"""Held-out data to watch a fit with, and when to stop it."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._util.admit import admit, admit_inputs, check_finite
from .._util.checks import above_zero, whole_number
from .._util.tree import dtype_of, to_host
from ..data import unpack
from ..infer.base import Phase
from ..model import Model

if TYPE_CHECKING:
    from .run import Run


class Validation(NamedTuple):
    """Data to watch the fit with, and when to stop it.

    Args:
        x: inputs.
        y: targets.
        every: epochs between two looks.
        patience: looks without improvement after which the fit stops and returns its best
            state; ``None`` only watches.
        samples: posterior draws per look.
        weight: how often each example counts (default: once).
    """

    x: Any
    y: Any
    every: float = 1.0
    patience: int | None = None
    samples: int = 16
    weight: Any = None


def check_validation(validation: Any, model: Model) -> Validation | None:
    """Accept ``(x, y)`` or a ``Validation`` and check it against the model."""
    if validation is None or isinstance(validation, Validation):
        watch = validation
    elif isinstance(validation, tuple | list) and len(validation) == 2:
        watch = Validation(*validation)
    else:
        raise TypeError(
            f"validation must be (x, y) or px.Validation(x, y, …), got {type(validation).__name__}"
        )
    if watch is not None:
        x, y, weight = unpack((watch.x, watch.y, watch.weight), "validation")
        check_finite("validation x", x)
        check_finite("validation y", y)
        dtype = dtype_of(model.parameters)
        x, y = admit_inputs(x, dtype, "validation x"), admit(y, "validation y", dtype)
        model.check(x, y)
        above_zero("validation every", watch.every)
        whole_number("validation samples", watch.samples)
        if watch.patience is not None:
            whole_number("validation patience", watch.patience)
        watch = watch._replace(x=x, y=y, weight=weight)
    return watch


def validation_steps(run: "Run", phase: Phase, total: int) -> list[int]:
    """The steps of a phase after which held-out data is looked at."""
    if run.watch is None or phase.finishes == "at the end":
        return []
    every = max(1, round(run.watch.every * int(run.ready.plan.batches)))
    return [*range(every, total, every), total]


def look(run: "Run", phase: Phase) -> None:
    """Validation NLL at this point; remembers the best state, and when to give up."""
    at, watch = run.at, run.watch
    assert watch is not None
    posterior = phase.finish(at.state, None)
    predictive = posterior.predict(watch.x, samples=watch.samples, key=run.key)
    nll = -float(np.average(predictive.log_prob(watch.y), weights=watch.weight))
    prefix = run.prefix(phase)
    at.record(
        {
            f"{prefix}validation_nll": np.array([nll]),
            f"{prefix}validation_step": np.array([at.step]),
        }
    )
    patience = watch.patience if phase.finishes == "to stop" else None
    if nll < at.best_nll:
        at.best_nll, at.waited = nll, 0
        if patience is not None:
            at.best = to_host(at.state)
    else:
        at.waited += 1
    at.stopped = patience is not None and at.waited >= patience

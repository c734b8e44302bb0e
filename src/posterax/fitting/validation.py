"""Held-out data to watch a fit with."""

from typing import Any, NamedTuple

from .._util.checks import above_zero, whole_number
from ..data import check_finite, unpack
from ..model import Model


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
        model.check(x, y)
        above_zero("validation every", watch.every)
        whole_number("validation samples", watch.samples)
        if watch.patience is not None:
            whole_number("validation patience", watch.patience)
        watch = watch._replace(x=x, y=y, weight=weight)
    return watch

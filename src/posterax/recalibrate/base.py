"""What every recalibration shares: checks of what it is fitted on, and a file of its own."""

import dataclasses
import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from .._util.atomic import write_atomic
from .._version import __version__
from ..metrics.inputs import Forecast, aligned, class_probabilities
from ..predictive import Predictive

FORMAT = "posterax recalibration 1"


@dataclasses.dataclass(frozen=True)
class Recalibration:
    """A few numbers learned from held-out data, which act on any other predictive."""

    kinds: ClassVar[tuple[str, ...]]  # of the predictives that it acts on
    instead: ClassVar[str]  # what to use for others

    @classmethod
    def check_kind(cls, predictive: object) -> None:
        """Refuse a predictive of another kind; arrays have none."""
        kind = getattr(predictive, "kind", cls.kinds[0])
        if kind not in cls.kinds:
            kinds = " and ".join(cls.kinds)
            raise ValueError(f"{cls.__name__} is for {kinds}, not for {kind}: use {cls.instead}")

    def save(self, path: str | Path) -> None:
        """Write it to a JSON file; ``px.recalibrate.load`` reads it again."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        content = {"format": FORMAT, "version": __version__, "kind": type(self).__name__}
        text = json.dumps(content | {"values": _json(values)}, indent=1, allow_nan=False)
        write_atomic(path, text + "\n")


def _json(value: Any) -> Any:
    """JSON has no infinity: it is written as text."""
    if isinstance(value, dict):
        return {name: _json(v) for name, v in value.items()}
    if isinstance(value, tuple):
        return [_json(v) for v in value]
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value


def numbers(values: Any) -> Any:
    """An array as a frozen object and JSON have it: a float, or nested tuples of them."""
    if isinstance(values, list | tuple):
        return tuple(numbers(v) for v in values)
    return numbers(values.tolist()) if isinstance(values, np.ndarray) else float(values)


def shown(values: ArrayLike) -> str:
    """Numbers in four digits."""
    return np.array2string(np.asarray(values), precision=4)


def targets(y: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    """Targets in float64 and in the shape of the predictions."""
    if shape[0] == 0:
        raise ValueError("y is empty: a recalibration needs held-out rows")
    return aligned(y, shape).astype(np.float64)


def probability_below(predictive: Predictive, y: np.ndarray) -> np.ndarray:
    """P(Y < y) of counts, in float64."""
    return np.where(y > 0, np.asarray(predictive.cdf(np.maximum(y - 1, 0)), np.float64), 0.0)


def probabilities(predictive: Forecast) -> np.ndarray:
    """Class probabilities (N, K) in float64, of a predictive or given as an array."""
    p = class_probabilities(predictive, "predictive")
    if p.ndim != 2:
        raise ValueError(f"the predictive must have one label for each input, got {p.shape}")
    return p

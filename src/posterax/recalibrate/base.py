"""What every recalibration shares: checks of what it is fitted on, and a file of its own."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from .._version import __version__
from ..metrics.inputs import aligned, class_probabilities

FORMAT = "posterax recalibration 1"


@dataclasses.dataclass(frozen=True)
class Recalibration:
    """A few numbers learned from held-out data, which act on any other predictive."""

    def save(self, path: str | Path) -> None:
        """Write it to a JSON file; ``px.recalibrate.load`` reads it again."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        content = {"format": FORMAT, "version": __version__, "kind": type(self).__name__}
        text = json.dumps(content | {"values": _written(values)}, indent=1, allow_nan=False)
        Path(path).write_text(text + "\n", encoding="utf-8")


def _written(value: Any) -> Any:
    """JSON has no infinity: it is written as text."""
    if isinstance(value, dict):
        return {name: _written(v) for name, v in value.items()}
    if isinstance(value, tuple):
        return [_written(v) for v in value]
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value


def numbers(values: Any) -> Any:
    """An array as what a frozen object holds and JSON keeps: a float, or nested tuples of them."""
    if isinstance(values, list | tuple):
        return tuple(numbers(v) for v in values)
    return numbers(values.tolist()) if isinstance(values, np.ndarray) else float(values)


def refuse_kind(predictive: Any, kinds: tuple[str, ...], who: str, instead: str) -> None:
    """A predictive of another kind is told where to go."""
    kind = getattr(predictive, "kind", kinds[0])
    if kind not in kinds:
        raise ValueError(f"{who} is for {' and '.join(kinds)}, not for {kind}: use {instead}")


def targets(y: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Targets in float64 and in the shape of the predictions."""
    if shape[0] == 0:
        raise ValueError("y is empty: a recalibration needs held-out rows")
    return aligned(y, shape).astype(np.float64)


def probabilities(predictive: Any) -> np.ndarray:
    """Class probabilities (N, K) in float64, of a predictive or given as an array."""
    p = class_probabilities(predictive, "predictive")
    if p.ndim != 2:
        raise ValueError(f"the predictive must have one label for each input, got {p.shape}")
    return p

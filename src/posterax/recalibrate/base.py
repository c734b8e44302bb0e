"""What every recalibration shares: checks of what it is fitted on, and a file of its own.

Files are JSON and read by name, so that loading runs no code.
"""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from .._util.checks import whole_number
from .._util.writing import write_file
from .._version import __version__
from ..errors import CheckpointError
from ..files.bounds import field, named
from ..files.container import refusing, shortened
from ..files.headers import parse, read_text
from ..metrics.inputs import Forecast, aligned, class_probabilities
from ..predictive import Predictive

FORMAT = "posterax recalibration 1"


class Recalibration:
    """A few numbers learned from held-out data, which act on any other predictive."""

    kinds: ClassVar[tuple[str, ...]]  # of the predictives that it acts on
    instead: ClassVar[str]  # what to use for others
    arrays: ClassVar[tuple[str, ...]] = ()  # fields that may have a number for each output
    by_name: ClassVar[dict[str, type["Recalibration"]]] = {}

    n: int

    def __init_subclass__(cls) -> None:
        Recalibration.by_name[cls.__name__] = cls

    def __post_init__(self) -> None:
        whole_number("n", self.n)
        for one in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, one.name)
            if one.name in self.arrays:
                value = _nested(_numbers(one.name, value).tolist())
                object.__setattr__(self, one.name, value)
            elif one.type is bool and not isinstance(value, bool):
                raise ValueError(f"{one.name} must be True or False, got {value!r}")
            elif one.type is float and (_numbers(one.name, value).ndim or np.isnan(value)):
                raise ValueError(f"{one.name} must be a number, got {value!r}")

    @classmethod
    def check_kind(cls, predictive: object) -> None:
        """Refuse a predictive of another kind; arrays have none."""
        kind = getattr(predictive, "kind", cls.kinds[0])
        if kind not in cls.kinds:
            kinds = " and ".join(cls.kinds)
            raise ValueError(f"{cls.__name__} is for {kinds}, not for {kind}: use {cls.instead}")

    def save(self, path: str | Path) -> None:
        """Write it to a JSON file; ``px.recalibrate.load`` reads it again."""
        head = {"format": FORMAT, "version": __version__, "kind": type(self).__name__}
        text = json.dumps(head | {"values": vars(self)}, indent=1)
        text = re.sub("(-?)Infinity", r'"\1inf"', text)  # JSON has no infinity
        write_file(path, text + "\n")


def load(path: str | Path) -> Any:
    """The recalibration that ``save`` wrote.

    Example:
        >>> import pathlib, tempfile
        >>> import posterax as px
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "temperature.json"
        >>> temperature = px.recalibrate.Temperature(1.5, n=100, before=0.4, after=0.3)
        >>> temperature.save(file)
        >>> px.recalibrate.load(file) == temperature
        True
    """
    path = Path(path)
    text = read_text(path)
    try:
        content = parse(text, finite=True)
    except ValueError as error:
        raise CheckpointError(
            f"{path}: is no JSON file, so no recalibration ({shortened(error)})"
        ) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(
            f"{path}: is no recalibration that this version of posterax wrote ({FORMAT!r})"
        )
    with refusing(path):
        name = field(content, "kind", str)
        known = {n: c for n, c in Recalibration.by_name.items() if dataclasses.is_dataclass(c)}
        kind = named(known, {"name": name}, "kind of recalibration")
        values = field(content, "values", dict)
        return kind(**{name: _infinite(value) for name, value in values.items()})


def _infinite(value: Any) -> Any:
    """Infinities, for which JSON has no number, from the words that stand for them."""
    if isinstance(value, list):
        return [_infinite(inner) for inner in value]
    return float(value) if value in ("inf", "-inf") else value


def _numbers(name: str, value: Any) -> np.ndarray:
    """One number or more in float64; neither words nor truths."""
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        array = np.zeros(0)
    if array.dtype.kind not in "iuf" or array.size == 0:
        raise ValueError(f"{name} must be one number or an array of them, got {shortened(value)}")
    return array.astype(np.float64)


def _nested(values: Any) -> Any:
    """Numbers as a frozen object has them: one, or tuples of them."""
    return tuple(map(_nested, values)) if isinstance(values, list) else values


def shown(values: ArrayLike) -> str:
    """Numbers in four digits."""
    return np.array2string(np.asarray(values), precision=4)


def targets(y: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    """Targets in float64 and in the shape of the predictions."""
    if shape[0] == 0:
        raise ValueError("y is empty: a recalibration needs held-out rows")
    return aligned(y, shape).astype(np.float64)


def check_shape(name: str, own: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Refuse targets of another shape than a recalibration was fitted on."""
    if own != shape:
        raise ValueError(
            f"the {name} is for targets of shape {own} and the predictive has {shape}: fit it on a "
            "predictive of the same model"
        )


def probability_below(predictive: Predictive, y: np.ndarray) -> np.ndarray:
    """P(Y < y) of counts, in float64."""
    return np.where(y > 0, np.asarray(predictive.cdf(np.maximum(y - 1, 0)), np.float64), 0.0)


def probability_transform(
    predictive: Predictive, y: np.ndarray, share: Callable[[tuple[int, ...]], ArrayLike]
) -> np.ndarray:
    """P(Y ≤ y) in float64; for counts a random ``share`` of the way to it from P(Y < y)."""
    reached = np.asarray(predictive.cdf(y), np.float64)
    if predictive.kind != "counts":
        return reached
    below = probability_below(predictive, y)
    return below + np.asarray(share(y.shape), np.float64) * (reached - below)


def probabilities(predictive: Forecast) -> np.ndarray:
    """Class probabilities (N, K) in float64, of a predictive or given as an array."""
    p = class_probabilities(predictive, "predictive")
    if p.ndim != 2:
        raise ValueError(f"the predictive must have one label for each input, got {p.shape}")
    return p

"""What every recalibration shares: checks of what it is fitted on, and a file of its own.

Files are JSON and read by name, so that loading runs no code.
"""

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
        for name in self.arrays:
            array = np.asarray(getattr(self, name), np.float64)
            object.__setattr__(self, name, _nested(array.tolist()))

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
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: is no JSON file, so no recalibration ({error})") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(
            f"{path}: is no recalibration that this version of posterax wrote ({FORMAT!r})"
        )
    kind = Recalibration.by_name.get(str(content.get("kind")))
    if kind is None:
        raise CheckpointError(f"{path}: holds a recalibration of unknown kind {content['kind']!r}")
    try:
        return kind(**content["values"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise CheckpointError(f"{path}: is damaged, {kind.__name__} says: {error}") from None


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

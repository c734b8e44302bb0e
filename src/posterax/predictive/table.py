"""A predictive as a data frame: a row for each input."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from .predictive import Predictive


def to_pandas(
    predictive: "Predictive", level: float, names: Sequence[Any] | None, index: Any
) -> "pd.DataFrame":
    """See ``Predictive.to_pandas``."""
    import pandas as pd

    columns = _classes if predictive.kind == "classification" else _targets
    return pd.DataFrame(columns(predictive, level, names), index=index)


def _targets(
    predictive: "Predictive", level: float, names: Sequence[Any] | None
) -> dict[str, np.ndarray]:
    parts = {part: getattr(predictive, part) for part in ("mean", "std", "epistemic", "aleatoric")}
    parts["low"], parts["high"] = predictive.interval(level)
    shape = parts["mean"].shape
    if len(shape) == 1 and names is None:
        return parts
    return {
        f"{part}_{name}": values.reshape(len(values), -1)[:, column]
        for column, name in enumerate(_checked(names, int(np.prod(shape[1:])), "outputs"))
        for part, values in parts.items()
    }


def _classes(
    predictive: "Predictive", level: float, names: Sequence[Any] | None
) -> dict[str, np.ndarray]:
    mean = predictive.mean
    if mean.ndim != 2:
        raise ValueError(
            f"to_pandas has a row for each input; here each has {mean.shape[1:-1]} labels: use "
            "mean, epistemic, … as arrays"
        )
    names = _checked(names, mean.shape[1], "classes")
    low, high = predictive.interval(level)
    of_classes = {
        f"{part}_{name}": values[:, column]
        for column, name in enumerate(names)
        for part, values in (("p", mean), ("low", low), ("high", high))
    }
    entropies = {part: getattr(predictive, part) for part in ("epistemic", "aleatoric", "total")}
    return {"mode": np.asarray(names)[predictive.mode], **of_classes, **entropies}


def _checked(names: Sequence[Any] | None, count: int, what: str) -> list[Any]:
    names = list(range(count)) if names is None else list(names)
    if len(names) != count or len(set(names)) != count:
        raise ValueError(f"names must be {count} different ones, one for each of the {what}")
    return names

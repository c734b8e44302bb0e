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
    mean, (low, high) = predictive.mean, predictive.interval(level)
    parts = {
        "mean": mean,
        "std": predictive.std,
        "epistemic": predictive.epistemic,
        "aleatoric": predictive.aleatoric,
        "low": low,
        "high": high,
    }
    width = int(np.prod(mean.shape[1:]))
    if mean.ndim == 1 and names is None:
        return parts
    names = _checked(names, width, "outputs")
    return {
        f"{part}_{name}": values.reshape(len(mean), width)[:, place]
        for place, name in enumerate(names)
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
    named = np.asarray(names)[predictive.mode]
    columns: dict[str, np.ndarray] = {"mode": named}
    for place, name in enumerate(names):
        columns[f"p_{name}"] = mean[:, place]
        columns[f"low_{name}"] = low[:, place]
        columns[f"high_{name}"] = high[:, place]
    for part in ("epistemic", "aleatoric", "total"):
        columns[part] = getattr(predictive, part)
    return columns


def _checked(names: Sequence[Any] | None, count: int, what: str) -> list[Any]:
    names = list(range(count)) if names is None else list(names)
    if len(names) != count or len(set(names)) != count:
        raise ValueError(f"names must be {count} different ones, one for each of the {what}")
    return names

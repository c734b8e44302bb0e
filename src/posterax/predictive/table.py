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

    classes, mean = predictive.kind == "classification", predictive.mean
    if classes and mean.ndim != 2:
        raise ValueError(
            f"to_pandas takes one label for each input, not labels of shape {mean.shape[1:-1]}"
        )
    low, high = predictive.interval(level)
    ends = {"low": low, "high": high}
    parts = ("epistemic", "aleatoric", "total") if classes else ("std", "epistemic", "aleatoric")
    spread = {part: getattr(predictive, part) for part in parts}
    each = {"p": mean} | ends if classes else {"mean": mean} | spread | ends
    if mean.ndim == 1 and names is None:
        return pd.DataFrame(each, index=index)
    count, what = int(np.prod(mean.shape[1:])), "classes" if classes else "outputs"
    names = list(range(count)) if names is None else list(names)
    if len(names) != count or len(set(names)) != count:
        raise ValueError(f"names must be {count} different ones, one for each of the {what}")
    columns = {
        f"{part}_{name}": values.reshape(len(values), -1)[:, column]
        for column, name in enumerate(names)
        for part, values in each.items()
    }
    if classes:
        columns = {"mode": np.asarray(names)[predictive.mode], **columns, **spread}
    return pd.DataFrame(columns, index=index)

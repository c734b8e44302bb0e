"""The examples that models are compared on, whatever form the data come in."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from ..data import Stream, check_finite, unpack
from ..fitting.prepare import is_batches
from ..posteriors import Posterior


def parts(data: Any) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
    """``(x, y, weight)`` of arrays, or of each batch of a source of batches.

    Example:
        >>> import numpy as np
        >>> from posterax.selection.examples import parts
        >>> x, y = np.zeros((4, 1)), np.zeros(4)
        >>> [len(part[1]) for part in parts([(x, y), (x, y)])]
        [4, 4]
    """
    if isinstance(data, tuple) or (isinstance(data, list) and not is_batches(data)):
        batches: Any = [data]
    elif isinstance(data, Stream):
        batches = data.source
    elif not hasattr(data, "__iter__") or isinstance(data, dict | str | np.ndarray | jax.Array):
        raise TypeError(
            "data must be (x, y), (x, y, weight) or a re-iterable source of such batches, got "
            f"{type(data).__name__}"
        )
    else:
        batches = Stream(data).source  # which refuses what can be read once only, or is empty
    for batch in batches:
        x, y, weight = unpack(batch)
        check_finite("x", x)
        check_finite("y", y)
        yield x, np.asarray(y), np.asarray(weight, np.float64)


def examples_digest(targets: Sequence[np.ndarray]) -> str:
    """What tells these targets, in this order, from others; not their precision or batches."""
    flat = [np.ravel(y).astype(np.float32) for y in targets]
    return hashlib.sha256(np.concatenate(flat).tobytes()).hexdigest()


def fitted_examples(posterior: Posterior) -> float | None:
    """How many examples (the sum of their weights) the posterior was fitted to, where known."""
    settings = posterior.record.settings if posterior.record is not None else {}
    return settings.get("examples")


def refuse_other_data(posterior: Posterior, total: float, by: str) -> None:
    """Refuse data that cannot be those of the fit."""
    known = fitted_examples(posterior)
    if known is not None and not np.isclose(known, total):
        raise ValueError(
            f"data: {by} needs the data of the fit, {known:g} examples, and got {total:g}; "
            "by='heldout' scores predictions on other data"
        )

"""The examples that models are compared on, whatever form the data come in."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import PyTree

from ..data import Stream, as_stream, check_finite, is_batches, unpack
from ..posteriors import Posterior

# (x, y), (x, y, weight) or a source of such batches
Examples: TypeAlias = tuple[PyTree, ...] | Iterable[tuple[PyTree, ...]] | Stream


def parts(data: Examples) -> Iterator[tuple[PyTree, np.ndarray, np.ndarray]]:
    """``(x, y, weight)`` of arrays, or of each batch of a source of batches.

    Example:
        >>> import numpy as np
        >>> from posterax.selection.examples import parts
        >>> x, y = np.zeros((4, 1)), np.zeros(4)
        >>> [len(part[1]) for part in parts([(x, y), (x, y)])]
        [4, 4]
    """
    one = isinstance(data, tuple) or (isinstance(data, list) and not is_batches(data))
    batches: Iterable[Any] = [data] if one else as_stream(data).source
    for batch in batches:
        x, y, weight = unpack(batch)
        check_finite("x", x)
        check_finite("y", y)
        yield x, np.asarray(y), np.asarray(weight, np.float64)


def examples_digest(targets: Sequence[np.ndarray]) -> str:
    """A digest of these targets in this order, whatever their precision and batches."""
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

"""The door for arrays: whatever a user hands over becomes numbers that JAX holds as they are.

JAX without x64 has integers of 32 bits and wraps larger ones without a word, and makes a float64
beyond float32 infinite. Nothing else in the package turns data of users into arrays.
"""

import numbers
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from .jax_names import Tracer

LARGEST = 2**31 - 2  # one more still is an int32: counts are looked at as y + 1
FEW_ROWS = 1024  # rows that tell what rounding does to a column
LOSS = 1e-3  # rounding, as a part of a column's spread, that is worth a word
NOISE = 1e-12  # a spread, as a part of the size, that is rounding itself
ENCODE = "encode it as numbers"
WIDER = 'jax.config.update("jax_enable_x64", True)'


def admit(value: object, name: str, dtype: DTypeLike | None = None) -> Any:
    """Numbers as an array: of numpy, or on the device where they are there already.

    Whole numbers that fit 32 bits stay whole (labels, tokens, uint8 images); larger ones become
    floats, but with x64. What is no number is refused, with what to do about it.

    Args:
        value: an array, a list, a data frame, a series.
        name: what the user calls it.
        dtype: the precision for floats (default: their own). A number that is too large for it is
            refused.

    Example:
        >>> from posterax._util.admit import admit
        >>> admit([3_000_000_000, 1], "y")
        array([3.e+09, 1.e+00])
        >>> admit([3.5, 1e39], "y", "float32")
        Traceback (most recent call last):
        ...
        ValueError: y holds 1e+39 at (1,), which is beyond float32: scale it, ...
    """
    array = value if isinstance(value, jax.Array) else _on_host(value, name)
    if not (jnp.issubdtype(array.dtype, jnp.number) or array.dtype == bool):
        raise TypeError(f"{name} must be numeric, got an array of dtype {array.dtype}; {ENCODE}")
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise TypeError(
            f"{name} must be real, got {array.dtype}: give the real and the imaginary part as two "
            "columns"
        )
    return array if dtype is None else cast(array, dtype, name)


def admit_inputs(x: PyTree, dtype: DTypeLike | None = None, name: str = "x") -> Any:
    """A tree of inputs, each through ``admit``; a list of numbers or of such lists is one array."""

    def is_leaf(node: Any) -> bool:
        return isinstance(node, list) and not any(np.ndim(a) for a in node if hasattr(a, "ndim"))

    return jax.tree.map(lambda a: admit(a, name, dtype), x, is_leaf=is_leaf)


def admit_float64(value: object, name: str) -> np.ndarray:
    """Numbers that stay on the host, in float64: what is measured, compared and drawn."""
    return np.asarray(admit(value, name), np.float64)


def cast(array: Any, dtype: DTypeLike, name: str = "x") -> Any:
    """Floats in the fit's precision, whole numbers as they are; what overflows is refused."""
    if not jnp.issubdtype(array.dtype, jnp.floating) or array.dtype == dtype:
        return array
    with np.errstate(over="ignore"):
        narrow = array.astype(dtype)
    narrower = jnp.finfo(dtype).max < jnp.finfo(array.dtype).max
    if narrower and not isinstance(array, Tracer) and not _sum_is_finite(narrow):
        lost = np.isfinite(np.asarray(array)) & ~np.isfinite(np.asarray(narrow))
        if lost.any():
            first = tuple(int(i) for i in np.argwhere(lost)[0])
            raise ValueError(
                f"{name} holds {array[first]:g} at {first}, which is beyond {np.dtype(dtype)}: "
                f"scale it, or {WIDER} and give x as float64"
            )
    return narrow


def _on_host(value: object, name: str) -> np.ndarray:
    """As a numpy array of a type that JAX has."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise ValueError(f"{name} holds masked entries: fill, drop or impute them")
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        raise ValueError(f"{name} must be an array, got {value!r:.60}") from None
    if array.dtype == object:
        array = _from_objects(array, name)
    if array.dtype.kind in "mM":
        raise _dates(name, array.dtype)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array.astype(np.float64) if _is_too_wide(array) else array


def _is_too_wide(array: np.ndarray) -> bool:
    """Whether these are whole numbers that would wrap on the device."""
    held = jax.dtypes.canonicalize_dtype(array.dtype) if array.dtype.kind in "iu" else array.dtype
    if array.dtype.kind not in "iu" or (held == array.dtype and held != np.uint32):
        return False
    return array.size > 0 and bool(array.max() > LARGEST or array.min() < -LARGEST)


def _from_objects(array: np.ndarray, name: str) -> np.ndarray:
    """Python's numbers of any size, and what pandas holds beside missing ones, as float64."""
    for place, entry in np.ndenumerate(array):
        if not isinstance(entry, numbers.Real | np.bool_):
            missing = entry is None or str(entry) in ("<NA>", "NaT")
            if not missing and hasattr(entry, "isoformat"):
                raise _dates(name, type(entry).__name__)
            todo = "drop or impute it" if missing else ENCODE
            raise TypeError(f"{name} must be numeric, got {entry!r:.60} at {place}; {todo}")
    try:
        return array.astype(np.float64)
    except OverflowError:
        raise ValueError(f"{name} holds a number beyond float64: scale it") from None


def _dates(name: str, kind: Any) -> TypeError:
    return TypeError(
        f"{name} holds dates or times ({kind}): make them numbers, such as days since the first, "
        "(t - t.min()) / np.timedelta64(1, 'D')"
    )


def _sum_is_finite(array: Any) -> bool:
    """False where an entry is not finite, and rarely where all are."""
    with np.errstate(all="ignore"):
        # a sum is finite only if all terms are, and where arrays live on a device stays there
        return bool(np.isfinite(float(array.sum())))


def check_finite(name: str, tree: PyTree) -> None:
    """Refuse NaN and infinity, with where the first one is."""
    for leaf in jax.tree.leaves(tree):
        if not jnp.issubdtype(leaf.dtype, jnp.floating) or _sum_is_finite(leaf):
            continue
        host = np.asarray(leaf)
        bad = ~np.isfinite(host)
        if bad.any():
            first = tuple(int(i) for i in np.argwhere(bad)[0])
            raise ValueError(
                f"{name} holds {int(bad.sum())} NaN or infinite values, the first at "
                f"{first}: {host[first]}; drop or impute them"
            )


def few_rows(tree: PyTree, rows: int = FEW_ROWS) -> Any:
    """No more than so many rows, from everywhere."""
    return jax.tree.map(lambda a: np.asarray(a[:: -(-len(a) // rows)]), tree)


def warn_of_rounding(name: str, tree: PyTree, dtype: DTypeLike, stacklevel: int = 2) -> None:
    """Tell where the fit's precision blurs a column: large numbers that differ by little.

    Times in milliseconds are the usual case: those of a day are 600 numbers of float32. The root
    mean square of the rounding is held against the standard deviation, over some of the rows.
    """
    for leaf in jax.tree.leaves(few_rows(tree)):
        if leaf.dtype.itemsize < 4 or leaf.dtype == dtype:
            continue
        wide = leaf.reshape(len(leaf), -1).astype(np.float64)
        if np.abs(wide).max(initial=0) <= 2**24 and leaf.dtype.kind != "f":
            continue  # whole numbers that float32 has
        narrow = cast(wide, dtype, name).astype(np.float64)
        error = np.sqrt(np.mean(np.square(wide - narrow), 0))
        spread = wide.std(0)
        lost = (error > LOSS * spread) & (spread > NOISE * np.abs(wide).max(0))
        if lost.any():
            column = int(np.argmax(lost))
            where = f"{name}, column {column}," if leaf.ndim > 1 else name
            few = np.ptp(wide[:, column])
            warnings.warn(
                f"{where} has values about {wide[0, column]:g} that lie within {few:g}, and "
                f"{np.dtype(dtype)} tells them apart by {2 * np.sqrt(3) * error[column]:.2g} only: "
                f"subtract an origin and scale, or {WIDER} and give x as float64",
                stacklevel=stacklevel,
            )

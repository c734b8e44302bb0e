"""One file: arrays and a JSON header, written whole, checked when read; reading runs no code."""

import json
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from safetensors import safe_open

from .._util.fingerprint import data_fingerprint, settings_fingerprint
from .._util.memory import refuse_beyond_memory
from .._util.tree import is_key, path_name
from .._util.writing import written
from .._version import __version__
from ..errors import CheckpointError
from .headers import check_file, parse
from .tensors import write_tensors

Arrays: TypeAlias = dict[str, np.ndarray]

FORMAT = 1


def pack(tree: PyTree, prefix: str) -> Arrays:
    """The arrays of a tree by name; typed keys as their data."""
    arrays = {}
    for i, (path, leaf) in enumerate(jax.tree_util.tree_leaves_with_path(tree)):
        value = jax.random.key_data(leaf) if is_key(leaf) else leaf
        arrays[f"{prefix}/{i:04d}/{path_name(path)}"] = np.asarray(value, order="C")
    return arrays


def unpack(template: PyTree, arrays: Arrays, prefix: str) -> Any:
    """The tree again, checked against the names, shapes and types of a template."""
    names = names_of(template, arrays, prefix)
    leaves, treedef = jax.tree.flatten(template)
    restored = [_restore(n, arrays[n], t) for n, t in zip(names, leaves, strict=True)]
    return jax.tree.unflatten(treedef, restored)


def names_of(template: PyTree, arrays: Arrays, prefix: str) -> list[str]:
    """The names of a tree's arrays in a file, in the order of a template's leaves."""
    names = sorted(name for name in arrays if name.startswith(f"{prefix}/"))
    wanted = [path_name(leaf) for leaf, _ in jax.tree_util.tree_leaves_with_path(template)]
    if len(names) != len(wanted):
        raise CheckpointError(
            f"{shortened(prefix)} has {len(names)} arrays where the model needs {len(wanted)}"
        )
    for name, other in zip(names, wanted, strict=True):
        # the first files had the names of Flax's variables with their attribute
        if name.split("/", 2)[-1].removesuffix(".value") != other.removesuffix(".value"):
            raise CheckpointError(f"{shortened(name)} where {other} belongs")
    return names


def _restore(name: str, value: np.ndarray, like: Any) -> jax.Array:
    key = jnp.issubdtype(like.dtype, jax.dtypes.prng_key)
    array = jnp.asarray(value)
    array = jax.random.wrap_key_data(array) if key else array
    if array.shape != like.shape or array.dtype != like.dtype:
        raise CheckpointError(
            f"{name} is {array.dtype}{list(array.shape)} where the model needs "
            f"{like.dtype}{list(like.shape)}"
        )
    return array


def refuse_not_finite(arrays: Mapping[str, Any], *, least: float = np.nan) -> None:
    """Refuse arrays of a file that hold NaN or infinities, by name and place.

    A network of NaN predicts the first class, and an agent takes action 0, without a word.
    ``least`` is what may be there all the same: −∞, of logarithms.

    Example:
        >>> import numpy as np
        >>> from posterax.files.container import refuse_not_finite
        >>> refuse_not_finite({"mu/0000/weight": np.array([[0.0, np.nan]], "float32")})
        Traceback (most recent call last):
        posterax.errors.CheckpointError: mu/0000/weight[0, 1] is nan where a finite number belongs
    """
    for name, array in arrays.items():
        values = np.asarray(array)
        if values.dtype.kind in "biu" or np.isfinite(values).all():
            continue
        wrong = np.argwhere(~np.isfinite(values) & (values != least))
        if len(wrong):
            place = tuple(wrong[0].tolist())
            at = str(list(place)) if place else ""
            raise CheckpointError(
                f"{shortened(name)}{at} is {values[place]} where a finite number belongs"
            )


def circumstances() -> dict[str, str]:
    """What wrote a file, when and on what device.

    Example:
        >>> from posterax.files.container import circumstances
        >>> sorted(circumstances())
        ['device', 'jax', 'numpy', 'posterax', 'python', 'when']
    """
    return {
        "posterax": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": jax.devices()[0].device_kind,
    }


def write(path: Path, arrays: Arrays, header: dict[str, Any]) -> None:
    """Write arrays and a JSON header to one file: whole, or not at all."""
    text = json.dumps(header)
    parse(text)
    path.parent.mkdir(parents=True, exist_ok=True)
    with written(path, binary=True) as file:
        write_tensors(file, arrays, {"posterax": text, "digest": _digest(text, arrays)})


def read(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Arrays and header of a file; loading runs no code."""
    check_file(path)
    refuse_beyond_memory(f"reading {path}", path.stat().st_size)
    try:
        # it refuses a table of arrays that does not fit the file's length
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            text = metadata["posterax"]
            header = parse(text)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except KeyError as error:
        raise CheckpointError(f"{path}: not a posterax file (it has no {error})") from error
    except Exception as error:  # whatever a file of other making leads to
        raise CheckpointError(
            f"{path}: not a posterax file, or damaged ({shortened(error)})"
        ) from error
    version = header.get("format") if isinstance(header, dict) else None
    if type(version) is not int or version != FORMAT:
        raise CheckpointError(
            f"{path}: format version {shortened(version)}, this posterax ({__version__}) reads "
            f"{FORMAT}"
        )
    if metadata.get("digest") != _digest(text, arrays):
        raise CheckpointError(f"{path}: damaged, its content does not match its digest")
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf" and array.dtype != jnp.bfloat16:
            raise CheckpointError(f"{path}: {shortened(name)} is of type {array.dtype}")
    return arrays, header


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Whatever goes wrong inside is the file's fault, and said so in a line that names it."""
    try:
        yield
    except CheckpointError as error:
        error.args = (f"{path}: {error}",)
        raise
    except Exception as error:
        raise CheckpointError(
            f"{path}: damaged or inconsistent ({type(error).__name__}: {shortened(error)})"
        ) from error


def _digest(header: str, arrays: Arrays) -> str:
    """A hash of all a file holds: a disk's or a network's flipped bit must not become a weight."""
    return settings_fingerprint([header, sorted(arrays)]) + data_fingerprint(arrays)


def shortened(value: object) -> str:
    """A value in one line of at most 80 characters.

    Example:
        >>> from posterax.files.container import shortened
        >>> shortened("two\\nlines")
        'two lines'
    """
    text = re.sub(r"\s+", " ", str(value))
    text = "".join(c if c.isprintable() else "?" for c in text[:100])  # of a file of any making
    return text if len(text) <= 80 else text[:77] + "..."

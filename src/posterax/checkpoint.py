"""Checkpoints: written atomically, so that a killed fit resumes where it was, bit for bit."""

import hashlib
import json
import os
import platform
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from ._tree import is_key, path_name
from ._version import __version__

FORMAT = 1
# bounds of the JSON header, so that reading it takes little memory whatever it says
HEADER_CHARACTERS, HEADER_NODES, HEADER_DEPTH = 2**24, 10**6, 100


class CheckpointError(ValueError):
    """A checkpoint or file that cannot be used; the message has its path and the reason."""


def pack(tree: Any, prefix: str) -> dict[str, np.ndarray]:
    """The arrays of a tree by name; typed keys as their data."""
    arrays = {}
    for i, (path, leaf) in enumerate(jax.tree_util.tree_leaves_with_path(tree)):
        value = jax.random.key_data(leaf) if is_key(leaf) else leaf
        arrays[f"{prefix}/{i:04d}/{path_name(path)}"] = np.asarray(value, order="C")
    return arrays


def unpack(template: Any, arrays: dict[str, np.ndarray], prefix: str, path: Path) -> Any:
    """The tree again, checked against the names, shapes and types of a template."""
    names = names_of(template, arrays, prefix, path)
    leaves, treedef = jax.tree.flatten(template)
    return jax.tree.unflatten(
        treedef, [_restore(path, n, arrays[n], t) for n, t in zip(names, leaves, strict=True)]
    )


def names_of(template: Any, arrays: dict[str, np.ndarray], prefix: str, path: Path) -> list[str]:
    """The names of a tree's arrays in a file, in the order of a template's leaves."""
    names = sorted(name for name in arrays if name.startswith(f"{prefix}/"))
    places = [path_name(place) for place, _ in jax.tree_util.tree_leaves_with_path(template)]
    if len(names) != len(places):
        raise CheckpointError(
            f"{path}: {shortened(prefix)} has {len(names)} arrays where the model needs "
            f"{len(places)}"
        )
    for name, place in zip(names, places, strict=True):
        # the first files had the names of Flax's variables with their attribute
        if name.split("/", 2)[-1].removesuffix(".value") != place.removesuffix(".value"):
            raise CheckpointError(f"{path}: {shortened(name)} where {place} belongs")
    return names


def _restore(path: Path, name: str, value: np.ndarray, like: Any) -> jax.Array:
    key = jnp.issubdtype(like.dtype, jax.dtypes.prng_key)
    array = jnp.asarray(value)
    array = jax.random.wrap_key_data(array) if key else array
    if array.shape != like.shape or array.dtype != like.dtype:
        raise CheckpointError(
            f"{path}: {name} is {array.dtype}{list(array.shape)} where the model needs "
            f"{like.dtype}{list(like.shape)}"
        )
    return array


def circumstances() -> dict[str, str]:
    """What wrote a file, when and on what device.

    Example:
        >>> from posterax.checkpoint import circumstances
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


def write(path: Path, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
    """Write arrays and a JSON header to one file: whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.touch()
        mode = partial.stat().st_mode  # of any new file here; safetensors lets nobody else read it
        text = json.dumps(header)
        _check_header(text)
        save_file(arrays, partial, metadata={"posterax": text, "digest": _digest(text, arrays)})
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.chmod(mode)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and header of a file; loading runs no code."""
    if path.is_dir():
        raise CheckpointError(f"{path}: is a directory, not a posterax file")
    try:
        # it refuses a table of arrays that does not fit the file's length
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            text = metadata["posterax"]
            header = _check_header(text)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise
    except KeyError as error:
        raise CheckpointError(f"{path}: not a posterax file (it has no {error})") from error
    except Exception as error:  # whatever a file of other making leads to
        raise CheckpointError(
            f"{path}: not a posterax file, or damaged ({shortened(error)})"
        ) from error
    found = header.get("format") if isinstance(header, dict) else None
    if type(found) is not int or found != FORMAT:
        raise CheckpointError(
            f"{path}: format version {shortened(found)}, this posterax ({__version__}) reads "
            f"{FORMAT}"
        )
    if metadata.get("digest") != _digest(text, arrays):
        raise CheckpointError(f"{path}: damaged, its content does not match its digest")
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf" and array.dtype != jnp.bfloat16:
            raise CheckpointError(f"{path}: {shortened(name)} is of type {array.dtype}")
    return arrays, header


def _check_header(text: str) -> Any:
    """The header, unless it is more than a file may have."""
    nodes = sum(map(text.count, ",[{"))
    if len(text) > HEADER_CHARACTERS or nodes > HEADER_NODES:
        raise ValueError(
            f"a header of {len(text):,} characters and {nodes:,} entries, more than "
            f"{HEADER_CHARACTERS:,} and {HEADER_NODES:,}"
        )
    found = json.loads(text)
    level, depth = [found], 0
    while level:
        inside = [list(v.values()) if isinstance(v, dict) else v for v in level]
        level = [v for values in inside if isinstance(values, list) for v in values]
        depth += 1
        if depth > HEADER_DEPTH:
            raise ValueError(f"a header nested deeper than {HEADER_DEPTH} levels")
    return found


def _digest(header: str, arrays: dict[str, np.ndarray]) -> str:
    """A hash of all a file holds: a disk's or a network's flipped bit must not become a weight."""
    return settings_fingerprint([header, sorted(arrays)]) + data_fingerprint(arrays)


def settings_fingerprint(tree: Any, numbers_of: Any = None) -> str:
    """A hash of a prior, a likelihood or other settings: what they are, and their numbers.

    ``numbers_of`` is the tree without those that do not count.
    """
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(tree))  # addresses change from run to run
    counted = tree if numbers_of is None else numbers_of
    numbers = data_fingerprint(eqx.filter(counted, eqx.is_array_like))
    return hashlib.blake2b((text + numbers).encode(), digest_size=16).hexdigest()


def optimizer_fingerprint(optimizer: Any) -> list[float] | None:
    """What an optimiser does to one weight in two steps: its settings are hidden in closures."""
    if optimizer is None:
        return None
    weight = {"mu": jnp.ones(1), "rho": jnp.ones(1)}
    gradient = {"mu": jnp.full(1, 0.5), "rho": jnp.full(1, 0.5)}
    try:
        state, moves = optimizer.init(weight), []
        for _ in range(2):
            updates, state = optimizer.update(gradient, state, weight)
            moves.append(float(updates["mu"][0]))
    except Exception:  # one made for another tree cannot be asked
        return None
    return moves


def data_fingerprint(tree: Any) -> str:
    """A hash of the data's content."""
    digest = hashlib.blake2b(digest_size=16)
    for leaf in jax.tree.leaves(tree):
        array = np.asarray(leaf, order="C")
        digest.update(str((array.shape, array.dtype)).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


class Checkpoints:
    """A directory that holds one fit's latest state, and its draws in parts.

    Args:
        directory: where; made when missing.
        identity: what the fit is (model, method, data, key); another fit's checkpoint is refused.
    """

    def __init__(self, directory: str | Path, identity: dict[str, Any]):
        self.directory = Path(directory)
        if self.directory.exists() and not self.directory.is_dir():
            raise CheckpointError(f"{self.directory}: checkpoint must be a directory")
        self.identity = identity
        self.parts = 0

    @property
    def path(self) -> Path:
        """The file of the latest state."""
        return self.directory / "state.safetensors"

    def add_draws(self, draws: dict[str, np.ndarray]) -> None:
        """Store the next part of the draws; the state written after it makes it count."""
        write(self._part(self.parts), draws, {"format": FORMAT, "written": circumstances()})
        self.parts += 1

    def save(self, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
        """Replace the latest state."""
        full = {"format": FORMAT, "identity": self.identity, "parts": self.parts, **header}
        write(self.path, arrays, full | {"written": circumstances()})

    def load(self) -> tuple[dict[str, np.ndarray], dict[str, Any], list[Any]] | None:
        """The latest state with its draws, or ``None`` where there is none."""
        try:
            arrays, header = read(self.path)
        except FileNotFoundError:
            return None
        found, parts = header.get("identity"), header.get("parts")
        if not isinstance(found, dict) or type(parts) is not int or parts < 0:
            raise CheckpointError(f"{self.path}: is no state of a fit")
        for name, value in self.identity.items():
            if found.get(name) != value:
                raise CheckpointError(
                    f"{self.path}: belongs to another fit, its {name} is "
                    f"{shortened(found.get(name))} and this one's {shortened(value)}; remove the "
                    "directory or choose another"
                )
        self.parts = parts
        try:
            draws = [read(self._part(i))[0] for i in range(parts)]
        except FileNotFoundError as error:
            raise CheckpointError(
                f"{self.path}: a part of its draws is missing ({error})"
            ) from None
        return arrays, header, draws

    def _part(self, i: int) -> Path:
        return self.directory / f"draws-{i:06d}.safetensors"


def shortened(value: Any) -> str:
    """A value in one line of at most 80 characters.

    Example:
        >>> from posterax.checkpoint import shortened
        >>> shortened("two\\nlines")
        'two lines'
    """
    text = re.sub(r"\s+", " ", str(value))
    return text if len(text) <= 80 else text[:77] + "..."

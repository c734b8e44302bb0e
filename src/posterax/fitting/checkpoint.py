"""A directory that holds one fit: its latest state, and its draws in parts."""

import numbers
import os
import platform
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from .._util import machine
from .._util.identity import identify
from .._util.locks import Lock
from .._util.machine import arithmetic
from ..errors import CheckpointError
from ..files.container import FORMAT, circumstances, read, shortened, write
from .identity import but_for_digits, differences

Arrays = dict[str, np.ndarray]
SHOWN = 4  # differences that an error tells


class Checkpoint(NamedTuple):
    """Where and how often a fit is saved.

    Args:
        directory: where; made when missing.
        every: seconds between two savings.
    """

    directory: str | Path
    every: float = 15.0


def as_checkpoint(given: Any) -> Checkpoint | None:
    """A directory or a ``Checkpoint``, checked.

    Example:
        >>> from posterax.fitting.checkpoint import as_checkpoint
        >>> as_checkpoint("runs/curve").every
        15.0
    """
    if given is None:
        return None
    made = given if isinstance(given, Checkpoint) else Checkpoint(given)
    if not isinstance(made.directory, str | os.PathLike) or not str(made.directory):
        raise TypeError(
            "checkpoint must be a directory or px.Checkpoint(directory, every=…), got "
            f"{made.directory!r}"
        )
    number = isinstance(made.every, numbers.Real) and not isinstance(made.every, bool)
    if not (number and made.every >= 0):
        raise ValueError(
            f"checkpoint: every must be a number of seconds, 0 or more, got {made.every!r}"
        )
    return made


class Part(NamedTuple):
    """Some of the draws, one after the other; of a posterior that was thinned, by what stride."""

    arrays: Arrays
    stride: int = 1
    offered: int | None = None  # of which these are left; None: they are all

    @property
    def size(self) -> int:
        """How many draws of each chain."""
        return min((array.shape[1] for array in self.arrays.values()), default=0)


class Stored(NamedTuple):
    """What a directory holds: the latest state, and the draws up to it."""

    arrays: Arrays
    header: dict[str, Any]
    parts: list[Part]


class Checkpoints:
    """A directory that holds one fit's latest state, and its draws in parts.

    Draws wait until the next state is written: each part says which fit it is of, its place and
    how many it holds, and the state how many there are, so that no other's is taken for one's own.

    Args:
        directory: where; made when missing.
        identity: what the fit is (see ``fitting.identity``); another fit's checkpoint is refused.
    """

    def __init__(self, directory: str | Path, identity: dict[str, Any]):
        self.directory = Path(directory)
        if self.directory.exists() and not self.directory.is_dir():
            raise CheckpointError(f"{self.directory}: checkpoint must be a directory")
        self.identity = identity
        self.parts = self.draws = 0  # that are written
        self.waiting: list[Part] = []
        self._lock = Lock(self.directory / "lock")
        self._name = identify(identity)

    @property
    def path(self) -> Path:
        """The file of the latest state."""
        return self.directory / "state.safetensors"

    @property
    def waiting_bytes(self) -> int:
        """How much waits for the next state."""
        return sum(a.nbytes for part in self.waiting for a in part.arrays.values())

    def acquire(self) -> None:
        """Keep other fits out of the directory until ``release``, or the end of this process."""
        if jax.process_index() > 0:  # the first of a fit's processes holds it for them all
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self._lock.acquire():
            raise CheckpointError(
                f"{self.directory}: another fit is running in this directory"
                f"{_holder(self._lock.path)}; wait for it, or choose another directory"
            )
        self._lock.note(f"process {os.getpid()} on {platform.node()}\n")

    def release(self) -> None:
        """Let others in."""
        self._lock.release()

    def add_draws(self, part: Part) -> None:
        """Keep draws for the next state."""
        self.waiting.append(part)

    def save(self, arrays: Arrays, header: dict[str, Any]) -> None:
        """Write the draws that wait, and replace the latest state."""
        while self.waiting:
            part = self.waiting[0]
            about = {"identity": self._name, "index": self.parts, "first": self.draws}
            about |= {"count": part.size, "stride": part.stride, "offered": part.offered}
            full = {"format": FORMAT, **about, "written": circumstances()}
            write(self._part(self.parts), part.arrays, full)
            self.parts, self.draws = self.parts + 1, self.draws + part.size
            self.waiting.pop(0)
        full = {"format": FORMAT, "identity": self.identity, "parts": self.parts}
        full |= {"draws": self.draws, **header, "arithmetic": arithmetic()}
        write(self.path, arrays, full | {"written": circumstances()})

    def load(self) -> Stored | None:
        """The latest state with its draws, or ``None`` where there is none."""
        try:
            arrays, header = read(self.path)
        except FileNotFoundError:
            self._tidy()
            return None
        found, parts, draws = (header.get(name) for name in ("identity", "parts", "draws"))
        whole = isinstance(parts, int) and isinstance(draws, int) and parts >= 0
        if not isinstance(found, dict) or not isinstance(parts, int) or not whole:
            raise CheckpointError(f"{self.path}: is no state of a fit")
        before, other = header.get("arithmetic"), differences(found, self.identity)
        moved = machine.differences(before, arithmetic()) if isinstance(before, dict) else []
        other = but_for_digits(other) if moved else other
        if other:
            raise CheckpointError(f"{self.path}: belongs to another fit, {_told(other)}")
        if moved:
            _warn_of_arithmetic(self.path, moved)
        loaded = [self._load_part(i) for i in range(parts)]
        if self.draws != draws:
            raise CheckpointError(
                f"{self.path}: its parts hold {self.draws} draws, and it counts {draws}"
            )
        self._tidy()
        return Stored(arrays, header, loaded)

    def _load_part(self, i: int) -> Part:
        """A part of the draws, if it is of this fit and has its place here."""
        path = self._part(i)
        try:
            arrays, header = read(path)
        except FileNotFoundError as error:
            raise CheckpointError(
                f"{self.path}: a part of its draws is missing ({error})"
            ) from None
        about = (header.get("identity"), header.get("index"), header.get("first"))
        sized = all(array.ndim >= 2 for array in arrays.values())
        if about != (self._name, i, self.draws) or not sized:
            raise CheckpointError(f"{path}: belongs to another fit, or to another place in it")
        count, thinned = header.get("count"), (header.get("stride", 1), header.get("offered"))
        part = Part(arrays, *thinned)
        if part.size != count or part.size < 1:
            raise CheckpointError(
                f"{path}: holds {part.size} draws where it counts {shortened(count)}"
            )
        if not _is_thinned_so(part, first=i == 0):
            raise CheckpointError(f"{path}: its stride or what it was offered is not possible")
        self.parts, self.draws = i + 1, self.draws + part.size
        return part

    def _tidy(self) -> None:
        """Remove what a fit that was killed left behind: nobody else is in the directory."""
        ours = {self._part(i).name for i in range(self.parts)}
        for path in [*self.directory.glob("draws-*"), *self.directory.glob(".*.partial")]:
            if path.name not in ours:
                path.unlink(missing_ok=True)

    def _part(self, i: int) -> Path:
        return self.directory / f"draws-{i:06d}.safetensors"


def _is_thinned_so(part: Part, first: bool) -> bool:
    """Whether these may be all of some draws, or the first ones, what an earlier fit kept."""
    if part.offered is None:
        return part.stride == 1
    whole = type(part.stride) is int and type(part.offered) is int and part.stride > 0
    return first and whole and part.size == -(-part.offered // part.stride)


def _warn_of_arithmetic(path: Path, moved: list[str]) -> None:
    """The fit is the same one, and its last digits need not be: the user decides."""
    warnings.warn(
        f"{path}: was begun with other arithmetic ({shortened('; '.join(moved))}); the fit "
        "goes on, and its last digits are not those of a fit without interruption",
        UserWarning, stacklevel=2,
    )  # fmt: skip


def _told(other: dict[str, tuple[Any, Any]]) -> str:
    """What two fits differ in, and what to do."""
    each = []
    for name, both in list(other.items())[:SHOWN]:
        found, mine = map(shortened, both)
        hidden = found[:1] == mine[:1] == "#"  # hashes, which tell nobody anything
        each.append(f"its {name} is " + ("another" if hidden else f"{found} and this one's {mine}"))
    more = [f"{len(other) - SHOWN} more"] if len(other) > SHOWN else []
    hint = ""
    if set(other) == {"steps"}:
        hint = "to go on for longer, finish it as it was and pass its posterior as resume=, or "
    elif all(name.startswith("versions.") for name in other):
        hint = "finish it with the versions it was begun with, or "
    return f"{', '.join(each + more)}; {hint}remove the directory or choose another"


def _holder(path: Path) -> str:
    try:
        text = path.read_text(errors="replace").strip()
    except OSError:
        return ""
    return f" ({shortened(text)})" if text else ""

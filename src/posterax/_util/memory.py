"""Memory: bounded on purpose, and an error that says what would have needed how much."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from .tree import human_bytes

LITTLE = 2**26  # so few bytes are not worth asking the system for
DRAW = 32  # bytes of a draw that is known by its key and weight, and as much to make them
# where the group of a process says what it may have, what it has, and what of that can be given
# back: pages of files that were read
_Names: TypeAlias = tuple[tuple[str, ...], str, tuple[str, ...]]
_SECOND: _Names = ("memory.max", "memory.high"), "memory.current", ("inactive_file", "active_file")
_FIRST: _Names = (
    ("memory.limit_in_bytes",),
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
)


@contextmanager
def explain_out_of_memory(what: str, needed: int) -> Iterator[None]:
    """Turn an allocator's failure into a ``MemoryError`` that names the work and its bytes."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        detail = str(error)
        memory = isinstance(error, MemoryError) and not detail.startswith("out of memory")
        if not (memory or "RESOURCE_EXHAUSTED" in detail or "Out of memory" in detail):
            raise
        raise MemoryError(
            f"out of memory: {what} needs about {needed:,} bytes ({human_bytes(needed)}) beside "
            f"the data ({detail.splitlines()[0] if detail else 'no detail'})"
        ) from error


def refuse_beyond_memory(what: str, needed: int) -> None:
    """Refuse before starting what cannot fit into the memory that this process may have."""
    available = available_bytes() if needed > LITTLE else None
    if available is not None and needed > available:
        raise MemoryError(
            f"out of memory: {what} needs {needed:,} bytes ({human_bytes(needed)}), and "
            f"{human_bytes(available)} are available"
        )


def refuse_draws(name: str, count: int, each: int = 0) -> None:
    """Refuse an argument that asks for more draws than memory holds, of ``each`` bytes."""
    refuse_beyond_memory(f"{name}={count:,}", count * (DRAW + each))


def available_bytes(root: Path = Path("/")) -> int | None:
    """Bytes that this process may still take, or ``None`` where nothing says how many.

    The least of what the machine has free, what the control groups around the process leave it
    (those of a container, say) and what its own limits do. ``root`` is where ``proc`` and ``sys``
    are.
    """
    free = [*_host(root), *_groups(root), *_own_limits(root)]
    return max(0, min(free)) if free else None


def _host(root: Path) -> Iterator[int]:
    known = _entries(root / "proc/meminfo")
    if "MemAvailable" in known:
        yield known["MemAvailable"] * 1024


def _groups(root: Path) -> Iterator[int]:
    """What is left to each group that the process is in, up to the outermost one in sight."""
    mounts = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, kinds, path = ([*line.split(":", 2), "", ""])[:3]
        if number == "0":
            folders, files = (mounts, mounts / "unified"), _SECOND
        elif "memory" in kinds.split(","):
            folders, files = (mounts / "memory", mounts / kinds), _FIRST
        else:
            continue
        # inside a container its own group may be the root, under a path that is the host's
        inner = PurePosixPath(path.strip("/"))
        for folder in folders:
            for group in (inner, *inner.parents):
                if ".." not in group.parts:
                    yield from _left(folder / group, *files)


def _left(
    group: Path, limits: tuple[str, ...], used: str, cached: tuple[str, ...]
) -> Iterator[int]:
    allowed = [int(text) for name in limits if (text := _text(group / name).strip()).isdecimal()]
    taken = _text(group / used).strip()
    if allowed and taken.isdecimal():
        kept = _entries(group / "memory.stat")
        yield min(allowed) - max(0, int(taken) - sum(kept.get(name, 0) for name in cached))


def _own_limits(root: Path) -> Iterator[int]:
    """What ``ulimit -v`` and ``ulimit -d`` leave."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    known = _entries(root / "proc/self/status")
    for limit, used in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        most = resource.getrlimit(limit)[0]
        if most != resource.RLIM_INFINITY:
            yield most - known.get(used, 0) * 1024


def _entries(path: Path) -> dict[str, int]:
    """Lines such as ``VmSize: 12 kB`` by name."""
    found = {}
    for line in _text(path).splitlines():
        words = line.split()
        if len(words) > 1 and words[1].isdecimal():
            found[words[0].rstrip(":")] = int(words[1])
    return found


def _text(path: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text()
    return ""

"""Memory: bounded on purpose, and an error that says what would have needed how much."""

from collections.abc import Iterator
from contextlib import contextmanager

from .tree import human_bytes


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
    """Refuse before starting what cannot fit into the machine's memory."""
    available = available_bytes()
    if available is not None and needed > available:
        raise MemoryError(
            f"out of memory: {what} needs {needed:,} bytes ({human_bytes(needed)}), and "
            f"{human_bytes(available)} are available"
        )


def available_bytes() -> int | None:
    """Free memory of the machine in bytes, or ``None`` where it cannot be read."""
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None

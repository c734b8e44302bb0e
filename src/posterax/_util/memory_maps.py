"""Room for compiled programs: a process that compiles for days must not end in a crash.

Linux gives a process 65,530 memory maps (``vm.max_map_count``). A program compiled for a CPU takes
one or two for each of its kernels: some 500 for a small fit. Where none is left the compiler ends
the process with a segmentation fault, after about a hundred fits of different shapes. So when most
are taken, compiled programs are forgotten: what is needed again is compiled again, or read from
disk.
"""

from pathlib import Path

import jax
from jax import monitoring

SHARE = 0.7  # of the maps may be taken; the rest is for what compiles until the next look
EVERY = 8  # programs between two looks
_COMPILED = "/jax/core/compile/backend_compile_duration"
_new: list[str] = []  # programs since the last look


def _heard(event: str, duration_secs: float, **kwargs: str | int) -> None:
    if event == _COMPILED:
        _new.append(event)


monitoring.register_event_duration_secs_listener(_heard)


def make_room(share: float = SHARE) -> bool:
    """Forget compiled programs where they take most of the maps; whether it was so.

    It looks after every eighth program only: a look reads a line for each map.

    Example:
        >>> from posterax._util.memory_maps import make_room
        >>> make_room()
        False
    """
    if len(_new) < EVERY:
        return False
    _new.clear()
    most = most_maps()
    if most is None or taken_maps() <= share * most:
        return False
    jax.clear_caches()
    return True


def most_maps() -> int | None:
    """How many maps the system gives a process; ``None`` where it does not say."""
    try:
        return int(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):
        return None


def taken_maps() -> int:
    """How many maps this process has."""
    try:
        return Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return 0

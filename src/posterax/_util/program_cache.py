"""Compiled programs kept on disk between processes, in JAX's own cache, by default.

A first fit compiles for seconds what the one before it had compiled too. JAX keeps programs where
it is told a folder; posterax tells it one, unless someone has told it something already:

- ``JAX_COMPILATION_CACHE_DIR`` or ``jax.config`` name another folder, or JAX's cache is off;
- ``POSTERAX_CACHE=off``; any other value of it is the folder to use;
- there is no home, it cannot be written, or the folder is open to other people: what lies there is
  run as code.

The folder is the user's alone, and one for each version of JAX and kind of processor: a program is
made for the instructions that a processor has.
"""

import hashlib
import os
import platform
import stat
from pathlib import Path
from typing import Any

import jax
import jaxlib
from jax.experimental.compilation_cache.compilation_cache import reset_cache

VARIABLE = "POSTERAX_CACHE"
MOST_BYTES = 2**30  # of one folder; beyond it the oldest programs go
SECONDS = 0.0  # what compiles faster is not kept: with 0.05 a next first fit took 1.7 s, so 1.5
_USUAL_SECONDS = 1.0  # JAX's own


def keep_programs() -> None:
    """Have JAX keep programs on disk, where nobody has said anything else.

    Whoever names another folder later has it from then on.
    """
    config: Any = jax.config
    if _KEPT:
        if _KEPT[0] is not None and config.jax_compilation_cache_dir != _KEPT[0]:
            _KEPT[0] = None
            reset_cache()  # JAX itself looks for its folder once
        return
    folder = cache_folder()
    _KEPT.append(None if folder is None else str(folder))
    if folder is None:
        return
    config.update("jax_compilation_cache_dir", str(folder))
    seconds = "jax_persistent_cache_min_compile_time_secs"
    if getattr(config, seconds) == _USUAL_SECONDS:
        config.update(seconds, SECONDS)
    remove_oldest(folder, MOST_BYTES)


_KEPT: list[str | None] = []  # the folder that JAX was told, once there is an answer


def cache_folder() -> Path | None:
    """The folder for this process, made if need be; ``None`` where there is to be none."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted.lower() in ("off", "0", "false", "no"):
        return None
    config: Any = jax.config
    if config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache:
        return None
    try:
        base = Path(wanted) if wanted else user_cache()
        folder = base / "programs" / _fingerprint()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for place in (folder, folder.parent):
            if not _private(place):
                return None
        return folder if os.access(folder, os.W_OK | os.X_OK) else None
    except (OSError, RuntimeError):  # no home, or none that can be written
        return None


def user_cache() -> Path:
    """The folder of the user's cache that is posterax's.

    Example:
        >>> from posterax._util.program_cache import user_cache
        >>> user_cache().name
        'posterax'
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "posterax"


def _private(folder: Path) -> bool:
    """Whether the folder is this user's, and no other can write to it."""
    about = folder.stat()
    mine = not hasattr(os, "getuid") or about.st_uid == os.getuid()
    return mine and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _fingerprint() -> str:
    """A name for what a program depends on: JAX's version and the processor's instructions."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = sorted({s for s in lines if s.startswith(("flags", "Features", "model name"))})
    except OSError:
        processor = [platform.machine(), platform.processor()]
    about = [jax.__version__, jaxlib.__version__, platform.machine(), *processor]
    return hashlib.sha256("\n".join(about).encode()).hexdigest()[:16]


def remove_oldest(folder: Path, most: int) -> None:
    """Remove the programs longest unused until no more than ``most`` bytes are left.

    Example:
        >>> import os, tempfile
        >>> from pathlib import Path
        >>> from posterax._util.program_cache import remove_oldest
        >>> folder = Path(tempfile.mkdtemp())
        >>> for age, name in enumerate(["new", "old"]):
        ...     _ = (folder / name).write_bytes(b"12345")
        ...     os.utime(folder / name, (0, 100 - age))
        >>> remove_oldest(folder, 6)
        >>> os.listdir(folder)
        ['new']
    """
    try:
        with os.scandir(folder) as entries:
            abouts = [(entry.stat(), entry.path) for entry in entries if entry.is_file()]
        files = [(about.st_mtime, about.st_size, Path(path)) for about, path in abouts]
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= most:
                return
            path.unlink(missing_ok=True)
            total -= size
    except OSError:  # another process is at it
        return

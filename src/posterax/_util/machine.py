"""What the last bits of a result depend on beside the program and its numbers: the arithmetic.

A sum in another order has other last digits. On a CPU, XLA and BLAS cut large sums into as many
parts as they have threads, and by default they have as many threads as there are cores.
"""

import os
import platform
from pathlib import Path
from typing import Any

import jax

from .checks import whole_number
from .jax_names import has_started

# read by XLA in this order when it starts; the first that is an integer counts
XLA_THREADS = ("PJRT_NPROC", "NPROC")
# instruction sets for which compilers and libraries have kernels of their own
INSTRUCTIONS = (
    "sse4_2",
    "avx",
    "avx2",
    "fma",
    "avx512f",
    "avx512_bf16",
    "amx_tile",
    "asimd",
    "sve",
)
SETTINGS = (
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_disable_most_optimizations",
    "jax_enable_x64",
    "jax_threefry_partitionable",
)


def arithmetic() -> dict[str, Any]:
    """Everything but versions that may change the bits of a result, as plain JSON values.

    The kind of the devices and their number, JAX's settings and XLA's flags; and on a CPU its
    instruction sets and the numbers of threads of XLA and of BLAS, which factorises matrices.

    Example:
        >>> from posterax._util.machine import arithmetic
        >>> list(arithmetic())[:3]
        ['device', 'devices', 'settings']
    """
    devices = jax.devices()
    found: dict[str, Any] = {
        "device": devices[0].device_kind,
        "devices": len(devices),
        "settings": {name: _plain(_setting(name)) for name in SETTINGS},
        "xla_flags": xla_flags(),
    }
    if devices[0].platform == "cpu":
        found["instructions"] = instructions()
        found["threads"] = xla_threads()
        found["threads_of_blas"] = blas_threads()
    return found


def _setting(name: str) -> Any:
    """A setting of JAX; some are no attributes, and names come and go with versions."""
    try:
        return getattr(jax.config, name, None) or jax.config.read(name)
    except AttributeError:
        return None


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What of the arithmetic is another, in words; an entry that only one of them has counts.

    Example:
        >>> from posterax._util.machine import differences
        >>> differences({"device": "cpu", "threads": 2}, {"device": "cpu", "threads": 8})
        ['threads: 2 before, 8 now']
    """
    before, now = _flat(before), _flat(now)
    names = sorted({*before, *now})
    pairs = [(name, before.get(name), now.get(name)) for name in names]
    return [
        f"{name.replace('_', ' ')}: {_words(old)} before, {_words(new)} now"
        for name, old, new in pairs
        if old != new
    ]


def _flat(found: dict[str, Any]) -> dict[str, Any]:
    """Settings by their own names beside the others."""
    settings = found.get("settings")
    return {**found, **settings, "settings": None} if isinstance(settings, dict) else found


def fix_threads(threads: int = 1) -> None:
    """Make the bits of results independent of the number of cores of the CPU.

    By default the sums of large batches are cut into as many parts as the process has cores, so
    another number of cores gives other last digits. This fixes the number of parts: XLA gets
    ``threads`` threads on every machine, more of them than cores or fewer, and BLAS gets one.
    Call it before anything is computed. It holds for the whole process and for those it starts.

    With fewer threads than cores large fits take longer; with more, nothing is gained.

    Args:
        threads: the number of threads of XLA. Another number has other last digits.

    Raises:
        RuntimeError: JAX has already started with another number.

    Example:
        >>> import subprocess, sys
        >>> program = "import posterax as px; px.fix_threads(3); "
        >>> program += "from posterax._util.machine import xla_threads; print(xla_threads())"
        >>> subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout
        '3\\n'
    """
    threads = whole_number("threads", threads, least=1)
    if has_started() and xla_threads() != threads:
        raise RuntimeError(
            f"px.fix_threads({threads}) came too late: JAX has started with {xla_threads()} "
            f"threads; call it before anything is computed, or start Python with "
            f"{XLA_THREADS[0]}={threads} in its environment"
        )
    os.environ[XLA_THREADS[0]] = str(threads)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # for processes that this one starts
    _blas().limit(limits=1)


def xla_threads() -> int:
    """How many threads XLA computes with on the CPU, or will when it starts.

    Example:
        >>> from posterax._util.machine import xla_threads
        >>> xla_threads() >= 1
        True
    """
    running = _running_threads()
    if running:
        return running
    for name in XLA_THREADS:
        value = os.environ.get(name, "").strip()
        if value.isdecimal():
            return max(1, int(value))
    affinity = getattr(os, "sched_getaffinity", None)  # Linux: a container's cores, not the host's
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _running_threads() -> int:
    """The threads of XLA's pool by their name: what was set after it started changes nothing."""
    try:
        tasks = list(Path("/proc/self/task").iterdir())
    except OSError:
        return 0
    count = 0
    for task in tasks:
        try:
            count += (task / "comm").read_text().strip() == "tf_XLAEigen"
        except OSError:  # a thread that has just ended
            continue
    return count


def blas_threads() -> int:
    """The most threads that a BLAS of this process has; JAX factorises matrices with SciPy's."""
    return max((library["num_threads"] for library in _blas().info()), default=1)


def instructions() -> list[str]:
    """The machine and those of its instruction sets that matter, where Linux lists them."""
    found: set[str] = set()
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.lower().startswith(("flags", "features")):
                    found = set(line.split(":", 1)[1].split())
                    break
    except OSError:
        pass
    return [platform.machine(), *(name for name in INSTRUCTIONS if name in found)]


def xla_flags() -> list[str]:
    """XLA's flags from the environment, sorted, without those that only write files."""
    last = {flag.split("=", 1)[0]: flag for flag in os.environ.get("XLA_FLAGS", "").split()}
    return sorted(flag for name, flag in last.items() if not name.startswith("--xla_dump"))


def _blas() -> Any:
    import scipy.linalg  # noqa: F401  # its BLAS must be loaded to be asked
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={part}" for name, part in value.items()) or "none"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return str(value)

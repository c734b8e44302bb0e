"""Results that grow on disk: a run that was stopped goes on where it was."""

import json
import os
import platform
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from posterax._util.interrupts import raise_on_interrupt
from posterax._util.progress import Watch
from posterax._util.writing import write_file
from posterax._version import __version__

FIX = "take another directory, or delete it"


class Store:
    """Results by name in one JSON file, written whenever one is added.

    Args:
        path: the file; ``None`` keeps everything in memory.
        settings: of the run; a file with results of others is refused.
        watch: what shows how far the run is.

    Raises:
        ValueError: where the file is none of a run with these settings.
        OSError: where nothing can be read or written there. Both before anything is trained.

    Example:
        >>> from experiments.store import Store
        >>> store = Store(None, {"epochs": 3})
        >>> store.get("a/0", lambda: {"nll": 0.5})["nll"]
        0.5
        >>> store.get("a/0", lambda: {"nll": 7.0})["nll"]  # it is there already
        0.5
        >>> store.get("b/0", lambda: {"nll": 0.4}, settings={"rate": 0.1})["settings"]
        {'rate': 0.1}
    """

    def __init__(self, path: Path | None, settings: dict[str, Any], watch: Watch | None = None):
        self.path = path
        self.watch = watch or Watch()
        self.content: dict[str, Any] = {"settings": settings, "facts": facts(), "runs": {}}
        if path is None:
            return
        _make_room(path.parent)
        if not path.exists():
            return
        content = _read(path)
        if content["settings"] != _as_read(settings):
            raise ValueError(f"out: {path} has results of other settings: {FIX}")
        self.content = content

    @property
    def runs(self) -> dict[str, Any]:
        """What there is, by name."""
        return self.content["runs"]

    def under(self, prefix: str) -> dict[str, dict[str, Any]]:
        """The results whose name begins so, by the rest of it.

        Example:
            >>> from experiments.store import Store
            >>> store = Store(None, {})
            >>> _ = store.get("test/0", lambda: {"nll": 0.5})
            >>> list(store.under("test/"))
            ['0']
        """
        named = self.runs.items()
        return {name[len(prefix) :]: run for name, run in named if name.startswith(prefix)}

    @property
    def seconds(self) -> float:
        """That all results together took."""
        return sum(run["seconds"] for run in self.runs.values())

    def expect(self, names: Iterable[str]) -> None:
        """All results that the run will ask for, so that whoever watches knows how far it is."""
        wanted = set(names)
        self.watch.expect(len(wanted), len(wanted & self.runs.keys()))

    def get(
        self,
        name: str,
        make: Callable[[], dict[str, Any]],
        settings: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The result of this name: made, timed and written unless it is there.

        ``settings`` are those of this result, where its name does not tell them: they are kept with
        it, and one of others is refused.
        """
        if name not in self.runs:
            self.watch.begin(name)
            began = time.perf_counter()
            with raise_on_interrupt():  # half a fit is no result
                made = ({} if settings is None else {"settings": settings}) | make()
            seconds = round(time.perf_counter() - began, 2)
            self.runs[name] = made | {"seconds": seconds}
            if (now := facts()) != self.content["facts"]:  # a file that was begun elsewhere
                self.runs[name]["facts"] = now
            self.write()
            self.watch.end(name, seconds)
        result = self.runs[name]
        if settings is not None and _as_read(result.get("settings")) != _as_read(settings):
            raise ValueError(
                f"out: {name!r} in {self.path} was made with {result.get('settings')} and would "
                f"now be with {settings}: take another directory, or delete that entry"
            )
        return result

    def write(self) -> None:
        """All of it; the file is complete at any moment."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_file(self.path, json.dumps(self.content, indent=1) + "\n")


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except ValueError as error:  # broken, or no text at all
        raise ValueError(f"out: {path} is no JSON ({error}): {FIX}") from error
    except OSError as error:
        raise OSError(f"out: {path} cannot be read ({error.strerror}): {FIX}") from error
    parts = ("settings", "facts", "runs")
    if not isinstance(content, dict) or not all(isinstance(content.get(k), dict) for k in parts):
        raise ValueError(f"out: {path} has no {', '.join(parts)}, so no results: {FIX}")
    return content


def _make_room(folder: Path) -> None:
    """A folder that can be written to, or a refusal before hours of work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = "is a file" if folder.is_file() else f"cannot be made ({error.strerror})"
        raise OSError(f"out: {folder} {what}: take another directory") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"out: {folder} cannot be written to: take another directory")


def _as_read(settings: Any) -> Any:
    """As they are after a file: tuples become lists."""
    return json.loads(json.dumps(settings))


def facts() -> dict[str, Any]:
    """Where figures come from: device, versions."""
    import sklearn

    device = jax.devices()[0]
    own = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0)
    return {
        "device": device.device_kind if device.platform != "cpu" else "cpu",
        "cores": len(own),
        "python": platform.python_version(),
        "posterax": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
    }

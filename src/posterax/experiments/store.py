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

from .._version import __version__
from ..fit import whole_or_nothing
from .watch import Watch


class Store:
    """Results by name in one JSON file, written whenever one is added.

    Args:
        path: the file; ``None`` keeps everything in memory.
        settings: of the run; a file with results of others is refused.
        watch: what shows how far the run is.

    Example:
        >>> from posterax.experiments.store import Store
        >>> store = Store(None, {"epochs": 3})
        >>> store.get("a/0", lambda: {"nll": 0.5})["nll"]
        0.5
        >>> store.get("a/0", lambda: {"nll": 7.0})["nll"]  # it is there already
        0.5
    """

    def __init__(self, path: Path | None, settings: dict[str, Any], watch: Watch | None = None):
        self.path = path
        self.watch = watch or Watch()
        self.content: dict[str, Any] = {"settings": settings, "facts": facts(), "runs": {}}
        if path is None or not path.exists():
            return
        found = json.loads(path.read_text())
        if found["settings"] != json.loads(json.dumps(settings)):
            raise ValueError(
                f"out: {path} has results of other settings: take another directory, or delete it"
            )
        self.content = found

    @property
    def runs(self) -> dict[str, Any]:
        """What there is, by name."""
        return self.content["runs"]

    def expect(self, names: Iterable[str]) -> None:
        """All results that the run will ask for, so that whoever watches knows how far it is."""
        wanted = set(names)
        self.watch.expect(len(wanted), len(wanted & self.runs.keys()))

    def get(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The result of this name: made, timed and written unless it is there."""
        if name not in self.runs:
            self.watch.begin(name)
            began = time.perf_counter()
            with whole_or_nothing():  # half a fit is no result
                made = make()
            seconds = round(time.perf_counter() - began, 2)
            self.runs[name] = made | {"seconds": seconds}
            if (now := facts()) != self.content["facts"]:  # a file that was begun elsewhere
                self.runs[name]["facts"] = now
            self.write()
            self.watch.end(name, seconds)
        return self.runs[name]

    def write(self) -> None:
        """All of it, so that the file is whole at any moment."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(".part")
        beside.write_text(json.dumps(self.content, indent=1) + "\n")
        beside.replace(self.path)


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

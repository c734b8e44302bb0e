"""A directory that holds one fit: its latest state, and its draws in parts."""

from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CheckpointError
from ..files.container import FORMAT, circumstances, read, shortened, write


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

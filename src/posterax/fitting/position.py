"""Where a fit is: all that a checkpoint holds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import CheckpointError
from ..files.container import pack, unpack
from ..infer.base import Draw
from .kept import KeptDraws


class Position:
    """Where a fit is: all that a checkpoint holds."""

    def __init__(self, draw_bytes: int | None = None) -> None:
        self.phase = 0
        self.step = 0
        self.taken: list[int] = []  # steps of the phases before
        self.state: Any = None
        self.history: dict[str, list[np.ndarray]] = {}
        self.draws = KeptDraws(draw_bytes)
        self.identity: dict[str, Any] | None = None  # of what the draws depend on
        self.best: Any = None
        self.best_nll = float("inf")
        self.waited = 0
        self.stopped = False

    def record(self, terms: dict[str, np.ndarray]) -> None:
        """Append to the history."""
        for name, values in terms.items():
            self.history.setdefault(name, []).append(values)

    def next_phase(self) -> None:
        """Go on to the next phase; what was best of the last has been taken up."""
        self.taken = [*self.taken, self.step]
        self.phase, self.step, self.stopped = self.phase + 1, 0, False
        self.best, self.best_nll, self.waited = None, float("inf"), 0

    def packed(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and header for a checkpoint; draws are stored in parts of their own."""
        arrays = pack(self.state, "state")
        if self.best is not None:
            arrays |= pack(self.best, "best")
        self.history = {name: [np.concatenate(parts)] for name, parts in self.history.items()}
        arrays |= {f"history/{name}": parts[0] for name, parts in self.history.items()}
        header = {
            "phase": self.phase, "step": self.step, "stopped": self.stopped,
            "best_nll": self.best_nll, "waited": self.waited, "best": self.best is not None,
            "history": list(self.history), "taken": self.taken,
        }  # fmt: skip
        return arrays, header


def restore(
    found: Any,
    path: Path,
    state_template: Callable[[int], Any],
    draw_template: Callable[[int], Any],
    draw_bytes: int | None = None,
) -> Position:
    """The position a checkpoint holds, checked against the shapes this fit has."""
    arrays, header, parts = found
    at = Position(draw_bytes)
    try:
        at.phase, at.step = int(header["phase"]), int(header["step"])
        at.best_nll, at.waited = float(header["best_nll"]), int(header["waited"])
        at.stopped = bool(header["stopped"])
        at.taken = [int(steps) for steps in header.get("taken", [])]
        if at.phase < 0 or at.step < 0:
            raise IndexError(f"phase {at.phase}, step {at.step}")
        template = state_template(at.phase)
        at.state = unpack(template, arrays, "state", path)
        if header["best"]:
            at.best = unpack(template, arrays, "best", path)
        at.history = {name: [arrays[f"history/{name}"]] for name in header["history"]}
        if parts:
            draw = draw_template(at.phase)
            for part in parts:
                at.draws.add(_unpack_draws(draw, part, path))
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise CheckpointError(f"{path}: incomplete ({error!r})") from error
    return at


def _unpack_draws(template: Any, part: dict[str, np.ndarray], path: Path) -> Draw:
    count = min(array.shape[1] for array in part.values())
    sized = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct((a.shape[0], count, *a.shape[1:]), a.dtype), template
    )
    return jax.tree.map(np.asarray, unpack(sized, part, "draws", path))


def all_finite(tree: Any) -> bool:
    """Whether no floating point number of a tree is NaN or infinite."""
    return all(
        bool(np.all(np.isfinite(np.asarray(a))))
        for a in jax.tree.leaves(tree)
        if hasattr(a, "dtype") and jnp.issubdtype(a.dtype, jnp.inexact)
    )

"""The progress bar: NLL and KL apart, one line a phase, on standard error."""

import sys
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column


class Bar:
    """A bar for one phase after another; silent unless wanted.

    Args:
        wanted: ``True``, ``False``, or ``None`` for a bar where someone is watching.
    """

    def __init__(self, wanted: bool | None):
        self.on = sys.stderr.isatty() if wanted is None else wanted
        self._progress: Progress | None = None
        self._task: Any = None

    def __enter__(self) -> "Bar":
        if self.on:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                # in a narrow terminal the terms wrap, not the title
                TextColumn("{task.fields[terms]}", table_column=Column(no_wrap=False)),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._progress is not None:
            self._progress.stop()

    def phase(self, title: str, total: int | None, completed: int) -> None:
        """Begin a line."""
        if self._progress is not None:
            self._task = self._progress.add_task(
                title, total=total, completed=completed, terms="compiling"
            )

    def update(self, step: int, terms: dict[str, np.ndarray]) -> None:
        """Advance, with the mean of each term over the newest steps."""
        if self._progress is not None:
            shown = "  ".join(
                f"{name} {np.mean(values):.4g}" for name, values in terms.items() if len(values)
            )
            self._progress.update(self._task, completed=step, terms=shown)

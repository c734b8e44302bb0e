"""What an experiment shows while it runs: a bar of its results, and which one is being made."""

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Watch:
    """Shows nothing; the base of those that do."""

    def __enter__(self) -> "Watch":
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def expect(self, total: int, done: int) -> None:
        """How many results the run will ask for, and how many are there already."""

    def begin(self, name: str) -> None:
        """A result is being made."""

    def end(self, name: str, seconds: float) -> None:
        """It is made."""


class Shown(Watch):
    """A bar on standard error; where nobody watches a terminal, a line for each result."""

    def __init__(self) -> None:
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True, highlight=False),
            disable=not sys.stderr.isatty(),
        )
        self.task = self.bar.add_task("preparing", total=None)

    def __enter__(self) -> "Shown":
        self.bar.start()
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def expect(self, total: int, done: int) -> None:
        self.bar.update(self.task, total=total, completed=done)

    def begin(self, name: str) -> None:
        self.bar.update(self.task, description=name)

    def end(self, name: str, seconds: float) -> None:
        self.bar.advance(self.task)
        if self.bar.disable:
            done, total = int(self.bar.tasks[0].completed), self.bar.tasks[0].total
            of = "" if total is None else f" of {int(total)}"
            self.bar.console.print(f"{done}{of}: {name}, {seconds:.1f} s", style="dim")

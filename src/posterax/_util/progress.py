"""Progress on standard error: a bar for each phase of a fit, or one for many fits."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from .streams import notes, watched


def _progress(*more: ProgressColumn, disable: bool = False) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        *more,
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=notes(highlight=False),
        disable=disable,
    )


class Bar:
    """A bar for one phase of a fit after another, NLL and KL apart; silent unless wanted.

    Args:
        wanted: ``True``, ``False``, or ``None`` for a bar where someone is watching.
    """

    def __init__(self, wanted: bool | None):
        self.on = watched("stderr") if wanted is None else wanted
        self._progress: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> "Bar":
        if self.on:
            # in a narrow terminal the terms wrap, not the title
            terms = TextColumn("{task.fields[terms]}", table_column=Column(no_wrap=False))
            self._progress = _progress(terms)
            self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
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


Rows = TypeVar("Rows")


def rows_through(blocks: Iterable[Rows], what: str, wanted: bool | None = None) -> Iterator[Rows]:
    """The blocks of a table, with a count of their rows, such as "20,000 rows read".

    ``wanted`` is as for ``Bar``.
    """
    if not (watched("stderr") if wanted is None else wanted):
        yield from blocks
        return
    shown = (TextColumn("{task.completed:,} " + what), TimeElapsedColumn())
    with Progress(*shown, console=notes(highlight=False), transient=True) as bar:
        task = bar.add_task("", total=None)
        for block in blocks:
            bar.advance(task, len(block))  # type: ignore[arg-type]
            yield block


class Watch:
    """Shows nothing of a run of many results; the base of those that do."""

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *error: object) -> None:
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
        self.bar = _progress(disable=not watched("stderr"))
        self.task = self.bar.add_task("preparing", total=None)

    def __enter__(self) -> "Shown":
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
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

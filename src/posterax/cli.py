"""The command line: ``posterax demo`` and ``posterax reproduce``.

Data goes to standard output, progress to standard error.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from . import demo as tasks
from ._version import __version__
from .experiments import BUDGETS, EXPERIMENTS
from .experiments import reproduce as run_experiment
from .experiments.watch import Shown

app = typer.Typer(
    help="A posterior over the weights of any neural network.",
    no_args_is_help=True,
    add_completion=False,
)

PERCENT = ("error", "cover")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"posterax {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """A posterior over the weights of any neural network."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where the picture goes.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    quick: Annotated[bool, typer.Option(hidden=True, help="A few steps each, to try it.")] = False,
) -> None:
    """Fit every method to the paper's curve and to scikit-learn's digits."""
    progress = Console(stderr=True, highlight=False)

    def say(line: str) -> None:
        progress.print(line, style="dim")

    few = slice(tasks.BATCH) if quick else slice(None)
    train, test = tasks.curve_data(key=2 * seed), tasks.curve_data(key=2 * seed + 1)
    train = (train[0][few], train[1][few])
    entries = tasks.curve_entries(seed, quick=quick)
    say(f"regression curve: {len(train[1]):,} points to fit, {len(test[1]):,} to test")
    results = list(tasks.run(entries, train, test, tasks.curve_scores, seed, say))
    _show(
        "Regression curve",
        results,
        "cover: by the 90 % interval; sd: epistemic, at x inside and outside the data",
    )
    picture = out / "regression.png"
    tasks.draw_curve({r.name: r.posterior for r in results[:3]}, train, picture)

    train, _, test = tasks.digits_data()
    train = (train[0][few], train[1][few])
    entries = tasks.digits_entries(seed, quick=quick)
    say(f"digits: {len(train[1]):,} images to fit, {len(test[1]):,} to test")
    results = list(tasks.run(entries, train, test, tasks.digits_scores, seed, say))
    _show("Digits", results, "ECE: expected calibration error")
    typer.echo(picture)


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help=" or ".join(EXPERIMENTS))],
    out: Annotated[Path, typer.Option(help="Where results go.")] = Path("results"),
    budget: Annotated[str, typer.Option(help=", ".join(BUDGETS))] = "cpu",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Repetitions (default: as many as documented).")
    ] = None,
) -> None:
    """Run an experiment of the documentation: JSON, tables and a picture.

    A run that was stopped goes on where it was.
    """
    try:
        with Shown() as watch:
            run_experiment(name, out, budget=budget, seeds=seeds, watch=watch)
    except (OSError, ValueError) as error:
        _tell(str(error), "red")
        raise typer.Exit(1) from error
    except KeyboardInterrupt as stop:
        _tell(f"stopped: the same command goes on from {out}", "dim")
        raise typer.Exit(130) from stop
    typer.echo((out / f"{name}.md").read_text())


def _tell(line: str, style: str) -> None:
    """A line as it is: a path may be long, or have brackets in it."""
    console = Console(stderr=True, highlight=False)
    console.print(line, style=style, markup=False, soft_wrap=True)


def _show(title: str, results: Sequence[tasks.Result], legend: str) -> None:
    """A table of results on standard output."""
    notes = [f"{r.name}: {r.note}" for r in results if r.note]
    caption = "\n".join([legend, "seconds: to fit, compilation included", *notes])
    table = Table(
        title=title, caption=caption, box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0)
    )
    table.title_justify = table.caption_justify = "left"
    table.add_column("method", no_wrap=True)
    for column in ("weights", *results[0].scores, "seconds"):
        table.add_column(column, justify="right")
    for r in results:
        scores = [f"{v:.1%}" if k in PERCENT else f"{v:.3f}" for k, v in r.scores.items()]
        table.add_row(r.name, f"{r.weights:,}", *scores, f"{r.seconds:.1f}")
    console = Console()
    console.print(table)
    console.print()

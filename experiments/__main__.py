"""``python -m experiments NAME``: the experiments of the documentation, by one command each."""

from pathlib import Path
from typing import Annotated

import typer

from posterax._util.progress import Shown
from posterax.commands import Refused, one_line_errors, say

from . import BUDGETS, EXPERIMENTS, reproduce

ABOUT = "\n\n".join(f"{name}: {experiment.summary}" for name, experiment in EXPERIMENTS.items())
app = typer.Typer(add_completion=False, pretty_exceptions_show_locals=False)


@app.command(epilog=ABOUT, context_settings={"help_option_names": ["--help", "-h"]})
def main(
    name: Annotated[str, typer.Argument(help=", ".join(EXPERIMENTS) + ".")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where results go.")] = Path("results"),
    budget: Annotated[str, typer.Option(help=", ".join(BUDGETS) + ".")] = "cpu",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Repetitions (default: as many as documented).")
    ] = None,
) -> None:
    """Run an experiment of the documentation: JSON, tables and a picture.

    A run that was stopped continues where it was.
    """
    with one_line_errors():
        if name not in EXPERIMENTS:
            raise Refused(f"no experiment {name!r}; there are {', '.join(EXPERIMENTS)}")
        try:
            with Shown() as watch:
                reproduce(name, out, budget=budget, seeds=seeds, watch=watch)
        except KeyboardInterrupt as stop:
            say(f"stopped: the same command goes on from {out}")
            raise typer.Exit(130) from stop
        typer.echo((out / f"{name}.md").read_text())


if __name__ == "__main__":
    app()

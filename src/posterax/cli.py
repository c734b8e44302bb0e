"""The command line: ``posterax fit``, ``predict``, ``compare`` and so on.

Data goes to standard output, progress and notes to standard error. Exit codes: 0, 1 (refused or
failed, one line says why), 2 (wrong usage), 130 (Ctrl-C). No heavy module is imported here, nor by
the commands' own modules: each imports what it needs when it runs, so that help is quick.
"""

import inspect
from collections.abc import Callable
from typing import Annotated

import typer

from ._version import __version__
from .commands import compare, demo, doctor, explain, fit, predict, prune, reproduce

app = typer.Typer(
    help="A posterior over the weights of any neural network.",
    no_args_is_help=True,
    rich_markup_mode="markdown",  # so that lines of a docstring flow
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog="posterax COMMAND --help has examples of each; docs/commands.md has all of them.",
)

TABLES, MODELS, MORE = "From a table to predictions", "Model files", "This installation"


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


def _add(panel: str, function: Callable[..., None], examples: str) -> None:
    """A command whose help ends with examples."""
    about = inspect.cleandoc(function.__doc__ or "").partition("\b")[0]
    app.command(rich_help_panel=panel, help=about, epilog=examples)(function)


_add(TABLES, fit.fit, fit.EXAMPLES)
_add(TABLES, predict.predict, predict.EXAMPLES)
_add(TABLES, compare.compare, compare.EXAMPLES)
_add(MODELS, explain.explain, explain.EXAMPLES)
_add(MODELS, prune.prune, prune.EXAMPLES)
_add(MORE, doctor.doctor, doctor.EXAMPLES)
_add(MORE, demo.demo, demo.EXAMPLES)
_add(MORE, reproduce.reproduce, reproduce.EXAMPLES)

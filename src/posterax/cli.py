"""The command line: ``posterax fit``, ``predict``, ``compare`` and so on.

Data goes to standard output, progress and notes to standard error. Exit codes: 0, 1 (refused or
failed, one line says why), 2 (wrong usage), 130 (Ctrl-C). No heavy module is imported here, nor by
the commands' own modules: each imports what it needs when it runs, so that help is quick.
"""

import inspect
from typing import Annotated

import typer

from ._version import __version__
from .commands import one_line_errors
from .commands.compare import compare
from .commands.demo import demo, reproduce
from .commands.doctor import doctor
from .commands.explain import explain
from .commands.fit import fit
from .commands.predict import predict
from .commands.prune import prune

app = typer.Typer(
    help="A posterior over the weights of any neural network.",
    no_args_is_help=True,
    rich_markup_mode="markdown",  # so that lines of a docstring flow
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog="posterax COMMAND --help has examples of each; docs/commands.md has all of them.",
)
PANELS = {
    "From a table to predictions": (fit, predict, compare),
    "Model files": (explain, prune),
    "This installation": (doctor, demo, reproduce),
}


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


for panel, commands in PANELS.items():
    for command in commands:  # whose help ends with the examples of its docstring
        about, _, examples = inspect.cleandoc(command.__doc__ or "").partition("Examples:\n")
        lines = ["Examples:", *map(str.strip, examples.splitlines())]
        add = app.command(rich_help_panel=panel, help=about, epilog="\n\n".join(lines))
        add(one_line_errors()(command))

"""``posterax reproduce``: where the experiments of the documentation are."""

from typing import Annotated

import typer

from . import Refused, one_line_errors

EXAMPLES = """Examples:

posterax reproduce mnist

posterax reproduce uci"""


def reproduce(
    name: Annotated[str, typer.Argument(help="Name of an experiment.")] = "mnist",
    out: Annotated[str | None, typer.Option("--out", "-o", hidden=True)] = None,
    budget: Annotated[str | None, typer.Option(hidden=True)] = None,
    seeds: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Say where the experiments of the documentation are: in the repository."""
    with one_line_errors():
        raise Refused(
            "the experiments are in the repository of posterax, not in the package: "
            f"run make reproduce NAME={name} there"
        )

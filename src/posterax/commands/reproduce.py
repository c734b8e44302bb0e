"""``posterax reproduce``: the experiments of the documentation, by one command each."""

from pathlib import Path
from typing import Annotated

import typer

from . import Refused, one_line_errors, say

# as posterax.experiments has them, which takes JAX to ask
NAMES = (
    *("overconfidence", "letters", "mnist", "pruning", "active", "bandit", "regression"),
    "uci",
)
BUDGETS = ("quick", "cpu", "full")
EXAMPLES = """Examples:

posterax reproduce regression --budget quick --seeds 1

posterax reproduce uci --budget quick --seeds 2 --out results"""


def reproduce(
    name: Annotated[
        str, typer.Argument(help=" or ".join(NAMES) + ".", autocompletion=lambda: [*NAMES])
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where results go.")] = Path("results"),
    budget: Annotated[
        str, typer.Option(help=", ".join(BUDGETS) + ".", autocompletion=lambda: [*BUDGETS])
    ] = "cpu",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Repetitions (default: as many as documented).")
    ] = None,
) -> None:
    """Run an experiment of the documentation: JSON, tables and a picture.

    A run that was stopped goes on where it was.
    """
    with one_line_errors():
        from ..experiments import EXPERIMENTS
        from ..experiments import reproduce as run
        from ..experiments.watch import Shown

        if name not in EXPERIMENTS:
            raise Refused(f"no experiment {name!r}; there are {', '.join(EXPERIMENTS)}")
        try:
            with Shown() as watch:
                run(name, out, budget=budget, seeds=seeds, watch=watch)
        except KeyboardInterrupt as stop:
            say(f"stopped: the same command goes on from {out}")
            raise typer.Exit(130) from stop
        typer.echo((out / f"{name}.md").read_text())

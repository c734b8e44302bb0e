"""``posterax fit``: from a table in a file to a model in a file, with honest scores."""

from pathlib import Path
from typing import Annotated

import typer

from . import METHODS, one_line_errors, say
from .fitting import Fitted, fit_table

__all__ = ["Fitted", "fit", "fit_table"]

EXAMPLES = """Examples:

posterax fit house.csv --target price

posterax fit house.csv --target price --out house.px --report house.html

posterax fit flowers.csv --target species --method laplace --json
"""
SCORES = {  # how each is called in the table
    "nll": "NLL",
    "rmse": "RMSE",
    "mae": "mean absolute error",
    "coverage": "inside the 90 % interval",
    "width": "width of that interval",
    "error": "error",
    "brier": "Brier score",
    "calibration_error": "calibration error",
}
SHARES = ("coverage", "error")


def fit(
    data: Annotated[str, typer.Argument(help="A CSV or Parquet file; - is standard input.")],
    target: Annotated[str, typer.Option("--target", "-t", help="The column to predict.")],
    task: Annotated[
        str | None, typer.Option(help="regression or classification (default: by the target).")
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            "--method", "-m", help=", ".join(METHODS) + ".", autocompletion=lambda: [*METHODS]
        ),
    ] = "bayes_by_backprop",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The model's file (default: DATA's name.px).")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Also write an HTML report here.")] = None,
    test_fraction: Annotated[
        float, typer.Option(help="Share of rows held out for the scores; 0 for none.")
    ] = 0.2,
    test: Annotated[
        Path | None, typer.Option(help="Score on the rows of this file instead.")
    ] = None,
    ignore: Annotated[str | None, typer.Option(help="Columns to leave out: a,b,c.")] = None,
    weight: Annotated[
        str | None, typer.Option(help="The column that says how often a row counts.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0,
    epochs: Annotated[
        float | None, typer.Option(help="Passes over the data (default: by its size).")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps, or draws per chain, instead of epochs.")
    ] = None,
    no_refit: Annotated[
        bool, typer.Option("--no-refit", help="Keep the model without the rows held out.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write over a file that is no model.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The facts as JSON.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print nothing but the model's path.")
    ] = False,
    quick: Annotated[bool, typer.Option(hidden=True, help="A few steps, to try it.")] = False,
) -> None:
    """Fit a model to a table, score it on rows held out, and write it to a file.

    Text, dates and missing values are taken care of, and it is said how. A text, a yes or no or a
    few whole numbers are predicted as classes, other numbers by regression.
    """
    with one_line_errors():
        fitted = fit_table(
            data,
            target,
            task=task,
            method=method,
            out=out,
            report=report,
            test_fraction=test_fraction,
            test=test,
            ignore=ignore,
            weight=weight,
            seed=seed,
            epochs=epochs,
            steps=steps,
            refit=not no_refit,
            force=force,
            quick=quick,
            verbose=False if quiet else None,
            tell=(lambda line: None) if quiet else say,
        )
        files = {"model": str(fitted.out), "report": fitted.report and str(fitted.report)}
        if as_json:
            from .writing import to_json

            typer.echo(to_json(files | fitted.card))
            return
        if not quiet:
            _show(fitted)
        if fitted.report is not None:
            typer.echo(fitted.report)
        typer.echo(fitted.out)


def _show(fitted: Fitted) -> None:
    """What became of the columns, and the scores, as tables on standard output."""
    from .showing import console, table

    card, screen = fitted.card, console()
    rows = [(c["name"], c["kind"], c["done"], f"{c['missing']:,}") for c in card["columns"]]
    screen.print(table("Columns", ("column", "kind", "what was done", "missing"), rows))
    screen.print()
    if "scores" not in card:
        return
    held = card["held_out"]
    where = f"of {held['from']}" if held["from"] else "held out"
    rows = [
        (
            SCORES.get(name, name),
            _number(name, value),
            _interval(name, low, high, card.get("chance", {})),
            _number(name, card["baseline"].get(name)),
        )
        for name, (value, low, high) in card["scores"].items()
    ]
    names = ("score", "value", "95 % interval", "without inputs")
    again = held["refit"] and not held["from"]
    caption = "the model in the file has then learned from these rows too" if again else ""
    screen.print(table(f"Scores on {held['rows']:,} rows {where}", names, rows, caption))
    screen.print()


def _interval(name: str, low: float | None, high: float | None, chance: dict[str, float]) -> str:
    if name in chance:
        return f"by chance ≤ {_number(name, chance[name])}"
    return f"{_number(name, low)} … {_number(name, high)}"


def _number(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1%}" if name in SHARES else f"{value:.4g}"

"""``posterax fit``: from a table in a file to a model in a file, with honest scores."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from .._util.streams import about_output
from . import METHODS, Refused, say
from .fitting import Fitted, fit_table
from .options import (
    AsJson,
    Data,
    Force,
    Group,
    Ignore,
    Quick,
    Quiet,
    Seed,
    Split,
    Target,
    Task,
    Time,
    TimeLimit,
    WeightColumn,
)

MethodName = Annotated[
    str, Option("--method", "-m", help=", ".join(METHODS) + ".", autocompletion=lambda: [*METHODS])
]


def fit(
    data: Data,
    target: Target,
    task: Task = None,
    method: MethodName = "auto",
    quality: Annotated[str | None, Option(help="Of auto: fast, good (default) or best.")] = None,
    likelihood: Annotated[
        str | None, Option(help="Of a number: student, log_normal, negative_binomial, beta, …")
    ] = None,
    out: Annotated[Path | None, Option("--out", "-o", help="Default: DATA.px.")] = None,
    report: Annotated[Path | None, Option(help="Also write an HTML report here.")] = None,
    test_fraction: Annotated[float, Option(help="Share of rows held out for the scores.")] = 0.2,
    test: Annotated[Path | None, Option(help="Score on the rows of this file instead.")] = None,
    split: Split = None,
    time: Time = None,
    group: Group = None,
    ignore: Ignore = None,
    categorical: Annotated[str | None, Option(help="Columns that are categories: a,b,c.")] = None,
    numeric: Annotated[str | None, Option(help="Columns that are numbers.")] = None,
    ordinal: Annotated[str | None, Option(help="Columns to take as ranks.")] = None,
    weight: WeightColumn = None,
    seed: Seed = 0,
    epochs: Annotated[float | None, Option(help="Passes over the data (default: by size).")] = None,
    steps: Annotated[int | None, Option(min=1, help="Steps, or draws per chain, instead.")] = None,
    time_limit: TimeLimit = None,
    no_refit: Annotated[bool, Option("--no-refit", help="Do not refit to all rows.")] = False,
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    quick: Quick = False,
) -> None:
    """Fit a model to a table, score it on held-out rows, and write it to a file.

    Text, dates and missing values are handled, and the notes say how. Text, yes or no, and a few
    whole numbers are predicted as classes, other numbers by regression. Where a date orders the
    rows, the last ones are held out.

    Examples:
        posterax fit house.csv --target price
        posterax fit house.csv --target price --out house.px --report house.html
        posterax fit flowers.csv --target species --method laplace --json
        posterax fit house.csv --target price --quality fast
        posterax fit house.csv --target price --time-limit 60
        posterax fit sales.csv --target sold --time day
        posterax fit visits.csv --target days --group patient --categorical zip --ordinal grade
    """
    fitted = fit_table(
        data, target, task=task, method=method, quality=quality, likelihood=likelihood, out=out,
        report=report, test_fraction=test_fraction, test=test, split=split, time=time, group=group,
        ignore=ignore, categorical=categorical, numeric=numeric, ordinal=ordinal, weight=weight,
        seed=seed, epochs=epochs, steps=steps, time_limit=time_limit, refit=not no_refit,
        force=force, quick=quick, verbose=False if quiet else None,
        tell=(lambda line: None) if quiet else say,
    )  # fmt: skip
    try:
        _show(fitted, as_json=as_json, quiet=quiet)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Refused(f"{about_output(error)}; the model is in {fitted.out}") from error


def _show(fitted: Fitted, *, as_json: bool, quiet: bool) -> None:
    """What became of the columns, the scores, and the files, on standard output."""
    from .showing import class_tables, console, print_json, score_table, table, verdict_line

    if as_json:
        files = {"model": str(fitted.out), "report": fitted.report and str(fitted.report)}
        print_json(files | fitted.card)
        return
    card, screen = fitted.card, console()
    if not quiet:
        rows = [(c["name"], c["kind"], c["done"], f"{c['missing']:,}") for c in card["columns"]]
        screen.print(table("Columns", ("column", "kind", "what was done", "missing"), rows))
        screen.print()
    if not quiet and card.get("models"):
        rows = [
            (m["model"], f"{m['nll']:.4g}", f"{m['weight']:.0%}", f"{m['seconds']:.0f}")
            for m in card["models"]
        ]
        heads = ("model", "NLL of rows left out", "weight", "seconds")
        screen.print(table("Models tried", heads, rows))
        screen.print()
    if not quiet and "scores" in card:
        held = card["held_out"]
        where = f"of {held['from']}" if held["from"] else "held out"
        again = held["refit"] and not held["from"]
        caption = "the model in the file has then learned from these rows too" if again else ""
        where += {"time": f", the last by {held.get('by')}", "group": f", by {held.get('by')}"}.get(
            held.get("split") or "", ""
        )
        screen.print(score_table(f"Scores on {held['rows']:,} rows {where}", card, caption))
        screen.print()
        for block in class_tables(card):
            screen.print(block)
            screen.print()
        screen.print(verdict_line(card["verdict"]))
        screen.print()
    for path in (fitted.report, fitted.out):
        if path is not None:
            typer.echo(path)

"""``posterax compare``: several methods on one table, by the same folds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import METHODS, Refused, method_name, one_line, one_line_errors, rebuild_command, say

if TYPE_CHECKING:
    from .folds import Row

DEFAULT = (
    *("bayes_by_backprop", "deep_ensemble", "mc_dropout", "laplace", "ivon"),
    "maximum_a_posteriori",
)
EXAMPLES = """Examples:

posterax compare house.csv --target price

posterax compare house.csv --target price --methods bayes_by_backprop,ivon,map --folds 10

posterax compare house.csv --target price --json --out comparison.csv"""


def complete_methods(incomplete: str) -> list[str]:
    """What the shell offers after ``--methods``: the last name of the list."""
    before, comma, last = incomplete.rpartition(",")
    taken = before.split(",")
    return [f"{before}{comma}{m}" for m in METHODS if m.startswith(last) and m not in taken]


def compare(
    data: Annotated[str, typer.Argument(help="A CSV or Parquet file; - is standard input.")],
    target: Annotated[str, typer.Option("--target", "-t", help="The column to predict.")],
    methods: Annotated[
        str,
        typer.Option(
            help="Names, separated by commas: " + ", ".join(METHODS) + ".",
            autocompletion=complete_methods,
        ),
    ] = ",".join(DEFAULT),
    folds: Annotated[int, typer.Option(min=2, help="Parts that are tested in turn.")] = 5,
    task: Annotated[
        str | None, typer.Option(help="regression or classification (default: by the target).")
    ] = None,
    ignore: Annotated[str | None, typer.Option(help="Columns to leave out, by commas.")] = None,
    weight: Annotated[str | None, typer.Option(help="Column: how often a row counts.")] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of each fit (default: by the rows).")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the table as CSV too.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write over a file that is no such table.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON in place of the table.")] = False,
    quick: Annotated[bool, typer.Option(hidden=True, help="A few steps each, to try it.")] = False,
) -> None:
    """Compare methods on a table by cross-validation.

    All methods get the same shuffled folds, stratified by class, and a trivial baseline beside
    them. Columns are prepared within each fold. Scores are means over folds ± their standard error.
    """
    with one_line_errors():
        names = chosen(methods)
        from .fitting import check_seed
        from .reading import read_table, recognise_task, split_target
        from .targets import in_full
        from .writing import check_out, write_atomic

        if out is not None:
            out = check_out(out, "table", inputs=[data], force=force)
        check_seed(seed)

        notes: list[str] = []
        frame = read_table(data, notes)
        target, unused, weight = in_full(frame, target, ignore, weight)
        parts = split_target(frame, target, unused, weight)
        kind, why = recognise_task(parts.y, task)
        for note in (*notes, *parts.notes, f"{kind}: {why}"):
            say(note)
        from . import folds as validation

        study = validation.Study(
            parts.X, parts.y, parts.weight, kind, folds=folds, seed=seed, steps=steps, quick=quick
        )
        if study.folds < folds:
            say(f"{study.folds} folds in place of {folds}: the rarest class has so many rows")
        rows, whole = _run(study, names)
        head = {
            "command": rebuild_command(
                "compare", data, target=target, methods=",".join(names), folds=study.folds,
                task=task, ignore=ignore, weight=weight, steps=steps, seed=seed,
            ),
            "task": kind, "target": target, "rows": len(parts.y), "columns": parts.X.shape[1],
            "folds": study.folds, "seed": seed, "complete": whole,
        }  # fmt: skip
        _tell(study, rows, head, as_json=as_json)
        if out is not None and whole:
            write_atomic(out, validation.as_frame(rows).to_csv(index=False))
            say(f"wrote {out}")
        if not whole:
            say("stopped: the table has what was whole" + (", no file" if out is not None else ""))
            raise typer.Exit(130)
        fitted = [row for row in rows if row.method is not None]
        if all(row.failed for row in fitted):
            raise Refused("every method failed; the table has the reasons")


def chosen(methods: str) -> list[str]:
    """Names of methods in full, each once.

    Example:
        >>> from posterax.commands.compare import chosen
        >>> chosen("map, ivon,map")
        ['maximum_a_posteriori', 'ivon']
    """
    names = [name for name in map(str.strip, methods.split(",")) if name]
    if not names:
        raise Refused(f"--methods: name one or more of {', '.join(METHODS)}", 2)
    return list(dict.fromkeys(method_name(name) for name in names))


def _run(study: Any, names: list[str]) -> tuple[list["Row"], bool]:
    """A row for each method that was not interrupted, and whether that is all of them."""
    from .._util.progress import Shown

    rows = [study.baseline()]
    try:
        with Shown() as watch:
            watch.expect(len(names) * study.folds, 0)
            for name in names:
                rows.append(study.row(name, watch))
                if rows[-1].failed:
                    say(f"{name} failed: {one_line(rows[-1].failed)}")
    except KeyboardInterrupt:
        return rows, False
    return rows, True


def _tell(study: Any, rows: list["Row"], head: dict[str, Any], *, as_json: bool) -> None:
    from . import folds as validation
    from .showing import console, print_json, table

    marks = validation.marks(rows, study.scores)
    if as_json:
        methods = [row.to_dict(marks.get(row.name, {})) for row in rows]
        print_json(head | {"level": validation.LEVEL, "methods": methods})
        return
    places = validation.decimals(rows, study.scores)
    cells = [row.cells(places, marks.get(row.name, {})) for row in rows]
    columns = ["method", *(validation.TITLES[s] for s in study.scores), "seconds"]
    title = f"{head['target']}: {head['task']}, {head['rows']:,} rows, {head['folds']} folds"
    console().print(table(title, columns, cells, validation.caption(study, rows)))

"""``posterax compare``: several methods on one table, by the same folds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from .._util.interrupts import heeded
from .._util.writing import write_file
from . import METHODS, Refused, method_name, rebuild_command, say
from .options import (
    AsJson,
    Data,
    Force,
    Group,
    Ignore,
    Quick,
    Seed,
    Split,
    Target,
    Task,
    Time,
    TimeLimit,
    WeightColumn,
)
from .showing import console, print_json, table
from .writing import check_out, safe_frame

if TYPE_CHECKING:
    from .folds import Row, Study

DEFAULT = "bayes_by_backprop,deep_ensemble,mc_dropout,laplace,ivon,maximum_a_posteriori"


def complete_methods(incomplete: str) -> list[str]:
    """What the shell offers after ``--methods``: the last name of the list."""
    before, comma, last = incomplete.rpartition(",")
    taken = before.split(",")
    return [f"{before}{comma}{m}" for m in METHODS if m.startswith(last) and m not in taken]


LISTED = f"Separated by commas: {', '.join(METHODS)}."
MethodNames = Annotated[str, Option(help=LISTED, autocompletion=complete_methods)]


def compare(
    data: Data,
    target: Target,
    methods: MethodNames = DEFAULT,
    folds: Annotated[int, Option(min=2, help="Number of folds.")] = 5,
    task: Task = None,
    split: Split = None,
    time: Time = None,
    group: Group = None,
    ignore: Ignore = None,
    weight: WeightColumn = None,
    steps: Annotated[int | None, Option(min=1, help="Steps a fit (default: by size).")] = None,
    time_limit: TimeLimit = None,
    seed: Seed = 0,
    out: Annotated[Path | None, Option("--out", "-o", help="Write the table as CSV too.")] = None,
    force: Force = False,
    as_json: AsJson = False,
    quick: Quick = False,
) -> None:
    """Compare methods on a table by cross-validation.

    All methods use the same shuffled folds, stratified by class, beside a baseline that ignores
    the inputs. Columns are prepared within each fold. Scores are means over folds ± their standard
    error. Where a date orders the rows, each fold is scored on rows later than those it learns
    from.

    Examples:
        posterax compare house.csv --target price
        posterax compare house.csv --target price --methods bayes_by_backprop,ivon,map --folds 10
        posterax compare house.csv --target price --json --out comparison.csv
        posterax compare visits.csv --target days --group patient
    """
    names = chosen(methods)
    from .fitting import check_seed, start_clock

    clock = start_clock(time_limit)
    from . import folds as validation
    from .reading import read_parts
    from .splitting import choose_split

    if out is not None:
        out = check_out(out, "table", inputs=[data], force=force)
    check_seed(seed)
    parts, kind, _ = read_parts(data, target, task, ignore, weight)
    parts, way = choose_split(parts, split, time, group)
    for note in parts.notes:
        say(note)
    study = validation.Study(
        parts.X, parts.y, parts.weight, kind, folds=folds, seed=seed, steps=steps, quick=quick,
        clock=clock, methods=len(names), split=way,
    )  # fmt: skip
    if study.folds < folds:
        say(f"{study.folds} folds instead of {folds}: the rarest class has so many rows")
    rows, complete = _run(study, names)
    given = parts.names | {"task": task, "methods": names, "folds": study.folds, "seed": seed}
    given |= {"split": split, "time": time, "group": group, "steps": steps}
    command = rebuild_command("compare", data, **given, time_limit=time_limit)
    head = {"command": command, "task": kind, "target": given["target"], "rows": len(parts.y)}
    head |= {"columns": parts.X.shape[1], "folds": study.folds, "seed": seed, "complete": complete}
    head |= way.facts()
    try:
        if out is not None and complete:
            write_file(out, safe_frame(validation.as_frame(rows)).to_csv(index=False))
            say(f"wrote {out}")
    finally:  # whether or not there is room for the file
        _tell(study, rows, head, as_json=as_json)
    if not complete:
        say("stopped: the table has the methods that finished; no file was written")
        raise typer.Exit(130)
    if all(row.failed for row in rows if row.method is not None):
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


def _run(study: "Study", names: list[str]) -> tuple[list["Row"], bool]:
    """A row for each method that was not interrupted, and whether that is all of them."""
    from .._util.progress import Shown

    rows = [study.baseline()]
    try:
        with Shown() as watch:
            watch.expect(len(names) * study.folds, 0)
            for name in names:
                rows.append(study.row(name, watch))
                if rows[-1].failed:
                    say(f"{name} failed: {rows[-1].failed}")
    except KeyboardInterrupt:
        heeded()
        return rows, False
    return rows, True


def _tell(study: "Study", rows: list["Row"], head: dict[str, Any], *, as_json: bool) -> None:
    from ..metrics.evaluate import LEVEL
    from . import folds as validation

    marks = validation.marks(rows, study.scores)
    if as_json:
        methods = [row.to_dict(marks.get(row.name, {})) for row in rows]
        print_json(head | {"level": LEVEL, "methods": methods})
        return
    places = validation.decimals(rows, study.scores)
    cells = [row.cells(places, marks.get(row.name, {})) for row in rows]
    columns = ["method", *(validation.TITLES[s] for s in study.scores), "seconds"]
    title = f"{head['target']}: {head['task']}, {head['rows']:,} rows, {head['folds']} folds"
    console().print(table(title, columns, cells, validation.caption(study, rows)))

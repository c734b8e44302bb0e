"""``posterax explain``: what a file holds, how it was fitted, and whether that went well."""

from pathlib import Path
from typing import Annotated, Any

import typer

from . import Refused, one_line_errors, say

EXAMPLES = """Examples:

posterax explain house.px

posterax explain house.px --data house.csv

posterax explain house.px --json"""


def explain(
    model: Annotated[Path, typer.Argument(help="A file of posterax: estimator, posterior, agent.")],
    data: Annotated[
        Path | None,
        typer.Option(help="A table with the model's columns: scores, and agreement of chains."),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="The table's target (default: the model's own).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON in place of text.")] = False,
) -> None:
    """Tell what a model file holds: network, method, data, training, diagnostics.

    Nothing in the file is run. A network of your own is told by what the file's header says.
    """
    with one_line_errors():
        from .facts import facts

        if not model.is_file():
            raise Refused(f"{model}: no such file" if not model.exists() else f"{model}: no file")
        notes: list[str] = []
        found = facts(model, data, target, notes)
        for note in notes:
            say(note)
        _print_json(found) if as_json else _print(model, found)


def _print_json(found: dict[str, Any]) -> None:
    from .showing import print_json

    print_json(found)


def _print(path: Path, found: dict[str, Any]) -> None:
    from .showing import console, pairs, table, words

    page = console()
    page.print(f"{path}: {found['is']}", soft_wrap=True)
    for section in ("file", "model", "method", "data"):
        if told := found.get(section):
            page.print()
            page.print(pairs(section, {k: v for k, v in told.items() if k != "bytes"}))
    if columns := found.get("columns"):
        page.print()
        shown = [
            [words(row.get(c)) if row.get(c) is not None else "" for c in COLUMNS]
            for row in columns
        ]
        page.print(table("columns", COLUMNS, shown, left=("kind", "done")))
    for section in ("training", "signal_to_noise", "pruning"):
        if told := found.get(section):
            page.print()
            page.print(pairs(section.replace("_", " "), told))
    for section, title in (("held_out", "held-out scores"), ("scores", "scores of --data")):
        if told := found.get(section):
            page.print()
            page.print(table(title, ("", "value", "95 % interval"), _scored(told)))
    page.print()
    told = {k: v for k, v in found["diagnostics"].items() if k != "numbers"}  # --json has them
    page.print(pairs("diagnostics", told))


COLUMNS = ("name", "kind", "done", "missing", "categories")


def _scored(scores: dict[str, Any]) -> list[list[str]]:
    from .showing import words

    rows = []
    for name, value in scores.items():
        value = list(value) if isinstance(value, list | tuple) else [value]
        known = len(value) == 3 and value[1] is not None and value[1] == value[1]
        ends = f"{words(value[1])} to {words(value[2])}" if known else ""
        rows.append([name.replace("_", " "), words(value[0]), ends])
    return rows

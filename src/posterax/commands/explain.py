"""``posterax explain``: what a file holds, how it was fitted, and whether that went well."""

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from . import Refused, one_line_errors, say
from .options import AsJson, Model, OtherTarget

EXAMPLES = """Examples:

posterax explain house.px

posterax explain house.px --data house.csv

posterax explain house.px --json"""


def explain(
    model: Model,
    data: Annotated[Path | None, Option(help="A table to score the model on.")] = None,
    target: OtherTarget = None,
    as_json: AsJson = False,
) -> None:
    """Show what a model file holds: network, method, data, training, diagnostics.

    No code in the file is run. For a network of your own, only the file's header is shown.
    """
    with one_line_errors():
        from .facts import facts

        if not model.is_file():
            raise Refused(f"{model}: no such file" if not model.exists() else f"{model}: no file")
        notes: list[str] = []
        about = facts(model, data, target, notes)
        for note in notes:
            say(note)
        if as_json:
            from .showing import print_json

            print_json(about)
        else:
            _print(model, about)


def _print(path: Path, about: dict[str, Any]) -> None:
    from .showing import console, pairs, score_table, table, words

    page = console()
    page.print(f"{path}: {about['is']}", soft_wrap=True)
    for section in ("file", "model", "method", "data"):
        if told := about.get(section):
            page.print()
            page.print(pairs(section, {k: v for k, v in told.items() if k != "bytes"}))
    if columns := about.get("columns"):
        page.print()
        shown = [
            [words(row.get(c)) if row.get(c) is not None else "" for c in COLUMNS]
            for row in columns
        ]
        page.print(table("columns", COLUMNS, shown, left=("kind", "done")))
    for section in ("training", "signal_to_noise", "pruning"):
        if told := about.get(section):
            page.print()
            page.print(pairs(section.replace("_", " "), told))
    for section, title in (("held_out", "held-out scores"), ("scores", "scores of --data")):
        if about.get(section):
            page.print()
            told = {name: about[name].get(section, {}) for name in ("baseline", "chance")}
            page.print(score_table(title, told | {"scores": about[section]}))
    page.print()
    told = {k: v for k, v in about["diagnostics"].items() if k != "numbers"}  # --json has them
    page.print(pairs("diagnostics", told))


COLUMNS = ("name", "kind", "done", "missing", "categories")

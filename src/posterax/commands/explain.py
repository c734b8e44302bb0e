"""``posterax explain``: what a file holds, how it was fitted, and whether that went well."""

from pathlib import Path
from typing import Annotated, Any

from rich.table import Table
from typer import Option

from . import Refused, say
from .options import AsJson, Model, OtherTarget
from .showing import console, pairs, print_json, score_table, table, words

SECTIONS = (
    *("file", "model", "method", "data", "columns", "training", "signal_to_noise", "pruning"),
    *("held_out", "scores", "diagnostics"),
)
SCORES = {"held_out": "held-out scores", "scores": "scores of --data"}
COLUMNS = ("name", "kind", "done", "missing", "categories")


def explain(
    model: Model,
    data: Annotated[Path | None, Option(help="A table to score the model on.")] = None,
    target: OtherTarget = None,
    as_json: AsJson = False,
) -> None:
    """Show what a model file holds: network, method, data, training, diagnostics.

    No code in the file is run. For a network of your own, only the file's header is shown.

    Examples:
        posterax explain house.px
        posterax explain house.px --data house.csv
        posterax explain house.px --json
    """
    from .facts import facts

    if not model.is_file():
        raise Refused(f"{model}: no such file")
    notes: list[str] = []
    about = facts(model, data, target, notes)
    for note in notes:
        say(note)
    if as_json:
        print_json(about)
        return
    page = console()
    page.print(f"{model}: {about['is']}", soft_wrap=True)
    del about["file"]["bytes"]
    about["diagnostics"].pop("numbers", None)  # --json has them
    for section in SECTIONS:
        if about.get(section):
            page.print()
            page.print(_section(section, about))


def _section(name: str, about: dict[str, Any]) -> Table:
    if name == "columns":
        rows = [[words(column[c]) for c in COLUMNS] for column in about[name]]
        return table(name, COLUMNS, rows, left=("kind", "done"))
    if name in SCORES:
        beside = {key: about[key].get(name, {}) for key in ("baseline", "chance")}
        return score_table(SCORES[name], beside | {"scores": about[name]})
    return pairs(name.replace("_", " "), about[name])

"""``posterax explain``: what a file holds, how it was fitted, and whether that went well."""

import time
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
TITLES = {"nll": "NLL", "rmse": "RMSE", "error": "error", "effect": "effect on the mean"}
COLUMNS = ("name", "kind", "done", "missing", "categories")


def explain(
    model: Model,
    data: Annotated[Path | None, Option(help="A table to score the model on.")] = None,
    target: OtherTarget = None,
    importance: Annotated[
        bool, Option("--importance", help="How much each column matters, on the rows of --data.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a model file holds: network, method, data, training, diagnostics.

    No code in the file is run. For a network of your own, only the file's header is shown.

    Examples:
        posterax explain house.px
        posterax explain house.px --data house.csv
        posterax explain house.px --importance --data new.csv
        posterax explain house.px --json
    """
    from .facts import facts

    if not model.is_file():
        raise Refused(f"{model}: no such file")
    if importance and data is None:
        raise Refused("--importance needs rows to look at: add --data rows.csv, best new rows", 2)
    notes: list[str] = []
    about = facts(model, data, target, notes, importance=importance)
    for note in notes:
        say(note)
    if importance and "importance" not in about:
        raise Refused(f"--importance is for estimators of tables, which {model} is not", 2)
    if as_json:
        about.get("importance", {}).pop("decimals", None)
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
    if about.get("importance"):
        page.print()
        page.print(_importance(about["importance"]))


class _Late:
    """A bar for what takes longer than two seconds."""

    def __init__(self) -> None:
        from .._util.progress import Shown

        self.start, self.bar = time.monotonic(), Shown()
        self.on = False

    def __call__(self, done: int, total: int) -> None:
        if not self.on and done < total and time.monotonic() - self.start > 2:
            self.bar.__enter__()
            self.bar.begin("importance")
            self.on = True
        if self.on:
            self.bar.expect(total, done)
            if done == total:
                self.bar.__exit__()


def column_importance(held: Any, X: Any, y: Any, weight: Any) -> dict[str, Any]:
    """Columns with their scores, the most important first."""
    from ..tables import explain as tables

    by: Any = "effect" if y is None else "permutation"
    options: dict[str, Any] = {"by": by, "sample_weight": weight, "progress": _Late()}
    found = tables.importance(held, X, y, **options)
    how = f"cells exchanged among {found.rows:,} rows, {found.repeats} times"
    if by == "effect":
        how = "deviation of the mean prediction as one column varies; no targets, so no scores"
    return {
        "by": by, "how": how, "level": found.level, "rows": found.rows,
        "repeats": found.repeats if by == "permutation" else None, "base": found.base,
        "scores": list(found.scores), "decimals": found.decimals(),
        "columns": {
            found.columns[i]: {
                name: [float(v[i]) for v in values] for name, values in found.scores.items()
            }
            for i in found.order
        },
    }  # fmt: skip


def _importance(found: dict[str, Any]) -> Table:
    """The columns, the most important first."""
    first, *others = found["scores"]
    heads, rows = ["column"], []
    for name in (first, *others):
        rise = "" if found["by"] == "effect" else "rise of "
        heads += [rise + TITLES[name], f"{100 * found['level']:g} % interval"]
    for name, scores in found["columns"].items():
        cells = [name]
        for score in (first, *others):
            digits = found["decimals"][score]
            value, low, high = (f"{v:.{digits}f}" for v in scores[score])
            cells += [value, f"{low} to {high}"]
        rows.append(cells)
    return table("importance of the columns", heads, rows, found["how"])


def _section(name: str, about: dict[str, Any]) -> Table:
    if name == "columns":
        rows = [[words(column[c]) for c in COLUMNS] for column in about[name]]
        return table(name, COLUMNS, rows, left=("kind", "done"))
    if name in SCORES:
        beside = {key: about[key].get(name, {}) for key in ("baseline", "chance")}
        return score_table(SCORES[name], beside | {"scores": about[name]})
    return pairs(name.replace("_", " "), about[name])

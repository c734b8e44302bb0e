"""Hostile cards, recalibrations and cells: every command ends in an answer or in one line.

A card is what ``posterax fit`` writes into a model's file about the fit; the commands read it.
"""

import csv
import io
import json
import shutil
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from tests.attack import mutations, subjects
from tests.attack.files import refused_or
from tests.attack.findings import Case, Found
from tests.data import make_format1 as first

GUARDED = True
CARD = json.loads(Path(__file__).with_name("card.json").read_text())
COMMANDS = ("explain", "explain --json", "explain --data", "predict", "prune --fraction 0.5")
SPACES = [
    "",
    " ",
    "\n",
    "\r\n",
    "\t",
    "\u00a0",
    "\u2003",
    "\ufeff",
    "\u200b",
    "\u0000",
    "\u001b",
    "'",
]
SIGNS = ["=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\ufe66"]
RUN_BY_SHEETS = ("=", "+", "-", "@")


def cases(rng: np.random.Generator, scratch: Path, wide: bool) -> Iterator[Case]:
    """Edits of the card before each command, of each recalibration, and cells of a table."""
    kinds = sorted(subjects.RECALIBRATIONS)
    while True:
        for command in COMMANDS:
            for _ in range(4):
                tree = {"card": json.loads(json.dumps(CARD))}
                edit = mutations.edit_of(tree, rng)
                yield {"command": command, "do": ["header", ["estimator", *edit[0]], *edit[1:]]}
        for name in kinds:
            file = subjects.build(name, scratch) / subjects.FILE
            for _ in range(4):
                yield {"recalibration": name, "do": mutations.drawn(file, rng)}
        for _ in range(4):
            some = "".join(rng.choice(SPACES, int(rng.integers(3))))
            yield {"cell": f"{some}{rng.choice(SIGNS)}{rng.choice(['1+1', 'SUM(A1)', 'cmd'])}"}


def prepare(case: Case, scratch: Path) -> None:
    """The file with the card as it was written, and the table of the commands."""
    folder = scratch / "cards"
    if not folder.exists():
        folder.mkdir()
        first.TABLE.assign(y=first.Y, remark="none").to_csv(folder / "table.csv", index=False)
        arrays, header = mutations.parts_of(first.HERE / "columns.px")
        header["estimator"]["card"] = CARD
        (folder / "whole.px").write_bytes(mutations.signed(arrays or {}, json.dumps(header)))
    command = case.get("command")
    if command is not None and command not in _tried:
        _tried.add(command)
        shutil.copy(folder / "whole.px", folder / "card.px")
        if _ran(command, folder) != 0:
            raise Found("the card as it was written is refused", command)


_tried: set[str] = set()


def judge(case: Case, scratch: Path) -> None:
    """Run the command on the edited card, use the recalibration, or read back the cell."""
    folder = scratch / "cards"
    if "cell" in case:
        _defused(case["cell"], folder)
    elif "command" in case:
        try:
            content = mutations.applied(folder / "whole.px", case["do"])
        except (KeyError, IndexError, TypeError):
            return
        (folder / "card.px").write_bytes(content)
        _ran(case["command"], folder)
    else:
        _used(case["recalibration"], case["do"], scratch)


def _ran(command: str, folder: Path) -> int:
    """The exit code of a command; what it prints must be one line, or text without control."""
    model, out = folder / "card.px", folder / "out"
    out.unlink(missing_ok=True)
    words = command.split()
    options = {"explain": [], "predict": [str(folder / "table.csv")], "prune": ["--out", str(out)]}
    words[1:1] = [str(model), *options[words[0]]]
    if words[-1] == "--data":
        words.append(str(folder / "table.csv"))
    result = _invoked(words)
    text = result.stdout + result.stderr
    if result.exit_code not in (0, 1, 2):
        raise Found(f"{words[0]} ends with exit code {result.exit_code}", text[-200:])
    if any(unicodedata.category(c) == "Cc" and c not in "\n\r\t" for c in text):
        raise Found(f"{words[0]} prints control characters of a card", repr(text[-200:]))
    if result.exit_code:
        line = result.stderr.strip().splitlines()[-1:]
        named = line and any(str(file) in line[0] for file in (model, folder / "table.csv"))
        if not named or not line[0].startswith("error: "):
            raise Found(f"{words[0]} refuses without naming the file", line)
    elif "--json" in words:
        json.loads(result.stdout)
    return result.exit_code


def _invoked(words: list[str]) -> Any:
    from posterax.cli import app

    result = CliRunner().invoke(app, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        error = result.exception
        raise Found(f"{words[0]} raises {type(error).__name__}", error)
    return result


def _used(name: str, change: list[Any], scratch: Path) -> None:
    original, folder = subjects.build(name, scratch), scratch / "recalibration"
    folder.mkdir(exist_ok=True)
    try:
        content = mutations.applied(original / subjects.FILE, change)
    except (KeyError, IndexError, TypeError):
        return
    (folder / subjects.FILE).write_bytes(content)
    loaded = refused_or(folder, lambda: subjects.load(name, folder))
    if loaded is None:
        return
    try:
        said = subjects.numbers(name, loaded)
    except ValueError as error:  # of another shape than the predictive
        if len(str(error).splitlines()) == 1:
            return
        raise Found("a recalibration refuses in more than a line", error) from None
    except Exception as error:
        raise Found(f"a recalibration raises {type(error).__name__}", error) from None
    # of an interval that must cover more than all that was seen, the ends are infinite
    if np.any(np.isnan(said)) or (name != "ConformalInterval" and np.any(np.isinf(said))):
        raise Found("NaN or infinite predictions of a recalibration", name)


def _defused(cell: str, folder: Path) -> None:
    """A cell kept beside predictions is no formula, however its sign is hidden."""
    whole, table, out = folder / "whole.px", folder / "cell.csv", folder / "out.csv"
    frame = first.TABLE.assign(remark=cell)[:2]
    table.write_text(frame.to_csv(index=False), encoding="utf-8")
    out.unlink(missing_ok=True)
    result = _invoked(["predict", str(whole), str(table), "--keep", "remark", "--out", str(out)])
    if result.exit_code:
        return
    with io.StringIO(out.read_text(encoding="utf-8"), newline="") as file:
        rows = list(csv.DictReader(file))
    for kept in (row["remark"] or "" for row in rows):
        bare = kept.lstrip(
            "".join(c for c in kept if not c.isprintable() or c.isspace()) + "\u200b"
        )
        if unicodedata.normalize("NFKC", bare).startswith(RUN_BY_SHEETS):
            raise Found("a formula in a cell of predictions", repr(kept))

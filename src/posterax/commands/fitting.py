"""From a table in a file to a model in a file: what ``posterax fit`` does."""

import hashlib
import platform
import re
import secrets
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .._util.interrupts import check_interrupt
from . import Refused, method_arguments, method_name, rebuild_command, say
from .writing import check_out, plain

if TYPE_CHECKING:
    from ..tables.timing import Clock
    from .targets import Parts, Task


Place = str | Path


class Fitted(NamedTuple):
    """What ``fit_table`` gives back."""

    estimator: Any  # as it is in the file
    card: dict[str, Any]  # facts about it, also ``estimator.card_``
    out: Path
    report: Path | None


def fit_table(
    data: str | Path,
    target: str,
    *,
    task: str | None = None,
    method: str = "bayes_by_backprop",
    out: str | Path | None = None,
    report: str | Path | None = None,
    test_fraction: float = 0.2,
    test: str | Path | None = None,
    ignore: str | list[str] | None = None,
    weight: str | None = None,
    seed: int = 0,
    epochs: float | None = None,
    steps: int | None = None,
    time_limit: float | None = None,
    refit: bool = True,
    force: bool = False,
    quick: bool = False,
    verbose: bool | None = None,
    tell: Callable[[str], None] = say,
) -> Fitted:
    """Fit a table in a file, score it on rows held out, and write the model.

    Args:
        data: a CSV or Parquet file.
        target: the column to predict.
        task: ``"regression"`` or ``"classification"`` (default: by the target).
        method: one of ``METHODS``.
        out: the model's file (default: the data's name with .px, in the working directory).
        report: where an HTML report goes.
        test_fraction: the share of rows to hold out; 0 for none.
        test: a file of rows to score on instead.
        ignore: columns to leave out.
        weight: the column that says how often a row counts.
        seed: random seed.
        epochs: passes over the data.
        steps: steps of optimisation, or draws per chain, instead.
        time_limit: seconds for both fits together, from the call; where short, fewer steps.
        refit: learn from all rows once the scores are known.
        force: write over files that are none of ours.
        quick: a tiny network and a few steps, to try the command.
        verbose: show a progress bar (default: where someone is watching).
        tell: takes notes, a line each.
    """
    clock = start_clock(time_limit)
    from .reading import read_parts
    from .scoring import learn

    began, method = time.perf_counter(), method_name(method)
    _check_options(test_fraction, epochs, steps, seed)
    place, page = _places(data, test, out, report, force)
    # whatever is to be refused of a table is refused before the first note
    parts, kind, why = read_parts(data, target, task, ignore, weight)
    train, held = _rows(parts, kind, data, test, test_fraction, seed)
    budget: dict[str, Any] = {"epochs": epochs, "steps": steps}
    arguments = method_arguments(method, quick=quick, **budget)
    for note in parts.notes:
        tell(note)
    limit = {} if time_limit is None else {"time_limit": time_limit}
    settings = {**parts.names, "task": kind, "method": method, "seed": seed, **budget, **limit}
    settings |= {"test_fraction": None if test else test_fraction, "test": test and str(test)}
    options = settings | {"task": task, "no_refit": not refit, "out": str(place)}
    command = rebuild_command("fit", data, **options)
    card = _facts(data, parts, kind) | {"why": why, "settings": settings, "command": command}
    tell(f"fitting {len(train.y):,} rows by {method}")
    again = held is not None and refit and not test
    timed = arguments | part_of(clock, 0.5 if again else 1.0)
    scored = estimator = learn(train, kind, timed, seed, verbose)
    if held is not None:
        card["held_out"] = {"rows": len(held.y), "refit": again, "from": test and Path(test).name}
        card |= _scores(estimator, train, held, kind, seed)
        if again:
            tell(f"scored on {len(held.y):,} held-out rows; fitting again, to all rows")
            estimator = learn(parts, kind, arguments | part_of(clock, 0.5), seed, verbose)
    card["columns"] = estimator.columns_.summary()
    card["fitted"] = datetime.now(UTC).isoformat(timespec="seconds")
    card["seconds"] = round(time.perf_counter() - began, 2)
    estimator.card_ = scored.card_ = plain(card)
    _save(estimator, place)
    if page is not None:
        _report(page, scored, train, held, place)
    return Fitted(estimator, estimator.card_, place, page)


# -- parts of the work


def _check_options(
    test_fraction: float, epochs: float | None, steps: int | None, seed: int
) -> None:
    """Refuse numbers that mean nothing before any file is read."""
    if not 0 <= test_fraction < 1:
        raise Refused(f"--test-fraction must lie between 0 and 1, got {test_fraction:g}", 2)
    if epochs is not None and steps is not None:
        raise Refused("give --epochs or --steps, not both", 2)
    if epochs is not None and not 0 < epochs < float("inf"):
        raise Refused(f"--epochs must be a number above 0, got {epochs:g}", 2)
    check_seed(seed)


def start_clock(time_limit: float | None) -> "Clock | None":
    """The time of a command from here on, where it is limited."""
    if time_limit is None:
        return None
    if not 0 < time_limit < float("inf"):
        raise Refused(f"--time-limit must be a number of seconds above 0, got {time_limit:g}", 2)
    began = time.monotonic()
    from ..tables.timing import Clock

    clock = Clock(time_limit)
    clock.began = began  # before the import, which takes a while
    return clock


def part_of(clock: "Clock | None", part: float) -> dict[str, float]:
    """The argument of an estimator that is to have this part of a command's time."""
    return {} if clock is None else {"time_limit": float(f"{clock.seconds(part):.3g}")}


def check_seed(seed: int) -> None:
    """NumPy's generators take 32 bits."""
    if not 0 <= seed < 2**32:
        raise Refused(f"--seed must lie between 0 and {2**32 - 1:,}, got {seed:,}", 2)


def _rows(
    parts: "Parts", kind: "Task", data: Place, test: Place | None, share: float, seed: int
) -> tuple["Parts", "Parts | None"]:
    """Rows to learn from, and rows to score on, of the file ``test`` or a share of the same."""
    from ..tables.columns import Columns
    from .reading import read_table
    from .targets import rows_to_score

    train, held = _held_out(parts, kind, share, seed) if share and not test else (parts, None)
    text = Columns.learn(train.X).text  # refuses a table without a usable column
    if test:
        if (digest := _sha256(data)) is not None and digest == _sha256(test):
            raise Refused(f"--test: {test} is the table to learn from; name other rows", 2)
        frame = read_table(test, parts.notes, text=text, decimal=parts.X.attrs.get("decimal"))
        classes = sorted(set(parts.targets(kind).tolist())) if kind == "classification" else None
        # targets in the type of the fitted ones: 1 and "1" are the same
        held = rows_to_score(frame, test, parts.names["target"], parts.names["weight"], classes)
    return train, held


def _held_out(
    parts: "Parts", kind: "Task", share: float, seed: int
) -> tuple["Parts", "Parts | None"]:
    """A random share of the rows apart from the others, where there are enough of them."""
    import numpy as np
    from sklearn.model_selection import train_test_split

    n, names = len(parts.y), parts.y.astype(str)
    size, classes = max(2, round(share * n)), None
    if kind == "classification":
        known, counts = np.unique(names, return_counts=True)
        if counts.min() > 1 and len(known) <= min(size, n - size):
            classes = names
    rows = np.arange(n)
    train, held = train_test_split(rows, test_size=size, random_state=seed, stratify=classes)
    if kind == "classification":  # a class that only rows held out have is learned, not scored
        both = np.isin(names[held], names[train])
        train, held = np.concatenate([train, held[~both]]), held[both]
    weighty = parts.weight is None or np.any(parts.weight[held])
    if not weighty or len(held) < 2 or len(np.unique(names[train])) < 2:
        parts.notes.append("too few rows to hold any out: there are no scores")
        return parts, None
    return parts.only(np.sort(train)), parts.only(np.sort(held))


def _scores(
    estimator: Any, train: "Parts", held: "Parts", kind: "Task", seed: int
) -> dict[str, Any]:
    """Entries of the card: scores on rows held out, beside chance and a baseline."""
    from .scoring import score

    known = {"train_y": train.targets(kind), "train_weight": train.weight}
    evaluation = score(estimator, held.X, held.targets(kind), held.weight, seed=seed, **known)
    scores = {"scores": evaluation.intervals(), "chance": evaluation.chances()}
    return scores | {"baseline": evaluation.baselines()}


def _save(estimator: Any, place: Path) -> None:
    """Write the model; where that fails, write it elsewhere: it may have taken hours to learn."""
    check_interrupt()
    try:
        return estimator.save(place)
    except OSError as error:
        failed = f"{place}: {error.strerror or error}"
    for folder in (tempfile.gettempdir(), Path.home(), Path.cwd()):
        kept = Path(folder) / f"{place.stem}-{secrets.token_hex(4)}.px"
        with suppress(OSError):
            estimator.save(kept)
            raise Refused(f"{failed}; the model is in {kept} instead")
    raise Refused(f"{failed}; nor could the model be written anywhere else")


def _report(path: Path, estimator: Any, train: "Parts", held: "Parts | None", model: Path) -> None:
    """The report is on the model that has not seen the rows held out."""
    from ..report import write_report

    card, kind = estimator.card_, estimator.card_["task"]
    try:
        check_interrupt()
        write_report(
            path, estimator, train.X, train.targets(kind),
            held_out=None if held is None else (held.X, held.targets(kind)),
            scores=card.get("scores"), card=card,
            title=f"{card['target']}, from {card['data']['file']}",
        )  # fmt: skip
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped: the model is in {model}, without a report") from None
    except (OSError, ValueError) as error:
        raise Refused(f"the model is in {model}, but not its report: {error}") from error


def _places(
    data: Place, test: Place | None, out: Place | None, report: Place | None, force: bool
) -> tuple[Path, Path | None]:
    """Where model and report go, checked before anything is computed."""
    stem = re.sub(r"(\.(csv|tsv|txt|parquet))?(\.gz)?$|^-$", "", Path(data).name)
    named = (stem or "model") + ".px"
    inputs = [data, test]
    place = check_out(named if out is None else out, "model", inputs=inputs, force=force)
    if report is None:
        return place, None
    page = check_out(report, "report", option="--report", inputs=inputs, force=force)
    if page.resolve() == place.resolve():
        raise Refused("--report and --out name the same file", 2)
    return place, page


def _facts(data: str | Path, parts: "Parts", kind: "Task") -> dict[str, Any]:
    """Where the model comes from."""
    import numpy as np

    from .._version import __version__

    summary: dict[str, Any]
    if kind == "regression":
        summary = {name: float(getattr(parts.y, name)()) for name in ("mean", "std", "min", "max")}
    else:
        names, counts = np.unique(parts.y.astype(str), return_counts=True)
        summary = {"classes": dict(zip(names.tolist(), counts.tolist(), strict=True))}
    others = {name: version(name) for name in ("jax", "numpy", "pandas", "scikit-learn")}
    return {
        "kind": "table",
        "task": kind,
        "data": {
            "file": Path(data).name,
            "sha256": _sha256(data),
            "rows": len(parts.y) + parts.left_out,
            "rows_without_target": parts.left_out,
            "columns": parts.columns,
            "decimal": parts.X.attrs.get("decimal"),
        },
        "target": parts.names["target"],
        "target_summary": summary,
        "notes": parts.notes,
        "versions": {"posterax": __version__, "python": platform.python_version()} | others,
    }


def _sha256(data: str | Path) -> str | None:
    if str(data) == "-" or not Path(data).is_file():
        return None
    with Path(data).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

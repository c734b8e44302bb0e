"""From a table in a file to a model in a file: what ``posterax fit`` does."""

import hashlib
import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from . import Refused, method_arguments, method_name, rebuild_command, say
from .writing import check_out, plain

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from .targets import Parts, Task

__all__ = ["Fitted", "fit_table"]


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
        refit: learn from all rows once the scores are known.
        force: write over files that are none of ours.
        quick: a tiny network and a few steps, to try the command.
        verbose: show a progress bar (default: where someone is watching).
        tell: takes notes, a line each.
    """
    began = time.perf_counter()
    method = method_name(method)
    _check_options(test_fraction, epochs, steps, seed)
    place, page = _places(data, test, out, report, force)
    split: dict[str, Any] = {"test_fraction": test_fraction, "test": None}
    if test:
        split = {"test_fraction": None, "test": str(test)}
    table = _read(data, target, task, ignore, weight, **split, seed=seed)
    arguments = method_arguments(method, quick=quick)
    if epochs is not None or steps is not None:
        arguments |= {"epochs": epochs, "steps": steps}
    for note in table.notes:
        tell(note)
    settings = {"target": table.target, "task": table.kind, "method": method, "seed": seed}
    settings |= {"epochs": epochs, "steps": steps, "ignore": table.ignore, "weight": table.weight}
    settings |= split
    options = settings | {"task": task, "no_refit": not refit, "out": str(place)}
    options["ignore"] = None if table.ignore is None else ",".join(table.ignore)
    card = table.facts | {"target": table.target, "settings": settings, "notes": table.notes}
    card["command"] = rebuild_command("fit", data, **options)
    train, held, kind = table.train, table.held, table.kind
    tell(f"fitting {len(train.y):,} rows by {method}")
    scored = estimator = _learned(train, kind, arguments, seed, verbose)
    if held is not None:
        card |= _scores(estimator, train, held, kind, seed)
        card["held_out"] |= {"refit": refit and test is None, "from": test and Path(test).name}
        if refit and test is None:
            tell(f"scored on {len(held.y):,} held-out rows; fitting again, to all rows")
            estimator = _learned(table.parts, kind, arguments, seed, verbose)
    card["columns"] = estimator.columns_.summary()
    card["fitted"] = datetime.now(UTC).isoformat(timespec="seconds")
    card["seconds"] = round(time.perf_counter() - began, 2)
    estimator.card_ = scored.card_ = plain(card)
    estimator.save(place)
    if page is not None:
        _report(page, scored, train, held, kind, estimator.card_, place)
    return Fitted(estimator, estimator.card_, place, page)


class _Table(NamedTuple):
    """A table that was read, and cut into rows to learn from and rows to score on."""

    parts: "Parts"
    train: "Parts"
    held: "Parts | None"
    kind: "Task"
    target: str
    ignore: list[str] | None
    weight: str | None
    facts: dict[str, Any]
    notes: list[str]


def _read(
    data: str | Path,
    target: str,
    task: str | None,
    ignore: str | list[str] | None,
    weight: str | None,
    *,
    test_fraction: float | None,
    test: str | None,
    seed: int,
) -> _Table:
    """Whatever is to be refused of a table is refused here, before the first note."""
    from ..tables.columns import Columns
    from .reading import read_table, recognise_task, split_target
    from .targets import in_full

    notes: list[str] = []
    frame = read_table(data, notes)
    target, unused, weight = in_full(frame, target, ignore, weight)
    parts = _numbered(split_target(frame, target, unused, weight), frame, target, data)
    kind, why = recognise_task(parts.y, task, parts.X.index)
    notes = [f"{kind}: {why}", *notes, *parts.notes]
    facts = _facts(data, frame, parts, kind) | {"why": why}
    if test is not None:
        digest = facts["data"]["sha256"]
        if digest is not None and digest == _sha256(test):
            raise Refused(f"--test: {test} is the table to learn from; name other rows", 2)
        rows: tuple[Parts, Parts | None] = (
            parts, _other(parts, kind, test, target, weight, notes)
        )  # fmt: skip
    else:
        rows = _held_out(parts, kind, test_fraction or 0.0, seed, notes)
    Columns.learn(rows[0].X)  # refuses a table without a usable column
    return _Table(parts, *rows, kind, target, unused, weight, facts, notes)


def _scores(
    estimator: Any, train: "Parts", held: "Parts", kind: "Task", seed: int
) -> dict[str, Any]:
    """What the card says of rows held out."""
    from .scoring import score

    evaluation = score(
        estimator, held.X, _y(held, kind), held.weight, train_y=_y(train, kind),
        train_weight=train.weight, seed=seed,
    )  # fmt: skip
    return {
        "held_out": {"rows": len(held.y)},
        "scores": evaluation.intervals(),
        "chance": evaluation.chances(),
        "baseline": evaluation.baselines(),
    }


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


def check_seed(seed: int) -> None:
    """NumPy's generators take 32 bits."""
    if not 0 <= seed < 2**32:
        raise Refused(f"--seed must lie between 0 and {2**32 - 1:,}, got {seed:,}", 2)


def _other(
    parts: "Parts", kind: "Task", test: str, target: str, weight: str | None, notes: list[str]
) -> "Parts":
    """Rows of another file, targets in the type of the fitted ones: 1 and "1" are the same."""
    from ..tables.columns import Columns
    from .reading import read_table
    from .targets import rows_to_score

    text = Columns.learn(parts.X).text
    frame = read_table(test, notes, text=text, decimal=parts.X.attrs.get("decimal"))
    classes = sorted(set(_y(parts, kind).tolist())) if kind == "classification" else None
    return _numbered(rows_to_score(frame, test, target, weight, classes), frame, target, test)


def _held_out(
    parts: "Parts", kind: "Task", share: float, seed: int, notes: list[str]
) -> tuple["Parts", "Parts | None"]:
    """Rows to learn from and rows to score on, or none of these."""
    import numpy as np
    from sklearn.model_selection import train_test_split

    if share == 0:
        return parts, None
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
        notes.append("too few rows to hold any out: there are no scores")
        return parts, None
    return _only(parts, np.sort(train)), _only(parts, np.sort(held))


def _numbered(parts: "Parts", frame: "pd.DataFrame", target: str, path: str | Path) -> "Parts":
    """Rows by their place in the file as a spreadsheet counts, where a CSV's head is the first."""
    import numpy as np
    import pandas as pd

    from .targets import column_name

    there = np.flatnonzero(frame[column_name(frame, target, "--target")].notna())
    parquet = str(path).lower().endswith(".parquet")
    name = "row of the file" if parquet else "line of the file"
    index = pd.Index(there + (1 if parquet else 2), name=name)
    return parts._replace(X=parts.X.set_axis(index))


def _only(parts: "Parts", rows: "np.ndarray") -> "Parts":
    weight = None if parts.weight is None else parts.weight[rows]
    return parts._replace(X=parts.X.iloc[rows], y=parts.y[rows], weight=weight)


def _y(parts: "Parts", kind: "Task") -> "np.ndarray":
    """Targets as the estimators take them: fractions as labels are text."""
    import numpy as np

    if kind == "regression":
        return parts.y.astype(np.float64)
    return parts.y.astype(str).astype(object) if parts.y.dtype.kind == "f" else parts.y


def _learned(
    parts: "Parts", kind: "Task", arguments: dict[str, Any], seed: int, verbose: bool | None
) -> Any:
    from ..tables import BayesianClassifier, BayesianRegressor

    make: Any = BayesianRegressor if kind == "regression" else BayesianClassifier
    estimator = make(**arguments, columns="auto", random_state=seed, verbose=verbose)
    estimator.fit(parts.X, _y(parts, kind), parts.weight)
    if estimator.posterior_.record.interrupted:  # half a fit is no model
        raise KeyboardInterrupt
    return estimator


def _report(
    path: Path,
    estimator: Any,
    train: "Parts",
    held: "Parts | None",
    kind: "Task",
    card: dict[str, Any],
    model: Path,
) -> None:
    """The report is on the model that has not seen the rows held out."""
    from ..report import write_report

    try:
        write_report(
            path,
            estimator,
            train.X,
            _y(train, kind),
            held_out=None if held is None else (held.X, _y(held, kind)),
            scores=card.get("scores"),
            card=card,
            title=f"{card['target']}, from {card['data']['file']}",
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped: the model is in {model}, without a report") from None
    except (OSError, ValueError) as error:
        raise Refused(f"the model is in {model}, but not its report: {error}") from error


def _places(
    data: str | Path,
    test: str | Path | None,
    out: str | Path | None,
    report: str | Path | None,
    force: bool,
) -> tuple[Path, Path | None]:
    """Where model and report go, checked before anything is computed."""
    named = Path("model.px" if str(data) == "-" else _stem(Path(data)) + ".px")
    inputs = [name for name in (data, test) if name is not None and str(name) != "-"]
    place = check_out(named if out is None else out, "model", inputs=inputs, force=force)
    if report is None:
        return place, None
    page = check_out(report, "report", option="--report", inputs=inputs, force=force)
    if page.resolve() == place.resolve():
        raise Refused("--report and --out name the same file", 2)
    return place, page


def _facts(data: str | Path, frame: "pd.DataFrame", parts: "Parts", kind: "Task") -> dict[str, Any]:
    """Where the model comes from."""
    return {
        "kind": "table",
        "task": kind,
        "data": {
            "file": Path(data).name,
            "sha256": _sha256(data),
            "rows": len(frame),
            "rows_without_target": parts.left_out,
            "columns": frame.shape[1],
            "decimal": frame.attrs.get("decimal"),
        },
        "target_summary": _target_summary(parts.y, kind),
        "versions": _versions(),
    }


def _target_summary(y: "np.ndarray", kind: "Task") -> dict[str, Any]:
    import numpy as np

    if kind == "regression":
        return {name: float(getattr(y, name)()) for name in ("mean", "std", "min", "max")}
    names, counts = np.unique(y.astype(str), return_counts=True)
    return {"classes": dict(zip(names.tolist(), counts.tolist(), strict=True))}


def _sha256(data: str | Path) -> str | None:
    if str(data) == "-" or not Path(data).is_file():
        return None
    with Path(data).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _versions() -> dict[str, str]:
    from .._version import __version__

    others = {name: version(name) for name in ("jax", "numpy", "pandas", "scikit-learn")}
    return {"posterax": __version__, "python": platform.python_version()} | others


def _stem(path: Path) -> str:
    name = path.name
    for ending in (".gz", ".csv", ".tsv", ".txt", ".parquet"):
        name = name.removesuffix(ending)
    return name or "model"

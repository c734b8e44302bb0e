"""From a table in a file to a model in a file: what ``posterax fit`` does."""

import hashlib
import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from . import Refused, method_arguments, method_name, rebuild_command, say
from .writing import check_out, plain

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
        seed: of everything random.
        epochs: passes over the data.
        steps: steps of optimisation, or draws per chain, instead.
        refit: learn from all rows once the scores are known.
        force: write over files that are none of ours.
        quick: a tiny network and a few steps, to try the command.
        verbose: show a progress bar (default: where someone is watching).
        tell: takes notes, a line each.
    """
    from .reading import read_table, recognise_task, split_target
    from .scoring import baseline, by_chance, score
    from .targets import in_full

    began = time.perf_counter()
    method = method_name(method)
    _check_options(test_fraction, epochs, steps, seed)
    place, page = _places(data, test, out, report, force)
    notes: list[str] = []
    frame = read_table(data, notes)
    target, ignore, weight = in_full(frame, target, ignore, weight)
    parts = _numbered(split_target(frame, target, ignore, weight), frame, target, data)
    kind, why = recognise_task(parts.y, task, parts.X.index)
    notes = [f"{kind}: {why}", *notes, *parts.notes]
    facts = _facts(data, frame, parts, kind)
    train, held = _held_out(
        parts, kind, test_fraction, seed, test, target, weight, facts["data"]["sha256"], notes
    )
    arguments = method_arguments(method, quick=quick)
    if epochs is not None or steps is not None:
        arguments |= {"epochs": epochs, "steps": steps}
    _check_columns(train.X)  # whatever is refused is refused before the first note
    for note in notes:
        tell(note)

    settings = {"target": target, "task": kind, "method": method, "seed": seed}
    settings |= {"epochs": epochs, "steps": steps, "ignore": ignore, "weight": weight}
    settings |= {"test_fraction": None if test else test_fraction, "test": test and str(test)}
    options = settings | {"task": task, "no_refit": not refit, "out": str(place)}
    options["ignore"] = None if ignore is None else ",".join(ignore)
    card = facts | {
        "why": why,
        "target": target,
        "settings": settings,
        "command": rebuild_command("fit", data, **options),
        "notes": notes,
    }
    tell(f"fitting {len(train.y):,} rows by {method}")
    scored = estimator = _learned(train, kind, arguments, seed, verbose)
    if held is not None:
        card["held_out"] = {"rows": len(held.y), "refit": refit and test is None}
        card["held_out"] |= {"from": test and Path(test).name}
        card["scores"] = score(estimator, held.X, _y(held, kind), held.weight, seed=seed)
        card["chance"] = by_chance(estimator, held.X, held.weight)
        both = _y(train, kind), _y(held, kind)
        card["baseline"] = baseline(*both, weight=train.weight, weight_new=held.weight)
        if refit and test is None:
            tell(f"scored on {len(held.y):,} rows held out; fitting again, to all rows")
            estimator = _learned(parts, kind, arguments, seed, verbose)
    card["columns"] = estimator.columns_.summary()
    card["fitted"] = datetime.now(UTC).isoformat(timespec="seconds")
    card["seconds"] = round(time.perf_counter() - began, 2)
    estimator.card_ = scored.card_ = plain(card)
    estimator.save(place)
    if page is not None:
        _report(page, scored, train, held, kind, estimator.card_, place)
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


def check_seed(seed: int) -> None:
    """NumPy's generators take 32 bits."""
    if not 0 <= seed < 2**32:
        raise Refused(f"--seed must lie between 0 and {2**32 - 1:,}, got {seed:,}", 2)


def _held_out(
    parts: Any,
    kind: str,
    share: float,
    seed: int,
    test: str | Path | None,
    target: str,
    weight: str | None,
    digest: str | None,
    notes: list[str],
) -> tuple[Any, Any]:
    """Rows to learn from and rows to score on, or none of these."""
    import numpy as np
    from sklearn.model_selection import train_test_split

    from ..tables.columns import Columns
    from .reading import read_table, split_target

    if test is not None:
        if digest is not None and digest == _sha256(test):
            raise Refused(f"--test: {test} is the table to learn from; name other rows", 2)
        text = Columns.learn(parts.X).text
        frame = read_table(test, notes, text=text, decimal=parts.X.attrs.get("decimal"))
        other = split_target(frame, target, weight=weight, scoring=True)
        return parts, _as_fitted(_numbered(other, frame, target, test), parts, kind, test)
    if share == 0:
        return parts, None
    n = len(parts.y)
    size, classes = max(2, round(share * n)), None
    if kind == "classification":
        names, counts = np.unique(parts.y.astype(str), return_counts=True)
        if counts.min() > 1 and len(names) <= min(size, n - size):
            classes = parts.y.astype(str)
    kept, held = train_test_split(np.arange(n), test_size=size, random_state=seed, stratify=classes)
    if kind == "classification":  # a class that only rows held out have is learned, not scored
        known = np.isin(parts.y[held].astype(str), np.unique(parts.y[kept].astype(str)))
        kept, held = np.concatenate([kept, held[~known]]), held[known]
    weighty = parts.weight is None or np.any(parts.weight[held])
    if not weighty or len(held) < 2 or len(np.unique(parts.y[kept].astype(str))) < 2:
        notes.append("too few rows to hold any out: there are no scores")
        return parts, None
    return _only(parts, np.sort(kept)), _only(parts, np.sort(held))


def _numbered(parts: Any, frame: Any, target: str, path: str | Path) -> Any:
    """Rows by their place in the file as a spreadsheet counts, where a CSV's head is the first."""
    import numpy as np
    import pandas as pd

    from .targets import found

    there = np.flatnonzero(frame[found(frame, target, "--target")].notna())
    parquet = str(path).lower().endswith(".parquet")
    name = "row of the file" if parquet else "line of the file"
    index = pd.Index(there + (1 if parquet else 2), name=name)
    return parts._replace(X=parts.X.set_axis(index))


def _only(parts: Any, rows: Any) -> Any:
    weight = None if parts.weight is None else parts.weight[rows]
    return parts._replace(X=parts.X.iloc[rows], y=parts.y[rows], weight=weight)


def _as_fitted(other: Any, parts: Any, kind: str, test: str | Path) -> Any:
    """Targets of another file in the type of the fitted ones: 1 and "1" are the same label."""
    import numpy as np

    from .targets import as_labels

    if kind == "classification":
        return other._replace(y=as_labels(other.y, np.unique(_y(parts, kind))))
    if other.y.dtype == object:
        raise Refused(f"{test}: its target holds {str(other.y[0])[:40]!r}, not a number")
    return other


def _y(parts: Any, kind: str) -> Any:
    """Targets as the estimators take them: fractions as labels are text."""
    import numpy as np

    if kind == "regression":
        return parts.y.astype(np.float64)
    return parts.y.astype(str).astype(object) if parts.y.dtype.kind == "f" else parts.y


def _check_columns(X: Any) -> None:
    """Refuse a table without a usable column before any note is given."""
    from ..tables.columns import Columns

    Columns.learn(X)


def _learned(
    parts: Any, kind: str, arguments: dict[str, Any], seed: int, verbose: bool | None
) -> Any:
    from ..tables import BayesianClassifier, BayesianRegressor

    make: Any = BayesianRegressor if kind == "regression" else BayesianClassifier
    estimator = make(**arguments, columns="auto", random_state=seed, verbose=verbose)
    estimator.fit(parts.X, _y(parts, kind), parts.weight)
    if estimator.posterior_.record.interrupted:  # half a fit is no model
        raise KeyboardInterrupt
    return estimator


def _report(
    path: Path, estimator: Any, train: Any, held: Any, kind: str, card: dict, model: Path
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


def _facts(data: str | Path, frame: Any, parts: Any, kind: str) -> dict[str, Any]:
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


def _target_summary(y: Any, kind: str) -> dict[str, Any]:
    import numpy as np

    if kind == "regression":
        found = {"mean": y.mean(), "std": y.std(), "min": y.min(), "max": y.max()}
        return {name: float(value) for name, value in found.items()}
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

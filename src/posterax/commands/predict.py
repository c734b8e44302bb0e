"""``posterax predict``: a model in a file says what it expects of new rows, and how surely."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Annotated, Any

from typer import Option

from .._util.progress import rows_through
from .._util.streams import watched
from .._util.writing import written
from . import Refused, say
from .options import AsJson, Data, Force, Model, Quiet
from .writing import check_out, plain, safe_frame


def predict_table(
    model: str | Path,
    data: str | Path,
    *,
    level: float = 0.9,
    samples: int | None = None,
    keep: str | list[str] | None = None,
    all_columns: bool = False,
    notes: list[str] | None = None,
    rows: int | None = None,
) -> Iterator[Any]:
    """Predictions of a table in a file, as data frames of some thousand rows each.

    Args:
        model: a file of ``posterax fit``, or of an estimator's ``save``.
        data: a CSV or Parquet file.
        level: the mass of the interval from ``low`` to ``high``, in regression.
        samples: posterior draws (default: the model's own).
        keep: columns of the data to put before the predictions, as text, as a CSV has them.
        all_columns: keep all of them.
        notes: what is new in the data is added here when all blocks are through.
        rows: of a block.
    """
    from .reading import BLOCK, as_fitted, read_blocks
    from .targets import list_of_names

    if not 0 < level < 1:
        raise Refused(f"--level must lie between 0 and 1, got {level:g}", 2)
    estimator = load_estimator(model)
    columns = getattr(estimator, "columns_", None)
    notes, counts = [] if notes is None else notes, Counter[tuple[str, str]]()

    def chosen(names: list[str]) -> list[str]:
        return names if all_columns else list_of_names(names, keep, "--keep")

    options = as_fitted(estimator) | {"rows": rows or BLOCK, "least": 1, "keep": chosen}
    for block, kept in read_blocks(data, notes, **options):
        X = _inputs(estimator, block, data)
        answers = _answers(estimator, X, level, samples)
        if columns is not None:
            counts += columns.look(X)
            answers["outside"] = columns.outside(X).to_numpy()
        yield _beside(kept, answers)
    card = getattr(estimator, "card_", {})
    settings = card.get("settings", {})
    for name in (card.get("target"), settings.get("weight"), settings.get("group")):
        counts.pop(("extra", str(name)), None)
    kinds = {column.name: column.kind for column in columns.columns} if columns else {}
    notes += tell_new(counts, kinds)


def load_estimator(model: str | Path) -> Any:
    """The estimator in a file; anything else is refused."""
    from ..files.saved import load
    from ..tables.base import BayesianEstimator

    estimator = load(model)
    if not isinstance(estimator, BayesianEstimator):
        raise Refused(
            f"{model}: holds a {type(estimator).__name__} posterior without a table's columns; "
            "use px.load(path).predict(x) in Python"
        )
    return estimator


def tell_new(counts: Counter[tuple[str, str]], kinds: dict[str, str]) -> list[str]:
    """What ``Columns.look`` counted, in words; ``kinds`` of the columns by name."""
    from .targets import counted

    cells = {
        "unseen": ("holds", "hold", " a text that was rare or not there at fit"),
        "level": ("holds", "hold", " a value that was not there at fit, and counts as missing"),
        "gap": ("is missing", "are missing", ", where none was at fit: "),
        "unreadable": ("cannot be read and counts", "cannot be read and count", " as missing"),
    }
    instead = {
        "category": "counts as a rare text, or as none of the known ones",
        "boolean": "the fit's more frequent value stands in",
    }
    lines = []
    for (what, name), count in sorted(counts.items()):
        if what in cells:
            one, many, rest = cells[what]
            if what == "gap":
                rest += instead.get(kinds.get(name, ""), "the fit's median stands in")
            lines.append(f"column {name!r}: {counted(count, f'cell {one}', f'cells {many}')}{rest}")
    extra = sorted(name for what, name in counts if what == "extra")
    if extra:
        shown = ", ".join(map(repr, extra[:5])) + (", …" if len(extra) > 5 else "")
        lines.append(f"the model does not use {shown}")
    return lines


def predict(
    model: Model,
    data: Data,
    out: Annotated[Path | None, Option("--out", "-o", help="CSV file (default: stdout).")] = None,
    level: Annotated[float, Option(help="Probability inside low to high, in regression.")] = 0.9,
    samples: Annotated[int | None, Option(min=1, help="Posterior draws.")] = None,
    keep: Annotated[str | None, Option(help="Columns of DATA to put in front: a,b,c.")] = None,
    all_columns: Annotated[bool, Option("--all-columns", help="Put all of them in front.")] = False,
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Predict new rows: mean, deviation and its parts, and an interval, or class probabilities.

    Regression gives mean, std, epistemic_std (what more data would reduce), aleatoric_std (noise),
    low and high. Classes give predicted, its probability, the epistemic and aleatoric parts of the
    entropy (in nats) and p_CLASS for each class. The last column, outside, names the columns in
    which a row lies beyond the rows of the fit. Kept columns are the text of the file; text that a
    spreadsheet would run as a formula gets a ' in front.

    Examples:
        posterax predict house.px new.csv --out predictions.csv
        posterax predict house.px new.csv --level 0.5 --keep town,size
        posterax predict flowers.px new.csv --json
    """
    if out is not None:
        out = check_out(out, "predictions", inputs=[model, data], force=force)
    notes: list[str] = []
    blocks = predict_table(
        model, data, level=level, samples=samples, keep=keep, all_columns=all_columns, notes=notes
    )
    write = _write_json if as_json else _write_csv
    shown = not quiet and watched("stderr") and not watched("stdout")
    with nullcontext(sys.stdout) if out is None else written(out) as file:
        write(rows_through(blocks, "rows predicted", shown), file)
    sys.stdout.flush()
    for note in notes if not quiet else ():
        say(note)


# -- parts of the work


def _inputs(estimator: Any, block: Any, data: str | Path) -> Any:
    """The columns the estimator was fitted with, where it takes numbers only."""
    if estimator.columns is not None:
        return block
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        if block.shape[1] != estimator.n_features_in_:
            needs = f"the model was fitted with {estimator.n_features_in_}, without names"
            raise Refused(f"{data}: has {block.shape[1]} columns, {needs}")
        return block.to_numpy()
    missing = [name for name in names if name not in block.columns]
    if missing:
        raise Refused(f"{data}: column {missing[0]!r} is missing; the model was fitted with it")
    return block[list(names)]


def _answers(estimator: Any, X: Any, level: float, samples: int | None) -> Any:
    import numpy as np
    import pandas as pd

    predictive = estimator.predictive(X, samples=samples)
    if hasattr(estimator, "classes_"):
        p = predictive.mean.astype(np.float64)
        p /= p.sum(axis=1, keepdims=True)
        answers = {
            "predicted": estimator.classes_[p.argmax(axis=1)],
            "probability": p.max(axis=1),
            "epistemic": predictive.epistemic,
            "aleatoric": predictive.aleatoric,
        }
        names = [f"p_{label}" for label in estimator.classes_.tolist()]
        return pd.DataFrame(answers | dict(zip(names, p.T, strict=True)))
    if np.ndim(predictive.mean) != 1:
        raise Refused("the model predicts several targets at once; use it from Python")
    answers = predictive.to_pandas(level=level)
    for part in ("epistemic", "aleatoric"):  # in the units of the mean
        answers[part] = np.sqrt(answers[part])
    deviations = {"epistemic": "epistemic_std", "aleatoric": "aleatoric_std"}
    return answers.rename(columns=deviations).astype(np.float64)


def _beside(kept: Any, answers: Any) -> Any:
    """Kept columns, then predictions; a kept one of the same name is marked as input."""
    import pandas as pd

    names = {name: f"{name} (input)" for name in answers.columns}
    kept = kept.rename(columns=names).reset_index(drop=True)
    both = safe_frame(pd.concat([kept, answers], axis=1))
    both.attrs["kept"] = kept.shape[1]
    return both


def _write_csv(blocks: Iterator[Any], file: IO[str]) -> None:
    for i, block in enumerate(blocks):
        # of predictions, seven digits; what was kept is not ours to round
        for place in range(block.attrs["kept"], block.shape[1]):
            if block.iloc[:, place].dtype.kind == "f":
                block.isetitem(place, block.iloc[:, place].map("{:.7g}".format))
        block.to_csv(file, index=False, header=i == 0, lineterminator="\n")


def _write_json(blocks: Iterator[Any], file: IO[str]) -> None:
    between = "[\n"
    for block in blocks:
        for row in block.astype(object).where(block.notna(), None).to_dict("records"):
            file.write(between + json.dumps(plain(row), ensure_ascii=False, allow_nan=False))
            between = ",\n"
    file.write("\n]\n" if between[0] == "," else "[]\n")

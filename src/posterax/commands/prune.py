"""``posterax prune``: the same model without the weights of which it knows least."""

import copy
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from . import Refused, one_line_errors, say

FRACTION = 0.75  # where nothing is said
EXAMPLES = """Examples:

posterax prune house.px --out small.px

posterax prune house.px --out small.px --fraction 0.9 --data validation.csv

posterax prune house.px --out small.px --tolerance 0.01 --data validation.csv"""


def prune(
    model: Annotated[Path, typer.Argument(help="A model file of posterax fit, or px save.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the smaller model goes.")],
    fraction: Annotated[
        float | None,
        typer.Option(min=0, max=1, help=f"Share of the weights to remove (default {FRACTION})."),
    ] = None,
    threshold_db: Annotated[
        float | None, typer.Option(help="Remove weights with 10 log₁₀(|μ|/σ) below this.")
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(min=0, help="Remove as many as cost so many nats a row on --data."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Rows the model was not fitted to: scores before and after.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", "-t", help="Their target (default: the model's own).")
    ] = None,
    by_magnitude: Annotated[
        bool, typer.Option("--by-magnitude", help="By |μ| alone, as point estimates need.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is no model.")] = (
        False
    ),
    as_json: Annotated[bool, typer.Option("--json", help="JSON in place of text.")] = False,
) -> None:
    """Remove the weights with the lowest signal-to-noise ratio |μ|/σ.

    The smaller model keeps its columns and units and predicts as any other. Hidden units that no
    weight is left for are removed too, where the prior allows it.
    """
    with one_line_errors():
        given = {"--fraction": fraction, "--threshold-db": threshold_db, "--tolerance": tolerance}
        named = [name for name, value in given.items() if value is not None]
        if len(named) > 1:
            raise Refused(f"give one of {' and '.join(named)}", 2)
        if tolerance is not None and data is None:
            raise Refused("--tolerance needs --data, rows the model was not fitted to", 2)
        from .writing import check_out

        inputs = [name for name in (model, data) if name is not None]
        check_out(out, "model", inputs=inputs, force=force)
        if not model.is_file():
            raise Refused(f"{model}: no such file")
        how: dict[str, Any] = {"threshold": threshold_db, "tolerance": tolerance}
        how["fraction"] = FRACTION if not named else fraction
        notes: list[str] = []
        found = _pruned(model, out, how, data, target, by_magnitude, notes)
        for note in notes:
            say(note)
        if as_json:
            from .showing import print_json

            print_json(found)
        else:
            _show(found)


def _pruned(
    model: Path,
    out: Path,
    how: dict[str, Any],
    data: Path | None,
    target: str | None,
    by_magnitude: bool,
    notes: list[str],
) -> dict[str, Any]:
    from ..files.saved import load
    from ..posteriors import Draws, GaussianMixture
    from ..pruning import compact, report

    held = load(model)
    estimator = hasattr(held, "posterior_")
    before, rows = (held.posterior_ if estimator else held), None
    if data is not None:
        from .facts import table_for

        card = getattr(held, "card_", {})
        X, y, weight = table_for(held, data, target or card.get("target"), notes)
        if y is None:
            raise Refused("--target: name the column of --data that the model predicts", 2)
        rows = (X, y, weight)
        if how["tolerance"] is not None:
            how["validation"] = _validation(held, X, y)
    if isinstance(before, GaussianMixture | Draws):
        notes.append(
            "its members or draws have different weights, so that few are small in all of them: "
            "one Gaussian (posterax fit --method ivon) can lose far more"
        )
    pruned = _without(before, by_magnitude, how)
    if pruned.record.settings["pruning"].get("fraction") == 0:
        notes.append("no weight could be removed within the tolerance")
    try:
        pruned = compact(pruned)
    except ValueError as error:
        notes.append(f"sparse, with all its units: {_reason(error)}")
    small = pruned
    if estimator:
        small = copy.copy(held)
        small.posterior_ = pruned
        if hasattr(held, "card_"):
            small.card_ = _card(held.card_, pruned, notes)
    found = report(pruned)
    told: dict[str, Any] = {"model": str(model), "out": str(out)}
    told["weights"] = {"before": sum(found.sizes.values()), "kept": sum(found.kept.values())}
    told["removed"] = found.fraction
    told["arrays"] = {n: {"before": found.sizes[n], "kept": found.kept[n]} for n in found.sizes}
    told["hidden_units"] = found.widths
    told["settings"] = found.settings
    told["search"] = found.curve
    if rows is not None:
        from .scoring import score

        told["rows"] = len(rows[1])
        told["scores"] = {"before": score(held, *rows), "after": score(small, *rows)}
    small.save(out)
    told["bytes"] = {"before": model.stat().st_size, "after": out.stat().st_size}
    return told


def _without(posterior: Any, by_magnitude: bool, how: dict[str, Any]) -> Any:
    """The posterior, pruned; advice for Python becomes advice for a shell."""
    from ..pruning import prune as without

    try:
        return without(posterior, by="magnitude" if by_magnitude else "signal_to_noise", **how)
    except ValueError as error:
        if "px." not in str(error):
            raise
        other = "" if by_magnitude else ", or prune --by-magnitude"
        raise Refused(f"{_reason(error)}; fit again with --method ivon{other}") from None


def _reason(error: ValueError) -> str:
    """What is wrong, without the advice that follows."""
    return re.split(r"; |: ", str(error).partition(": ")[2])[0] or str(error)


def _validation(held: Any, X: Any, y: Any) -> tuple[Any, Any]:
    """Rows as the posterior has them: encoded and in standard units."""
    import numpy as np

    x = held.x_scaling_(held._check_inputs(X, reset=False)).astype(np.float32)
    if hasattr(held, "classes_"):
        from .scoring import labels

        return x, labels(held.classes_, y)
    return x, held._inner_targets(np.asarray(y, np.float64)).astype(np.float32)


def _card(card: dict[str, Any], pruned: Any, notes: list[str]) -> dict[str, Any]:
    """The facts of the whole model, of which its scores no longer hold."""
    from .writing import plain

    kept = {k: v for k, v in card.items() if k not in ("scores", "baseline", "held_out")}
    if "scores" in card:
        notes.append("the file's held-out scores were the whole model's, and are left out")
    about = {k: v for k, v in pruned.record.settings["pruning"].items() if k != "sizes"}
    return kept | {"pruned": plain(about)}


def _show(found: dict[str, Any]) -> None:
    from .._util.tree import human_bytes
    from .showing import console, table, words

    arrays = {**found["arrays"], "all": found["weights"]}
    rows = [
        [n, f"{a['before']:,}", f"{a['kept']:,}", f"{1 - a['kept'] / max(a['before'], 1):.1%}"]
        for n, a in arrays.items()
    ]
    sizes = [human_bytes(found["bytes"][when]) for when in ("before", "after")]
    caption = f"file: {sizes[0]} → {sizes[1]}"
    if found["hidden_units"]:
        caption += "\nhidden units: " + " → ".join(map(words, found["hidden_units"]))
    page = console()
    page.print(table("Weights", ("array", "before", "kept", "removed"), rows, caption))
    if "scores" in found:
        before, after = found["scores"]["before"], found["scores"]["after"]
        rows = [
            [
                name.replace("_", " "),
                words(before[name][0]),
                words(after[name][0]),
                _ends(after[name]),
            ]
            for name in before
        ]
        page.print()
        title = f"Scores on {found['rows']:,} rows"
        page.print(table(title, ("", "before", "after", "95 % interval, after"), rows))
    page.print()
    page.print(found["out"], soft_wrap=True)


def _ends(score: tuple[float, float, float]) -> str:
    from .showing import words

    return f"{words(score[1])} to {words(score[2])}" if score[1] == score[1] else ""

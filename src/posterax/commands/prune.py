"""``posterax prune``: the same model without the weights of which it knows least."""

import copy
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from . import Refused, say
from .options import AsJson, Force, Model, OtherTarget, OutModel
from .showing import console, print_json, table, words
from .writing import check_out, plain

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from ..posteriors import Posterior

FRACTION = 0.75  # where nothing is said
SHARE = f"Share of the weights to remove (default {FRACTION})."


def prune(
    model: Model,
    out: OutModel,
    fraction: Annotated[float | None, Option(min=0, max=1, help=SHARE)] = None,
    threshold_db: Annotated[float | None, Option(help="Least 10 log₁₀(|μ|/σ) to stay.")] = None,
    tolerance: Annotated[float | None, Option(min=0, help="Nats a row lost on --data.")] = None,
    data: Annotated[Path | None, Option(help="Other rows, to score before and after.")] = None,
    target: OtherTarget = None,
    by_magnitude: Annotated[bool, Option("--by-magnitude", help="Rank weights by |μ|.")] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Remove the weights with the lowest signal-to-noise ratio |μ|/σ.

    The smaller model keeps its columns and units and predicts as any other. Hidden units that no
    weight is left for are removed too, where the prior allows it.

    Examples:
        posterax prune house.px --out small.px
        posterax prune house.px --out small.px --fraction 0.9 --data validation.csv
        posterax prune house.px --out small.px --tolerance 0.01 --data validation.csv
    """
    given = {"--fraction": fraction, "--threshold-db": threshold_db, "--tolerance": tolerance}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise Refused(f"give one of {' and '.join(named)}", 2)
    if tolerance is not None and data is None:
        raise Refused("--tolerance needs --data, rows the model was not fitted to", 2)
    check_out(out, "model", inputs=[model, data], force=force)
    how = {"threshold": threshold_db, "tolerance": tolerance}
    how["fraction"] = fraction if named else FRACTION
    notes: list[str] = []
    about = _pruned(model, out, how, data, target, by_magnitude, notes)
    for note in notes:
        say(note)
    if as_json:
        print_json(about)
    else:
        _show(about)


def _pruned(
    model: Path,
    out: Path,
    how: dict[str, Any],
    data: Path | None,
    target: str | None,
    by_magnitude: bool,
    notes: list[str],
) -> dict[str, Any]:
    """Write the smaller model, and tell what it is."""
    from ..files.saved import load
    from ..posteriors import Draws, GaussianMixture
    from ..pruning import compact, report
    from .facts import table_for
    from .scoring import score

    held = load(model)
    before, card = getattr(held, "posterior_", held), getattr(held, "card_", {})
    rows = None
    if data is not None:
        rows = table_for(held, data, target or card.get("target"), notes)
        if rows[1] is None:
            raise Refused("--target: name the column of --data that the model predicts", 2)
        if how["tolerance"] is not None:
            how["validation"] = _validation(held, *rows[:2])
    if isinstance(before, GaussianMixture | Draws):
        notes.append(
            "members or draws have different weights, so few weights are small in all of them: "
            "one Gaussian (posterax fit --method ivon) can lose far more"
        )
    small = pruned = _without(before, by_magnitude, how)
    if pruned.record.settings["pruning"].get("fraction") == 0:
        notes.append("no weight could be removed within the tolerance")
    try:
        small = pruned = compact(pruned)
    except ValueError as error:
        notes.append(f"sparse, with all its units: {_reason(error)}")
    if before is not held:
        small = copy.copy(held)
        small.posterior_ = pruned
        if hasattr(held, "card_"):
            small.card_ = _card(card, pruned, notes)
    about = report(pruned)
    result: dict[str, Any] = {
        "model": str(model),
        "out": str(out),
        "weights": {"before": sum(about.sizes.values()), "kept": sum(about.kept.values())},
        "removed": about.fraction,
        "arrays": {n: {"before": about.sizes[n], "kept": about.kept[n]} for n in about.sizes},
        "hidden_units": about.widths,
        "settings": about.settings,
        "search": about.curve,
    }
    if rows is not None:
        both = {"before": held, "after": small}
        result["rows"] = len(rows[1])
        result["scores"] = {when: score(m, *rows).intervals() for when, m in both.items()}
    small.save(out)
    result["bytes"] = {"before": model.stat().st_size, "after": out.stat().st_size}
    return result


def _without(posterior: "Posterior", by_magnitude: bool, how: dict[str, Any]) -> Any:
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


def _validation(held: Any, X: "pd.DataFrame", y: "np.ndarray") -> tuple[Any, Any]:
    """Rows as the posterior has them: encoded and in standard units."""
    import numpy as np

    from .._util.admit import admit, admit_float64
    from .scoring import labels

    x = admit(held.x_scaling_(held._check_inputs(X, reset=False)), "X", np.float32)
    if hasattr(held, "classes_"):
        return x, labels(held.classes_, y)
    return x, admit(held._inner_targets(admit_float64(y, "y")), "y", np.float32)


def _card(card: dict[str, Any], pruned: "Posterior", notes: list[str]) -> dict[str, Any]:
    """The facts of the model before pruning, without its scores, which no longer hold."""
    if "scores" in card:
        notes.append("the held-out scores were those of the model before pruning; they are removed")
    about = {k: v for k, v in pruned.record.settings["pruning"].items() if k != "sizes"}
    outdated = ("scores", "baseline", "chance", "held_out")
    return {k: v for k, v in card.items() if k not in outdated} | {"pruned": plain(about)}


def _show(about: dict[str, Any]) -> None:
    from .._util.tree import human_bytes
    from ..metrics.evaluate import number
    from ..metrics.evaluate import table as score_rows
    from .scoring import stored

    arrays = {**about["arrays"], "all": about["weights"]}
    rows = [
        [n, f"{a['before']:,}", f"{a['kept']:,}", f"{1 - a['kept'] / max(a['before'], 1):.1%}"]
        for n, a in arrays.items()
    ]
    caption = "file: " + " → ".join(map(human_bytes, about["bytes"].values()))
    if about["hidden_units"]:
        caption += "\nhidden units: " + " → ".join(map(words, about["hidden_units"]))
    page = console()
    page.print(table("Weights", ("array", "before", "kept", "removed"), rows, caption))
    if "scores" in about:
        before, after = (stored({"scores": scores}) for scores in about["scores"].values())
        rows = [
            [title, number(name, before[name].value), value, ends]
            for name, (title, value, ends, _) in zip(after, score_rows(after), strict=True)
        ]
        page.print()
        title = f"Scores on {about['rows']:,} rows"
        page.print(table(title, ("score", "before", "after", "95 % interval, after"), rows))
    page.print()
    page.print(about["out"], soft_wrap=True)

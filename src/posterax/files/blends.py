"""A blend in a file: each part as it would be in a file of its own, and how they are weighed."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np

from ..errors import CheckpointError
from ..networks.base import module_of
from ..posteriors import Blend, Posterior, Record
from .bounds import field
from .container import Arrays

MOST_PARTS, MOST_FOLDS = 64, 64
NO_PARTS = ("Blend", "PriorPosterior")  # the one would nest, the other outgrow its file
OUTER = ("format", "posterax", "targets", "dtype", "model", "evidence")  # as its first part has it

Describe = Callable[[Posterior], tuple[dict[str, Any], Arrays]]
Rebuild = Callable[[Arrays, dict[str, Any], None], Posterior]


def described(blend: Blend, describe: Describe) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of a blend; ``describe`` is for its parts."""
    arrays: Arrays = {}
    headers = []
    for i, part in enumerate(blend.parts):
        header, own = describe(part)
        headers.append(header)
        arrays |= {f"part{i}/{name}": array for name, array in own.items()}
    if blend.plain is not None:
        arrays["reach"] = np.asarray(blend.reach)
    record = blend.record or Record()
    outer = {name: headers[0][name] for name in OUTER}
    return outer | {
        "posterior": "Blend",
        "parts": headers,
        "weights": np.asarray(blend.weights, np.float64).tolist(),
        "widths": np.asarray(blend.widths, np.float64).tolist(),
        "based": list(blend.based),
        "own": blend.own,
        "folds": blend.folds,
        "plain": blend.plain,
        "method": record.method,
        "settings": record.settings,
        "interrupted": record.interrupted,
        "history": [],
        "reports": [],
    }, arrays


def rebuild(arrays: Arrays, header: dict[str, Any], make: Rebuild) -> Blend:
    """The blend of a file; parts that do not belong together are refused."""
    headers = field(header, "parts", list)
    if not 0 < len(headers) <= MOST_PARTS:
        raise CheckpointError(f"a blend of {len(headers)} parts")
    parts = []
    for i, each in enumerate(headers):
        if not isinstance(each, dict) or each.get("posterior") in NO_PARTS:
            raise CheckpointError("a part of its blend is no posterior")
        prefix = f"part{i}/"
        own = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
        parts.append(make(own, each, None))
    weights, widths = (_numbers(header, name, len(parts)) for name in ("weights", "widths"))
    if abs(weights.sum() - 1) > 1e-3 or not np.all((widths > 1e-3) & (widths < 1e3)):
        raise CheckpointError("the weights of its parts do not sum to 1, or a width is 0")
    based = field(header, "based", list)
    if len(based) != len(parts) or not all(isinstance(b, bool) for b in based):
        raise CheckpointError("which of its parts have columns of their own is not known")
    own, folds = (field(header, name, int) for name in ("own", "folds"))
    if not (0 <= own < 2**20 and 0 < folds <= MOST_FOLDS):
        raise CheckpointError(f"{own} columns of its own for {folds} folds")
    record = Record(
        field(header, "method", str), field(header, "settings", dict),
        interrupted=field(header, "interrupted", bool),
    )  # fmt: skip
    plain = field(header, "plain", int, type(None)) if "plain" in header else None
    reach = None if plain is None else _reach(arrays.get("reach"), plain, based, _columns(parts[0]))
    blend = Blend.of(
        parts, weights, widths=widths, based=based, own=own, folds=folds, plain=plain,
        reach=reach, record=record,
    )  # fmt: skip
    _check(blend)
    return blend


def _reach(reach: Any, plain: int, based: list[bool], columns: int | None) -> np.ndarray:
    """How far the data went, for a part that needs nothing from others."""
    if not 0 <= plain < len(based) or based[plain]:
        raise CheckpointError("the part of its blend that is asked beyond the data is none")
    good = isinstance(reach, np.ndarray) and reach.dtype == np.float32
    if not (good and reach.shape == (2, columns) and np.all(reach[0] <= reach[1])):
        raise CheckpointError("how far the data of its blend went is not known")
    return np.asarray(reach)


def _numbers(header: dict[str, Any], name: str, count: int) -> np.ndarray:
    values = field(header, name, list)
    good = len(values) == count and all(type(v) in (int, float) and 0 <= v < 1e6 for v in values)
    if not good:
        raise CheckpointError(f"the {name} of its parts are no such numbers")
    return np.array(values, np.float64)


def _check(blend: Blend) -> None:
    """Refuse parts that have not the same inputs, targets and likelihood; nothing is computed."""
    first = blend.parts[0]
    for part, based in zip(blend.parts, blend.based, strict=True):
        module: Any = module_of(part.model.network)
        same = part.targets == first.targets and bool(
            eqx.tree_equal(part.model.likelihood, first.model.likelihood)
        )
        if not same or getattr(module, "in_size", None) != _columns(first):
            raise CheckpointError("the parts of its blend do not belong together")
        if getattr(module, "out_size", None) != getattr(
            module_of(first.model.network), "out_size", None
        ):
            raise CheckpointError("the parts of its blend have not the same outputs")
        if getattr(module, "offsets", 0) != based * blend.own:
            raise CheckpointError("a part of its blend has other columns of its own")
    if blend.folds == 1:
        return
    for part in blend.parts:
        try:  # shapes alone
            eqx.filter_eval_shape(lambda part=part: part.fold(0, blend.folds))
        except (TypeError, ValueError, NotImplementedError) as error:
            said = f"the parts of its blend do not fit its folds ({error})"
            raise CheckpointError(said) from None


def _columns(part: Posterior) -> int:
    columns = getattr(module_of(part.model.network), "in_size", None)
    if not isinstance(columns, int):
        raise CheckpointError("a part of its blend is not for tables")
    return columns

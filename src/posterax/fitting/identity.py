"""What a fit is: all that would change its result, by names, so that a difference can be told."""

import importlib.metadata
import itertools
import platform
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np

from .._util.identity import Unidentified, described, identify
from .._util.tree import named_leaves
from .._version import __version__
from ..data import unpack
from ..model import Model
from ..networks.base import with_params
from ..networks.parts import numbers_fingerprint
from ..priors import ByPart

if TYPE_CHECKING:
    from .run import Run

FIRST_BATCHES = 16  # of a stream, which are looked at
PACKAGES = ("jax", "jaxlib", "numpy", "equinox", "optax", "numpyro", "blackjax", "quax", "scipy")


def identity(run: "Run") -> dict[str, Any]:
    """All that the result of a fit depends on, as JSON has it: settings, and hashes.

    What cannot be told from another of its kind is refused (see ``posterax._util.identity``).
    """
    plan, watch = run.ready.plan, run.watch
    return {
        **target(run),
        "start weights": _start(run),
        "start weights, about": _about(run),
        "method": described(run.method, "method"),
        "key": np.asarray(jax.random.key_data(run.key)).tolist(),
        "batch_size": plan.batch_size,
        "steps": int(plan.steps) if run.until is None else "auto",
        "augment": _one("augment", run.ready.augment),
        "validation": None if watch is None else identify(watch, "validation"),
        "thin": run.thin,
        "draw_bytes": run.draw_bytes,
        "resumed": _resumed(run),
        "versions": versions(),
    }


def target(run: "Run", what: Callable[[object, str], Any] = described) -> dict[str, Any]:
    """What the posterior itself depends on, whatever the method."""
    model = run.ready.model
    names, rest = model.chosen()
    bayesian = list(named_leaves(model.bayesian(model.parameters)))
    return {
        "network": what(_without_numbers(model), "network"),
        "weights": model.network.fingerprint(widths=True),  # their names, shapes and types
        "where": None if rest == "none" else [rest, bayesian, names],
        "fixed weights": _fixed(model),
        "prior": what(model.prior, "prior"),
        "likelihood": what(model.likelihood, "likelihood"),
        "data": _data(run),
        "examples": float(run.ready.plan.total),
    }


def in_session(value: object, name: str) -> Any:
    """The same for posteriors of this session: what has no content is the object that it is."""
    try:
        return described(value, name)
    except Unidentified:
        return f"object {id(value)}"


def differences(found: dict[str, Any], mine: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What two fits differ in, by name: (the other's, this one's)."""
    one, two = _flat(found), _flat(mine)
    names = [*two, *(name for name in one if name not in two)]
    return {n: (one.get(n), two.get(n)) for n in names if one.get(n) != two.get(n)}


def versions() -> dict[str, str]:
    """The packages that compute a fit.

    Example:
        >>> from posterax.fitting.identity import versions
        >>> sorted(versions())[:3]
        ['blackjax', 'equinox', 'jax']
    """
    found = {"posterax": __version__, "python": ".".join(platform.python_version_tuple()[:2])}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # put on the path without its metadata
            found[name] = "unknown"
    return found


def _flat(nested: Any, name: str = "") -> dict[str, Any]:
    """Values by dotted names; the name of a group alone is its kind."""
    if not isinstance(nested, dict):
        return {name: nested}
    inside = [_flat(value, f"{name}.{key}".strip(".")) for key, value in nested.items()]
    return {key: value for values in inside for key, value in values.items()}


def _one(name: str, value: object) -> Any:
    return None if value is None else described(value, name)


def _without_numbers(model: Model) -> Any:
    """The network with shapes in the place of its arrays, and without its parameters."""
    empty = lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype) if eqx.is_array(a) else a  # noqa: E731
    bare = eqx.tree_at(
        lambda n: (n.params, n.state), model.network, (None, None), is_leaf=lambda n: n is None
    )
    return jax.tree.map(empty, bare)


def _fixed(model: Model) -> str | None:
    """The numbers that no fit changes: frozen weights, and the centres of a prior around some."""
    rest = jax.tree.leaves(eqx.filter(with_params(model.network, None), eqx.is_array))
    centres = [a for a in jax.tree.leaves(model.priors.network) if isinstance(a, jax.Array)]
    around = centres if isinstance(model.prior, ByPart) else []
    numbers = model.network.frozen(), around
    if not jax.tree.leaves(numbers) and not rest:
        return None
    return f"{identify(rest)} {numbers_fingerprint(numbers)}"


def _start(run: "Run") -> str:
    arrays = jax.tree.leaves(eqx.filter(run.start, eqx.is_array))
    return identify((arrays, type(run.start.posterior)), "init")


def _about(run: "Run") -> list[float]:
    """The start weights by four sums, for arithmetic that gives them other last digits."""
    arrays = jax.tree.leaves(eqx.filter(run.start.parameters, eqx.is_inexact_array))
    weights = np.concatenate([np.asarray(a, np.float64).ravel() for a in arrays] or [np.zeros(0)])
    places = np.arange(1, len(weights) + 1)
    sums = [float(np.sum(weights * np.cos(places * angle))) for angle in (0.0, 1.0, 2.0)]
    return [float(np.sqrt(np.sum(weights**2))), *sums]


def but_for_digits(other: dict[str, tuple[Any, Any]]) -> dict[str, tuple[Any, Any]]:
    """Differences without start weights that are the same but for their last digits."""
    digits = ("start weights", "start weights, about")
    found, mine = other.get(digits[1], ([0.0], [0.0]))
    try:
        near = np.allclose(found, mine, rtol=0, atol=1e-4 * (1e-30 + mine[0]))
    except (TypeError, ValueError):  # a file of any making
        return other
    return {name: both for name, both in other.items() if not (near and name in digits)}


def _resumed(run: "Run") -> str | None:
    """Where a posterior that is continued was; a checkpoint has not been read yet."""
    at = run.at
    if at.state is None:
        return None
    return identify((at.phase, at.step, jax.tree.leaves(at.state)), "resume")


def _data(run: "Run") -> Any:
    rows, stream = run.ready.data, run.ready.stream
    if rows is not None:
        # without its augmentation, which has a name of its own
        return identify([*jax.tree.leaves(rows.x), rows.y, rows.weight, rows.count], "data")
    assert stream is not None
    first = [unpack(part) for part in itertools.islice(iter(stream.source), FIRST_BATCHES)]
    return {"batches": stream.batches, f"first {FIRST_BATCHES} batches": identify(first, "data")}

"""Where a fit is: all that a checkpoint holds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._util.tree import to_host
from ..errors import CheckpointError
from ..files.container import pack, refuse_not_finite, shortened, unpack
from ..infer.base import Draw, History, Phase
from .checkpoint import Part, Stored
from .retained import RetainedDraws

KINDS = {"phase": int, "step": int, "waited": int, "stopped": bool}  # of a header's entries


class Report(NamedTuple):
    """Values that are computed at some steps only, and the steps (0, 1, …) they are of."""

    steps: list[np.ndarray]
    values: list[np.ndarray]

    def joined(self) -> tuple[np.ndarray, np.ndarray]:
        """Steps and values, each one array."""
        return np.concatenate(self.steps), np.concatenate(self.values)


class Earlier(NamedTuple):
    """The last state of an earlier phase, which ``resume=`` can take up."""

    phase: int
    step: int
    state: PyTree


class Position:
    """Where a fit is: all that a checkpoint holds."""

    def __init__(self, draw_bytes: int | None = None) -> None:
        self.phase = 0
        self.step = 0
        self.taken: list[int] = []  # steps of the phases before
        self.state: Any = None
        self.earlier: Earlier | None = None
        self.terms: dict[str, list[np.ndarray]] = {}  # one value a step
        self.reports: dict[str, Report] = {}
        self.draws = RetainedDraws(draw_bytes)
        self.identity: dict[str, Any] | None = None  # of what the draws depend on
        self.best: Any = None
        self.best_nll = float("inf")
        self.waited = 0
        self.stopped = False
        self.until: dict[str, Any] | None = None  # of a fit without a given length, its steps now

    def copied(self) -> "Position":
        """A copy that later steps do not change, its state on the host."""
        new = Position()
        new.__dict__ |= self.__dict__
        new.state, new.taken = to_host(self.state), [*self.taken]
        new.terms = {name: [*parts] for name, parts in self.terms.items()}
        new.reports = {name: Report([*r.steps], [*r.values]) for name, r in self.reports.items()}
        return new

    def forget(self, *names: str, before: int) -> None:
        """Drop the values of reports before a step."""
        for name in names:
            if name in self.reports:
                steps, values = self.reports[name].joined()
                self.reports[name] = Report([steps[steps >= before]], [values[steps >= before]])

    def record(self, terms: History) -> None:
        """Append to the history, one value a step."""
        for name, values in terms.items():
            self.terms.setdefault(name, []).append(values)

    def report(self, reports: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
        """Append values that are of some steps only."""
        for name, (steps, values) in reports.items():
            old = self.reports.setdefault(name, Report([], []))
            old.steps.append(steps)
            old.values.append(values)

    def history(self) -> tuple[History, dict[str, tuple[np.ndarray, np.ndarray]]]:
        """All terms, and all reports with their steps."""
        terms = {name: np.concatenate(parts) for name, parts in self.terms.items()}
        return terms, {name: report.joined() for name, report in self.reports.items()}

    def next_phase(self, phase: Phase, following: Phase) -> None:
        """Go on to the next phase; what was best of the last has been taken up."""
        if following.lengthens:
            self.earlier = None
        elif phase.lengthens:
            self.earlier = Earlier(self.phase, self.step, to_host(self.state))
        self.taken = [*self.taken, self.step]
        self.phase, self.step, self.stopped = self.phase + 1, 0, False
        self.best, self.best_nll, self.waited = None, float("inf"), 0

    def packed(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and header for a checkpoint; draws are stored in parts of their own."""
        arrays = pack(self.state, "state")
        if self.best is not None:
            arrays |= pack(self.best, "best")
        if self.earlier is not None:
            arrays |= pack(self.earlier.state, "earlier")
        terms, reports = self.history()
        self.terms = {name: [values] for name, values in terms.items()}
        arrays |= {f"history/{name}": values for name, values in terms.items()}
        for name, (steps, values) in reports.items():
            arrays |= {f"report_steps/{name}": steps, f"reports/{name}": values}
        best_nll = self.best_nll if self.best_nll < np.inf else None  # JSON has no infinity
        header = {
            "phase": self.phase, "step": self.step, "stopped": self.stopped,
            "best_nll": best_nll, "waited": self.waited, "best": self.best is not None,
            "history": list(terms), "reports": list(reports), "taken": self.taken,
            "earlier": None if self.earlier is None else self.earlier[:2], "until": self.until,
        }  # fmt: skip
        return arrays, header


def restore(
    stored: Stored,
    path: Path,
    state_template: Callable[[int], PyTree],
    draw_template: Callable[[int], PyTree],
    draw_bytes: int | None = None,
) -> Position:
    """The position a checkpoint holds, checked against the shapes this fit has."""
    arrays, header, parts = stored
    at = Position(draw_bytes)
    try:
        for name, kind in KINDS.items():
            if type(header[name]) is not kind:
                raise TypeError(f"{name} must be {kind.__name__}")
        at.phase, at.step = header["phase"], header["step"]
        at.waited, best = header["waited"], header["best_nll"]
        at.best_nll = float("inf") if best is None else float(best)
        at.stopped = header["stopped"]
        at.taken = [int(steps) for steps in header.get("taken", [])]
        at.until = _until(header["until"])
        if at.phase < 0 or at.step < 0:
            raise IndexError(f"phase {at.phase}, step {at.step}")
        _refuse_not_finite({n: a for n, a in arrays.items() if n.startswith(("state/", "best/"))})
        template = state_template(at.phase)
        at.state = unpack(template, arrays, "state")
        if header["best"]:
            at.best = unpack(template, arrays, "best")
        if header["earlier"] is not None:
            phase, step = map(int, header["earlier"])
            old = unpack(state_template(phase), arrays, "earlier")
            at.earlier = Earlier(phase, step, to_host(old))
        named = [name for name in arrays if name.startswith("history/")]
        if sorted(named) != sorted(f"history/{name}" for name in header["history"]):
            raise ValueError("its history is not complete")
        terms = {name: arrays[f"history/{name}"] for name in header["history"]}
        _check_history(terms, at.step if header["identity"]["resumed"] is None else None)
        at.record(terms)
        reports = {
            n: (arrays[f"report_steps/{n}"], arrays[f"reports/{n}"]) for n in header["reports"]
        }
        uneven = [n for n, (steps, values) in reports.items() if len(steps) != len(values)]
        if uneven:
            raise CheckpointError(f"incomplete ({uneven[0]} has steps without values)")
        at.report(reports)
        if parts:
            draw = draw_template(at.phase)
            for part in parts:
                _refuse_not_finite(part.arrays)
                at.draws.add(_unpack_draws(draw, part), part.stride, part.offered)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise CheckpointError(f"{path}: incomplete ({shortened(repr(error))})") from error
    return at


def _until(given: Any) -> dict[str, Any] | None:
    """How long a fit without a given length is to be now, checked."""
    if given is None:
        return None
    steps, levels = given["steps"], given["levels"]
    if type(steps) is not int or not 0 < steps < 2**31:
        raise ValueError("until: steps")
    if not all(len(level) == 3 and all(np.isfinite(level)) for level in levels):
        raise ValueError("until: levels")
    return {"steps": steps, "levels": levels}


def _refuse_not_finite(arrays: dict[str, np.ndarray]) -> None:
    """Refuse NaN and infinities; −∞ is the logarithm of 0 where a name says so."""
    logarithms = {n: a for n, a in arrays.items() if "log_" in n or n.endswith("/best")}
    refuse_not_finite(logarithms, least=-np.inf)
    refuse_not_finite({n: a for n, a in arrays.items() if n not in logarithms})


def _check_history(terms: History, steps: int | None) -> None:
    """Refuse a history that has not one number for each step, as far as they are known.

    Names of earlier phases begin with a title and a slash; those that look at held-out data have
    one number a look.
    """
    lengths: dict[tuple[str, bool], set[int]] = {}
    for name, values in terms.items():
        title, _, term = name.rpartition("/")
        lengths.setdefault((title, term.startswith("validation_")), set()).add(len(values))
        # held-out data that a model thinks impossible
        finite = np.isfinite(values) | ((term == "validation_nll") & (values == np.inf))
        if values.ndim != 1 or not finite.all():
            raise CheckpointError(f"the history of {shortened(name)} is no list of numbers")
    now = lengths.get(("", False), set())
    if any(len(found) > 1 for found in lengths.values()) or (now and steps not in (None, *now)):
        raise CheckpointError("its history is not as long as the fit")


def _unpack_draws(template: PyTree, part: Part) -> Draw:
    count = part.size
    sized = jax.tree.map(
        lambda a: jax.ShapeDtypeStruct((a.shape[0], count, *a.shape[1:]), a.dtype), template
    )
    return jax.tree.map(np.asarray, unpack(sized, part.arrays, "draws"))


def all_finite(tree: PyTree) -> bool:
    """Whether no floating point number of a tree is NaN or infinite."""
    return all(
        bool(np.all(np.isfinite(np.asarray(a))))
        for a in jax.tree.leaves(tree)
        if hasattr(a, "dtype") and jnp.issubdtype(a.dtype, jnp.inexact)
    )

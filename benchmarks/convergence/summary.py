"""What the cells say: the best ELBO known, who is near it, and after how many seconds."""

import json
import math
import statistics
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.convergence.cells import RESULTS, SEEDS

NEAR = 0.1  # nats a row
SHARE = 0.02  # of the way from the constant predictor to the reference
OURS = ("BayesByBackprop", "IVON")
BUDGET = {"steps", "epochs"}  # settings that leave a method at its defaults


class Group(NamedTuple):
    """One setting of one contender on one problem, with its seeds."""

    problem: str
    prior: str
    contender: str
    settings: dict[str, Any]
    cells: list[dict[str, Any]]

    @property
    def ours(self) -> bool:
        """Whether it is posterax."""
        return self.contender in OURS

    @property
    def default(self) -> bool:
        """Whether nothing but the budget was set."""
        return self.ours and set(self.settings) <= BUDGET

    @property
    def last(self) -> list[float]:
        """The ELBO a row at the end, of each seed; −∞ where there is none."""
        return [cell["points"][-1].get("per_row", -math.inf) for cell in self.cells]

    @property
    def median(self) -> float:
        """Over the seeds."""
        return statistics.median(self.last)

    @property
    def first(self) -> float:
        """Of seed 0, which everyone has."""
        by_seed = {cell["seed"]: value for cell, value in zip(self.cells, self.last, strict=True)}
        return by_seed.get(0, -math.inf)

    @property
    def seconds(self) -> float:
        """To the end, the median over the seeds."""
        return statistics.median(cell["points"][-1]["seconds"] for cell in self.cells)

    def seconds_to(self, target: float) -> float:
        """Until the ELBO a row is no lower, the median over the seeds; ∞ where it is not."""
        return statistics.median(
            min(
                (p["seconds"] for p in cell["points"] if p.get("per_row", -math.inf) >= target),
                default=math.inf,
            )
            for cell in self.cells
        )


def load(folder: Path = RESULTS) -> list[dict[str, Any]]:
    """All cells of all files, those that failed or were skipped too."""
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("convergence*.json")):
        found |= json.loads(path.read_text())["cells"]
    return list(found.values())


def groups(cells: list[dict[str, Any]]) -> list[Group]:
    """Cells with points, by everything but the seed."""
    found: dict[str, Group] = {}
    for cell in cells:
        if "points" not in cell:
            continue
        parts = [cell[k] for k in ("problem", "prior", "contender", "settings")]
        key = json.dumps(parts, sort_keys=True)
        found.setdefault(key, Group(*parts, [])).cells.append(cell)
    return list(found.values())


def of(found: list[Group], problem: str, prior: str = "own") -> list[Group]:
    """Those of one posterior."""
    return [group for group in found if (group.problem, group.prior) == (problem, prior)]


def reference(found: list[Group]) -> Group | None:
    """The highest median ELBO over the seeds, of the best setting by seed 0 and all with 5 seeds.

    A setting that was tried with seed 0 alone counts too where it is the best: leaving it out would
    move the goal towards those who are far from it.
    """
    sound = [group for group in found if math.isfinite(group.median)]
    first = max(sound, key=lambda group: group.first, default=None)
    whole = [g for g in sound if len(g.cells) >= SEEDS or g is first]
    return max(whole, key=lambda group: group.median, default=None)


def tolerance(best: float, constant: float) -> float:
    """How far below the best still counts as arrived, in nats a row."""
    return min(NEAR, SHARE * abs(best - constant))


def arrived(group: Group, best: float, constant: float) -> bool:
    """Whether every seed is within the tolerance."""
    return min(group.last) >= best - tolerance(best, constant)


def fastest(found: list[Group], target: float) -> tuple[float, Group | None]:
    """The fewest seconds to a target, and the setting that needs them."""
    best = min(found, key=lambda group: group.seconds_to(target), default=None)
    seconds = math.inf if best is None else best.seconds_to(target)
    return (seconds, best) if math.isfinite(seconds) else (math.inf, None)


class Race(NamedTuple):
    """Seconds to within ``NEAR`` of the best: ours at defaults, ours tuned, and the peers'."""

    problem: str
    default: tuple[float, Group | None]
    tuned: tuple[float, Group | None]
    peer: tuple[float, Group | None]
    peers: int = 1  # how many libraries were run

    @property
    def ratio(self) -> float | None:
        """How many times as long the fastest peer takes as ours at defaults; ``None``: unknown."""
        both = self.peer[0], self.default[0]
        return both[0] / both[1] if all(map(math.isfinite, both)) else None


def race(found: list[Group], problem: str) -> Race | None:
    """The seconds of one problem; ``None`` before anyone ran it."""
    here = of(found, problem)
    best = reference(here)
    if best is None:
        return None
    target = best.median - NEAR
    return Race(
        problem,
        fastest([g for g in here if g.default], target),
        fastest([g for g in here if g.ours], target),
        fastest([g for g in here if not g.ours], target),
        len({g.contender for g in here if not g.ours}),
    )


def geometric_mean(values: list[float]) -> float:
    """exp of the mean logarithm."""
    return math.exp(statistics.fmean(map(math.log, values)))

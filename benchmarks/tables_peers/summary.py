"""Runs to scores: means, standard errors, and paired differences on the splits all share.

With several splits the error of a mean is that over splits; they overlap, so it is somewhat too
small. With one split it is that over ten parts of the test rows, after an average over seeds.
"""

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from benchmarks.tables_peers import data
from benchmarks.tables_peers.store import Run

OURS, TRUTH = "posterax", "truth"
FEWEST = 5  # runs that a contender needs to count, where so many are planned
Lines = list[dict[str, Any]]


class Value(NamedTuple):
    """A mean and its standard error."""

    mean: float
    error: float


class Group(NamedTuple):
    """All that ran on one set, each on the same splits in the same order."""

    name: str
    lines: dict[str, Lines]
    failed: dict[str, str]  # why others have no figures
    few: dict[str, str]  # who has not run often enough yet

    @property
    def fixed(self) -> bool:
        """Whether there is one split."""
        return data.SETS[self.name].fixed

    @property
    def runs(self) -> int:
        """Splits, or seeds where the split is fixed."""
        return len(next(iter(self.lines.values())))

    @property
    def test_rows(self) -> int:
        """Of all splits together."""
        lines = next(iter(self.lines.values()))
        return sum(line["test_rows"] for line in (lines[:1] if self.fixed else lines))

    def rivals(self) -> list[str]:
        """Everyone but the truth."""
        return [name for name in self.lines if name != TRUTH]

    def value(self, who: str, what: str) -> Value:
        """A measure over splits."""
        lines = self.lines[who]
        each = np.array([measure(line, what) for line in lines])
        if not self.fixed or what not in lines[0]["parts"]:
            error = each.std(ddof=1) / np.sqrt(len(each)) if len(each) > 1 else np.nan
            return Value(float(each.mean()), float(error))
        parts = self._parts(who, what)
        error = parts.std(ddof=1) / np.sqrt(len(parts))
        if self._root(what):
            error /= 2 * each.mean() if each.mean() else 1
        return Value(float(each.mean()), float(error))

    def difference(self, a: str, b: str, what: str) -> Value:
        """a − b, paired by splits or by parts of the test rows."""
        apart = self.value(a, what).mean - self.value(b, what).mean
        if not self.fixed or what not in self.lines[a][0]["parts"]:
            pairs = zip(self.lines[a], self.lines[b], strict=True)
            each = np.array([measure(p, what) - measure(q, what) for p, q in pairs])
            error = each.std(ddof=1) / np.sqrt(len(each)) if len(each) > 1 else np.nan
        else:
            each = self._parts(a, what) - self._parts(b, what)
            error = each.std(ddof=1) / np.sqrt(len(each))
            if self._root(what):
                error /= self.value(a, what).mean + self.value(b, what).mean
        return Value(apart, float(error))

    def best(self, what: str) -> str:
        """Who has the lowest mean."""
        return min(self.rivals(), key=lambda who: self.value(who, what).mean)

    def pooled(self, who: str, what: str = "inside") -> float:
        """A share of all test rows."""
        lines = self.lines[who]
        weights = [line["test_rows"] for line in lines]
        return float(np.average([line[what] for line in lines], weights=weights))

    def median(self, who: str, what: str) -> float:
        """Seconds or memory of a run."""
        return float(np.median([line[what] for line in self.lines[who]]))

    def _parts(self, who: str, what: str) -> np.ndarray:
        return np.mean([line["parts"][what] for line in self.lines[who]], axis=0)

    def _root(self, what: str) -> bool:
        """Whether parts are squares of the measure."""
        return what == "error" and data.SETS[self.name].task == data.REGRESSION


def measure(line: dict[str, Any], what: str) -> float:
    """One figure of a run; the density's likelihood where that is the only one."""
    if what == "auc_missing":  # so that less is better here too
        return 1 - line["auc"]
    return line.get("nll_density", line["nll"]) if what == "nll_density" else line[what]


def groups(
    found: dict[Run, dict[str, Any]], names: list[str], rows: int = 0, fewest: int = FEWEST
) -> list[Group]:
    """The sets that someone ran on often enough, in order."""
    by_set: dict[str, dict[str, dict[tuple[int, int], dict[str, Any]]]] = defaultdict(dict)
    for run, line in found.items():
        if run.rows == rows and run.set in names:
            by_set[run.set].setdefault(run.contender, {})[run.split, run.seed] = line
    made = (_group(name, by_set[name], fewest) for name in names if name in by_set)
    return [group for group in made if group]


def _group(
    name: str, ran: dict[str, dict[tuple[int, int], dict[str, Any]]], fewest: int
) -> Group | None:
    plan = data.SETS[name]
    every = plan.group == "gap" and fewest == FEWEST  # its splits are columns: all or none
    fewest = plan.runs if every else min(fewest, plan.runs)
    good, failed, few = {}, {}, {}
    for who, lines in ran.items():
        done = {key: line for key, line in lines.items() if "error_text" not in line}
        if len(done) >= fewest:
            good[who] = done
        else:
            why = [line["error_text"] for line in lines.values() if "error_text" in line]
            (failed if why else few)[who] = why[0] if why else f"{len(done)} of {fewest} runs"
    if not good:
        return None
    shared = sorted(set.intersection(*(set(lines) for lines in good.values())))
    chosen = {who: [lines[key] for key in shared] for who, lines in good.items()}
    return Group(name, chosen, failed, few) if shared else None


def ranks(found: list[Group], what: str) -> dict[str, float]:
    """Average ranks of those who have figures on at least one set; no figure is the last rank."""
    everyone = {who for g in found for who in [*g.rivals(), *g.failed] if who != TRUTH}
    everyone = sorted(w for w in everyone if 2 * sum(w in g.lines for g in found) > len(found))
    each = []
    for group in found:
        values = [group.value(who, what).mean if who in group.lines else np.inf for who in everyone]
        each.append(stats.rankdata(values))
    return dict(zip(everyone, np.mean(each, axis=0).tolist(), strict=True)) if each else {}


def critical_difference(contenders: int, sets: int, level: float = 0.05) -> float:
    """Nemenyi's: q √(k (k + 1) / 6N), with q the studentised range over √2 (Demšar 2006)."""
    q = stats.studentized_range.ppf(1 - level, contenders, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(contenders * (contenders + 1) / (6 * sets)))

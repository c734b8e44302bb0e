"""Means and spreads of the study, over splits and over data sets."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.honest import data
from benchmarks.honest.contenders import COLD, TEMPERATURES

Found = dict[str, Any]
TABLES = tuple(name for name in data.NAMES if name not in data.CLASSES)
ALL_TEMPERATURES = (*TEMPERATURES, 1.0)


class Spread(NamedTuple):
    """A mean, and the deviation of one value around it (nan for a single one)."""

    mean: float
    deviation: float
    count: int

    def text(self, digits: int = 2) -> str:
        """As a table has it."""
        if not self.count:
            return "–"
        shown = f"{self.mean:.{digits}f}".replace("-", "−")
        return shown if math.isnan(self.deviation) else f"{shown} ± {self.deviation:.{digits}f}"


def spread(values: Iterable[float]) -> Spread:
    """Of some values."""
    there = [float(v) for v in values if v is not None and np.isfinite(v)]
    if not there:
        return Spread(math.nan, math.nan, 0)
    deviation = float(np.std(there, ddof=1)) if len(there) > 1 else math.nan
    return Spread(float(np.mean(there)), deviation, len(there))


def of(found: Found, **where: Any) -> list[dict[str, Any]]:
    """The fits that have these fields, without those that failed."""
    return [
        entry
        for entry in found.values()
        if "error" not in entry and all(entry[k] == v for k, v in where.items())
    ]


def value(entry: dict[str, Any], path: str) -> float | None:
    """A number of a fit: ``"test.nll"`` or ``"distance.far.mean"``."""
    here: Any = entry
    for part in path.split("."):
        if not isinstance(here, dict) or part not in here:
            return None
        here = here[part]
    return here


def over_splits(found: Found, path: str, **where: Any) -> Spread:
    """Of one data set, prior and method."""
    fits = of(found, **{"temperature": 1.0, **where})
    return spread(v for e in fits if (v := value(e, path)) is not None)


def middle(values: Iterable[float], digits: int = 2) -> str:
    """The median, and in brackets the least and the most, where there are several."""
    there = [float(v) for v in values if v is not None and np.isfinite(v)]
    if not there:
        return "–"
    shown = [
        f"{v:.{digits}f}".replace("-", "−") for v in (np.median(there), min(there), max(there))
    ]
    return shown[0] if len(there) == 1 else f"{shown[0]} ({shown[1]} … {shown[2]})"


def on_first(found: Found, names: Iterable[str], path: str, **where: Any) -> list[float]:
    """A number of the first split of each data set that has it."""
    where = {"split": 0, "temperature": 1.0} | where
    fits = [e for name in names for e in of(found, data=name, **where)]
    return [v for e in fits if (v := value(e, path)) is not None]


def excess(found: Found, part: str, method: str, prior: str) -> list[float]:
    """NLL above that of the long run on the first split, data set by data set."""
    each = []
    for name in data.NAMES:
        own = on_first(found, [name], f"{part}.nll", method=method, prior=prior)
        base = on_first(found, [name], f"{part}.nll", method="reference", prior=prior)
        each += [a - b for a, b in zip(own, base, strict=False)]
    return each


def best_temperature(found: Found, name: str, prior: str, method: str) -> float | None:
    """The one with the smallest validation NLL on the first split, where all were tried."""
    nll = {
        t: on_first(found, [name], "validation.nll", prior=prior, method=method, temperature=t)
        for t in ALL_TEMPERATURES
    }
    return min(nll, key=lambda t: nll[t][0]) if all(nll.values()) else None


def parts(found: Found, name: str, prior: str) -> dict[str, float | None]:
    """Test NLL on split 0: from a short fit over converged ones to the truth."""
    names = ("short", "BayesByBackprop", "long", "low_rank", "full", "ensemble", "reference")
    told: dict[str, float | None] = {}
    for method in names:
        fits = of(found, data=name, prior=prior, method=method, split=0, temperature=1.0)
        told[method] = fits[0]["test"]["nll"] if fits else None
    t = best_temperature(found, name, prior, COLD[0])
    fits = of(found, data=name, prior=prior, method=COLD[0], split=0, temperature=t)
    told["cold"] = fits[0]["test"]["nll"] if fits else None
    return told


def rank(found: Found, methods: Sequence[str], method: str, prior: str) -> float:
    """The mean place of a method by validation NLL on the first split; 1 is the best."""
    places = []
    for name in data.NAMES if method in methods else ():
        nll = {m: on_first(found, [name], "validation.nll", method=m, prior=prior) for m in methods}
        if nll[method]:
            places.append(1 + sum(v[0] < nll[method][0] for v in nll.values() if v))
    return float(np.mean(places)) if places else math.nan


def elbo_gain(found: Found, name: str, prior: str) -> float | None:
    """Nats a row that four times the steps add to the ELBO."""
    ends = [
        value(e, "elbo")
        for method in ("BayesByBackprop", "long")
        for e in of(found, data=name, prior=prior, method=method, split=0, temperature=1.0)
    ]
    return None if len(ends) < 2 or None in ends else ends[1] - ends[0]

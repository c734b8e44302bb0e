"""The methods with nothing set, their cold versions, and the long runs that are the reference."""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import posterax as px
from benchmarks.honest import data

TEMPERATURES = (0.01, 0.03, 0.1, 0.3)
METHODS: dict[str, Any] = {
    "MaximumAPosteriori": lambda t: px.MaximumAPosteriori(),
    "DeepEnsemble": lambda t: px.DeepEnsemble(members=5),
    "BayesByBackprop": lambda t: px.BayesByBackprop(temperature=t),
    "IVON": lambda t: px.IVON(temperature=t),
    "low_rank": lambda t: px.BayesByBackprop(family="low_rank", temperature=t),
    "full": lambda t: px.BayesByBackprop(family="full", temperature=t),
    "ensemble": lambda t: px.DeepEnsemble(members=5, inside=px.BayesByBackprop(temperature=t)),
    "Laplace": lambda t: px.Laplace(),
    "MCDropout": lambda t: px.MCDropout(),
    "SWAG": lambda t: px.SWAG(),
    "MCLMC": lambda t: px.MCLMC(),
    "short": lambda t: px.BayesByBackprop(learning_rate=1e-3, temperature=t),
    "long": lambda t: px.BayesByBackprop(temperature=t),
    "settled": lambda t: px.BayesByBackprop(temperature=t),
    "reference": lambda t: px.MCLMC(),
    "second": lambda t: px.MCLMC(),
}
PLAIN = ("MaximumAPosteriori", "DeepEnsemble", "BayesByBackprop", "IVON", "low_rank", "ensemble",
         "Laplace", "MCDropout", "SWAG")  # fmt: skip
COLD = ("BayesByBackprop", "IVON", "ensemble", "low_rank")
DRAWS = {"reference": 4000, "second": 2000}  # of each of four chains
FEWER_DRAWS, LARGE_DRAWS = 2500, 1200  # where a long run takes longer
FULL = ("yacht", "airfoil")  # the fewest weights: a full family takes minutes
FULL_SECONDS = 15.0  # for epochs="auto" of a full family
COLD_STEPS = 15_872  # below temperature 1
SECOND = ("boston", "yacht", "concrete", "wine")  # have a second long run
LARGE = ("curve_gap", "digits")  # of which low rank and ensembles have one split
MOST_STEPS = 31_744  # of an ensemble


class Cell(NamedTuple):
    """One fit."""

    data: str
    prior: str
    method: str
    split: int = 0
    temperature: float = 1.0

    @property
    def key(self) -> str:
        """Its name in the results."""
        return " | ".join(map(str, self))


def draws(cell: Cell) -> int:
    """Of each chain of a long run."""
    if cell.data in LARGE:
        return LARGE_DRAWS
    costly = cell.prior == "fan_in" and cell.data not in ("boston", "yacht")
    fewer = cell.method == "reference" and (costly or cell.data == "breast_cancer")
    return FEWER_DRAWS if fewer else DRAWS[cell.method]


def budget(cell: Cell, found: dict[str, Any]) -> dict[str, Any]:
    """What ``px.fit`` is told beside the method: as a rule nothing.

    An ensemble has no ``epochs="auto"``: it takes the steps that the single fit ended with; "long"
    takes four times as many.
    """
    if cell.method in DRAWS:
        return {"steps": draws(cell)}
    if cell.method == "short":
        return {"steps": 2000}
    if cell.method in ("ensemble", "long") and cell.temperature == 1:
        single = found[cell._replace(method="BayesByBackprop").key]["steps"]
        return {"steps": min(MOST_STEPS, single) if cell.method == "ensemble" else 4 * single}
    if cell.method == "full":
        return {"time_limit": FULL_SECONDS}
    if cell.temperature < 1:
        return {} if cell.method == "settled" else {"steps": COLD_STEPS}
    return {}


def cells(name: str, phase: str) -> Iterator[Cell]:
    """What a phase of the study fits to one data set."""
    if phase == "cold":
        for method, prior in itertools.product(COLD, data.PRIORS):
            yield from (Cell(name, prior, method, 0, t) for t in TEMPERATURES)
        return
    if phase == "settled":
        yield Cell(name, "unit", "settled", 0, 0.1)
        return
    for prior in data.PRIORS:
        if phase == "reference":
            both = DRAWS if prior == "unit" and name in SECOND else ("reference",)
            yield from (Cell(name, prior, method) for method in both)
        elif phase == "methods":
            for method in PLAIN:
                once = name in LARGE and method in ("low_rank", "ensemble")
                yield from (Cell(name, prior, method, i) for i in range(1 if once else data.SPLITS))
            if name in FULL:
                yield Cell(name, prior, "full")
        elif phase == "sampler":
            yield Cell(name, prior, "MCLMC")
        else:
            yield from (Cell(name, prior, method) for method in ("short", "long"))

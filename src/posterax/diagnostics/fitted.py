"""Posteriors without chains: what their record and their data tell, by the kind of method."""

from typing import Any, NamedTuple

import numpy as np

from ..data import Data, unpack
from ..posteriors import Draws, Enumerated, LaplaceGaussian, Posterior, PriorPosterior, Record
from .bound import TAIL, Bound, bound, bound_of, draw_by_draw, has_density, held
from .measures import FEWEST, measure
from .points import measure_points, points_findings
from .variational import SMALL_NETWORK, variational_findings
from .verdict import Finding

EXACT = ("Conjugate", "Enumeration")
NOT_VARIATIONAL = (*EXACT, "SWAG", "Laplace")  # though their posteriors have a density
SAMPLES = 100  # draws of q where data is given
SHOWN = (
    "constant_nll",
    "prior_scale",
    "target_scale",
    "kl_per_active",
    "shift",
    "effective",
    "nll",
)
ALSO = ("centre_nll", "diversity", "pull")


class Judged(NamedTuple):
    """A diagnosis by its parts: what it is of, its numbers, and what they say."""

    heading: str
    numbers: dict[str, float | None]
    said: tuple[Finding, ...]


class Look(NamedTuple):
    """What was seen of a posterior at the end of its fit, or on data that were given."""

    bound: Bound | None
    measures: dict[str, Any]


def is_variational(posterior: Posterior) -> bool:
    """Whether an ELBO was what its fit maximised, as far as is known."""
    method = "" if posterior.record is None else posterior.record.method
    gaussian = has_density(posterior) and not isinstance(
        posterior, LaplaceGaussian | Enumerated | PriorPosterior
    )
    return gaussian and method not in NOT_VARIATIONAL


def look(posterior: Posterior, data: Data, *, samples: int = SAMPLES, key: Any = 0) -> Look:
    """The bound and the measures of a posterior on its rows."""
    if not is_variational(posterior):
        return Look(None, measure_points(posterior, data))
    found, totals = bound(posterior, data, samples=samples, key=key), None
    if samples >= TAIL and posterior.model.bayesian_size <= SMALL_NETWORK:
        totals = draw_by_draw(posterior, data, samples=samples, key=key)
        if totals.effective >= FEWEST:
            found = found._replace(k_hat=bound_of(totals, 1.0).k_hat)
    return Look(found, measure(posterior, data, samples=samples, key=key, totals=totals))


def recorded(record: Record) -> Look:
    """What the record has of it."""
    known = record.settings.get("bound")
    return Look(Bound.of(known) if known else None, record.settings.get("measures") or {})


def judge(posterior: Posterior, data: Any = None) -> Judged:
    """Judge a posterior without chains by its record, and by ``data=(x, y)`` where it is given."""
    record = posterior.record or Record()
    exact = record.method in EXACT or isinstance(posterior, Enumerated)
    if exact or isinstance(posterior, PriorPosterior):
        return Judged(_heading(posterior, record), {}, (_as_it_is(exact),))
    rows, seen = record.settings.get("examples"), recorded(record)
    if data is not None:
        x, y, weight = unpack(data)
        total = float(np.sum(weight))
        if rows is not None and not np.isclose(rows, total):
            raise ValueError(
                f"data: diagnose needs the data of the fit, {rows:g} examples, and got {total:g}"
            )
        rows, seen = total, look(posterior, held(posterior, x, y, weight))
    nothing = posterior.record is None and data is None
    if rows is not None and "examples" not in record.settings:
        record = Record(record.method, record.settings | {"examples": rows}, record.terms)
    if nothing:
        said = [_nothing_known()]
    elif is_variational(posterior):
        said = variational_findings(record, *seen)
    else:
        said = points_findings(posterior, record, seen.measures)
    if record.interrupted:
        said.append(Finding("The fit was interrupted: resume=posterior goes on with it."))
    return Judged(_heading(posterior, record), _numbers(record, seen), tuple(said))


def _as_it_is(exact: bool) -> Finding:
    if exact:
        return Finding("This posterior is exact: nothing was approximated that could be wrong.")
    return Finding("This is the prior: it has seen no data, and there is no fit to judge.")


def _nothing_known() -> Finding:
    return Finding(
        "This posterior has no record of its fit: whether that converged cannot be told. "
        "posterior.diagnose(data=(x, y)) judges its fit to the data."
    )


def _heading(posterior: Posterior, record: Record) -> str:
    steps, rows = (record.settings.get(name) for name in ("steps", "examples"))
    parts = [record.method or type(posterior).__name__]
    if posterior.members or isinstance(posterior, Draws):
        count = posterior.members or int(np.prod(posterior.shape))  # type: ignore[attr-defined]
        parts.append(f"{count} {'particles' if record.method == 'SVGD' else 'members'}")
    parts += [f"{steps:,} steps"] if steps else []
    parts += [f"{rows:,.0f} rows"] if rows else []
    return " · ".join(parts)


def _numbers(record: Record, seen: Look) -> dict[str, float | None]:
    rows, found = record.settings.get("examples"), seen.bound
    numbers: dict[str, float | None] = {}
    if found is not None:
        numbers = {
            "elbo": found.value, "elbo_error": found.error,
            "elbo_per_row": found.value / rows if rows else None,
            "nll": found.nll, "predictive_nll": found.predictive_nll, "kl": found.kl,
            "k_hat": found.k_hat,
        }  # fmt: skip
    for name in (*SHOWN, *ALSO):
        if isinstance(seen.measures.get(name), float):
            numbers[name] = seen.measures[name]
    return numbers

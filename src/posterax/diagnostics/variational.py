"""Variational fits in words: not converged, collapsed, prior against data, poor approximation."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..posteriors import Record
from .bound import Bound
from .climb import Climb, by_doublings, climb, path_of
from .course import SHORTEST, course_of
from .measures import FEWEST
from .verdict import K_HAT, Finding, as_typed, bad

STILL = 0.1  # change of log σ below which the deviations never moved
SMALL_NETWORK = 200  # weights: of larger ones no draw of a hundred counts, and k-hat is lost time
OFF, FEW = 0.05, 0.25  # shares of a layer's units below which it is off, and worth a word
DRIFT, LOST = 0.05, 0.25  # nats a row, and of what was learned, that may be lost again
BELOW = 0.05, 5.0  # nats a row and nats below the constant predictor
GUESSED, MANY = 1.0, 200  # nats a row that known noise costs; with fewer rows true noise may too
FACTOR = 100.0  # between the scale of prior outputs and that of the targets
DEAR = 50.0  # nats of KL for one active weight
FLAT = 0.3  # nats a row that larger logits would gain
SHIFTED = 1.0  # predictive deviations


def variational_findings(
    record: Record, bound: Bound | None, seen: dict[str, Any]
) -> list[Finding]:
    """Everything worth saying, what is wrong first; what causes the rest before the rest.

    Args:
        record: of the fit; an empty one where nothing is known.
        bound: the ELBO at its end.
        seen: what ``measure`` gave.
    """
    rows = float(record.settings.get("examples") or 0)
    said = list(_convergence(record, bound, seen, rows))
    said += _collapse(record, bound, seen)
    open_end = any(finding.serious for finding in said)
    said += _noise(bound, seen, rows, climb_of(record, bound, seen.get("constant_nll")))
    said += _prior(bound, seen, rows, open_end)
    said += _approximation(bound, seen)
    if bound is None:
        said.append(
            Finding(
                "The ELBO was not evaluated at the end of this fit: "
                "posterior.diagnose(data=(x, y)) does so now."
            )
        )
    return sorted(said, key=lambda finding: not finding.serious)


# -- not converged


def climb_of(record: Record, bound: Bound | None = None, constant: float | None = None) -> Climb:
    """How the ELBO of a fit ended; ``constant`` is the NLL a row of a constant prediction."""
    steps = record.settings.get("steps")
    if steps is not None and steps < SHORTEST and "elbo" not in record.reports:
        return Climb("short")
    rows = float(record.settings.get("examples") or 1)
    levels = record.settings.get("levels") or []
    if len(levels) > 1:
        return by_doublings(levels, rows)
    path = path_of(record, 0.0 if bound is None else bound.error)
    if path is None:
        return Climb("unknown")
    start = path.start if constant is None else -rows * constant
    return climb(path.steps, path.values, rows=rows, error=path.error, start=start)


def _convergence(
    record: Record, bound: Bound | None, seen: dict[str, Any], rows: float
) -> Iterator[Finding]:
    open_end = lambda text: bad(text, kind="not converged")  # noqa: E731
    if bound is not None and not math.isfinite(bound.value):
        yield open_end("The ELBO is not finite: lower the learning rate, and standardise x and y.")
        return
    found = climb_of(record, bound, seen.get("constant_nll"))
    steps = int(record.settings.get("steps") or 0)
    if found.state == "short":
        yield open_end(
            f"{steps} steps are too few to tell whether the fit has converged: take {SHORTEST} at "
            "least, and better some thousand (steps=, epochs=)."
        )
    elif found.state == "rising":
        yield open_end(_rising(found, steps, rows))
    elif found.state == "level":
        yield Finding(
            f"The ELBO has settled (about {found.to_go:,.0f} nats are left to gain, of "
            f"{found.tolerance:,.0f} that are allowed)."
        )
    elif record.method:
        ended = (course := course_of(record)) and course.rest()
        if ended and ended.state in ("falling", "rising"):
            yield open_end(f"The training was {ended.words} nats a row: train longer.")
        else:
            yield Finding("The record does not tell whether the ELBO has settled.")
    if _never_moved(record, seen):
        yield open_end(
            "The deviations hardly moved from their start: their rate is too small, or they are "
            "frozen. Raise the learning rate, or train longer."
        )


def _rising(found: Climb, steps: int, rows: float) -> str:
    by = f"{found.last:,.0f} nats" + (f" ({found.last / rows:.2g} a row)" if rows else "")
    if found.steps is None:
        advice = (
            f"no end is in sight: raise the learning rate, or take many times the {steps:,} steps"
        )
    else:
        advice = (
            f"about {found.to_go:,.0f} nats are left to gain, which would take about "
            f"{as_typed(found.steps):,} steps"
        )
    return f"The ELBO still rises, by {by} over the last doubling of the steps; {advice}."


def _never_moved(record: Record, seen: dict[str, Any]) -> bool:
    """Whether the deviations are as they were, although weights are far from the prior."""
    if record.settings.get("steps", 0) < SHORTEST or not (seen.get("kl_per_active") or 0) > 0.5:
        return False
    change = seen.get("sigma_change")
    return change is not None and change < STILL


# -- collapsed


def _collapse(record: Record, bound: Bound | None, seen: dict[str, Any]) -> Iterator[Finding]:
    off = {name: share for name, share in seen.get("active_units", {}).items() if share < FEW}
    constant = seen.get("constant_nll")
    if off:
        name = min(off, key=lambda name: off[name])
        # what still predicts well has more units than it needs, and that is all
        useless = bound is None or constant is None or not bound.predictive_nll < constant - DRIFT
        useless = useless and off[name] < OFF
        yield Finding(
            f"{off[name]:.1%} of the units behind {name} have a weight that the data moved from "
            "the prior: the others are off. "
            + (
                "Start with smaller deviations (initial_rho=-5), warm the KL up (kl_warmup=), or "
                "scale the prior by the fan-in: px.priors.Gaussian(1.0, fan_in=True)."
                if useless
                else "The best independent Gaussians are often so. A narrower network would do as "
                "well, and a sampler (px.MCLMC) may predict better."
            ),
            serious=useless,
            kind="collapsed",
        )
    if "predictive_nll" in record.reports:
        path = np.asarray(record.reports["predictive_nll"][1], np.float64)
        best = float(np.nanmin(path))
        lost = float(path[-1]) - best
        # deviations that grow to what the data allow cost a little too
        learned = 1.0 if constant is None else constant - best
        if lost > max(DRIFT, LOST * learned):
            yield bad(
                f"The predictions on the training rows were {lost:.2f} nats a row better on the "
                "way than at the end: the KL pulled q back to the prior. Use a prior closer to "
                "the data (fan_in=True), or a narrower network.",
                kind="collapsed",
            )


# -- prior against data


def _noise(
    bound: Bound | None, seen: dict[str, Any], rows: float, found: Climb
) -> Iterator[Finding]:
    """Known noise that the weights have to make up for, or cannot."""
    free = seen.get("free_noise_nll")
    if bound is None or free is None or not rows >= MANY:
        return
    short = -free - bound.value / rows
    follows = bound.nll < free
    # what errors cost that a longer fit would take away is not the noise's fault
    to_go = {"level": 0.0, "rising": found.to_go if found.steps else math.inf}
    left = 0.0 if follows else to_go.get(found.state, math.inf) / rows
    if short <= GUESSED * seen["outputs"] + 2 * left:
        return
    why = (
        "the weights follow what may be noise, and new rows will lie far outside of the intervals"
        if follows
        else "the targets lie further from the predictions than this noise allows"
    )
    yield bad(
        f"The known noise is {seen['noise_share']:.2g} of the deviation of the targets, and with "
        f"it the ELBO is {short:.1f} nats a row below that of a constant prediction with noise of "
        f"its own: {why}. If this noise is a guess, let it be learned: noise='learned'.",
        kind="prior against data",
    )


def _prior(
    bound: Bound | None, seen: dict[str, Any], rows: float, open_end: bool
) -> Iterator[Finding]:
    against = lambda text: bad(text, kind="prior against data")  # noqa: E731
    scale, aim = seen.get("prior_scale"), seen.get("target_scale")
    if scale and aim:
        ratio = scale / aim
        what = (
            f"Under the prior the outputs have a scale of {scale:.2g}, and what they have to reach "
            f"one of {aim:.2g}"
        )
        advice = (
            "take a prior that is " + ("narrower" if ratio > 1 else "wider")
            + ", scaled by the fan-in: px.priors.Gaussian(1.0, fan_in=True), and standardise x, y"
        )  # fmt: skip
        # logits may be large where layers are wide; deviations beyond all layers' widths may not
        wide = seen.get("prior_gain") is None or seen["prior_gain"] > FACTOR
        if ratio < 1 / FACTOR or (ratio > FACTOR and (wide or not seen.get("classes"))):
            yield against(f"{what}: {advice}.")
        elif not 1 / FACTOR < ratio < FACTOR:
            yield Finding(f"{what}; if predictions disappoint, {advice}.")
    flat = seen.get("flat")
    if flat is not None and flat > FLAT and not open_end:
        yield against(
            f"The class probabilities are too flat for the rows of the fit: logits several times "
            f"as large would gain {flat:.2f} nats a row. The prior holds them back: take a wider "
            "one (px.priors.Gaussian(1.0) without fan_in), or standardise x."
        )
    dear = seen.get("kl_per_active")
    if dear is not None and dear > DEAR:
        yield against(
            f"The weights that the data moved cost {dear:,.0f} nats each: the prior thinks them "
            "all but impossible. Take a wider prior, or standardise x and y."
        )
    constant = seen.get("constant_nll")
    if bound is None or constant is None or not rows or open_end:
        return
    short = -constant * rows - bound.value
    if short > BELOW[0] * rows + BELOW[1] + 3 * bound.error:
        yield against(
            f"The ELBO is {short:,.0f} nats below that of a constant prediction: this prior and "
            "network explain the data worse than their mean or class shares do. Take a smaller "
            "network, or a prior closer to the data (fan_in=True)."
        )


# -- poor approximation


def _approximation(bound: Bound | None, seen: dict[str, Any]) -> Iterator[Finding]:
    shift = seen.get("shift")
    if shift is not None and shift > SHIFTED:
        yield bad(
            f"Importance weights move the predictions by {shift:.1f} predictive deviations: q is "
            "not close to the posterior. Use a richer family (family='full'), or px.NUTS.",
            kind="poor approximation",
        )
    count, k_hat = seen.get("effective"), math.nan if bound is None else bound.k_hat
    if k_hat > K_HAT or (count is not None and count < FEWEST):
        by = f"k-hat {k_hat:.1f}"
        if not k_hat > K_HAT:
            by = f"by importance weights {count:.1f} of its draws count"
        yield Finding(
            f"q is not the posterior itself ({by}), as nearly always with networks: the ELBO is a "
            "bound, and spreads are those of q."
        )

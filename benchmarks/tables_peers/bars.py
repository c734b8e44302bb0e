"""The bars of the comparison: what the defaults are asked to reach, as PASS or MISS."""

from typing import NamedTuple

import numpy as np

from benchmarks.tables_peers.summary import OURS, Group

NEAR, MOST_NEAR = 0.05, 0.75  # error: within so much of the best, on so many sets
WORST = 0.15  # and nowhere so much worse beyond two paired standard errors
MOST_BEST = 0.80  # sets with the best score
MEAN_COVERAGE, EACH_COVERAGE, COVERAGE_ROWS = (0.87, 0.93), (0.84, 0.96), 300


class Bar(NamedTuple):
    """One of them."""

    passed: bool
    text: str

    def __str__(self) -> str:
        return f"**{'PASS' if self.passed else 'MISS'}** {self.text}"


def near_the_best(found: list[Group]) -> Bar:
    """The error is close to the best nearly everywhere."""
    far = {}
    for group in found:
        best = group.best("error")
        ours, other = group.value(OURS, "error").mean, group.value(best, "error").mean
        if ours > (1 + NEAR) * other:
            far[group.name] = f"{group.name} {_over(ours, other)} ({best})"
    share = 1 - len(far) / len(found)
    text = (
        f"error within {NEAR:.0%} of the best on {len(found) - len(far)} of {len(found)} sets "
        f"({share:.0%}; asked {MOST_NEAR:.0%}){_but(far)}"
    )
    return Bar(share >= MOST_NEAR, text)


def nowhere_far(found: list[Group]) -> Bar:
    """The error is nowhere much worse than the best."""
    far = {}
    for group in found:
        best = group.best("error")
        apart, least = group.difference(OURS, best, "error"), group.value(best, "error").mean
        if apart.mean - 2 * np.nan_to_num(apart.error) > WORST * least:
            far[group.name] = f"{group.name} {_over(apart.mean + least, least)} ({best})"
    text = f"error nowhere more than {WORST:.0%} worse beyond two paired standard errors; it is on "
    return Bar(not far, f"{text}{len(far)} of {len(found)} sets{_but(far)}")


def best_on_most(found: list[Group], what: str, label: str) -> Bar:
    """The lowest score on most sets; those where it is not told apart are counted beside."""
    best, tied, lost = 0, 0, {}
    for group in found:
        who = group.best(what)
        if group.value(OURS, what).mean <= group.value(who, what).mean:
            best += 1
            continue
        apart = group.difference(OURS, who, what)
        tied += apart.mean <= 2 * np.nan_to_num(apart.error)
        after = "" if np.isnan(apart.error) else f" ± {2 * apart.error:.2g}"
        lost[group.name] = f"{group.name} {apart.mean:+.3g}{after} ({who})"
    text = (
        f"best {label} on {best} of {len(found)} sets ({best / len(found):.0%}; asked "
        f"{MOST_BEST:.0%}; within two paired standard errors of the best on {best + tied})"
    )
    return Bar(best >= MOST_BEST * len(found), text + _but(lost))


def coverage(found: list[Group]) -> list[Bar]:
    """The 90 % intervals hold 90 %."""
    inside = {group.name: group.pooled(OURS) for group in found}
    mean, (low, high) = float(np.mean([*inside.values()])), MEAN_COVERAGE
    first = Bar(
        low <= mean <= high,
        f"90 % intervals hold {mean:.1%} in the mean over sets (asked {low:.0%} to {high:.0%})",
    )
    low, high = EACH_COVERAGE
    many = {group.name for group in found if group.test_rows >= COVERAGE_ROWS}
    out = {n: f"{n} {v:.1%}" for n, v in inside.items() if n in many and not low <= v <= high}
    text = (
        f"between {low:.0%} and {high:.0%} on {len(many) - len(out)} of the {len(many)} sets with "
        f"{COVERAGE_ROWS} test rows"
    )
    return [first, Bar(not out, text + _but(out))]


def all_bars(regression: list[Group], classes: list[Group]) -> dict[str, list[Bar]]:
    """By task, of the sets that posterax ran on beside others."""
    values = [g for g in regression if OURS in g.lines and len(g.rivals()) > 1]
    labels = [g for g in classes if OURS in g.lines and len(g.rivals()) > 1]
    found: dict[str, list[Bar]] = {}
    if values:
        scores = [best_on_most(values, w, n) for w, n in (("nll", "NLL"), ("crps", "CRPS"))]
        errors = [near_the_best(values), nowhere_far(values)]
        found["Regression"] = [*errors, *scores, *coverage(values)]
    if labels:
        scores = [
            best_on_most(labels, w, n)
            for w, n in (("nll", "NLL"), ("calibration", "calibration error"))
        ]
        found["Classification"] = [near_the_best(labels), nowhere_far(labels), *scores]
    return found


def _over(ours: float, best: float) -> str:
    return f"+{ours / best - 1:.0%}" if best else f"{ours:.2g} against 0"


def _but(what: dict[str, str]) -> str:
    return f": {', '.join(what.values())}" if what else ""

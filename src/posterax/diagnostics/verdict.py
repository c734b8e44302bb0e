"""A diagnosis in words: what was found, how serious it is, what to do; and as a page of text."""

import math
import textwrap
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .._util.text import in_columns

if TYPE_CHECKING:
    from .diagnosis import Diagnosis, Space

GOOD, NEAR = 1.01, 1.05  # R-hat: agreement, and what a longer run may still mend
ESS_PER_CHAIN = 100  # effective draws that R-hat itself needs (Vehtari et al. 2021)
DIVERGENT = 1e-3  # share of divergent transitions that is no longer negligible
LOW_ENERGY = 0.3  # E-BFMI (Betancourt 2016)
ESS_PARTS = ("bulk_min", "bulk_median", "tail_min", "tail_median")
K_HAT = 0.7  # above it importance weights have no useful variance


class Finding(NamedTuple):
    """A sentence or two of the verdict; ``serious`` where the draws should not be used as is.

    ``kind`` is one of "not converged", "collapsed", "prior against data", "poor approximation".
    """

    text: str
    serious: bool = False
    kind: str = "not converged"


bad = partial(Finding, serious=True)


def findings(d: "Diagnosis") -> list[Finding]:
    """Everything worth saying, the most important first."""
    if d.said is not None:
        return list(d.said)
    if d.weights is None:
        return [_weighted(d)]
    if len(d.frozen) == d.chains:
        return [
            bad(
                f"No chain ever moved: all {d.draws:,} draws of each are the same point, so these "
                "draws say nothing about the posterior. Take smaller steps or a longer warmup, "
                "start near a mode with init=px.fit(…, px.MaximumAPosteriori()), and check the "
                "scale of the data and of the noise."
            )
        ]
    space = d.predictions or d.weights
    said = [*_moves(d), *_agreement(d, d.weights, space), *_trajectories(d)]
    # what is wrong comes first; among equals the order above stays
    return sorted(said, key=lambda finding: not finding.serious)


def _weighted(d: "Diagnosis") -> Finding:
    assert d.ess is not None
    assert d.k_hat is not None
    total = d.chains * d.draws
    # fewer weights need a lighter tail (Vehtari et al. 2024)
    limit = min(1 - 1 / math.log10(max(total, 11)), K_HAT)
    worth = f"{total:,} weighted draws are worth {d.ess:,.0f} equal ones"
    if d.k_hat > limit:
        return bad(
            f"{worth}, and their weights have too heavy a tail for averages to settle (k-hat "
            f"{d.k_hat:.2f}, above {limit:.2f}): a few draws decide everything. Draw from a "
            "proposal closer to the posterior, or use px.NUTS or px.MCLMC.",
            kind="poor approximation",
        )
    if d.ess < ESS_PER_CHAIN:
        steps = as_typed(d.draws * ESS_PER_CHAIN / max(d.ess, 1))
        return bad(
            f"{worth}, which is too few: take more (steps={steps}), or draw from a proposal "
            "closer to the posterior.",
            kind="poor approximation",
        )
    tail = "" if math.isnan(d.k_hat) else f", and their tail is harmless (k-hat {d.k_hat:.2f})"
    return Finding(f"{worth}{tail}.")


def _moves(d: "Diagnosis") -> Iterator[Finding]:
    """Chains that stay where they are, and steps that went astray."""
    if d.frozen:
        yield bad(
            f"{len(d.frozen)} of {d.chains} chains never moved (number "
            f"{', '.join(map(str, d.frozen))}, from 0): start elsewhere with init=, or take a "
            "longer warmup."
        )
    if d.divergences:
        share = d.divergences / (d.chains * d.draws)
        many = f"{d.divergences} divergence{'s'[: d.divergences > 1]} ({share:.1%} of transitions)"
        raised = "Raise target_acceptance (0.95, then 0.99)"
        if share <= DIVERGENT:
            yield Finding(f"{many}: too few to matter, unless they grow with the number of steps.")
        else:
            yield bad(
                f"{many}: the chains avoid places where the posterior curves strongly, and are "
                f"biased there. {'Lower energy_error tenfold' if d.acceptance is None else raised} "
                "or take a longer warmup."
            )


def _agreement(d: "Diagnosis", weights: "Space", space: "Space") -> Iterator[Finding]:
    """Whether chains agree: on predictions where there are some, or else on weights."""
    name = "weights" if d.predictions is None else "predictions"
    worst = space.worst
    if worst is None:
        yield bad(f"The {name} are the same in every draw of every chain.")
        return
    if d.chains == 1:
        yield bad("One chain alone cannot show that it missed a mode: run several (chains=4).")
    value, longer = space.rhat[worst], _longer(d, space)
    up_to = f"R-hat {_show(value)} at {space.names[worst]}"
    agree = f"The {'chains' if d.chains > 1 else 'parts of the chain'} agree on the {name}"
    if value <= GOOD:
        yield Finding(f"{agree} (R-hat at most {_show(value)}).")
    elif value <= NEAR:
        yield bad(f"{agree} only nearly ({up_to}): {longer}.")
    elif d.predictions is None:
        yield bad(
            f"The chains disagree on the weights ({up_to}). For a network that may be harmless, "
            "since hidden units can change places without any change in the function: see whether "
            "the predictions agree with posterior.diagnose(x)."
        )
    else:
        start = f"Take a longer warmup, {longer}, or start from init=px.fit(…, px.DeepEnsemble())"
        yield bad(
            f"The chains disagree on the predictions ({up_to}): they sit in different modes, or "
            "were still on their way when the draws began. "
            f"{longer.capitalize() if d.method == 'SMC' else start}."
        )
    if d.predictions is None and value <= NEAR:
        yield Finding("posterior.diagnose(x) compares the predictions at inputs x too.")
    elif value <= GOOD and weights.worst is not None and np.nanmax(weights.rhat) > GOOD:
        yield Finding(
            f"They do not agree on the weights (R-hat up to {_show(np.nanmax(weights.rhat))}), "
            "which is expected: hidden units can change places and signs without any change in "
            "the function."
        )
    if value <= GOOD and space.ess < ESS_PER_CHAIN * d.chains:
        yield bad(
            f"As few as {space.ess:,.0f} effective draws of {d.chains * d.draws:,}: for reliable "
            f"averages take at least {ESS_PER_CHAIN} a chain: {longer}."
        )


def _trajectories(d: "Diagnosis") -> Iterator[Finding]:
    """What Hamiltonian samplers report: the spread of their energy, and how far they went."""
    energy = np.zeros(0) if d.energy is None else d.energy
    low = np.flatnonzero(energy < LOW_ENERGY).tolist()
    if low:
        yield bad(
            f"The energy of chain{'s'[: len(low) > 1]} {', '.join(map(str, low))} changes too "
            f"little from draw to draw (E-BFMI {energy.min():.2f}, below {LOW_ENERGY}): the "
            "tails are explored slowly; take a longer warmup, or a prior with lighter tails."
        )
    if d.depth_hits:
        yield Finding(
            f"{d.depth_hits / (d.chains * d.draws):.0%} of trajectories were cut off at their "
            "largest length, which is slow but not wrong: raise max_doublings, or take a longer "
            "warmup."
        )


def _longer(d: "Diagnosis", space: "Space") -> str:
    """What to do about too few draws, in the arguments that the method has."""
    if d.method == "SMC":
        return "take more particles, or more mutation_steps for each"
    # steps that would give the effective draws wanted: twice to ten times those taken
    wanted = ESS_PER_CHAIN * d.chains / max(space.ess, 1.0)
    steps = as_typed((d.steps or d.draws) * min(max(wanted, 2.0), 10.0))
    also = f" and keep more draws (keep={2 * d.draws})" if d.method in ("SGLD", "SGHMC") else ""
    return f"run longer (steps={steps}){also}"


# -- numbers


def as_typed(steps: float) -> int:
    """Up to two digits, as one would type it."""
    size = 10 ** max(math.floor(math.log10(max(steps, 1))) - 1, 0)
    return int(math.ceil(steps / size) * size)


def _number(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"


def _show(rhat: float) -> str:
    if not np.isfinite(rhat):
        return "∞"
    return f"{rhat:.3f}" if rhat < 1.1 else f"{rhat:.2f}"


# -- the page


def page(d: "Diagnosis") -> str:
    """Heading, table, sampler statistics, verdict."""
    verdict = textwrap.fill(d.verdict, 96, break_long_words=False, break_on_hyphens=False)
    if d.said is not None:
        lines = in_columns([(name, _number(value)) for name, value in d.numbers.items()] or [("",)])
        return "\n".join([d.heading, "", *(*lines, "") * bool(d.numbers), verdict])
    heading = f"{d.chains} chain{'s'[: d.chains > 1]} × {d.draws:,} draws"
    if d.weights is None:
        numbers = f"effective draws {d.ess:,.1f} · k-hat {d.k_hat:.2f}"
        return "\n".join([heading, "", numbers, "", verdict])
    both = {"weights": d.weights, "predictions": d.predictions}
    spaces = {name: space for name, space in both.items() if space is not None}
    rows: list[tuple[str, ...]] = [
        ("", "R-hat", "", "", "bulk ESS", "", "tail ESS", "", ""),
        ("", "worst", "median", "> 1.01", "least", "median", "least", "median", "worst at"),
        *((name, *_cells(space)) for name, space in spaces.items()),
    ]
    cells = in_columns([row[:-1] for row in rows])
    table = [f"{line}  {row[-1]}".rstrip() for line, row in zip(cells, rows, strict=True)]
    # where the table does not show everything, it says so
    notes = [f"{name}: {note}" for name, space in spaces.items() if (note := _note(space))]
    return "\n".join([heading, "", *table, *notes, *_sampler(d), "", verdict])


def _cells(space: "Space") -> tuple[str, ...]:
    numbers = space.to_dict()
    if numbers["worst"] is None:
        return ("–",) * 7 + ("nothing changes",)
    return (
        _show(numbers["rhat_max"]), _show(numbers["rhat_median"]),
        f"{numbers['rhat_above_1.01']:.0%}",
        *(f"{numbers[f'ess_{part}']:,.0f}" for part in ESS_PARTS), numbers["worst"],
    )  # fmt: skip


def _note(space: "Space") -> str:
    parts = []
    if len(space.names) < space.total:
        parts.append(f"{len(space.names):,} of {space.total:,}, evenly chosen")
    still = int((~space.moving).sum())
    if 0 < still < len(space.names):
        parts.append(f"{still:,} never change and are left out")
    return "; ".join(parts)


def _sampler(d: "Diagnosis") -> list[str]:
    parts = []
    if d.divergences is not None:
        parts.append(f"divergences {d.divergences:,} of {d.chains * d.draws:,}")
    if d.acceptance is not None:
        parts.append(f"acceptance {d.acceptance:.2f}")
    if d.energy is not None:
        parts.append("E-BFMI " + " ".join(f"{value:.2f}" for value in d.energy))
    if d.depth_hits is not None:
        parts.append(f"longest trajectories {d.depth_hits:,}")
    return ["", " · ".join(parts)] if parts else []

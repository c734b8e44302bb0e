"""A diagnosis in words: what was found, how serious it is, what to do; and as a page of text."""

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from .diagnosis import Diagnosis, Space

GOOD, NEAR = 1.01, 1.05  # R-hat: agreement, and what a longer run may still mend
ESS_PER_CHAIN = 100  # effective draws that R-hat itself needs (Vehtari et al. 2021)
DIVERGENT = 1e-3  # share of divergent transitions that is no longer negligible
LOW_ENERGY = 0.3  # E-BFMI (Betancourt 2016)
K_HAT = 0.7  # above it importance weights have no useful variance


class Finding(NamedTuple):
    """A sentence or two of the verdict; ``serious`` where the draws should not be used as is."""

    text: str
    serious: bool = False


def findings(d: "Diagnosis") -> list[Finding]:
    """Everything worth saying, the most important first."""
    if d.weights is None:
        return [_weighted(d)]
    if len(d.frozen) == d.chains:
        return [
            Finding(
                f"No chain ever moved: all {d.draws:,} draws of each are the same point, so these "
                "draws say nothing about the posterior. Take smaller steps or a longer warmup, "
                "start near a mode with init=px.fit(…, px.MaximumAPosteriori()), and check the "
                "scale of the data and of the noise.",
                serious=True,
            )
        ]
    found = []
    if d.frozen:
        which = ", ".join(map(str, d.frozen))
        found.append(
            Finding(
                f"{len(d.frozen)} of {d.chains} chains never moved (number {which}, from 0): "
                "start elsewhere with init=, or take a longer warmup.",
                serious=True,
            )
        )
    found += [_divergences(d)] if d.divergences else []
    found += _agreement(d)
    found += [*_few_draws(d), *_energy(d), *_depth(d)]
    # what is wrong comes first; among equals the order above stays
    return sorted(found, key=lambda finding: not finding.serious)


def _weighted(d: "Diagnosis") -> Finding:
    assert d.ess is not None
    assert d.k_hat is not None
    total = d.chains * d.draws
    # fewer weights need a lighter tail (Vehtari et al. 2024)
    limit = min(1 - 1 / math.log10(max(total, 11)), K_HAT)
    worth = f"{total:,} weighted draws are worth {d.ess:,.0f} equal ones"
    if d.k_hat > limit:
        return Finding(
            f"{worth}, and their weights have too heavy a tail for averages to settle (k-hat "
            f"{d.k_hat:.2f}, above {limit:.2f}): a few draws decide everything. Draw from a "
            "proposal closer to the posterior, or use px.NUTS or px.MCLMC.",
            serious=True,
        )
    if d.ess < ESS_PER_CHAIN:
        steps = _rounded(d.draws * ESS_PER_CHAIN / max(d.ess, 1))
        return Finding(
            f"{worth}, which is too few: take more (steps={steps}), or draw from a proposal "
            "closer to the posterior.",
            serious=True,
        )
    tail = "" if math.isnan(d.k_hat) else f", and their tail is harmless (k-hat {d.k_hat:.2f})"
    return Finding(f"{worth}{tail}.")


def _divergences(d: "Diagnosis") -> Finding:
    assert d.divergences is not None
    share = d.divergences / (d.chains * d.draws)
    many = f"{d.divergences} divergence{'s'[: d.divergences > 1]} ({share:.1%} of transitions)"
    if share <= DIVERGENT:
        return Finding(f"{many}: too few to matter, unless they grow with the number of steps.")
    return Finding(
        f"{many}: the chains avoid places where the posterior curves strongly, and are biased "
        f"there. {'Lower energy_error' if d.acceptance is None else 'Raise target_acceptance'} "
        f"({'tenfold' if d.acceptance is None else '0.95, then 0.99'}) or take a longer warmup.",
        serious=True,
    )


def _agreement(d: "Diagnosis") -> list[Finding]:
    assert d.weights is not None
    space, name = (
        (d.weights, "weights") if d.predictions is None else (d.predictions, "predictions")
    )
    worst = space.worst
    if worst is None:
        return [Finding(f"The {name} are the same in every draw of every chain.", serious=True)]
    found = [_one_chain()] if d.chains == 1 else []
    value = space.rhat[worst]
    up_to = f"R-hat {_show(value)} at {space.names[worst]}"
    what = "chains agree" if d.chains > 1 else "parts of the chain agree"
    if value <= GOOD:
        found.append(Finding(f"The {what} on the {name} (R-hat at most {_show(value)})."))
    elif value <= NEAR:
        found.append(
            Finding(
                f"The {what} on the {name} only nearly ({up_to}): {_longer(d, space)}.",
                serious=True,
            )
        )
    elif d.predictions is None:
        found.append(
            Finding(
                f"The chains disagree on the weights ({up_to}). For a network that may be "
                "harmless, since hidden units can change places without any change in the "
                "function: see whether the predictions agree with posterior.diagnose(x).",
                serious=True,
            )
        )
    else:
        found.append(
            Finding(
                f"The chains disagree on the predictions ({up_to}): they sit in different modes, "
                f"or were still on their way when the draws began. {_elsewhere(d, space)}.",
                serious=True,
            )
        )
    if d.predictions is not None and value <= GOOD:
        found += _weights_apart(d)
    elif d.predictions is None and value <= NEAR:
        found.append(Finding("posterior.diagnose(x) compares the predictions at inputs x too."))
    return found


def _one_chain() -> Finding:
    return Finding(
        "One chain alone cannot show that it missed a mode: run several (chains=4).", serious=True
    )


def _weights_apart(d: "Diagnosis") -> list[Finding]:
    assert d.weights is not None
    worst = d.weights.worst
    if worst is None or d.weights.rhat[worst] <= GOOD:
        return []
    return [
        Finding(
            f"They do not agree on the weights (R-hat up to {_show(d.weights.rhat[worst])}), which "
            "is expected: hidden units can change places and signs without any change in the "
            "function."
        )
    ]


def _few_draws(d: "Diagnosis") -> list[Finding]:
    space = d.predictions or d.weights
    assert space is not None
    worst = space.worst
    # chains that do not agree have been told to run longer already
    if worst is None or space.rhat[worst] > GOOD or space.ess >= ESS_PER_CHAIN * d.chains:
        return []
    return [
        Finding(
            f"As few as {space.ess:,.0f} effective draws of {d.chains * d.draws:,}: for reliable "
            f"averages take at least {ESS_PER_CHAIN} a chain: {_longer(d, space)}.",
            serious=True,
        )
    ]


def _energy(d: "Diagnosis") -> list[Finding]:
    if d.energy is None or float(np.min(d.energy)) >= LOW_ENERGY:
        return []
    low = [str(i) for i in np.flatnonzero(d.energy < LOW_ENERGY)]
    return [
        Finding(
            f"The energy of chain{'s'[: len(low) > 1]} {', '.join(low)} changes too little from "
            f"draw to draw (E-BFMI {np.min(d.energy):.2f}, below {LOW_ENERGY}): the tails are "
            "explored slowly; take a longer warmup, or a prior with lighter tails.",
            serious=True,
        )
    ]


def _depth(d: "Diagnosis") -> list[Finding]:
    if not d.depth_hits:
        return []
    share = d.depth_hits / (d.chains * d.draws)
    return [
        Finding(
            f"{share:.0%} of trajectories were cut off at their largest length, which is slow but "
            "not wrong: raise max_doublings, or take a longer warmup."
        )
    ]


# -- advice, in the arguments that the method has


def _longer(d: "Diagnosis", space: "Space") -> str:
    if d.method == "SMC":
        return "take more particles, or more mutation_steps for each"
    if d.method in ("SGLD", "SGHMC"):
        return f"run longer (steps={_more(d, space)}) and keep more draws (keep={2 * d.draws})"
    return f"run longer (steps={_more(d, space)})"


def _elsewhere(d: "Diagnosis", space: "Space") -> str:
    longer = _longer(d, space)
    if d.method == "SMC":
        return longer.capitalize()
    return f"Take a longer warmup, {longer}, or start from init=px.fit(…, px.DeepEnsemble())"


# -- numbers


def _more(d: "Diagnosis", space: "Space") -> int:
    """Steps that would give the effective draws wanted: twice to ten times those taken."""
    wanted = ESS_PER_CHAIN * d.chains / max(space.ess, 1.0)
    return _rounded((d.steps or d.draws) * min(max(wanted, 2.0), 10.0))


def _rounded(steps: float) -> int:
    """Up to two digits, as one would type it."""
    size = 10 ** max(math.floor(math.log10(max(steps, 1))) - 1, 0)
    return int(math.ceil(steps / size) * size)


def _show(rhat: float) -> str:
    if not np.isfinite(rhat):
        return "∞"
    return f"{rhat:.3f}" if rhat < 1.1 else f"{rhat:.2f}"


# -- the page


def page(d: "Diagnosis") -> str:
    """Heading, table, sampler statistics, verdict."""
    verdict = _wrapped(d.verdict)
    heading = f"{d.chains} chain{'s'[: d.chains > 1]} × {d.draws:,} draws"
    if d.weights is None:
        return "\n".join(
            [heading, "", f"effective draws {d.ess:,.1f} · k-hat {d.k_hat:.2f}", "", verdict]
        )
    rows: list[tuple[str, ...]] = [
        ("", "R-hat", "", "", "bulk ESS", "", "tail ESS", "", ""),
        ("", "worst", "median", "> 1.01", "least", "median", "least", "median", "worst at"),
    ]
    for name, space in (("weights", d.weights), ("predictions", d.predictions)):
        if space is not None:
            rows.append((name, *_cells(space)))
    widths = [max(len(row[i]) for row in rows) for i in range(8)]
    lines = []
    for row in rows:
        cells = [f"{row[0]:<{widths[0]}}"]
        cells += [f"{cell:>{width}}" for cell, width in zip(row[1:8], widths[1:], strict=True)]
        lines.append("  ".join([*cells, row[8]]).rstrip())
    # where the table does not show everything, it says so
    notes = [
        f"{name}: {note}"
        for name, space in (("weights", d.weights), ("predictions", d.predictions))
        if space is not None and (note := _note(space))
    ]
    return "\n".join([heading, "", *lines, *notes, *_sampler(d), "", verdict])


def _cells(space: "Space") -> tuple[str, ...]:
    told = space.to_dict()
    if told["worst"] is None:
        return ("–",) * 7 + ("nothing changes",)
    return (
        _show(told["rhat_max"]), _show(told["rhat_median"]), f"{told['rhat_above_1.01']:.0%}",
        f"{told['ess_bulk_min']:,.0f}", f"{told['ess_bulk_median']:,.0f}",
        f"{told['ess_tail_min']:,.0f}", f"{told['ess_tail_median']:,.0f}", told["worst"],
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
    total = d.chains * d.draws
    parts = []
    if d.divergences is not None:
        parts.append(f"divergences {d.divergences:,} of {total:,}")
    if d.acceptance is not None:
        parts.append(f"acceptance {d.acceptance:.2f}")
    if d.energy is not None:
        parts.append("E-BFMI " + " ".join(f"{value:.2f}" for value in d.energy))
    if d.depth_hits is not None:
        parts.append(f"longest trajectories {d.depth_hits:,}")
    return ["", " · ".join(parts)] if parts else []


def _wrapped(text: str) -> str:
    import textwrap

    return textwrap.fill(text, 96, break_long_words=False, break_on_hyphens=False)

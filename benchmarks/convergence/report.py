"""``python -m benchmarks.convergence.report``: docs/results/convergence.md and its figure.

Everything is read from ``benchmarks/results/convergence*.json``.
"""

import json
import math
import re
from typing import Any

from benchmarks.convergence import problems, summary
from benchmarks.convergence.cells import RESULTS, ROOT
from benchmarks.convergence.figure import draw
from benchmarks.convergence.words import BOLD, HEAD, HOW, RACE
from posterax._util.writing import write_file

PAGE = ROOT / "docs/results/convergence.md"
FIGURE = PAGE.with_suffix(".png")
INDEX = ROOT / "docs/results/index.md"
FACTS = RESULTS / "problems-convergence.json"
LINE = "| [Time to the posterior](convergence.md) | {} |"
TO_COME = "how far the defaults are from the best known ELBO, and after how many seconds: to come"


# -- numbers of the problems, which need the data


def facts() -> dict[str, Any]:
    """Rows, weights and the constant predictor of each problem; kept beside the results."""
    known = json.loads(FACTS.read_text()) if FACTS.exists() else {}
    for name in problems.NAMES:
        if name not in known:
            problem = problems.problem(name)
            known[name] = {
                "rows": problem.rows,
                "weights": problem.model(0).bayesian_size,
                "constant": problems.constant(problem),
            }
    if "exact" not in known["linear"]:
        from benchmarks.convergence import elbo

        known["linear"]["exact"] = elbo.evaluate("linear", *elbo.exact_linear())["per_row"]
    return known


# -- words


def budget(settings: dict[str, Any]) -> str:
    """A budget in words."""
    if "steps" in settings:
        return f"{settings['steps']:,} steps"
    return ", ".join(f"`{k}={json.dumps(v)}`" for k, v in settings.items()) or "nothing set"


def named(group: summary.Group | None) -> str:
    """A setting in words."""
    if group is None:
        return "–"
    own = {k: v for k, v in group.settings.items() if k != "limit"}
    words = ", ".join(f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in own.items())
    return f"{group.contender} ({words})".replace("learning_rate", "rate").replace("_", " ")


def seconds(value: float) -> str:
    """Two digits."""
    return f"{float(f'{value:.2g}'):g} s" if math.isfinite(value) else "–"


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A table of Markdown, the first column words."""
    lines = ["| " + " | ".join(heads) + " |", "| --- |" + " ---: |" * (len(heads) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def references(found: list[summary.Group], about: dict[str, Any]) -> str:
    """The best known ELBO of each problem."""
    rows = []
    for name in problems.NAMES:
        best = summary.reference(summary.of(found, name))
        fact = about[name]
        cells = [name, f"{fact['rows']:,}", f"{fact['weights']:,}", f"{fact['constant']:.3f}"]
        if best is None:
            rows.append([*cells, "–", "–", "–"])
            continue
        error = best.cells[0]["points"][-1]["error_per_row"]
        value = f"{best.median:.4f} ± {error:.4f}"
        rows.append([*cells, value, str(len(best.cells)), named(best)])
    heads = ["problem", "rows", "weights", "constant predictor", "best ELBO a row", "seeds", "by"]
    return table(heads, rows)


def defaults(found: list[summary.Group], about: dict[str, Any], method: str, prior: str) -> str:
    """Median and lowest ELBO of a method's defaults, a column for each budget."""
    mine = [g for g in found if (g.contender, g.prior, g.default) == (method, prior, True)]
    budgets = sorted({budget(g.settings) for g in mine}, key=lambda b: (len(b), b))
    rows = []
    for name in problems.NAMES:
        best = summary.reference(summary.of(found, name, prior))
        here = {budget(g.settings): g for g in mine if g.problem == name}
        if best is None or not here:
            continue
        near = summary.tolerance(best.median, about[name]["constant"])
        row = [name, f"{best.median:.3f}", f"{near:.3f}"]
        for words in budgets:
            group = here.get(words)
            row.append("–" if group is None else told(group, best.median, about[name]["constant"]))
        rows.append(row)
    return table(["problem", "reference", "tolerance", *budgets], rows)


def told(group: summary.Group, best: float, constant: float) -> str:
    """A setting's ELBO; bold where every seed arrived."""
    words = f"{group.median:.3f} (lowest {min(group.last):.3f}, {seconds(group.seconds)})"
    return f"**{words}**" if summary.arrived(group, best, constant) else words


def races(found: list[summary.Group]) -> tuple[str, list[summary.Race]]:
    """Seconds to within 0.1 nats a row of the best."""
    runs = [run for name in problems.NAMES if (run := summary.race(found, name))]
    rows = [
        [
            run.problem, seconds(run.default[0]), named(run.default[1]), seconds(run.tuned[0]),
            seconds(run.peer[0]) if run.peers else "not run", named(run.peer[1]),
            "–" if run.ratio is None else f"{run.ratio:.2f} ×",
        ]
        for run in runs
    ]  # fmt: skip
    heads = [
        "problem", "posterax, defaults", "budget", "posterax, any setting", "fastest other", "by",
        "ratio to defaults",
    ]  # fmt: skip
    return table(heads, rows), runs


def alone(runs: list[summary.Race]) -> str:
    """Where a ratio is missing, and who is the reason."""
    groups: dict[str, list[str]] = {}
    for run in runs:
        ours, theirs = math.isfinite(run.default[0]), math.isfinite(run.peer[0])
        if not run.peers:
            groups.setdefault("no other library was run", []).append(run.problem)
        elif not (ours and theirs):
            who = "only posterax's defaults" if ours else "only another library"
            groups.setdefault(who if ours or theirs else "neither", []).append(run.problem)
    words = [f"{who}: {', '.join(names)}" for who, names in groups.items()]
    return f"Who comes there, where not both do: {'; '.join(words)}." if words else ""


def headline(found: list[summary.Group], about: dict[str, Any]) -> dict[str, Any]:
    """The budget that speaks for the defaults: none given if that ran, else the longest."""
    ran = [g.settings for g in found if g.default and g.prior == "own"]
    return {} if {} in ran else max(ran, key=lambda s: s.get("steps", 0), default={})


def in_short(found: list[summary.Group], about: dict[str, Any], runs: list[summary.Race]) -> str:
    """The line of the index, word for word also on the page."""
    settings = headline(found, about)
    counts = []
    for method in summary.OURS:
        mine = [g for g in found if g.default and g.prior == "own" and g.contender == method]
        mine = [g for g in mine if g.settings == settings]
        best = {g.problem: summary.reference(summary.of(found, g.problem)) for g in mine}
        near = [
            summary.arrived(g, b.median, about[g.problem]["constant"])
            for g in mine
            if (b := best[g.problem]) is not None
        ]
        if near:
            counts.append(f"{sum(near)} of {len(near)} problems by {method}")
    words = f"with {budget(settings)} every seed of the defaults arrives at the best known ELBO on "
    words += " and ".join(counts)
    ratios = [run.ratio for run in runs if run.ratio is not None]
    if ratios:
        mean = summary.geometric_mean(ratios)
        words += (
            f"; to get within {summary.NEAR} nats a row of it, the fastest other library takes "
            f"{mean:.1f} times as long (geometric mean of the {len(ratios)} where both do)"
        )
    return words


# -- the page


def page(cells: list[dict[str, Any]], about: dict[str, Any]) -> tuple[str, str]:
    """The page and its line in the index."""
    found = summary.groups(cells)
    if not any(g.default for g in found):
        return f"{HEAD}\nNot run yet.\n\n{HOW}", TO_COME
    seconds_table, runs = races(found)
    short = in_short(found, about, runs)
    parts = [HEAD, f"In short: {short}.", "![ELBO over seconds](convergence.png)"]
    parts += ["The picture has for each library the best of all its settings and seeds.", HOW]
    optimum = about["linear"]["exact"]
    exact = f"The optimum of `linear` is known in closed form: {optimum:.4f} nats a row."
    parts += ["## The best known", references(found, about), exact]
    parts += ["## posterax at its defaults", BOLD]
    for prior in problems.PRIORS:
        for method in summary.OURS:
            if any(g.default and (g.contender, g.prior) == (method, prior) for g in found):
                title = f"### {method}" + (", prior scaled by the fan-in" if prior != "own" else "")
                parts += [title, defaults(found, about, method, prior)]
    parts += ["## Seconds to within 0.1 nats a row of the best", RACE, seconds_table, alone(runs)]
    parts += [reasons(cells), agreement(cells), machine(cells)]
    return "\n\n".join(part.strip() for part in parts if part) + "\n", short


def reasons(cells: list[dict[str, Any]]) -> str:
    """What was skipped or failed, and why."""
    lines = sorted(
        {
            f"- {cell['problem']}, {cell['contender']}: {cell.get('skipped') or cell.get('error')}"
            for cell in cells
            if "points" not in cell
        }
    )
    return "\n".join(["## Left out", "", *lines]) if lines else ""


def agreement(cells: list[dict[str, Any]]) -> str:
    """How far the other libraries' own ELBOs are from the judge's."""
    apart = sorted(
        abs(cell["own_per_row"] / cell["points"][-1]["per_row"] - 1)
        for cell in cells
        if "own_per_row" in cell and "per_row" in cell["points"][-1]
    )
    if not apart:
        return ""
    middle, most = (100 * share for share in (apart[len(apart) // 2], apart[-1]))
    return (
        f"The other libraries' own ELBOs differ from the judge's by {middle:.1f} % of it in the "
        f"median of {len(apart)} runs, and by {most:.0f} % at most."
    )


def machine(cells: list[dict[str, Any]]) -> str:
    """Where and with what."""
    versions: dict[str, str] = {}
    for cell in cells:
        versions |= cell.get("versions", {})
    devices = sorted({cell["device"] for cell in cells if "device" in cell})
    dates = sorted(cell["date"] for cell in cells if "date" in cell)
    listed = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    return f"Measured on {', '.join(devices)}, {dates[0]} to {dates[-1]}: {listed}."


def main() -> None:
    """Write all three."""
    cells, about = summary.load(), facts()
    write_file(FACTS, json.dumps(about, indent=1) + "\n")
    text, short = page(cells, about)
    if "convergence.png" in text:
        draw(summary.groups(cells), FIGURE)
    write_file(PAGE, text)
    index = INDEX.read_text()
    line = LINE.format(short)
    pattern = re.escape(LINE.split("|")[1]).join((r"^\|", r"\|.*\|$"))
    write_file(INDEX, re.sub(pattern, lambda _: line, index, flags=re.MULTILINE))


if __name__ == "__main__":
    main()

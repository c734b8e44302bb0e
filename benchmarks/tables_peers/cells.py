"""The Markdown tables of the report."""

from typing import Any

import numpy as np

from benchmarks.tables_peers import quoted
from benchmarks.tables_peers.contenders import CONTENDERS
from benchmarks.tables_peers.summary import OURS, TRUTH, Group, Value


def table(head: list[str], rows: list[list[str]]) -> str:
    """Numbers to the right."""
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def columns(found: list[Group], truth: bool = True) -> list[str]:
    """Everyone who has a figure or a failure, in the order of the list."""
    there = {who for g in found for who in [*g.lines, *g.failed]}
    return [who for who in CONTENDERS if who in there and (truth or who != TRUTH)]


def labels(names: list[str]) -> list[str]:
    """What they are called."""
    return [CONTENDERS[name].label for name in names]


def shown(value: Value, percent: bool = False, digits: int = 3) -> str:
    """A mean and its standard error with as many digits."""
    mean, error = (100 * v if percent else v for v in value)
    if np.isnan(mean) or abs(mean) >= 1e4:
        return f"{mean:.1e}"
    size = abs(mean) if abs(mean) > 0 else 1.0
    places = int(np.clip(digits - 1 - np.floor(np.log10(size)), 0, 3))
    after = "" if np.isnan(error) else f" ± {error:.{places}f}"
    return f"{mean:.{places}f}{after}"


def per_set(found: list[Group], what: str, percent: bool = False) -> str:
    """A row for each set; bold is the best and who is not told apart from it."""
    names, rows = columns(found), []
    for group in found:
        best, row = group.best(what), [f"{group.name} ({group.runs})"]
        for who in names:
            if who not in group.lines:
                row.append("failed" if who in group.failed else "–")
                continue
            text = shown(group.value(who, what), percent)
            apart = group.difference(who, best, what)
            tied = apart.mean <= 2 * np.nan_to_num(apart.error)
            row.append(f"**{text}**" if who != TRUTH and tied else text)
        rows.append(row)
    return table(["", *labels(names)], rows)


def wins(found: list[Group], measures: tuple[tuple[str, str], ...]) -> str:
    """How often everyone is the best, near it, or not told apart from it."""
    names, rows = columns(found, truth=False), []
    for what, label in measures:
        counts = {kind: dict.fromkeys(names, 0) for kind in ("best", "tied", "near")}
        for group in found:
            best = group.best(what)
            least = group.value(best, what).mean
            for who in group.rivals():
                mean, apart = group.value(who, what).mean, group.difference(who, best, what)
                counts["best"][who] += mean <= least
                counts["tied"][who] += apart.mean <= 2 * np.nan_to_num(apart.error)
                counts["near"][who] += mean <= 1.05 * least
        said = {"best": "best", "tied": "within two paired standard errors of the best"}
        said |= {"near": "within 5 % of the best"} if what == "error" else {}
        for kind, words in said.items():
            rows.append([f"{label}: {words}", *(str(counts[kind][who]) for who in names)])
    return table([f"sets of {len(found)}", *labels(names)], rows)


def ours_to_best(found: list[Group], measures: tuple[tuple[str, str], ...]) -> str:
    """The difference of posterax to the best other, with two paired standard errors."""
    rows = []
    for group in (g for g in found if OURS in g.lines and len(g.rivals()) > 1):
        row = [group.name]
        for what, _ in measures:
            others = [who for who in group.rivals() if who != OURS]
            best = min(others, key=lambda who: group.value(who, what).mean)
            apart = group.difference(OURS, best, what)
            after = "" if np.isnan(apart.error) else f" ± {2 * apart.error:.2g}"
            row.append(f"{apart.mean:+.3g}{after} ({CONTENDERS[best].label})")
        rows.append(row)
    return table(["", *(label for _, label in measures)], rows)


def coverage(found: list[Group]) -> str:
    """The share inside 90 % intervals over all splits, and the mean width."""
    names, rows = columns(found), []
    for group in found:
        row = [f"{group.name} ({group.test_rows:,})"]
        for who in names:
            if who not in group.lines:
                row.append("–")
                continue
            width = group.value(who, "width").mean
            row.append(f"{100 * group.pooled(who):.1f} % / {width:.3g}")
        rows.append(row)
    means = []
    for who in names:
        inside = [group.pooled(who) for group in found if who in group.lines]
        some = "" if len(inside) == len(found) else f" of {len(inside)}"
        means.append(f"{100 * np.mean(inside):.1f} %{some}" if inside else "–")
    return table(["", *labels(names)], [*rows, ["mean over sets", *means]])


def costs(found: list[Group]) -> str:
    """Seconds to fit and to predict, and the peak of memory: medians over runs."""
    names, rows = columns(found, truth=False), []
    for group in found:
        train = group.lines[next(iter(group.lines))][0]["train_rows"]
        row = [f"{group.name} ({train:,})"]
        for who in names:
            if who not in group.lines:
                row.append("failed" if who in group.failed else "–")
                continue
            each = [group.median(who, w) for w in ("fit_cpu", "predict_cpu", "peak_mib")]
            row.append(f"{each[0]:.3g} / {each[1]:.2g} s, {each[2]:.0f}")
        rows.append(row)
    return table(["", *labels(names)], rows)


def gap(found: list[Group]) -> str:
    """Test log likelihood in gaps beside what is published."""
    names, rows = columns(found), []
    for group in found:
        name, row = group.name.removesuffix(" gap"), []
        for who in names:
            known = who in group.lines
            row.append(
                shown(_negative(group.value(who, "nll_density"))) if known
                else "failed" if who in group.failed else "–"
            )  # fmt: skip
        rows.append([f"{name} ({group.runs})", *row, *(f"{v:.2f}" for v in quoted.GAP[name])])
    published = ["ensemble, published", "MFVI, published", "dropout, published"]
    return table(["", *labels(names), *published], rows)


def _negative(value: Value) -> Value:
    return Value(-value.mean, value.error)


def protocol(found: list[Group]) -> str:
    """Airfoil and bike sharing as bde has them, measured and quoted."""
    cells: dict[str, dict[str, str]] = {}
    for group in found:
        for who in columns([group]):
            label = f"{CONTENDERS[who].label}, measured here"
            cells.setdefault(label, {})[group.name] = (
                _of_protocol(group, who) if who in group.lines else "failed"
            )
    for label, *figures in quoted.BDE:
        for name, (error, nll, seconds) in zip(("airfoil", "bike sharing"), figures, strict=True):
            said = "–" if nll is None else f"{nll:.3f}"
            cells.setdefault(f"{label}, published", {})[f"bde {name}"] = (
                f"{error:.4f} / {said} / {seconds:,g}"
            )
    names = ["bde airfoil", "bde bike sharing"]
    rows = [[label, *(row.get(name, "–") for name in names)] for label, row in cells.items()]
    return table(["RMSE / NLL / seconds", "airfoil", "bike sharing"], rows)


def _of_protocol(group: Group, who: str) -> str:
    mean: dict[str, Any] = {
        w: np.mean([line[w] for line in group.lines[who]])
        for w in ("error", "nll_moments", "fit_cpu", "predict_cpu")
    }
    seconds = mean["fit_cpu"] + mean["predict_cpu"]
    return f"{mean['error']:.4f} / {mean['nll_moments']:.3f} / {seconds:.3g}"


def published() -> str:
    """What others say of the same sets; not measured here."""
    uci = [
        [name, *(f"{error:.2f} / {nll:.2f}" for error, nll in figures)]
        for name, figures in quoted.UCI.items()
    ]
    adult = [[who, f"{error:.4g} % / {nll:.3f}"] for who, error, nll in quoted.ADULT]
    return "\n\n".join(
        [
            f"{quoted.UCI_SOURCE} (RMSE / NLL of the density):",
            table(["", "deep ensemble", "MC dropout, two layers"], uci),
            f"Adult: {quoted.ADULT_SOURCE}:",
            table(["", "error / NLL"], adult),
        ]
    )

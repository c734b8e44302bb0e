"""``python -m benchmarks.tables_peers.report``: the figures of docs/results/tables_peers.md."""

import argparse
from collections import Counter
from pathlib import Path

from benchmarks.report import replace
from benchmarks.tables_peers import bars, cells, data, figure
from benchmarks.tables_peers.contenders import CONTENDERS
from benchmarks.tables_peers.store import RESULTS, ROOT, Store
from benchmarks.tables_peers.summary import OURS, Group, groups

PAGE = ROOT / "docs/results/tables_peers.md"
PICTURE = PAGE.with_suffix(".png")
VALUES = (("error", "RMSE"), ("nll", "NLL"), ("crps", "CRPS"))
LABELS = (("error", "error"), ("nll", "NLL"), ("calibration", "calibration error"))
NOT_RUN = "posterax has not been run on these sets yet."


def sections(store: Store) -> dict[str, str]:
    """Text by marker."""
    found = store.runs()
    values = groups(found, data.names("main", data.REGRESSION))
    classes = groups(found, data.names("main", data.CLASSES))
    gaps, protocol = groups(found, data.names("gap")), groups(found, data.names("bde"))
    text = {
        "bars": said(values, classes),
        "values-wins": cells.wins(values, VALUES),
        "values-error": cells.per_set(values, "error"),
        "values-nll": cells.per_set(values, "nll"),
        "values-crps": cells.per_set(values, "crps"),
        "values-inside": cells.coverage(values),
        "values-ours": cells.ours_to_best(values, VALUES),
        "classes-wins": cells.wins(classes, LABELS),
        "classes-error": cells.per_set(classes, "error", percent=True),
        "classes-nll": cells.per_set(classes, "nll"),
        "classes-calibration": cells.per_set(classes, "calibration", percent=True),
        "classes-auc": cells.per_set([g for g in classes if _two(g)], "auc_missing", percent=True),
        "classes-ours": cells.ours_to_best(classes, LABELS),
        "gap": cells.gap(gaps),
        "protocol": cells.protocol(protocol),
        "published": cells.published(),
        "costs": cells.costs([*values, *classes]),
        "about": about(store, [*values, *classes, *gaps]),
    }
    panels = [(f"Regression, {label}", values, what) for what, label in VALUES]
    panels += [(f"Classification, {label}", classes, what) for what, label in LABELS[:2]]
    figure.draw(panels, PICTURE)
    return text


def said(values: list[Group], classes: list[Group]) -> str:
    """The bars as lists."""
    found = bars.all_bars(values, classes)
    parts = [f"{task}:\n\n" + "\n".join(f"- {bar}" for bar in each) for task, each in found.items()]
    return "\n\n".join(parts) or NOT_RUN


def look(store: Store, fewest: int) -> str:
    """The bars and differences so far."""
    found = store.runs()
    values, classes = (
        [g for g in groups(found, data.names("main", task), fewest=fewest) if OURS in g.lines]
        for task in (data.REGRESSION, data.CLASSES)
    )
    tables = [cells.ours_to_best(values, VALUES), cells.ours_to_best(classes, LABELS)]
    return "\n\n".join([said(values, classes), *tables])


def about(store: Store, found: list[Group]) -> str:
    """Versions, machine, dates, and what has no figures."""
    lines = list(store.runs().values())
    versions: Counter[str] = Counter()
    for line in lines:
        versions.update(f"{k} {v}" for k, v in line.get("versions", {}).items() if k != "python")
    machines = Counter(
        f"{d['processor']}, {d['used']} of {d['cores']} cores" for d in
        (line["device"] for line in lines if "device" in line)
    )  # fmt: skip
    dates = sorted({line["date"][:10] for line in lines})
    when = " to ".join(dict.fromkeys([dates[0], dates[-1]]))
    text = [
        f"{len(lines):,} runs, {when}, each in a process of its own: "
        + "; ".join(f"{name} ({n:,} runs)" for name, n in machines.items())
        + ". Versions: "
        + ", ".join(sorted(versions))
        + "."
    ]
    failed = [
        f"- {CONTENDERS[who].label} on {group.name}: {why}"
        for group in found
        for who, why in {**group.failed, **group.few}.items()
    ]
    return "\n".join([*text, "", "No figures:", "", *failed]) if failed else text[0]


def _two(group: Group) -> bool:
    return all("auc" in line for lines in group.lines.values() for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    words = "print the bars of sets with so many runs; the page stays"
    parser.add_argument("--look", type=int, default=0, metavar="RUNS", help=words)
    options = parser.parse_args()
    if options.look:
        print(look(Store(options.results), options.look))
        return
    for marker, text in sections(Store(options.results)).items():
        replace(PAGE, marker, text or NOT_RUN)
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main()

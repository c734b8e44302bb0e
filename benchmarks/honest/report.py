"""``python -m benchmarks.honest.report``: docs/results/temperature.md and its figure.

Everything is read from ``benchmarks/results/honest.json``; what the figures mean is in ``words``.
"""

import itertools
import json
import math
from collections.abc import Iterable, Sequence

import numpy as np

from benchmarks.honest import data, summary, words
from benchmarks.honest.contenders import COLD, PLAIN
from benchmarks.honest.figure import PRIORS, draw
from benchmarks.honest.run import RESULTS, ROOT
from benchmarks.honest.summary import Found
from posterax._util.writing import write_file

PAGE = ROOT / "docs/results/temperature.md"
FIGURE = PAGE.with_suffix(".png")
NAMES = {
    "second": "a second long run", "MCLMC": "`px.MCLMC()`",
    "MaximumAPosteriori": "`px.MaximumAPosteriori()`", "DeepEnsemble": "`px.DeepEnsemble()`",
    "BayesByBackprop": "`px.BayesByBackprop()`", "IVON": "`px.IVON()`",
    "low_rank": '`px.BayesByBackprop(family="low_rank")`',
    "full": '`px.BayesByBackprop(family="full")`',
    "ensemble": "`px.DeepEnsemble(inside=px.BayesByBackprop())`", "Laplace": "`px.Laplace()`",
    "MCDropout": "`px.MCDropout()`", "SWAG": "`px.SWAG()`",
}  # fmt: skip
SHOWN = ("MCLMC", *PLAIN)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown, the first column to the left."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float | None, digits: int = 2) -> str:
    """A number with a real minus sign; a dash where there is none."""
    return "–" if value is None or math.isnan(value) else f"{value:.{digits}f}".replace("-", "−")


def scores(found: Found, prior: str, path: str) -> str:
    """A score of every method on every data set, mean ± deviation over the splits."""
    rows = []
    for method in SHOWN:
        cells = (
            summary.over_splits(found, path, data=name, prior=prior, method=method).text()
            for name in data.NAMES
        )
        rows.append([NAMES[method], *cells])
    return table(["", *data.NAMES], rows)


def seconds(found: Found, method: str) -> tuple[float, float]:
    """The median over all fits with their programs compiled, and of those that came first."""
    fits = summary.of(found, method=method, temperature=1.0)
    warm = [e["seconds"] for e in fits if not e["first"]]
    first = [e["seconds"] for e in fits if e["first"]]
    return tuple(float(np.median(v)) if v else float("nan") for v in (warm, first))


def distances(found: Found, prior: str, classes: bool) -> str:
    """Every method's distance to the long run on the first split: median and range over sets."""
    names = tuple(data.CLASSES) if classes else summary.TABLES
    kinds = ("variation", "information_off") if classes else ("mean", "log_ratio", "log_ratio_rms")
    rows = []
    for method in ("second", *SHOWN, "full"):
        where = {"prior": prior, "method": method}
        cells = [
            summary.middle(summary.on_first(found, names, f"distance.{place}.{kind}", **where))
            for kind in kinds
            for place in ("test", "far")
        ]
        if any(cell != "–" for cell in cells):
            rows.append([NAMES[method], *cells])
    shown = words.CLASS_KINDS if classes else words.KINDS
    return table(["", *(f"{kind}, {place}" for kind in shown for place in ("test", "far"))], rows)


def choice(found: Found) -> str:
    """NLL above that of the long run on validation and on test rows, and what a fit costs."""
    rows = []
    for method in SHOWN:
        cells = [
            summary.middle(summary.excess(found, part, method, prior))
            for prior in PRIORS
            for part in ("validation", "test")
        ]
        ranks = [number(summary.rank(found, PLAIN, method, prior), 1) for prior in PRIORS]
        rows.append([NAMES[method], *cells, *ranks, *map(number, seconds(found, method))])
    head = [f"{p}, {part}" for p in PRIORS.values() for part in ("validation", "test")]
    head += [f"rank, {p}" for p in PRIORS.values()]
    return table(["", *head, "seconds", "first fit"], rows)


def temperatures(found: Found, prior: str) -> str:
    """The temperature that validation rows choose, and what test rows say of it (first split)."""
    rows = []
    for name in data.NAMES:
        cells = []
        for method in COLD[:2]:
            t = summary.best_temperature(found, name, prior, method)
            where = {"data": name, "prior": prior, "method": method, "split": 0}
            for at in (1.0, t):
                told = summary.over_splits(found, "test.nll", temperature=at, **where)
                cells.append(told.text())
            cells[-1] += "" if t is None else f" (T = {t:g})"
        own = {"data": name, "prior": prior, "method": "reference"}
        cells.append(summary.over_splits(found, "test.nll", **own).text())
        rows.append([name, *cells])
    head = [f"{m}, {at}" for m in COLD[:2] for at in ("T = 1", "chosen T")]
    return table(["", *head, "long run, T = 1"], rows)


def calibration(found: Found, prior: str) -> str:
    """Error and calibration over temperature: median and range over data sets, first split."""
    rows = []
    kinds = (("tables, curve", summary.TABLES), ("classes", tuple(data.CLASSES)))
    for kind, names in kinds:
        for path, method in itertools.product(("error", "calibration"), COLD):
            cells = [
                summary.middle(
                    summary.on_first(
                        found, names, f"test.{path}", prior=prior, method=method, temperature=t
                    )
                )
                for t in summary.ALL_TEMPERATURES
            ]
            rows.append([words.SCORES[kind, path], NAMES[method], *cells])
    return table(["", "", *(f"T = {t:g}" for t in summary.ALL_TEMPERATURES)], rows)


def parts(found: Found, prior: str) -> str:
    """Test NLL of the first split: short, settled, long, richer families, the truth, colder."""
    rows = []
    for name in data.NAMES:
        told = summary.parts(found, name, prior)
        gain = summary.elbo_gain(found, name, prior)
        rows.append([name, *map(number, told.values()), number(gain, 3)])
    return table(["", *words.PARTS, "ELBO a row that 4 × steps gain"], rows)


def chains(found: Found) -> str:
    """How well the chains of the long runs agree on predictions, and what they cost."""
    rows = []
    for name in data.NAMES:
        cells = []
        for prior in PRIORS:
            for key, digits in (("steps", 0), ("rhat_median", 3), ("rhat_max", 2), ("seconds", 0)):
                seen = summary.on_first(found, [name], key, prior=prior, method="reference")
                cells.append(summary.middle(seen, digits))
        rows.append([name, *cells])
    kinds = ("draws", "R-hat, median", "largest", "seconds")
    return table(["", *(f"{k}, {p}" for p in PRIORS.values() for k in kinds)], rows)


def silence(found: Found) -> str:
    """How often a diagnosis finds something, by method."""
    rows = []
    for method in ("MCLMC", *PLAIN, "full"):
        fits = summary.of(found, method=method, temperature=1.0)
        kinds = sorted({k for e in fits for k in e["kinds"]})
        counts = [f"{k} {sum(k in e['kinds'] for e in fits)}" for k in kinds]
        rows.append([NAMES[method], str(len(fits)), ", ".join(counts) or "nothing"])
    return table(["", "fits", "found by `diagnose()`"], rows)


def page(found: Found) -> str:
    """The page."""
    made = {"choice": choice(found), "chains": chains(found), "silence": silence(found)}
    for prior in PRIORS:
        made[f"nll_{prior}"] = scores(found, prior, "test.nll")
        made[f"distance_{prior}"] = distances(found, prior, classes=False)
        made[f"classes_{prior}"] = distances(found, prior, classes=True)
        made[f"temperature_{prior}"] = temperatures(found, prior)
        made[f"calibration_{prior}"] = calibration(found, prior)
        made[f"parts_{prior}"] = parts(found, prior)
    made["fits"] = f"{len(found):,}"
    made["minutes"] = f"{sum(e.get('seconds', 0) for e in found.values()) / 60:.0f}"
    return words.PAGE.format(**made)


def main() -> None:
    """Write page and figure."""
    found = json.loads(RESULTS.read_text())
    draw(found, FIGURE)
    write_file(PAGE, page(found))


if __name__ == "__main__":
    main()

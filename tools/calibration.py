"""The page of docs/calibration.md from the figures that the tests recorded.

``make test-all`` runs the tests with the environment variable ``CALIBRATION`` naming a directory,
in which each figure becomes a file, and then ``python -m tools.calibration DIRECTORY``.
"""

import datetime
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from posterax._methods import METHODS

ROOT = Path(__file__).parents[1]
STORED = ROOT / "docs" / "data" / "calibration.json"
PAGE = ROOT / "docs" / "calibration.md"
VERSIONS = ("posterax", "jax", "jaxlib", "numpy", "scipy")
WORDS = """\
# Are the answers right?

<!-- written by tools/calibration.py: edit the words there -->

Every method is compared with an answer that is known exactly. `make test-all` computes these
figures, fails if one is beyond its bound, and writes this page.

Three kinds of comparison are made:

- **A linear model** with three correlated weights, 20 rows and known noise. Its posterior has a
  closed form. So have the best independent Gaussians, the mode and least squares, which are what
  some methods look for instead. A mean is compared in standard deviations of the exact answer; a
  deviation as a share of the exact one; and the evidence in nats. Of the weights, the worst counts.
- **Ranks** (simulation-based calibration, Talts et al. 2018): true parameters are drawn from the
  prior and data from the likelihood, 320 times. The rank of the truth among 15 draws of its
  posterior is then uniform. The figure is the smallest p-value of a chi-square test over the
  model's three parameters: an intercept, a slope and the learned noise. A low value would be bad;
  any value above the bound is fine.
- **A sum by hand** over all states of discrete weights.

Each method has settings with which it converges on this problem, in `tests/test_calibration.py`:
more steps, samples or chains than the defaults where those were not enough. So the figures say
what a method arrives at, and not how quickly. There is one seed.

Methods that approximate are not right in general, even if they reach what they look for. Bayes by
Backprop and IVON find the best *independent* Gaussians. Dropout has a distribution of its own. A
deep ensemble is a sample of the posterior only with anchors and noisy targets, and then only for
linear models. SWAG's deviations follow the steps of SGD and not the posterior, so only its mean is
compared here (`tests/test_swag.py` compares the deviations with the law of SGD). Maximum
likelihood, maximum a posteriori and simulated annealing have no deviations.
[Exact or fast](gallery/exact_or_fast.md) shows how far approximations are from the posterior of a
network.
"""
FIRST = {"mean": 0, "deviation": 1}


def place(row: dict[str, Any]) -> tuple[int, int, str]:
    """Where a row stands: by its method, then means, deviations and the rest."""
    kind = FIRST.get(row["compared"].split()[0], 2)
    return list(METHODS).index(row["method"]), kind, row["compared"]


def page(stored: dict[str, Any]) -> str:
    """The words and a table of the figures."""
    rows = sorted(stored["rows"], key=place)
    lines = [
        "| method | what is compared | figure | bound | seed |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    for row in rows:
        sign = "≤" if "most" in row else "≥"
        figure = f"{row['figure']:.2g}" if row["figure"] >= 1e-4 else "< 0.0001"
        bound = f"{sign} {row['most' if 'most' in row else 'least']:.2g}"
        cells = (
            row["method"],
            row["compared"],
            *(c.replace(" ", "\u00a0") for c in (figure, bound)),
        )
        lines.append(f"| `{cells[0]}` | {' | '.join((*cells[1:], str(row['seed'])))} |")
    versions = ", ".join(f"{name} {number}" for name, number in stored["versions"].items())
    made = f"Computed on {stored['date']} on {stored['machine']} with {versions}."
    return "\n".join([WORDS, *lines, "", made, ""])


def collect(folder: Path) -> list[dict[str, Any]]:
    """The figures of one run; a method without any is an error."""
    rows = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    missing = sorted(set(METHODS) - {row["method"] for row in rows})
    if missing:
        raise SystemExit(f"no figures of {', '.join(missing)} in {folder}: run make test-all")
    return rows


def main(folder: str) -> None:
    import jax

    stored = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{jax.devices()[0].device_kind}, Python {platform.python_version()}",
        "versions": {name: version(name) for name in VERSIONS},
        "rows": collect(Path(folder)),
    }
    STORED.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(page(stored))
    print(f"{len(stored['rows'])} figures in {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main(*sys.argv[1:])

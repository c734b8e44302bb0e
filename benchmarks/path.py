"""``python -m benchmarks.path``: held-out likelihood along the way of a variational fit.

A higher ELBO may predict worse: the best independent Gaussians switch units off. Bayes by Backprop
and IVON on Boston housing, concrete and scikit-learn's digits, as in ``benchmarks.defaults``: fits
of 496, 992 … steps up to where ``epochs="auto"`` ends, each with its ELBO, the NLL on test rows and
the share of active units; and what ``diagnose()`` says of the last. For digits also the epistemic
part on negated ones, inputs of no meaning. Results go to ``benchmarks/results/path.json``.
"""

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import posterax as px
from benchmarks.defaults import FILES, NAMES, split
from posterax._util.writing import write_file

RESULTS = Path(__file__).parent / "results" / "path.json"
METHODS = ("BayesByBackprop", "IVON")
SPLITS = 5
SHORTEST = 496
DRAWS = 200


def model_of(name: str, number: int, features: int) -> px.Model:
    """A hidden layer of 50 units (digits: 100), N(0, 1), learned noise."""
    outputs, width = (1, 50) if name in FILES else (10, 100)
    network = px.networks.MLP(features, outputs, (width,), key=number)
    likelihood: Any = px.likelihoods.Categorical()
    if name in FILES:
        likelihood = px.likelihoods.Gaussian("learned")
    return px.Model(network, px.priors.Gaussian(1.0), likelihood)


def one(method: str, name: str, number: int, steps: int | None) -> dict[str, Any]:
    """A fit of so many steps, or of as many as it takes."""
    data = split(name, number, True)
    posterior = px.fit(
        model_of(name, number, data.x.shape[1]), (data.x, data.y), getattr(px, method)(),
        steps=steps, key=number, progress=False,
    )  # fmt: skip
    predictive = posterior.predict(data.x_held, samples=DRAWS, key=0)
    measures, bound = (posterior.record.settings[n] for n in ("measures", "bound"))
    found = {
        "steps": posterior.record.settings["steps"],
        "elbo_per_row": bound["value"] / len(data.y),
        "nll": -float(np.mean(predictive.log_prob(data.y_held))),
        "active_units": measures.get("active_units"),
        "kinds": list(posterior.diagnose().kinds),
    }
    if name not in FILES:
        negated = posterior.predict(1 - data.x_held, samples=DRAWS, key=0)
        found["negated"] = float(np.mean(negated.epistemic))
    return found


def path(method: str, name: str, number: int) -> list[dict[str, Any]]:
    """The fits of a split, the settled one last."""
    last = one(method, name, number, None)
    shorter, steps = [], SHORTEST
    while steps < last["steps"]:
        shorter.append(one(method, name, number, steps))
        steps *= 2
    return [*shorter, last]


def markdown(found: dict[str, Any]) -> str:
    """The best of the way beside its end, over splits."""
    lines = ["| | data | NLL at the best step | at the end | largest loss | collapsed |"]
    lines.append("| --- | --- | ---: | ---: | ---: | ---: |")
    for method in METHODS:
        for name in NAMES:
            ways = [w for key, w in found.items() if key.startswith(f"{method} | {name} |")]
            if not ways:
                continue
            best = [min(fit["nll"] for fit in way) for way in ways]
            end = [way[-1]["nll"] for way in ways]
            said = sum("collapsed" in way[-1]["kinds"] for way in ways)
            loss = max(e - b for b, e in zip(best, end, strict=True))
            lines.append(
                f"| {method} | {name} | {np.mean(best):.3f} | {np.mean(end):.3f} | {loss:.3f} "
                f"| {said} of {len(ways)} |"
            )
    negated = {m: [w[-1]["negated"] for k, w in found.items() if k.startswith(f"{m} | digits")]
               for m in METHODS}  # fmt: skip
    for method, values in negated.items():
        if values:
            shown = ", ".join(f"{v:.2f}" for v in values)
            lines.append(f"\n{method}, epistemic part on negated digits, split by split: {shown}")
    return "\n".join(lines)


def main() -> None:
    """Fit what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--splits", type=int, default=SPLITS)
    given = parser.parse_args()
    warnings.simplefilter("ignore", px.ConvergenceWarning)
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for method in given.methods:
        for name in NAMES:
            for number in range(given.splits):
                key = f"{method} | {name} | {number}"
                if key not in found:
                    found[key] = path(method, name, number)
                    write_file(RESULTS, json.dumps(found, indent=1) + "\n")
    print(markdown(found))


if __name__ == "__main__":
    main()

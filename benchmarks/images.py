"""``python -m benchmarks.images``: LeNet-5 on MNIST and Fashion-MNIST, by three methods.

``study`` compares settings of Bayes by Backprop on the last 10,000 training images, having learned
from the other 50,000. ``final`` learns from all 60,000 with the settings chosen, three seeds, and
scores the test images once; it writes ``benchmarks/results/images.json``, from which
``python -m benchmarks.images report`` makes the table of docs/results/images.md.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

import posterax as px
from benchmarks.report import ROOT, replace
from benchmarks.tables import facts
from posterax._util.writing import write_file

RESULTS = Path(__file__).parent / "results"
SETS = {"MNIST": "mnist", "Fashion-MNIST": "fashion_mnist"}
HELD, BATCH, SAMPLES = 10_000, 256, 64
AUGMENT: dict[str, Any] = {
    "nothing": None,
    "flip": px.augment.Flip(),
    "shift 1": px.augment.Shift(1),
    "shift 2": px.augment.Shift(2),
    "shift 1, flip": (px.augment.Shift(1), px.augment.Flip()),
}
CHOSEN_AUGMENT = {"MNIST": "shift 2", "Fashion-MNIST": "shift 1, flip"}
CHOSEN: dict[str, Any] = {"estimator": "flipout", "scale": 1.0, "temperature": 0.3}
STUDY_AUGMENT = {
    "Fashion-MNIST": ("flip", "shift 1, flip", "nothing"),
    "MNIST": ("shift 1", "shift 2"),
}
STUDY: dict[str, dict[str, Any]] = {
    "N(0, 0.3²), temperature 0.1": {"scale": 0.3, "temperature": 0.1},
    "N(0, 0.3²), temperature 0.03": {"scale": 0.3, "temperature": 0.03},
    "N(0, 0.3²), temperature 0.3": {"scale": 0.3, "temperature": 0.3},
    "N(0, 1), temperature 0.1": {"scale": 1.0, "temperature": 0.1},
    "N(0, 1), temperature 0.3": {"scale": 1.0, "temperature": 0.3},
    "deterministic": {},
}


def images(name: str) -> tuple[Any, Any, Any, Any]:
    """Pixels as bytes, labels as integers: to learn from, and to test."""
    folder = os.environ.get("POSTERAX_DATA")
    if not folder:
        raise SystemExit("POSTERAX_DATA must name the directory that holds mnist.npz")
    stored = np.load(Path(folder) / f"{SETS[name]}.npz", allow_pickle=False)
    x, y, x_test, y_test = (stored[k] for k in ("x_train", "y_train", "x_test", "y_test"))
    return x, y.astype(np.int32), x_test, y_test.astype(np.int32)


def run(
    name: str, method: str, seed: int, data: tuple[Any, Any, Any, Any], epochs: int, **options: Any
) -> dict[str, float]:
    """One fit and its scores on the second half of ``data``."""
    x, y, x_held, y_held = data
    settings = CHOSEN | options
    model = px.Model(
        px.networks.LeNet5(key=seed),
        px.priors.Gaussian(settings["scale"]),
        px.likelihoods.Categorical(),
    )
    methods = {
        "Bayes by Backprop": px.BayesByBackprop(
            settings["estimator"], temperature=settings["temperature"], learning_rate=2e-3
        ),
        "deterministic": px.MaximumLikelihood(1e-3),
        "ensemble of 5": px.DeepEnsemble(5, "ml"),
    }
    augment = AUGMENT[settings.get("augment", CHOSEN_AUGMENT[name])]
    began = time.perf_counter()
    posterior = px.fit(
        model, (x, y), methods[method],
        epochs=epochs, batch_size=BATCH, augment=augment, key=seed, progress=False,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    predictive = posterior.predict(x_held, samples=SAMPLES if "Bayes" in method else None, key=seed)
    return {
        "accuracy": float(np.mean(predictive.mode == y_held)),
        "nll": px.metrics.negative_log_likelihood(predictive, y_held),
        "calibration_error": px.metrics.expected_calibration_error(predictive.mean, y_held),
        "seconds": seconds,
    }


def study(epochs: int, names: list[str]) -> dict[str, Any]:
    """Every candidate on held-out training images, one seed."""
    results: dict[str, Any] = {}
    for name in names:
        x, y, _, _ = images(name)
        data = x[:-HELD], y[:-HELD], x[-HELD:], y[-HELD:]
        for augment in STUDY_AUGMENT[name]:
            for candidate, options in STUDY.items():
                method = "deterministic" if candidate == "deterministic" else "Bayes by Backprop"
                scores = run(name, method, 0, data, epochs, augment=augment, **options)
                results.setdefault(candidate, {})[f"{name}, {augment}"] = scores
                print(name, augment, candidate, scores, flush=True)
    return results


def final(epochs: int, names: list[str], seeds: int) -> dict[str, Any]:
    """The chosen settings on the test images."""
    results: dict[str, Any] = {}
    for name in names:
        data = images(name)
        for method in ("Bayes by Backprop", "deterministic", "ensemble of 5"):
            for seed in range(seeds):
                scores = run(name, method, seed, data, epochs)
                results.setdefault(name, {}).setdefault(method, []).append(scores)
                print(name, method, seed, scores, flush=True)
    return results


def markdown(results: dict[str, Any]) -> str:
    """Mean and deviation over the seeds."""
    lines = [
        "| | method | accuracy | NLL | calibration error | seconds |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for name, methods in results.items():
        for method, runs in methods.items():
            mean = {k: np.mean([r[k] for r in runs]) for k in runs[0]}
            spread = np.std([r["accuracy"] for r in runs])
            lines.append(
                f"| {name} | {method} | {100 * mean['accuracy']:.2f} ± {100 * spread:.2f} % | "
                f"{mean['nll']:.4f} | {100 * mean['calibration_error']:.2f} % | "
                f"{mean['seconds']:.0f} |"
            )
    return "\n".join(lines)


def study_markdown(results: dict[str, Any]) -> str:
    """Accuracy / NLL / calibration error of every candidate."""
    names = list(next(iter(results.values())))
    lines = ["| | " + " | ".join(names) + " |", "| --- |" + " ---: |" * len(names)]
    for candidate, by_set in results.items():
        cells = [
            f"{100 * s['accuracy']:.2f} % / {s['nll']:.4f} / {100 * s['calibration_error']:.2f} %"
            for s in by_set.values()
        ]
        lines.append(f"| {candidate} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["study", "final", "report"])
    parser.add_argument("--epochs", type=int, default=120)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    page = ROOT / "docs/results/images.md"
    if options.what == "report":
        final_results = json.loads((RESULTS / "images.json").read_text())["results"]
        replace(page, "images", markdown(final_results))
        found = json.loads((RESULTS / "images-study.json").read_text())["results"]
        replace(page, "images-study", study_markdown(found))
        return
    if options.what == "study":
        path, results = options.out / "images-study.json", study(options.epochs, options.sets)
    else:
        path = options.out / "images.json"
        results = final(options.epochs, options.sets, options.seeds)
    settings = {"epochs": options.epochs, "batch_size": BATCH, "samples": SAMPLES, **CHOSEN}
    write_file(
        path, json.dumps(facts() | {"settings": settings, "results": results}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()

"""``python -m benchmarks.defaults``: how long and how fast to learn when nothing is set.

Five methods on Boston housing, concrete and scikit-learn's digits, standardised, with a hidden
layer of 50 units (digits: 100), the prior N(0, 1) and learned noise. Learning rates and steps, 24
settings, are compared on validation rows inside the training rows of three splits. Then what
``px.fit`` does with nothing set and the best of the 24 on those rows are scored on the test rows of
ten splits. Results are added to ``benchmarks/results/defaults.json`` as they come: the same call
goes on where it was.
"""

import argparse
import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn import datasets
from sklearn.model_selection import train_test_split

import posterax as px
from posterax._util.writing import write_file

RESULTS = Path(__file__).parent / "results" / "defaults.json"
FILES = {"Boston": "bostonHousing", "concrete": "concrete"}
NAMES = ("Boston", "concrete", "digits")
RATES = (3e-4, 1e-3, 3e-3, 1e-2)
STEPS = (400, 1000, 2000, 5000, 10_000, 20_000)
PRIORS = {"N(0, 1)": False, "N(0, 1/fan-in)": True}  # of earlier searches
VALIDATION_SPLITS, TEST_SPLITS = 3, 10
METHODS = {
    "MaximumAPosteriori": px.MaximumAPosteriori,
    "Laplace": lambda rate: px.Laplace(learning_rate=rate),
    "MCDropout": lambda rate: px.MCDropout(learning_rate=rate),
    "SWAG": lambda rate: px.SWAG(training=px.MaximumAPosteriori(rate)),
    "DeepEnsemble": lambda rate: px.DeepEnsemble(learning_rate=rate),
}


class Split(NamedTuple):
    """Rows to learn from and rows to score, standardised by the first."""

    x: np.ndarray
    y: np.ndarray
    x_held: np.ndarray
    y_held: np.ndarray


def split(name: str, number: int, test: bool) -> Split:
    """A split of a data set: its test rows, or a fifth of its training rows."""
    if name in FILES:
        folder = Path(os.environ["POSTERAX_DATA"])
        stored = np.load(folder / "uci" / f"{FILES[name]}.npz", allow_pickle=False)
        x, y = stored["x"], stored["y"]
        rows, held = stored[f"train_idx_{number:02d}"], stored[f"test_idx_{number:02d}"]
    else:
        x, y = datasets.load_digits(return_X_y=True)
        rows, held = train_test_split(
            np.arange(len(y)), test_size=0.2, random_state=number, stratify=y
        )
    if not test:
        labels = None if name in FILES else y[rows]
        rows, held = train_test_split(
            rows, test_size=0.2, random_state=1000 + number, stratify=labels
        )

    def scaled(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, deviation = values[rows].mean(0), values[rows].std(0)
        deviation = np.where(deviation > 1e-9, deviation, 1)
        both = (values[rows] - mean) / deviation, (values[held] - mean) / deviation
        return both[0].astype("float32"), both[1].astype("float32")

    if name in FILES:
        (x_train, x_held), (y_train, y_held) = scaled(x), scaled(y)
        return Split(x_train, y_train, x_held, y_held)
    pixels = (x / 16).astype("float32")
    return Split(pixels[rows], y[rows], pixels[held], y[held])


def score(
    method: str,
    name: str,
    number: int,
    test: bool,
    rate: float | None,
    steps: int | None,
    prior: str,
) -> dict[str, float]:
    """Held-out NLL in nats of one fit, and its seconds; without a rate, with nothing set."""
    data = split(name, number, test)
    network = px.networks.MLP(
        data.x.shape[1], 1 if name in FILES else 10, (50,) if name in FILES else (100,), key=number
    )
    likelihood: Any = px.likelihoods.Categorical()
    if name in FILES:
        likelihood = px.likelihoods.Gaussian("learned")
    model = px.Model(network, px.priors.Gaussian(1.0, fan_in=PRIORS[prior]), likelihood)
    made = METHODS[method](rate) if rate else getattr(px, method)()
    began = time.perf_counter()
    posterior = px.fit(model, (data.x, data.y), made, steps=steps, key=number, progress=False)
    nll = -np.mean(posterior.predict(data.x_held, samples=100, key=0).log_prob(data.y_held))
    return {"nll": float(nll), "seconds": round(time.perf_counter() - began, 2)}


def settings() -> Iterator[tuple[float, int, str]]:
    """All that are compared."""
    yield from itertools.product(RATES, STEPS, ["N(0, 1)"])


def label(*parts: Any) -> str:
    """The name of a fit in the results."""
    return " | ".join(map(str, parts))


def best(found: dict[str, Any], method: str, name: str) -> tuple[float, int, str]:
    """The setting with the smallest mean NLL over the validation splits."""

    def mean(setting: tuple[float, int, str]) -> float:
        fits = (label("validation", method, name, *setting, i) for i in range(VALIDATION_SPLITS))
        return float(np.mean([found[fit]["nll"] for fit in fits]))

    return min(settings(), key=mean)


def jobs(found: dict[str, Any], methods: list[str]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """What is still to be fitted: by name, and the arguments of ``score``."""
    for method, name in itertools.product(methods, NAMES):
        for setting, i in itertools.product(settings(), range(VALIDATION_SPLITS)):
            yield label("validation", method, name, *setting, i), (method, name, i, False, *setting)
    for method, name, i in itertools.product(methods, NAMES, range(TEST_SPLITS)):
        default = None, None, "N(0, 1)"
        yield label("test", method, name, "default", i), (method, name, i, True, *default)
        chosen = best(found, method, name)
        yield label("test", method, name, *chosen, i), (method, name, i, True, *chosen)


def markdown(found: dict[str, Any], methods: list[str]) -> str:
    """Test NLL with nothing set, and of the best of all settings on validation rows."""
    lines = ["| | data | with nothing set | best on validation rows | its setting |"]
    lines.append("| --- | --- | ---: | ---: | --- |")
    for method, name in itertools.product(methods, NAMES):
        chosen = best(found, method, name)
        nlls = [
            np.mean([found[label("test", method, name, *s, i)]["nll"] for i in range(TEST_SPLITS)])
            for s in (("default",), chosen)
        ]
        shown = "{:g}, {} steps, {}".format(*chosen)
        lines.append(f"| {method} | {name} | {nlls[0]:.3f} | {nlls[1]:.3f} | {shown} |")
    return "\n".join(lines)


def main() -> None:
    """Fit what is missing, within the time that is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--seconds", type=float, default=float("inf"))
    given = parser.parse_args()
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    began, saved = time.perf_counter(), time.perf_counter()
    for fit, arguments in jobs(found, given.methods):
        if fit in found:
            continue
        if time.perf_counter() - began > given.seconds:
            break
        found[fit] = score(*arguments)
        if time.perf_counter() - saved > 10:
            save(found)
            saved = time.perf_counter()
    else:
        print(markdown(found, given.methods))
    save(found)


def save(found: dict[str, Any]) -> None:
    """Write the results, whole or not at all."""
    write_file(RESULTS, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
